"""The interfaces `Table` and `Rebuild`, which Hive and Iceberg tables implement, and the exceptions they raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from destination_datalake.files.plan import DataFile, FilePlan, LineFile, LineSink, RewriteTask, Rewritten
from destination_datalake.protocol.catalog import StreamId

if TYPE_CHECKING:
    from destination_datalake.files.plan import SourceFile


ARCHIVED_PROPERTY = "airbyte.archived"
"""A table property that is present if the archive's journal contains every commit to the table.

The journal also contains the commits of records that are not archived.
"""

PUBLISHED_BY_PROPERTY = "airbyte.published-by"
"""A table property whose value is the name of the sync that published the last overwrite."""

LOWEST_GENERATION_PROPERTY = "airbyte.lowest-generation-id"
"""A table property whose value is the lowest generation of the table's rows.

The property is missing if other writers have added rows to the table.
"""


class TableName(NamedTuple):
    """A table's database and name in the catalog. The text is `database.table`."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


class TablePosition(NamedTuple):
    """The position of a commit in a table's history.

    `table` identifies this table among all tables that ever had its name. `number` increases with each commit.
    """

    table: str
    number: int


class TableConflict(Exception):
    """A sync cannot write the stream to the existing table. The message names the stream, the table and a remedy."""


def cannot_write(stream: StreamId, table: TableName, problem: str) -> str:
    """Return the message of a TableConflict. `problem` is a clause about the table, followed by a remedy."""
    return f"Cannot write stream {stream} to table {table}: {problem}"


def table_conflict(stream: StreamId, table: TableName, problem: str) -> TableConflict:
    """Return a TableConflict whose message also suggests choosing another database.

    `problem` is a clause about the table, followed by a remedy, without a full stop at the end.
    """
    return TableConflict(cannot_write(stream, table, f"{problem}, or choose another lakeformation_database_name."))


class TableBusy(Exception):
    """Every attempt to change the table conflicted with another writer.

    The table is unchanged. A later sync may succeed.
    """


class CommitStateUnknown(Exception):
    """A commit may or may not have succeeded. Do not delete any of its files, because the table may contain them."""


Rewrite = Callable[[Sequence[RewriteTask]], Sequence[Rewritten]]
"""Rewrites data files on the executors. Raises RewriteFailed if a file cannot be rewritten."""


@dataclass(frozen=True, slots=True)
class Committed:
    """`commit` returns this if the commit succeeded: the batch's files are durably in the table."""


@dataclass(frozen=True, slots=True)
class Reencode:
    """`commit` returns this if the files do not match the table. The files were deleted.

    Encode the batch again with the table's new plan. `reason` is a clause about the table. It appears in log lines and
    failure messages.
    """

    reason: str


RECREATED = "it was dropped and created again before this sync had committed anything"


class Table(Protocol):
    """One stream's table during one sync. Not thread-safe.

    Every method may raise TableConflict, TableBusy, CommitStateUnknown, or exceptions of the AWS libraries.
    """

    name: TableName

    def prepare(self) -> None:
        """Create the table or adapt it to the stream, and continue the unfinished work of earlier syncs.

        Call this method first.
        """

    def is_empty(self) -> bool:
        """Return whether the table contains neither visible nor pending rows. Call `prepare` first. May call AWS."""

    def is_archived(self) -> bool:
        """Return whether any sync has archived its commits to the table. Call `prepare` first."""

    def position(self) -> TablePosition:
        """Return the table's position after the last commit of this sync."""

    def plan(self) -> FilePlan:
        """Return how to write the files of the next batch: folder, columns, format.

        All earlier commits are considered.
        """

    def commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> Committed | Reencode:
        """Add all files to the table, or none of them.

        Files of an append are visible immediately. Files of an overwrite become visible when the overwrite is
        published. If the files require wider columns, the columns are widened first. `rewrite` is then called for the
        table's data files that cannot be read with the wider columns. Returns Reencode if the new files no longer match
        the table.
        """

    def merge_is_due(self) -> bool:
        """Return whether so many rows are pending that `merge` should be called before the end of the sync."""

    def merge(self) -> None:
        """Merge the pending rows of a deduplicated table into its visible rows. Do nothing if no rows are pending.

        Rows that cannot be merged stay pending and are not lost.
        """

    def publish(self, rewrite: Rewrite) -> None:
        """Finish a stream that the source completed, even if the stream contained no records.

        Pending rows are merged first. An overwrite then replaces all visible rows in one step. If an append had no
        batches, this call does the work that `prepare` postponed until the first batch.
        """

    def discard(self, files: Sequence[DataFile]) -> None:
        """Delete the files of a batch that will not be committed, and abort their uploads."""


