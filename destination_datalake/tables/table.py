"""The interface that every table type implements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from destination_datalake.archive.plan import TableFacts
from destination_datalake.files.plan import DataFile, FilePlan, RewriteTask, Rewritten
from destination_datalake.protocol.catalog import StreamId

if TYPE_CHECKING:
    from destination_datalake.files.plan import SourceFile


ARCHIVED_PROPERTY = "airbyte.archived"
"""A table property that is set if the archive's journal contains all commits to the table.

These include the commits of records that are not archived.
"""

PUBLISHED_BY_PROPERTY = "airbyte.published-by"
"""A table property that contains the name of the sync that published the last overwrite."""

LOWEST_GENERATION_PROPERTY = "airbyte.lowest-generation-id"
"""A table property that contains the lowest generation of the table's rows.

A table that contains rows of other writers does not have this property.
"""


class TableName(NamedTuple):
    """A table's name in the Glue Data Catalog."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


class TablePosition(NamedTuple):
    """The position of a commit in a table.

    `table` distinguishes the table from earlier tables with the same name. `number` increases with each commit.
    """

    table: str
    number: int


class TableConflict(Exception):
    """The stream cannot be written to the existing table. The message names the stream, the table and a remedy."""


def cannot_write(stream: StreamId, table: TableName, problem: str) -> str:
    """Return the message of a TableConflict. `problem` is a clause about the table, with a remedy."""
    return f"Cannot write stream {stream} to table {table}: {problem}"


def table_conflict(stream: StreamId, table: TableName, problem: str) -> TableConflict:
    """Return a TableConflict whose message also suggests another database.

    `problem` is a clause about the table. It ends with a remedy and has no full stop.
    """
    return TableConflict(cannot_write(stream, table, f"{problem}, or choose another lakeformation_database_name."))


class TableBusy(Exception):
    """Every attempt failed because of a conflict with another writer.

    Nothing was changed, and a later sync may succeed.
    """


class CommitStateUnknown(Exception):
    """The outcome of a commit is unknown. Do not delete any file of the commit."""


Rewrite = Callable[[Sequence[RewriteTask]], Sequence[Rewritten]]
"""A function that rewrites data files on the executors. It raises RewriteFailed if a file cannot be rewritten."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of a commit that succeeded: the batch's files are durably in the table."""


@dataclass(frozen=True, slots=True)
class Reencode:
    """The result of a commit whose files did not match the table. The files were deleted.

    Encode the batch again with the table's new plan. `reason` is a clause about the table, for log lines and failure
    messages.
    """

    reason: str


RECREATED = "it was dropped and created again before this sync had committed anything"


class Table(Protocol):
    """One stream's table during one sync. Not thread-safe.

    Every method may raise TableConflict, TableBusy, CommitStateUnknown, or exceptions of the AWS libraries.
    """

    name: TableName

    def prepare(self) -> None:
        """Create the table or reconcile it with the stream, and continue unfinished work of earlier syncs.

        Call this method before all other methods.
        """

    def is_empty(self) -> bool:
        """Return whether the table contains neither visible nor pending rows. Call it after `prepare`. May call AWS."""

    def is_archived(self) -> bool:
        """Return whether any sync has archived its commits to the table. Call it after `prepare`."""

    def position(self) -> TablePosition:
        """Return the table's position after the last commit of this sync."""

    def plan(self) -> FilePlan:
        """Return the plan for the files of the next batch. The plan takes all previous commits into account."""

    def commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> Committed | Reencode:
        """Add all files to the table, or none of them.

        Appended files are visible immediately. The files of an overwrite become visible when the overwrite is
        published. If the files require wider columns, the columns are widened first, and `rewrite` is called for the
        existing data files of the table that must be rewritten. Returns Reencode if the new files no longer match the
        table.
        """

    def merge_is_due(self) -> bool:
        """Return whether enough rows are pending to call `merge` before the end of the sync."""

    def merge(self) -> None:
        """Merge pending rows into the content of a deduplicated table, if any rows are pending.

        Rows that cannot be merged stay pending, so no row is lost.
        """

    def publish(self, rewrite: Rewrite) -> None:
        """Finish a stream that the source completed, whether or not the stream contained records.

        Pending rows are merged first. An overwrite replaces the visible content in one step. If an append had no
        batches, this call does the work that `prepare` deferred to the first batch.
        """

    def discard(self, files: Sequence[DataFile]) -> None:
        """Delete the objects of files that will not be committed, and abort their uploads."""


# --- Rebuilding -------------------------------------------------------------------------------------------------------
# The interface for rebuilding a table from its archive: read the table's state, and replace its content.
#
# The replay writes the new content to another table, the *rebuilt* table, whose files are in the folder of the original
# table. The original table then takes over these files in one step.
#
# The replay writes the new content to another table, the *rebuilt* table, whose files are in the folder of the original
# table. The original table then takes over these files in one step.


@dataclass(frozen=True, slots=True)
class TableState(TableFacts):
    """The state of a table at one time.

    `sources` contains the files of the table's content, with the position deletes that readers apply. `unpublished`
    contains the files of unfinished syncs. `version` changes with each commit of visible or pending rows. `columns`
    contains the names of the table's columns.
    """

    sources: tuple[SourceFile, ...]
    version: str
    columns: tuple[str, ...]
    unpublished: tuple[SourceFile, ...] = ()

    @property
    def written(self) -> tuple[SourceFile, ...]:
        """All files whose rows this connector may have written. Position deletes are omitted, so deleted rows count."""
        return tuple(replace(source, position_deletes=()) for source in (*self.sources, *self.unpublished))


class Rebuild(Protocol):
    """The rebuild of one table from its archive.

    Methods may raise TableConflict, TableBusy, CommitStateUnknown, or errors of the AWS libraries.
    """

    def state(self, name: TableName) -> TableState | None:
        """Return a table's state, or None if the table does not exist."""

    def clone(self, rebuilt: TableName, marks: dict[str, str]) -> None:
        """Create the rebuilt table as a copy of this table without rows, and add `marks` to the copy's parameters."""

    def begin(self) -> None:
        """Fence all running syncs of this table, if the table type allows only one writer at a time."""

    def take_over(self, rebuilt: TableName, expected: TableState) -> bool:
        """Replace this table's content with that of the rebuilt table in one step, and drop the rebuilt table.

        Returns False and changes nothing if this table is not in the state `expected`.
        """

    def drop(self, rebuilt: TableName) -> None:
        """Drop the rebuilt table. Files that remain are deleted by later syncs or by the removal of orphans."""
