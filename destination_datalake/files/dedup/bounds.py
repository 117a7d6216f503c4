"""Which row groups may have keys that an index has, by the statistics in the footer of their file."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from destination_datalake.files.dedup.tasks import KeyBounds

_COMPARABLE = (bool, int, float, str, bytes, Decimal, datetime.date, datetime.datetime)
"""The types of bounds. Python compares strings by code points, as Parquet does by the bytes of UTF-8."""


def may_have_keys(
    group: pq.RowGroupMetaData, columns: Sequence[str | None], bounds: Sequence[Sequence[KeyBounds]]
) -> bool:
    """Whether a row group may have a key of an index, by the bounds of each of the index's parts.

    `columns` are the names of the columns that make up the key, None for those that the file lacks: they are null.
    """
    chunks = [None if column is None else _chunk(group, column) for column in columns]
    known = [None if chunk is None else _Values(chunk) for chunk in chunks]
    return any(
        all(
            part.has_null if values is None else values.may_overlap(part)
            for values, part in zip(known, key, strict=True)
        )
        for key in bounds
    )


def _chunk(group: pq.RowGroupMetaData, column: str) -> pq.ColumnChunkMetaData:
    [chunk] = [each for each in map(group.column, range(group.num_columns)) if each.path_in_schema == column]
    return chunk


class _Values:
    """What the statistics of a column chunk say of its values."""

    def __init__(self, chunk: pq.ColumnChunkMetaData) -> None:
        statistics = chunk.statistics
        nulls = None if statistics is None else statistics.null_count  # None if it is not known.
        self._has_null = nulls != 0
        self._is_null = nulls == chunk.num_values
        self._is_floating = chunk.physical_type in ("FLOAT", "DOUBLE")
        self._range = None if statistics is None or not statistics.has_min_max else _range(statistics)

    def may_overlap(self, part: KeyBounds) -> bool:
        """Whether one of the values may be in a part of the index: of its key's column, that is."""
        if (part.has_null and self._has_null) or (part.has_nan and self._is_floating):
            return True
        if self._is_null or part.lowest is None:
            return False
        if self._range is None or not _are_comparable(*self._range, part.lowest, part.highest):
            return True
        lowest, highest = self._range
        return bool(lowest <= part.highest and part.lowest <= highest)


def _range(statistics: pq.Statistics) -> tuple[Any, Any] | None:
    try:
        return statistics.min, statistics.max
    except (ValueError, OverflowError, NotImplementedError, pa.ArrowException):  # A text that was cut may be none.
        return None


def _are_comparable(*values: Any) -> bool:
    """Whether all are of one type, and none is NaN, which old writers have put into statistics."""
    type_ = type(values[0])
    if type_ not in _COMPARABLE or any(type(value) is not type_ for value in values):
        return False
    if type_ is datetime.datetime:
        return len({value.tzinfo is None for value in values}) == 1
    return not (type_ is float and any(math.isnan(value) for value in values))
