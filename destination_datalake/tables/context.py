"""What the tables of one sync share: access to AWS, the catalog, jobs on executors, and a journal."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.catalog import TableCatalog


# --- Journal ----------------------------------------------------------------------------------------------------------
# A record of the tables of one sync: their columns, their merges, and their state after the last commit.
#
# Tables write it and the sync's report reads it; nothing depends on it.


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


# --- Context ----------------------------------------------------------------------------------------------------------
# What the tables of one sync share: access to AWS, the catalog, and jobs on Spark's executors.


_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class Executors(Protocol):
    """Runs jobs on Spark. Waits for Spark's start; raises ConnectorError if a job, or Spark, has failed."""

    def run(self, work: Callable[[Iterable[_Task]], Iterable[_Result]], tasks: Sequence[_Task]) -> list[_Result]:
        """Run a job of one Spark task for each of `tasks`; return all results, in the order of the tasks."""

    def exchange(
        self,
        produce: Callable[[Iterable[_Task]], Iterable[tuple[int, bytes]]],
        tasks: Sequence[_Task],
        consume: Callable[[int, Iterator[bytes]], Iterable[_Result]],
        partitions: int,
    ) -> list[_Result]:
        """Run a job of two stages: what `produce` makes of each task is shuffled, and consumed by partition."""

    def parallelism(self) -> int:
        """Return the number of tasks that run at the same time."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Executors, and what returns a folder for what one job writes for the next: `Staging.scratch`."""

    executors: Executors
    scratch: Callable[[], str]


@dataclass(frozen=True, slots=True)
class TableContext:
    """What the tables of one sync share. `sync` is a name that no other sync has. It `archives` records or does not."""

    sync: str
    access: AwsAccess
    catalog: TableCatalog
    jobs: Jobs
    journal: Journal = field(default_factory=Journal)
    archives: bool = False
