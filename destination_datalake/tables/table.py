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
"""A table property, which is set if the archive's journal contains all commits to the table.

This includes the commits of records that are not archived.
"""

PUBLISHED_BY_PROPERTY = "airbyte.published-by"
"""A table property that contains the name of the sync that published the last overwrite."""

LOWEST_GENERATION_PROPERTY = "airbyte.lowest-generation-id"
"""A table property that contains the lowest generation of the table's rows.

Tables with rows of other writers do not have the property.
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
    """The stream cannot be written to the existing table. The message names the stream and the table, and a remedy."""


def cannot_write(stream: StreamId, table: TableName, problem: str) -> str:
    """Return the message of a TableConflict. `problem` is a clause about the table, with a remedy."""
    return f"Cannot write stream {stream} to table {table}: {problem}"


def table_conflict(stream: StreamId, table: TableName, problem: str) -> TableConflict:
    """Return a TableConflict whose message also suggests another database.

    `problem` is a clause about the table. It ends with a remedy and has no full stop.
    """
    return TableConflict(cannot_write(stream, table, f"{problem}, or choose another lakeformation_database_name."))


class TableBusy(Exception):
    """Every attempt failed because of a conflict with another writer. Nothing was changed; a later sync may succeed."""


class CommitStateUnknown(Exception):
    """The outcome of a commit is unknown. Do not delete any file of the commit."""


Rewrite = Callable[[Sequence[RewriteTask]], Sequence[Rewritten]]
"""A function that rewrites data files on the executors. It raises RewriteFailed if a file cannot be rewritten."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The batch's files are durably in the table."""


@dataclass(frozen=True, slots=True)
class Reencode:
    """The batch's files did not match the table and were deleted. Encode the batch again with the table's new plan.

    `reason` is a clause about the table, for log lines and failure messages.
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

        Call it before all other methods.
        """

    def is_empty(self) -> bool:
        """Return whether the table has neither visible nor pending rows. Call it after `prepare`. May call AWS."""

    def is_archived(self) -> bool:
        """Return whether any sync has archived its commits to the table. Call it after `prepare`."""

    def position(self) -> TablePosition:
        """Return the table's position after the last commit of this sync."""

    def plan(self) -> FilePlan:
        """Return the plan for the files of the next batch. It takes all previous commits into account."""

    def commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> Committed | Reencode:
        """Add all files to the table, or none.

        Appended files are visible immediately. The files of an overwrite become visible when it is published. If the
        files require wider columns, the columns are widened first, and `rewrite` is called for the table's data files
        that must be rewritten. Returns Reencode if the files no longer match the table.
        """

    def merge_is_due(self) -> bool:
        """Return whether enough rows are pending to call `merge` before the end of the sync."""

    def merge(self) -> None:
        """Apply pending rows to the content of a deduplicated table, if any rows are pending.

        Rows that cannot be merged stay pending, so no row is lost.
        """

    def publish(self, rewrite: Rewrite) -> None:
        """Finish a stream that the source completed, whether or not it had records.

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


@dataclass(frozen=True, slots=True)
class TableState(TableFacts):
    """The state of a table at one time.

    `sources` are the files of the table's content, with the position deletes that readers apply. `unpublished` are the
    files of unfinished syncs. `version` changes with each commit of visible or pending rows. `columns` are the names of
    the table's columns.
    """

    sources: tuple[SourceFile, ...]
    version: str
    columns: tuple[str, ...]
    unpublished: tuple[SourceFile, ...] = ()

    @property
    def written(self) -> tuple[SourceFile, ...]:
        """All files whose rows this connector may have written, without position deletes, so deleted rows count."""
        return tuple(replace(source, position_deletes=()) for source in (*self.sources, *self.unpublished))


class Rebuild(Protocol):
    """The rebuild of one table from its archive.

    Methods may raise TableConflict, TableBusy, CommitStateUnknown, or errors of the AWS libraries.
    """

    def state(self, name: TableName) -> TableState | None:
        """Return a table's state, or None if the table does not exist."""

    def clone(self, rebuilt: TableName, marks: dict[str, str]) -> None:
        """Create the rebuilt table as a copy of this table without rows, and add `marks` to its parameters."""

    def begin(self) -> None:
        """Fence all running syncs of this table, if the table type allows only one writer at a time."""

    def take_over(self, rebuilt: TableName, expected: TableState) -> bool:
        """Replace this table's content with that of the rebuilt table in one step, and drop the rebuilt table.

        Returns False and changes nothing if this table is not in the expected state.
        """

    def drop(self, rebuilt: TableName) -> None:
        """Drop the rebuilt table. Later syncs, or the removal of orphans, delete the files that remain."""
