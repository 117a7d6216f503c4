"""Fields of objects as columns of their own (`nested: flatten`): taken out of the objects that were read, vectorised.

So whatever is in an object, it is read by the rules of objects, and its fields are what they would be in a struct.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from destination_datalake.schema.columns import RecordFields


def take_columns(arrays: Sequence[Any], record: RecordFields) -> list[Any]:
    """Return the columns' values from those of the record's fields; where an object is null, its fields are."""
    opened: dict[tuple[int, ...], list[Any]] = {(): [*arrays]}

    def members(position: tuple[int, ...]) -> list[Any]:
        if position not in opened:
            *around, index = position
            opened[position] = members(tuple(around))[index].flatten()  # With the objects' validity.
        return opened[position]

    return [members(position[:-1])[position[-1]] for position in record.positions]
