"""A record of the tables of one sync: their columns, their merges, and their state after the last commit.

Tables write it and the sync's report reads it; nothing depends on it.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from destination_datalake.tables.table import TableName


@dataclass(frozen=True, slots=True)
class MergeFigures:
    """What the merges of a table have done. `pending_bytes` were merged, for which `written_bytes` were written.

    Of the rows that were pending, some have replaced rows, and some have deleted them.
    """

    merges: int = 0
    rows: int = 0
    replaced: int = 0
    deleted: int = 0
    pending_bytes: int = 0
    written_bytes: int = 0

    def plus(self, other: MergeFigures) -> MergeFigures:
        """Return the sum."""
        return MergeFigures(
            self.merges + other.merges,
            self.rows + other.rows,
            self.replaced + other.replaced,
            self.deleted + other.deleted,
            self.pending_bytes + other.pending_bytes,
            self.written_bytes + other.written_bytes,
        )


@dataclass(frozen=True, slots=True)
class TableFigures:
    """An Iceberg table as of the last commit of a batch: its snapshots, and the files and rows that readers see.

    `pending_rows` wait for their deduplication. `snapshot` is the id of the current one. None is what is not known.
    """

    snapshot: int | None
    snapshots: int
    files: int | None
    bytes: int | None
    rows: int | None
    pending_rows: int | None = None


@dataclass(slots=True)
class TableHistory:
    """What has happened to one table. `first` and `columns` have types, as text, by name: at first, and now."""

    first: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    redirected: dict[str, str] = field(default_factory=dict)
    """The columns that get values in place of others, by the others."""
    merged: MergeFigures = field(default_factory=MergeFigures)
    state: TableFigures | None = None

    @property
    def new_columns(self) -> list[str]:
        """The names of columns that the table had not at first, in its order."""
        return [name for name in self.columns if name not in self.first]

    @property
    def promoted_columns(self) -> dict[str, str]:
        """The types of columns that had other ones at first."""
        return {name: type_ for name, type_ in self.columns.items() if self.first.get(name, type_) != type_}


class Journal:
    """The histories of a sync's tables. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: defaultdict[TableName, TableHistory] = defaultdict(TableHistory)

    def columns(self, table: TableName, columns: Mapping[str, str]) -> None:
        """Note the columns that a table has now."""
        with self._lock:
            history = self._tables[table]
            history.first = history.first or columns
            history.columns = columns

    def redirected(self, table: TableName, columns: Mapping[str, str]) -> None:
        """Note columns that cannot hold what is sent, and those that get it."""
        with self._lock:
            self._tables[table].redirected |= columns

    def merged(self, table: TableName, figures: MergeFigures) -> None:
        """Note a merge that is committed."""
        with self._lock:
            history = self._tables[table]
            history.merged = history.merged.plus(figures)

    def state(self, table: TableName, state: TableFigures) -> None:
        """Note how a table is after a commit."""
        with self._lock:
            self._tables[table].state = state

    def of(self, table: TableName) -> TableHistory:
        """Return what has happened to a table so far."""
        with self._lock:
            return self._tables[table]
