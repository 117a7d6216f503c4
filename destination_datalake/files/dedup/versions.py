"""Versions of rows: read from pending files, and reduced to the latest of each key.

Values are ordered: null, then NaN, then all others. Texts are ordered by their bytes; -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from destination_datalake.files.dedup.keys import canonical_keys, key_hashes, mask, one_array
from destination_datalake.files.dedup.tasks import UNKNOWN, KeyBounds, RowSet, Versions, WinnersTask, add_rows, row_sets
from destination_datalake.files.projection import Unsuitable
from destination_datalake.files.reading import OpenedFile, StoredFile, deleted_rows

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_FIELD_ID = b"PARQUET:field_id"

READ_BYTES = 16 * 1024 * 1024
"""Arrow bytes of rows that are read at a time."""

_REDUCED_BYTES = 64 * 1024 * 1024
_LONGEST_BOUND = 256
"""Bounds travel with each task. A longer text is none."""


_LOWEST = np.int64(-(2**63))


class UnsuitableFile(Exception):
    """A file whose rows cannot be read as the table's. The text is a clause about it."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(reason)
        self.uri = uri


def key_columns(table: pa.Table) -> list[pa.Array[Any]]:
    """Return the columns of the key, of rows that `read_versions` has yielded."""
    return [one_array(table.column(name)) for name in table.column_names if name.startswith("key")]


def order_columns(table: pa.Table) -> list[pa.Array[Any]]:
    """Return the columns that say which of several rows is the latest, the most significant first."""
    names = ("cursor", "extracted_at", "arrives", "raw_id", "file", "position")
    return [one_array(table.column(name)) for name in names if name in table.column_names]


def read_versions(task: WinnersTask, files: Iterable[StoredFile]) -> Iterator[pa.Table]:
    """Yield the rows that position deletes have left, in order, about READ_BYTES at a time; `files` are the task's.

    Columns are `key0` and so on, `cursor` (if there is one), `extracted_at`, `arrives` (1, if only some files do),
    `raw_id`, `is_tombstone`, `file` (its number) and `position`. Raises UnsuitableFile, and errors of AWS.
    """
    s3 = task.access.client("s3")
    fields = {_id(field): field for field in task.schema}
    wanted = pa.schema([fields[id_] for id_ in task.versions.columns if id_ in fields])
    for number, stored in enumerate(files, task.first_file):
        try:
            for rows in _versions(stored, number, wanted, task.versions, s3):
                if task.content_files:
                    arrives = np.full(rows.num_rows, number >= task.content_files, np.int8)
                    yield rows.append_column("arrives", pa.array(arrives))
                else:
                    yield rows
        except Unsuitable as error:
            raise UnsuitableFile(stored.source.uri, str(error)) from error


