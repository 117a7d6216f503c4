"""The context that the tables of one sync share: access to AWS, the catalog, jobs on executors, and a journal."""

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
# Tables write to the journal, and only the sync's report reads it.


@dataclass(frozen=True, slots=True)
class MergeFigures:
    """Totals of a table's merges.

    `rows` with `pending_bytes` were merged, which required `written_bytes` of new files. Of these rows, `replaced`
    replaced a row of the table, and `deleted` deleted one.
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
    """The state of an Iceberg table after the last commit of a batch: its snapshots, and visible files and rows.

    `pending_rows` are not yet deduplicated. `snapshot` is the ID of the current snapshot. None means unknown.
    """

    snapshot: int | None
    snapshots: int
    files: int | None
    bytes: int | None
    rows: int | None
    pending_rows: int | None = None


@dataclass(slots=True)
class TableHistory:
    """The changes of one table. `first` and `columns` are the initial and the present types, as text, by column."""

    first: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    redirected: dict[str, str] = field(default_factory=dict)
    """Columns that cannot hold the stream's values, and the columns that hold these values instead."""
    merged: MergeFigures = field(default_factory=MergeFigures)
    state: TableFigures | None = None

    @property
    def new_columns(self) -> list[str]:
        """The names of columns that the table did not have initially, in its order."""
        return [name for name in self.columns if name not in self.first]

    @property
    def promoted_columns(self) -> dict[str, str]:
        """The present types of columns whose type has changed."""
        return {name: type_ for name, type_ in self.columns.items() if self.first.get(name, type_) != type_}


class Journal:
    """The histories of a sync's tables. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: defaultdict[TableName, TableHistory] = defaultdict(TableHistory)

    def columns(self, table: TableName, columns: Mapping[str, str]) -> None:
        """Record the present columns of a table."""
        with self._lock:
            history = self._tables[table]
            history.first = history.first or columns
            history.columns = columns

    def redirected(self, table: TableName, columns: Mapping[str, str]) -> None:
        """Record columns that cannot hold the stream's values, and the columns that hold these values instead."""
        with self._lock:
            self._tables[table].redirected |= columns

    def merged(self, table: TableName, figures: MergeFigures) -> None:
        """Record a committed merge."""
        with self._lock:
            history = self._tables[table]
            history.merged = history.merged.plus(figures)

    def state(self, table: TableName, state: TableFigures) -> None:
        """Record the state of a table after a commit."""
        with self._lock:
            self._tables[table].state = state

    def of(self, table: TableName) -> TableHistory:
        """Return the changes of a table so far."""
        with self._lock:
            return self._tables[table]


# --- Context ----------------------------------------------------------------------------------------------------------
# The context that the tables of one sync share: access to AWS, the catalog, and jobs on Spark's executors.


_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class Executors(Protocol):
    """Run jobs on Spark. Waits until Spark has started. Raises ConnectorError if a job or Spark fails."""

    def run(self, work: Callable[[Iterable[_Task]], Iterable[_Result]], tasks: Sequence[_Task]) -> list[_Result]:
        """Run a job with one Spark task for each of `tasks`, and return all results in the order of the tasks."""

    def exchange(
        self,
        produce: Callable[[Iterable[_Task]], Iterable[tuple[int, bytes]]],
        tasks: Sequence[_Task],
        consume: Callable[[int, Iterator[bytes]], Iterable[_Result]],
        partitions: int,
    ) -> list[_Result]:
        """Run a job with two stages: shuffle the pairs that `produce` yields, and `consume` each partition."""

    def parallelism(self) -> int:
        """Return the number of tasks that run at the same time."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Executors, and a function that returns a folder for files between two jobs (`Staging.scratch`)."""

    executors: Executors
    scratch: Callable[[], str]


@dataclass(frozen=True, slots=True)
class TableContext:
    """The context that the tables of one sync share. `sync` is its unique name, and `archives` whether it archives."""

    sync: str
    access: AwsAccess
    catalog: TableCatalog
    jobs: Jobs
    journal: Journal = field(default_factory=Journal)
    archives: bool = False
