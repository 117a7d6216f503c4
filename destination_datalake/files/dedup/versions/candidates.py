"""The rows that may be the latest of their keys, among those that were seen so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.files.dedup.keys import canonical_keys, key_hashes, one_array
from destination_datalake.files.dedup.rows import Marks, RowSet
from destination_datalake.files.dedup.tasks import UNKNOWN, KeyBounds
from destination_datalake.files.dedup.versions.latest import latest
from destination_datalake.files.dedup.versions.reading import key_columns, order_columns

_REDUCED_BYTES = 64 * 1024 * 1024
_BOUND_LENGTH = 256
_LAST_BEFORE_SURROGATES = "\ud7ff"
_PLACE = ["file", "position"]


class Candidates:
    """Takes rows in any order, as `read_versions` yields them. Of each key, one is kept from time to time.

    Memory grows with the number of keys, and by a bit for each row of the files.
    """

    def __init__(self, reduced_bytes: int = _REDUCED_BYTES) -> None:
        """`reduced_bytes` are the Arrow bytes of rows up to which all are kept."""
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._least_bytes = self._limit = reduced_bytes
        self._losers = _MarkedRows({})

    def add(self, table: pa.Table, rows: Mapping[int, int]) -> None:
        """Add rows of files; `rows` has for each of the files how many it has in all."""
        if not table.num_rows:
            return
        self._losers.rows |= rows
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
        return self._losers.row_sets()

    def tombstones(self) -> dict[int, RowSet]:
        """Return the winners that delete their keys, by file. `winners` must have been called."""
        found = _MarkedRows(self._losers.rows)
        for table in self._tables:
            found.add(table.filter(table.column("is_tombstone")))
        return found.row_sets()

    def _reduce(self) -> None:
        """Keep the latest row of each key."""
        tables, self._tables = self._tables, []
        table = _combined(tables)
        keys = canonical_keys(key_columns(table))
        won = latest(keys, key_hashes(keys), order_columns(table))
        if not won.all():
            self._losers.add(table.select(_PLACE).filter(pa.array(~won)))
            table = table.filter(pa.array(won))
        self._tables = [table]
        self._bytes = table.nbytes


def key_bounds(winners: pa.Table) -> tuple[KeyBounds, ...]:
    """Return the bounds of each part of the key."""
    return tuple(_bounds(column) for column in key_columns(winners))


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


def _bounds(column: pa.Array[Any]) -> KeyBounds:
    has_null, has_nan = column.null_count > 0, False
    if pa.types.is_floating(column.type):
        is_nan = pc.is_nan(column)
        has_nan = bool(pc.any(is_nan).as_py())
        column = column.filter(pc.invert(is_nan))
    found = pc.min_max(column)
    try:
        return KeyBounds(_cut(found["min"].as_py()), _cut_up(found["max"].as_py()), has_null, has_nan)
    except (ValueError, OverflowError):
        return KeyBounds(UNKNOWN, UNKNOWN, has_null, has_nan)


def _cut(lowest: Any) -> Any:
    """Return a text without what is more than enough of it: bounds travel with each task."""
    return lowest[:_BOUND_LENGTH] if isinstance(lowest, str | bytes) else lowest


def _cut_up(highest: Any) -> Any:
    """Return a short text above all that begin as a long one."""
    if isinstance(highest, str) and len(highest) > _BOUND_LENGTH:
        for end in range(_BOUND_LENGTH, 0, -1):
            if (last := highest[end - 1]) < _LAST_BEFORE_SURROGATES:
                return highest[: end - 1] + chr(ord(last) + 1)
    return highest


class _MarkedRows:
    """Rows of several files that are marked. `rows` has for each of the files how many it has in all."""

    def __init__(self, rows: dict[int, int]) -> None:
        self.rows = rows
        self._marks: dict[int, Marks] = {}

    def add(self, places: pa.Table) -> None:
        """Mark rows by their columns `file` and `position`."""
        if not places.num_rows:
            return
        files = places.column("file").to_numpy()
        order = np.argsort(files, kind="stable")
        positions = places.column("position").to_numpy()[order]
        numbers, starts = np.unique(files[order], return_index=True)
        for number, of_file in zip(numbers.tolist(), np.split(positions, starts[1:]), strict=True):
            if number not in self._marks:
                self._marks[number] = Marks(self.rows[number])
            self._marks[number].add(of_file)

    def row_sets(self) -> dict[int, RowSet]:
        """Return the marked rows of each file that has any."""
        return {number: marks.row_set() for number, marks in sorted(self._marks.items())}