def blocks(tables: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """Yield the rows of several tables as one of `size` Arrow bytes or more, whose columns are one array each."""
    waiting: list[pa.Table] = []
    waiting_bytes = 0
    for table in tables:
        waiting.append(table)
        waiting_bytes += table.nbytes
        if waiting_bytes >= size:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, waiting_bytes = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _versions(
    stored: StoredFile, number: int, wanted: pa.Schema, versions: Versions, s3: S3Client
) -> Iterator[pa.Table]:
    dead = deleted_rows(stored.source, s3)
    first = 0
    for table in blocks(OpenedFile(stored).rows(wanted), READ_BYTES):
        rows = _named(table, versions)
        positions = np.arange(first, first + table.num_rows)
        rows["file"] = pa.array(np.full(table.num_rows, number, np.int32))
        rows["position"] = pa.array(positions)
        first += table.num_rows
        found = pa.table(rows)
        yield found if dead is None else found.filter(pa.array(~dead[positions]))


def _named(table: pa.Table, versions: Versions) -> dict[str, Any]:
    by_id = {_id(field): table.column(position) for position, field in enumerate(table.schema)}

    def column(id_: int) -> Any:
        # A column that the table has no more is null in all rows.
        return by_id[id_] if id_ in by_id else pa.nulls(table.num_rows)

    named = {f"key{number}": column(id_) for number, id_ in enumerate(versions.key)}
    if versions.cursor is not None:
        named["cursor"] = column(versions.cursor)
    named |= {"extracted_at": column(versions.extracted_at), "raw_id": column(versions.raw_id)}
    if versions.deleted_at is None:
        named["is_tombstone"] = pa.array(np.zeros(table.num_rows, np.bool_))
    else:
        named["is_tombstone"] = column(versions.deleted_at).is_valid()
    return named


def _id(field: pa.Field[Any]) -> int:
    return int((field.metadata or {})[_FIELD_ID])


class Candidates:
    """Takes rows in any order, as `read_versions` yields them. Of each key, one is kept from time to time.

    Memory grows with the number of keys, and by a bit for each row of the files at most.
    """

    def __init__(self, reduced_bytes: int = _REDUCED_BYTES) -> None:
        """`reduced_bytes` are the Arrow bytes of rows up to which all are kept."""
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._least_bytes = self._limit = reduced_bytes
        self._losers: dict[int, BitMap] = {}

    def add(self, table: pa.Table) -> None:
        """Add rows of files."""
        if not table.num_rows:
            return
        self._tables.append(table)
        self._bytes += table.nbytes
        if self._bytes >= self._limit:
            self._reduce()
            self._limit = max(self._least_bytes, 2 * self._bytes)

    def winners(self) -> pa.Table | None:
        """Return the latest row of each key, as `read_versions` has it; None if there are no rows."""
        if self._tables:
            self._reduce()
        return self._tables[0] if self._tables else None

    def losers(self) -> dict[int, RowSet]:
        """Return the rows that others replace, by file."""
        return row_sets(self._losers)

    def tombstones(self) -> dict[int, RowSet]:
        """Return the winners that delete their keys, by file. `winners` must have been called."""
        found: dict[int, BitMap] = {}
        for table in self._tables:
            _add_places(found, table, table.column("is_tombstone").to_numpy())
        return row_sets(found)

    def _reduce(self) -> None:
        """Keep the latest row of each key."""
        tables, self._tables = self._tables, []
        table = _combined(tables)
        keys = canonical_keys(key_columns(table))
        won = latest(keys, key_hashes(keys), order_columns(table))
        if not won.all():
            _add_places(self._losers, table, ~won)
            table = table.filter(pa.array(won))
        self._tables = [table]
        self._bytes = table.nbytes


def key_bounds(winners: pa.Table) -> tuple[KeyBounds, ...]:
    """Return the bounds of each part of the key."""
    return tuple(bounds_of(column) for column in key_columns(winners))


def _combined(tables: list[pa.Table]) -> pa.Table:
    """Return the rows of all tables in one, and empty the list: memory has one column twice, not all."""
    schema = tables[0].schema
    chunks = [[one_array(table.column(name)) for table in tables] for name in schema.names]
    tables.clear()
    columns = []
    for of_column in chunks:
        columns.append(of_column[0] if len(of_column) == 1 else pa.concat_arrays(of_column))
        of_column.clear()
    return pa.Table.from_arrays(columns, schema=schema)


def bounds_of(column: pa.Array[Any]) -> KeyBounds:
    """Return the bounds of values."""
    has_null, has_nan = column.null_count > 0, False
    if pa.types.is_floating(column.type):
        is_nan = pc.is_nan(column)
        has_nan = bool(pc.any(is_nan).as_py())
        column = column.filter(pc.invert(is_nan))
    found = pc.min_max(column)
    try:
        lowest, highest = found["min"].as_py(), found["max"].as_py()
    except (ValueError, OverflowError):
        return KeyBounds(UNKNOWN, UNKNOWN, has_null, has_nan)
    if any(isinstance(each, str | bytes) and len(each) > _LONGEST_BOUND for each in (lowest, highest)):
        return KeyBounds(UNKNOWN, UNKNOWN, has_null, has_nan)
    return KeyBounds(lowest, highest, has_null, has_nan)


def _add_places(found: dict[int, BitMap], table: pa.Table, chosen: NDArray[np.bool_]) -> None:
    add_rows(found, table.column("file").to_numpy()[chosen], table.column("position").to_numpy()[chosen])


def latest(keys: pa.Array[Any], hashes: NDArray[np.uint64], order: Sequence[pa.Array[Any]]) -> NDArray[np.bool_]:
    """Return a mask of the rows that are the latest of their key: one for each of the canonical keys.

    That is the row with the highest value in the first array of `order`; among several, the one with the highest value
    in the second, and so on. Of rows that are equal in all of them it is the last.
    """
    won = np.ones(len(keys), np.bool_)
    # Most keys have one row. Arrow's table of distinct keys has to hold the others only.
    rows = _with_equal_hashes(hashes)
    won[rows] = False
    encoded: Any = keys.take(rows).dictionary_encode(null_encoding="encode")
    codes, distinct = encoded.indices.to_numpy(), len(encoded.dictionary)
    for values in order:
        leads = np.ones(len(rows), np.bool_)
        for ranks in _ranks(values.take(rows)):
            highest = np.full(distinct, _LOWEST)
            np.maximum.at(highest, codes[leads], ranks[leads])
            leads &= ranks == highest[codes]
        rows, codes = rows[leads], codes[leads]
        is_alone = np.bincount(codes, minlength=distinct)[codes] == 1
        won[rows[is_alone]] = True
        rows, codes = rows[~is_alone], codes[~is_alone]
        if not rows.size:
            return won
    last = np.full(distinct, -1)
    np.maximum.at(last, codes, rows)
    won[last[last >= 0]] = True
    return won


def is_as_late(values: Sequence[pa.Array[Any]], others: Sequence[pa.Array[Any]]) -> NDArray[np.bool_]:
    """Return a mask of the rows that are as late as those of `others`, or later, column by column as in `latest`."""
    result = np.zeros(len(values[0]), np.int8)
    for ours, theirs in zip(values, others, strict=True):
        for ranks in _ranks(pa.concat_arrays([ours, theirs])):
            first, second = ranks[: len(ours)], ranks[len(ours) :]
            result = np.where(result == 0, (first > second).view(np.int8) - (first < second).view(np.int8), result)
    return result >= 0


def _with_equal_hashes(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the rows whose hash another row has too."""
    order = np.argsort(hashes)
    in_order = hashes[order]
    is_same = np.zeros(len(hashes) + 1, np.bool_)
    np.equal(in_order[1:], in_order[:-1], out=is_same[1:-1])
    return np.sort(order[is_same[1:] | is_same[:-1]])


def _ranks(values: pa.Array[Any]) -> Iterator[NDArray[np.int64]]:
    """Yield integers in the order of the values: by the first array, where these are equal by the second, and so on."""
    if values.null_count:
        yield mask(values.is_valid()).astype(np.int64)
    if values.null_count == len(values):
        return
    if pa.types.is_decimal128(values.type):
        words = _words(values.fill_null(Decimal(0)))
        yield words[:, 1]
        yield words[:, 0] ^ _LOWEST  # The lower half has no sign.
    elif pa.types.is_floating(values.type):
        numbers = values.cast(pa.float64()).fill_null(0).to_numpy() + 0.0  # -0.0 becomes 0.0.
        bits = numbers.view(np.int64)
        # Among floats with a sign, a greater integer is a lower number.
        yield np.where(np.isnan(numbers), _LOWEST, bits ^ (bits >> 63 & ~_LOWEST))
    elif pa.types.is_integer((canonical := canonical_keys([values])).type):
        yield canonical.fill_null(0).to_numpy()
    else:
        yield pc.rank(canonical, tiebreaker="dense").to_numpy().astype(np.int64)


def _words(decimals: pa.Array[Any]) -> NDArray[np.int64]:
    """Return the two halves of 128-bit decimals, the lower one first."""
    content: Any = decimals.buffers()[1]
    words: NDArray[np.int64] = np.frombuffer(content, np.int64).reshape(-1, 2)
    return words[decimals.offset : decimals.offset + len(decimals)]
