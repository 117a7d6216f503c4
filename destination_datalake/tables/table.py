"""The interface of a table, the same for every table type."""

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
"""A table property: what syncs commit to the table is in a journal, also what they do not archive."""

PUBLISHED_BY_PROPERTY = "airbyte.published-by"
"""A table property: the name of the sync that has published the last overwrite."""

LOWEST_GENERATION_PROPERTY = "airbyte.lowest-generation-id"
"""A table property: the lowest generation of the table's rows. Tables filled by other writers do not have it."""


class TableName(NamedTuple):
    """A table's name in the Glue Data Catalog."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


class TablePosition(NamedTuple):
    """A state of a table. `table` identifies it among all tables that had its name; `number` grows with each commit."""

    table: str
    number: int


class TableConflict(Exception):
    """The existing table cannot take this stream. The text names both, and the remedy."""


def cannot_write(stream: StreamId, table: TableName, problem: str) -> str:
    """Return the text of a conflict. `problem` says why, and what to do."""
    return f"Cannot write stream {stream} to table {table}: {problem}"


def table_conflict(stream: StreamId, table: TableName, problem: str) -> TableConflict:
    """Return a conflict. `problem` ends with a remedy, without a full stop; another database is offered beside it."""
    return TableConflict(cannot_write(stream, table, f"{problem}, or choose another lakeformation_database_name."))


class TableBusy(Exception):
    """Every retry met an optimistic-concurrency conflict. Nothing was changed; a later sync may succeed."""


class CommitStateUnknown(Exception):
    """It cannot be determined whether a commit was made, so none of its files may be deleted."""


Rewrite = Callable[[Sequence[RewriteTask]], Sequence[Rewritten]]
"""Rewrites data files on the executors. Raises RewriteFailed if one of them cannot be rewritten."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The batch's files are in the table, durably."""


@dataclass(frozen=True, slots=True)
class Reencode:
    """The batch's files did not fit the table and are deleted. Encode the batch again by the table's new plan.

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
        """Create the table or reconcile the existing one with the stream; take over unfinished work of earlier syncs.

        Must be called first.
        """

    def is_empty(self) -> bool:
        """Whether it has no rows, nor any that will be in its content. Asked after `prepare`; may call AWS."""

    def is_archived(self) -> bool:
        """Whether a sync has archived what it has committed to the table. Asked after `prepare`."""

    def position(self) -> TablePosition:
        """Return the table's position after the last commit of this sync."""

    def plan(self) -> FilePlan:
        """Return how the files of the next batch are to be written, given all commits so far."""

    def commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> Committed | Reencode:
        """Add the files to the table: all of them, or none.

        Readers see appended files at once, and those of an overwrite when it is published. Columns are promoted first
        if the files need it; `rewrite` is then called for data files of the table that cannot stay as they are.
        Reencode if the files do not fit the table any more.
        """

    def merge_is_due(self) -> bool:
        """Whether enough committed rows wait for their deduplication to `merge` them before the end."""

    def merge(self) -> None:
        """Deduplicate the committed rows that wait for it, with those of the table. Nothing if there are none.

        What cannot be merged waits on, and is as safe as before.
        """

    def publish(self, rewrite: Rewrite) -> None:
        """Finish a stream that is complete, whether or not it had records.

        Rows that wait for their deduplication are merged first. An overwrite becomes visible in place of the old
        content, in one step. An append finishes what `prepare` left for the first batch, if there was none.
        """

    def discard(self, files: Sequence[DataFile]) -> None:
        """Delete the objects of files that will not be committed, and abort their uploads."""


# --- Rebuilding -------------------------------------------------------------------------------------------------------
# The interface of a table whose archive is replayed: its state, and how its content is replaced.
#
# The new content is made in another table, the *made* one, whose files lie in the first one's folder. The first one
# then takes them over, in one step.


@dataclass(frozen=True, slots=True)
class TableState(TableFacts):
    """A table as it was found.

    `sources` are the files of its content with the position deletes that readers apply, `unpublished` those of
    unfinished syncs. `version` changes with each commit of rows that readers see, or will. `columns` are their names.
    """

    sources: tuple[SourceFile, ...]
    version: str
    columns: tuple[str, ...]
    unpublished: tuple[SourceFile, ...] = ()

    @property
    def written(self) -> tuple[SourceFile, ...]:
        """All files with rows that this connector may have written, deleted rows too."""
        return tuple(replace(source, position_deletes=()) for source in (*self.sources, *self.unpublished))


class Rebuild(Protocol):
    """One table. Methods may raise TableConflict, TableBusy, CommitStateUnknown, or what the AWS libraries raise."""

    def state(self, name: TableName) -> TableState | None:
        """Return a table's state; None if there is no such table."""

    def clone(self, made: TableName, marks: dict[str, str]) -> None:
        """Create the made table: as this one, without rows, and with these parameters besides."""

    def begin(self) -> None:
        """Keep other syncs from writing to this table, if it is of a kind that has one writer at a time."""

    def take_over(self, made: TableName, seen: TableState) -> bool:
        """Put the made table's content in the place of this one's, in one step, and drop that table.

        False, and nothing is changed, if this table is not as it was seen any more.
        """

    def drop(self, made: TableName) -> None:
        """Drop the made table. What only it has is deleted by later syncs, or as orphans."""
