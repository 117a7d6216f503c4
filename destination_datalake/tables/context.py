"""What the tables of one sync share: access to AWS, the catalog, Spark jobs, and a journal for the sync's report."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.catalog import TableCatalog


# --- Journal ----------------------------------------------------------------------------------------------------------
# What a sync has changed in its tables: columns, merges, and the state after the last commit.
#
# The table classes write to this journal, and only the code for the sync's report reads it. The archive of the stream's
# records has a separate journal.


@dataclass(frozen=True, slots=True)
class MergeFigures:
    """The totals of all merges of a table in one sync. The fields have the same names as in the sync's report.

    A merge deduplicates the pending rows: committed rows that readers do not see yet. `rows_merged` is the number of
    these rows, and `merge_pending_bytes` is their size. `merge_written_bytes` is the size of the files that the merges
    wrote. `rows_deduplicated` and `rows_deleted` count the merged rows that replaced or deleted a row of the table.
    """

    merges: int = 0
    rows_merged: int = 0
    rows_deduplicated: int = 0
    rows_deleted: int = 0
    merge_pending_bytes: int = 0
    merge_written_bytes: int = 0

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """Return the field-wise sum of several totals."""
        return cls(*map(sum, zip(*map(astuple, parts), strict=True)))


@dataclass(frozen=True, slots=True)
class TableFigures:
    """The size of an Iceberg table after the last commit of a batch. None means unknown.

    The fields have the same names as in the sync's report. `snapshot_id` is the ID of the current snapshot, and
    `table_snapshots` is the number of all snapshots. `table_files`, `table_bytes` and `table_rows` count the data files
    that readers see, their bytes and their rows. `table_rows_pending` is the number of committed rows that are not
    deduplicated yet, so that readers do not see them.
    """

    snapshot_id: int | None = None
    table_snapshots: int | None = None
    table_files: int | None = None
    table_bytes: int | None = None
    table_rows: int | None = None
    table_rows_pending: int | None = None


@dataclass(slots=True)
class TableHistory:
    """The changes of one table during a sync.

    `first` maps the name of each column at the start of the sync to its type, as text. `columns` maps the name of each
    present column to its type.
    """

    first: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    redirected: dict[str, str] = field(default_factory=dict)
    """Maps each column that cannot hold the stream's values to the column that stores these values instead."""
    merged: MergeFigures = field(default_factory=MergeFigures)
    state: TableFigures = field(default_factory=TableFigures)

    @property
    def new_columns(self) -> dict[str, str]:
        """The columns that the sync added, with their present types, in the order of the table."""
        return {name: type_ for name, type_ in self.columns.items() if name not in self.first}

    @property
    def promoted_columns(self) -> dict[str, str]:
        """The columns whose types the sync changed, with their present types."""
        return {name: type_ for name, type_ in self.columns.items() if self.first.get(name, type_) != type_}


class Journal:
    """Collects the changes that one sync makes to its tables. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: defaultdict[TableName, TableHistory] = defaultdict(TableHistory)

    def columns(self, table: TableName, columns: Mapping[str, str]) -> None:
        """Record the present columns of a table with their types, as text.

        The first call for a table also records these columns as those at the start of the sync.
        """
        with self._lock:
            history = self._tables[table]
            history.first = history.first or columns
            history.columns = columns

    def redirected(self, table: TableName, columns: Mapping[str, str]) -> None:
        """Record that the sync writes the values of some columns to other columns.

        `columns` maps each original column to the column that stores the original column's values instead.
        """
        with self._lock:
            self._tables[table].redirected |= columns

    def merged(self, table: TableName, figures: MergeFigures) -> None:
        """Add the totals of one committed merge to those of the table."""
        with self._lock:
            history = self._tables[table]
            history.merged = MergeFigures.total([history.merged, figures])

    def state(self, table: TableName, state: TableFigures) -> None:
        """Record the size of a table after a commit. A later call for the same table replaces the earlier record."""
        with self._lock:
            self._tables[table].state = state

    def history(self, table: TableName) -> TableHistory:
        """Return the changes of a table recorded so far. Later calls continue to update the returned object."""
        with self._lock:
            return self._tables[table]


# --- Context ----------------------------------------------------------------------------------------------------------
# What the tables of one sync share: access to AWS, the catalog, and jobs on Spark's executors.


_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class Executors(Protocol):
    """Runs jobs on Spark's executors.

    Every method waits until Spark has started, and raises ConnectorError if Spark or a job fails.
    """

    def run(self, work: Callable[[Iterable[_Task]], Iterable[_Result]], tasks: Sequence[_Task]) -> list[_Result]:
        """Run a job with one Spark task per element of `tasks`. Return all results in the order of `tasks`."""

    def exchange(
        self,
        produce: Callable[[Iterable[_Task]], Iterable[tuple[int, bytes]]],
        tasks: Sequence[_Task],
        consume: Callable[[int, Iterator[bytes]], Iterable[_Result]],
        partitions: int,
    ) -> list[_Result]:
        """Run a job with two stages, and return all results.

        In the first stage, `produce` yields pairs of a partition number and bytes. Spark shuffles the bytes by
        partition number. In the second stage, `consume` is called once per partition with that partition's bytes.
        """

    def parallelism(self) -> int:
        """Return how many tasks can run at the same time."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Spark's executors, and a function that returns a folder for files that one job writes and a later job reads.

    The function is `Staging.scratch`.
    """

    executors: Executors
    scratch: Callable[[], str]


@dataclass(frozen=True, slots=True)
class TableContext:
    """What the tables of one sync share.

    `sync` is the unique name of the sync. `archives` states whether the sync also writes its records to an archive on
    S3.
    """

    sync: str
    access: AwsAccess
    catalog: TableCatalog
    jobs: Jobs
    journal: Journal = field(default_factory=Journal)
    archives: bool = False
