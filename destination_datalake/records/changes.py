"""What a value comes out as, and what is noted of one that could not be kept as it was sent.

A coercer is the careful rule for one value: a value that fits its column comes out exactly as it was sent. One that
does not comes out as null (or cut, where the column keeps less than was sent), with a `ValueChange` that says so. The
source of the rules is the protocol's table of types; docs/schema/types.md has ours.

What a value comes out as is what `pyarrow.array(values, arrow_type(widest(column.type)))` takes: int, float,
decimal.Decimal, str, bool, days since 1970-01-01 for `Date`, microseconds since 1970-01-01T00:00 (UTC when zoned) for
`Timestamp`, a dict by `Field.name` for `Struct`, a list for `List`.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.columns import CHANGE
from destination_datalake.schema.types import List

Value = None | bool | int | float | decimal.Decimal | str | dict[str, "Value"] | list["Value"]

NULLED = "NULLED"
TRUNCATED = "TRUNCATED"
SERIALIZATION_ERROR = "DESTINATION_SERIALIZATION_ERROR"
FIELD_SIZE_LIMITATION = "DESTINATION_FIELD_SIZE_LIMITATION"

MOST_CHANGES = 10_000
"""The most changed values of one record that are noted one by one; more would say the same and cost memory."""


@dataclass(frozen=True, slots=True)
class ValueChange:
    """An entry of `_airbyte_meta.changes`: the path in the record (source keys joined by `.`), what happened, why.

    `original` is the JSON text that the value was received as; None for a change that the source itself reports. It
    does not count when two changes are compared, and is never shown.
    """

    field: str | None
    change: str | None
    reason: str | None
    original: bytes | None = dataclass_field(default=None, compare=False, repr=False)


class Floats(Enum):
    """Which numbers a float column keeps: JSON files have no NaN and no infinities."""

    ANY = "any"
    FINITE = "finite"


# --- Coercers -------------------------------------------------------------------------------------------------------

Coercer = Callable[[bytes, list[ValueChange]], Value]
"""From a value's JSON text (valid, without white space around it) to the value; its changes are appended to the list.

The paths of the changes are relative to the value.
"""


class TooManyChanges(Exception):
    """A record has so many changed values that the column is nulled as a whole."""


def nulled(raw: bytes, changes: list[ValueChange], reason: str) -> Value:
    """Return null, and note that the JSON text became it."""
    changes.append(ValueChange("", NULLED, reason, raw))
    return None


def bounded(coercer: Coercer) -> Coercer:
    """Return the coercer, with a value nulled as a whole for which it raises TooManyChanges."""

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        before = len(changes)
        try:
            return coercer(raw, changes)
        except TooManyChanges:
            del changes[before:]
            return nulled(raw, changes, SERIALIZATION_ERROR)

    return coerce


def below(step: str, coercer: Coercer) -> Coercer:
    """Return the coercer, with a step put before the paths of its changes."""

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        before = len(changes)
        value = coercer(raw, changes)
        if len(changes) != before:
            put_below(step, changes, before)
        return value

    return coerce


def put_below(step: str, changes: list[ValueChange], start: int) -> None:
    """Put a step before the paths of the changes from `start` on."""
    for i in range(start, len(changes)):
        inner = changes[i]
        path = f"{step}.{inner.field}" if inner.field else step
        changes[i] = ValueChange(path, inner.change, inner.reason, inner.original)


def path_step(key: str) -> str:
    """Return a key as one step of a `ValueChange.field`: with a `?` for each lone surrogate, as UTF-8 has none."""
    return key.encode("utf-8", "replace").decode()


# --- Changes in Arrow -----------------------------------------------------------------------------------------------

_CHANGE_TYPE: Any = arrow_type(CHANGE)
CHANGES_TYPE = arrow_type(List(CHANGE))


def change_lists(rows: int, by_row: Iterable[tuple[int, Sequence[ValueChange]]]) -> pa.Array[Any]:
    """Return the changes of so many rows, as CHANGES_TYPE. `by_row` has those of each row with any, ascending."""
    entries: list[ValueChange] = []
    offsets = np.zeros(rows + 1, np.int32)
    for row, changes in by_row:
        if changes:
            entries += changes
            offsets[row + 1] = len(changes)
    np.cumsum(offsets, out=offsets)
    members = [[getattr(change, name) for change in entries] for name in ("field", "change", "reason")]
    arrays = [pa.array(values, pa.string()) for values in members]
    structs: Any = pa.StructArray.from_arrays(arrays, fields=list(_CHANGE_TYPE))
    return changes_array(pa.array(offsets), structs)


def changes_array(offsets: Any, entries: Any) -> pa.Array[Any]:
    """Return an array of CHANGES_TYPE by its parts."""
    return pa.ListArray.from_arrays(offsets, entries, type=CHANGES_TYPE)
