"""The rows of a stored file, looked up in an index of winners: those that a pending row replaces, or loses to."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from destination_datalake.files.dedup.index import Index, open_index
from destination_datalake.files.dedup.keys import canonical_keys, key_hashes, one_array, part_numbers
from destination_datalake.files.dedup.tasks import IndexPart, KeyBounds, RowSet, Versions, add_rows, row_sets
from destination_datalake.files.parquet import columns_by_id
from destination_datalake.files.reading import OpenedFile, RowGroup, with_following

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from destination_datalake.aws.access import AwsAccess

_KEY_BYTES = 8 * 1024 * 1024
"""Arrow bytes of the keys that are looked up at a time: an index is faster at many."""

_OPEN_BYTES = 96 * 1024 * 1024
"""Parts of the index up to this size in all stay open: what leads to a row by its hash is made when one is opened."""

_HITS = 1024 * 1024
"""So many hits wait at most, but for those of one row group, before their versions are read and compared."""

_COMPARABLE = (bool, int, float, str, bytes, Decimal, datetime.date, datetime.datetime)
"""The types of bounds. Python compares strings by code points, as Parquet does by the bytes of UTF-8."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What an index says of a file: `replaced` and `deleted` are masks of its rows, dead by upserts and tombstones.

    `superseded` are the pending rows that lose to rows of the file, by the number of their file.
    """

    replaced: NDArray[np.bool_]
    deleted: NDArray[np.bool_]
    superseded: Mapping[int, RowSet]


def probe(
    file: OpenedFile,
    dead: NDArray[np.bool_],
    index: Iterable[IndexPart],
    schema: pa.Schema,
    versions: Versions,
    access: AwsAccess,
) -> Probed:
    """Look up all rows of a file but those that are `dead`. Columns of `versions` have the types of `schema`.

    Raises Unsuitable, errors of AWS, and OSError if the index is gone from the disk.
    """
    search = _Search(file, dead, tuple(part for part in index if part.rows), schema, versions, access)
    groups = [group for group in file.groups if search.concerns(group)]
    for group, following in with_following(groups):
        search.read(group, following)
    return search.result()


@dataclass(frozen=True, slots=True)
class _Hits:
    """Rows of the file, by position, ascending, and the rows of one part of the index that have their keys."""

    part: int
    positions: NDArray[np.int64]
    rows: NDArray[np.int64]


class _Search:
    def __init__(
        self,
        file: OpenedFile,
        dead: NDArray[np.bool_],
        parts: tuple[IndexPart, ...],
        schema: pa.Schema,
        versions: Versions,
        access: AwsAccess,
    ) -> None:
        self._file = file
        self._dead = dead
        self._parts = parts
        self._access = access
        self._key = file.projection(columns_by_id(schema, versions.key))
        self._order = file.projection(columns_by_id(schema, versions.order))
        self._open_parts: dict[int, Index] = {}
        self._keys: list[pa.Table] = []
        self._positions: list[NDArray[np.int64]] = []
        self._key_bytes = 0
        self._groups: list[RowGroup] = []
        self._hits: list[_Hits] = []
        self._replaced = np.zeros(len(dead), np.bool_)
        self._deleted = np.zeros(len(dead), np.bool_)
        self._superseded: dict[int, BitMap] = {}

    def concerns(self, group: RowGroup) -> bool:
        """Whether rows of a row group may be found."""
        is_dead = self._dead[group.first : group.first + group.rows].all()
        bounds = [part.bounds for part in self._parts]
        return not is_dead and may_have_keys(group.metadata, self._key.sources, bounds)

    def read(self, group: RowGroup, following: RowGroup | None) -> None:
        """Look up the rows of a row group, now or later; `following` will be read next."""
        first = group.first
        for table in self._file.read(group, self._key, following):
            live = ~self._dead[first : first + table.num_rows]
            positions = np.flatnonzero(live) + first
            first += table.num_rows
            if len(positions):
                self._keys.append(table if len(positions) == table.num_rows else table.filter(pa.array(live)))
                self._positions.append(positions)
                self._key_bytes += self._keys[-1].nbytes
            if self._key_bytes >= _KEY_BYTES:
                self._look_up()
        self._groups.append(group)
        if sum(len(hits.rows) for hits in self._hits) >= _HITS:
            self._look_up()
            self._compare()

    def result(self) -> Probed:
        self._look_up()
        self._compare()
        return Probed(self._replaced, self._deleted, row_sets(self._superseded))

    def _look_up(self) -> None:
        """Find the keys that were read in the index."""
        if not self._keys:
            return
        table, positions = pa.concat_tables(self._keys), np.concatenate(self._positions)
        self._keys, self._positions, self._key_bytes = [], [], 0
        keys = canonical_keys(table.columns)
        hashes = key_hashes(keys)
        numbers = part_numbers(hashes, self._parts[0].parts) if self._parts[0].parts > 1 else None
        for place, part in enumerate(self._parts):
            if numbers is None:
                found = self._open(place).lookup(keys, hashes)
                of_part = positions
            else:
                chosen = np.flatnonzero(numbers == part.number)
                if not len(chosen):
                    continue
                found = self._open(place).lookup(keys.take(pa.array(chosen, pa.int64())), hashes[chosen])
                of_part = positions[chosen]
            is_hit = found >= 0
            if is_hit.any():
                self._hits.append(_Hits(place, of_part[is_hit], found[is_hit]))

    def _open(self, place: int) -> Index:
        if place not in self._open_parts:
            while self._open_parts and self._size((*self._open_parts, place)) > _OPEN_BYTES:
                del self._open_parts[next(iter(self._open_parts))]
            self._open_parts[place] = open_index(self._parts[place], self._access)
        return self._open_parts[place]

    def _size(self, places: Iterable[int]) -> int:
        return sum(self._parts[place].size for place in places)

    def _compare(self) -> None:
        """Decide between the rows that were found and those of the index."""
        hits = {
            group.number: [within for each in self._hits if len((within := _within(each, group)).rows)]
            for group in self._groups
        }
        groups = [group for group in self._groups if hits[group.number]]
        for group, following in with_following(groups):
            self._decide(group, following, hits[group.number])
        self._groups, self._hits = [], []

    def _decide(self, group: RowGroup, following: RowGroup | None, hits: Sequence[_Hits]) -> None:
        wanted = np.unique(np.concatenate([each.positions for each in hits]))
        order = self._rows_at(group, following, wanted)
        for each in hits:
            stored = order.take(pa.array(np.searchsorted(wanted, each.positions), pa.int64()))
            index = self._open(each.part)
            replaces = index.replaces(each.rows, [one_array(column) for column in stored.columns])
            deletes = index.is_tombstone[each.rows]
            self._replaced[each.positions[replaces & ~deletes]] = True
            self._deleted[each.positions[replaces & deletes]] = True
            superseded = each.rows[~replaces]
            add_rows(self._superseded, index.files[superseded], index.positions[superseded])

    def _rows_at(self, group: RowGroup, following: RowGroup | None, positions: NDArray[np.int64]) -> pa.Table:
        """Return what decides between versions, of the rows at these positions of the file, which ascend."""
        taken, first = [], group.first
        for table in self._file.read(group, self._order, following):
            start, end = np.searchsorted(positions, [first, first + table.num_rows])
            if start < end:
                taken.append(table.take(pa.array(positions[start:end] - first, pa.int64())))
            first += table.num_rows
        return pa.concat_tables(taken)


def _within(hits: _Hits, group: RowGroup) -> _Hits:
    """Return the hits in a row group."""
    start, end = np.searchsorted(hits.positions, [group.first, group.first + group.rows])
    return _Hits(hits.part, hits.positions[start:end], hits.rows[start:end])


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
        if self._range is None or not are_comparable(*self._range, part.lowest, part.highest):
            return True
        lowest, highest = self._range
        return bool(lowest <= part.highest and part.lowest <= highest)


def _range(statistics: pq.Statistics) -> tuple[Any, Any] | None:
    try:
        return statistics.min, statistics.max
    except (ValueError, OverflowError, NotImplementedError, pa.ArrowException):  # A text that was cut may be none.
        return None


def are_comparable(*values: Any) -> bool:
    """Return whether all are of one type, and none is NaN, which old writers have put into statistics."""
    type_ = type(values[0])
    if type_ not in _COMPARABLE or any(type(value) is not type_ for value in values):
        return False
    if type_ is datetime.datetime:
        return len({value.tzinfo is None for value in values}) == 1
    return not (type_ is float and any(math.isnan(value) for value in values))