class CommitListener:
    """Follows the commits of a sync, and may keep copies of record lines. Does nothing, unless a subclass does.

    A sync calls `begin` once per stream, `publish` and `add` around each commit, and `end` at the end of a stream. If a
    method raises an error, the stream fails.
    """

    def begin(self, stream: StreamId, table: Table) -> None:
        """Call this method when the stream's table is prepared, before any other for the stream."""

    def sinks(self, stream: StreamId) -> tuple[LineSink, ...]:  # noqa: ARG002
        """Return the sinks to which executors also write the stream's lines."""
        return ()

    def publish(self, files: Sequence[LineFile]) -> None:
        """Make the files that a batch's sinks wrote visible to readers. Call this method before the commit."""

    def add(self, stream: StreamId, batch: int, files: Sequence[LineFile], position: TablePosition, rows: int) -> None:
        """Record that a batch with `rows` rows is committed. Call this method before its states are released."""

    def end(self, stream: StreamId, table: Table) -> None:
        """Call this method when the stream's table is published."""

    def delete_uncommitted(self, files: Sequence[LineFile]) -> None:
        """Delete the files that the sinks of an uncommitted batch wrote, whether published or not."""


# --- Rebuilding -------------------------------------------------------------------------------------------------------
# How to rebuild a table from its archive: read the table's state, then replace its rows.
#
# A replay of the archive writes the new rows to a second table, the *rebuilt* table. The files of the rebuilt table are
# in the folder of the original table, which then takes them over in one step.


@dataclass(frozen=True, slots=True)
class TableState:
    """The files, columns and version of a table at one time.

    `published_by` is the sync that published the last overwrite, or None if unknown. `has_pending` states whether the
    table contains pending rows, which are committed but not merged. `commits_whole` states whether a commit makes its
    whole batch visible at once.

    `sources` contains the files that readers see, with the position deletes that apply to them. `unpublished` contains
    the files of unfinished syncs. `version` changes with each commit of visible or pending rows. `columns` contains the
    names of the table's columns.
    """

    published_by: str | None
    has_pending: bool
    commits_whole: bool
    sources: tuple[SourceFile, ...]
    version: str
    columns: tuple[str, ...]
    unpublished: tuple[SourceFile, ...] = ()

    @property
    def written(self) -> tuple[SourceFile, ...]:
        """All files whose rows this connector may have written, without position deletes.

        Deleted rows are thus included.
        """
        return tuple(replace(source, position_deletes=()) for source in (*self.sources, *self.unpublished))


class Rebuild(Protocol):
    """Rebuilds one table from its archive.

    Methods may raise TableConflict, TableBusy, CommitStateUnknown, or errors of the AWS libraries.
    """

    def state(self, name: TableName) -> TableState | None:
        """Return the state of the table `name`, or None if that table does not exist."""

    def clone(self, rebuilt: TableName, marks: dict[str, str]) -> None:
        """Create the rebuilt table with the columns and layout of this table, but without rows.

        `marks` are added to the parameters of the rebuilt table.
        """

    def begin(self) -> None:
        """Fence all running syncs of this table, if its type allows only one writer at a time.

        Their next commits fail.
        """

    def take_over(self, rebuilt: TableName, expected: TableState) -> bool:
        """Replace this table's rows with those of the rebuilt table in one step, and drop the rebuilt table.

        Returns False and changes nothing if this table's state differs from `expected`.
        """

    def drop(self, rebuilt: TableName) -> None:
        """Drop the rebuilt table.

        Later syncs or the removal of orphaned files delete the files that it leaves behind.
        """
