"""Look up rows of stored files in the index of pending rows: either the pending row replaces them, or it is older."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from destination_datalake.files.dedup.index import index_files
from destination_datalake.files.dedup.tasks import KeyBounds, RemoveTask, RowSet, add_rows, row_sets
from destination_datalake.files.dedup.versions import comparable, database, find_replaced
from destination_datalake.files.parquet import columns_by_id
from destination_datalake.files.projection import naming_file
from destination_datalake.files.reading import OpenedFile, with_following

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COMPARABLE = (bool, int, float, str, bytes, Decimal, datetime.date, datetime.datetime)
"""The types of bounds. Python orders strings by code point, which is Parquet's order of their UTF-8 bytes."""


@dataclass(frozen=True, slots=True)
class Probed:
    """The rows that the index removes from the files of a task, by the file's index in the task.

    `replaced` and `deleted` count the rows that upserts and tombstones remove. `superseded` are pending rows that are
    older than rows of the files, by the number of their file.
    """

    dead: Mapping[int, RowSet] = field(default_factory=dict)
    replaced: int = 0
    deleted: int = 0
    superseded: Mapping[int, RowSet] = field(default_factory=dict)


def probe(files: Sequence[OpenedFile], dead: Sequence[NDArray[np.bool_]], task: RemoveTask) -> Probed:
    """Look up the rows of the task's files in its index, except `dead` rows: a mask per file.

    Raises UnsupportedFile, ConnectorError, AWS errors, and OSError if the index is no longer on the disk.
    """
    replaced: dict[int, BitMap] = {}
    superseded: dict[int, BitMap] = {}
    deleted = 0
    count = sum(int(np.count_nonzero(~mask)) for mask in dead)
    with database() as (connection, scratch):
        index = index_files(task.index, scratch, task.access)
        for batch in find_replaced(connection, _rows(files, dead, task), _schema(task), count, index):
            pairs = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
            wins = pairs["wins"]
            add_rows(replaced, pairs["file"][wins], pairs["position"][wins])
            add_rows(superseded, pairs["by_file"][~wins], pairs["by_position"][~wins])
            deleted += int(np.count_nonzero(pairs["is_tombstone"][wins]))
    return Probed(row_sets(replaced), sum(map(len, replaced.values())) - deleted, deleted, row_sets(superseded))


def _rows(files: Sequence[OpenedFile], dead: Sequence[NDArray[np.bool_]], task: RemoveTask) -> Iterator[pa.Table]:
    """Yield the rows that may have a key of the index, with the index of their file in the task and their position."""
    target, schema, bounds = _columns(task), _schema(task), [part.bounds for part in task.index]
    for place, (removal, file) in enumerate(zip(task.files, files, strict=True)):
        with naming_file(removal.source.uri):
            project = file.projection(target)
            key = project.sources[: len(task.versions.key)]
            alive = (group for group in file.groups if not dead[place][group.first : group.first + group.rows].all())
            groups = [group for group in alive if may_have_keys(group.metadata, key, bounds)]
            for group, following in with_following(groups):
                first = group.first
                for table in file.read(group, project, following):
                    positions = np.arange(first, first + table.num_rows)
                    first += table.num_rows
                    columns: list[Any] = [comparable(column) for column in table.columns]
                    columns += [np.full(table.num_rows, place, np.int32), positions]
                    yield pa.table(columns, schema=schema).filter(pa.array(~dead[place][positions]))


def _columns(task: RemoveTask) -> pa.Schema:
    return columns_by_id(task.schema, (*task.versions.key, *task.versions.order))


def _schema(task: RemoveTask) -> pa.Schema:
    """Return the schema of the rows for `find_replaced`."""
    names = task.versions.names
    columns = [comparable(pa.nulls(0, field.type)).type for field in _columns(task)]
    return pa.schema([*zip(names, columns, strict=True), ("file", pa.int32()), ("position", pa.int64())])


def may_have_keys(
    group: pq.RowGroupMetaData, columns: Sequence[str | None], bounds: Sequence[Sequence[KeyBounds]]
) -> bool:
    """Return whether a row group may have a key of an index, by its statistics and the bounds of the index's parts.

    `columns` are the names of the key columns; None for a column that the file lacks, whose values are null.
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
    """The values of a column chunk, as far as its statistics describe them."""

    def __init__(self, chunk: pq.ColumnChunkMetaData) -> None:
        statistics = chunk.statistics
        nulls = None if statistics is None else statistics.null_count  # None if unknown.
        self._has_null = nulls != 0
        self._is_null = nulls == chunk.num_values
        self._is_floating = chunk.physical_type in ("FLOAT", "DOUBLE")
        self._range = None if statistics is None or not statistics.has_min_max else _range(statistics)

    def may_overlap(self, part: KeyBounds) -> bool:
        """Return whether a value may be within the bounds of the key column in a part of the index."""
        if (part.has_null and self._has_null) or (part.has_nan and self._is_floating):
            return True
        if self._is_null or part.lowest is None:
            return False
        if self._range is None or not are_comparable(*self._range, part.lowest, part.highest):
            return True
        lowest, highest = self._range
        return bool(lowest <= part.highest and part.lowest <= highest)


def _range(statistics: pq.Statistics) -> tuple[Any, Any] | None:
    try:
        return statistics.min, statistics.max
    except (ValueError, OverflowError, NotImplementedError, pa.ArrowException):  # A truncated text may not be UTF-8.
        return None


def are_comparable(*values: Any) -> bool:
    """Return whether all values have one type and none is NaN, which old writers store in statistics."""
    type_ = type(values[0])
    if type_ not in _COMPARABLE or any(type(value) is not type_ for value in values):
        return False
    if type_ is datetime.datetime:
        return len({value.tzinfo is None for value in values}) == 1
    return not (type_ is float and any(math.isnan(value) for value in values))
