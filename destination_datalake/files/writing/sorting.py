"""The order of rows within files (Iceberg spec: sorting; NaN is above all numbers)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.partitioning.grouping import source_values
from destination_datalake.partitioning.spec import SortField, SortOrder
from destination_datalake.partitioning.transforms import transformed


def in_order(table: pa.Table, order: SortOrder) -> pa.Table:
    """Return the rows in order; rows with equal keys stay as they were to each other.

    Texts are compared by code point. A source that the table does not have is null in all rows. The table itself is
    returned if it is in order already.
    """
    positions = sorted_positions(table, order)
    if (positions[1:] > positions[:-1]).all():
        return table
    return table.take(positions)


def sorted_positions(table: pa.Table, order: SortOrder) -> npt.NDArray[np.uint64]:
    """Return the positions of the rows in order; those with equal keys are in the order of the table."""
    keys: dict[str, pa.Array[Any]] = {}
    directions: list[tuple[str, str]] = []
    for number, field in enumerate(order.fields):
        for name, key, direction in _keys(table, field):
            keys[f"{number}{name}"] = key
            directions.append((f"{number}{name}", direction))
    if not directions:
        return np.arange(table.num_rows, dtype=np.uint64)
    indices: Any = pc.sort_indices(pa.table(keys), sort_keys=directions)  # type: ignore[arg-type]
    positions: npt.NDArray[np.uint64] = indices.to_numpy()
    return positions


def _keys(table: pa.Table, field: SortField) -> list[tuple[str, Any, str]]:
    """Return names, values and directions of the keys that Arrow sorts by for one field of the order.

    Arrow has one placement of nulls for all keys, and puts NaN beside the nulls: what is null or NaN is a key itself.
    """
    values: Any = transformed(source_values(table, field.source), field.transform)
    direction = "ascending" if field.ascending else "descending"
    keys = []
    if values.null_count:
        keys.append(("null", values.is_null(), "descending" if field.nulls_first else "ascending"))
    if values.null_count == len(values):
        return []
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        keys.append(("nan", pc.is_nan(values), direction))
    return [*keys, ("value", values, direction)]
