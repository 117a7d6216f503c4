"""The interfaces `Table` and `Rebuild`, with one implementation each for Hive and Iceberg, and their exceptions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeVar

import msgspec

from destination_datalake.files.plan import DataFile, FilePlan, LineFile, LineSink, RewriteTask, Rewritten
from destination_datalake.protocol.catalog import StreamId

if TYPE_CHECKING:
    from destination_datalake.files.plan import SourceFile


ARCHIVED_PROPERTY = "airbyte.archived"
"""A table property that is present if a sync has archived the records that it wrote to the table.

Since that sync, the archive's journal contains the commits of all syncs to the table, even of syncs that do not archive
their records.
"""

PUBLISHED_BY_PROPERTY = "airbyte.published-by"
"""A table property whose value is the name of the sync that published the table's last overwrite."""

LOWEST_GENERATION_PROPERTY = "airbyte.lowest-generation-id"
"""A table property whose value is the lowest generation among the table's rows.

The platform gives a generation number to each refresh of a stream. Rows of other writers have no generation. The
property is missing if the lowest generation is unknown, for example because the platform sends no numbers, or because
the table already contained rows of other writers when this connector first wrote to it.
"""


class TableName(NamedTuple):
    """A table's database and name in the catalog. Converts to the string `database.table`."""

    database: str
    table: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Split a text such as `database.table`. Return None if it does not contain both names.

        Names that the connector gives to databases contain no dots.
        """
        database, _, table = text.partition(".")
        return cls(database, table) if database and table else None

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


class TablePosition(NamedTuple):
    """The position of a commit in a table's history.

    `table` distinguishes the table from earlier and later tables with the same name. `number` increases with each
    commit.
    """

    table: str
    number: int


class TableConflict(Exception):
    """A sync cannot write the stream to the existing table. The message names the stream, the table and a remedy."""


def cannot_write(stream: StreamId, table: TableName, problem: str) -> str:
    """Return the message of a TableConflict.

    `problem` is a clause about the table, followed by a remedy and a full stop.
    """
    return f"Cannot write stream {stream} to table {table}: {problem}"


def table_conflict(stream: StreamId, table: TableName, problem: str) -> TableConflict:
    """Return a TableConflict whose message also suggests another database as a remedy.

    `problem` is a clause about the table, followed by another remedy, without a full stop at the end.
    """
    return TableConflict(cannot_write(stream, table, f"{problem}, or choose another lakeformation_database_name."))


# Properties of tables. Other programs can change them, so their values are not trusted.

_Value = TypeVar("_Value")

_WHOLE_NUMBER = re.compile("[0-9]{1,18}")


class InvalidProperty(TableConflict):
    """A table property from which this connector reads the state of a table has an invalid value.

    `table` is a noun phrase, such as "table orders". `remedy` consists of one or more sentences.
    """

    def __init__(
        self,
        table: str,
        name: str,
        remedy: str = "Restore the former value. If it is unknown, remove the property.",
    ) -> None:
        super().__init__(
            f"Cannot read property {name} of {table}, because its value is invalid. Another program has probably "
            f"changed the property. {remedy}"
        )


def whole_number(text: str) -> int | None:
    """Return the number that a text of 1 to 18 digits represents, or None for any other text."""
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else None


def number_property(properties: Mapping[str, str], name: str, table: str) -> int | None:
    """Return the whole number in a property, or None if the table lacks the property.

    Raises InvalidProperty.
    """
    text = properties.get(name)
    number = whole_number(text) if text is not None else None
    if text is not None and number is None:
        raise InvalidProperty(table, name)
    return number


def json_property(
    properties: Mapping[str, str], name: str, decoder: msgspec.json.Decoder[_Value], table: str
) -> _Value | None:
    """Return the JSON value in a property, or None if the table lacks the property.

    Raises InvalidProperty if the JSON text is malformed, or if the value does not have the decoder's type.
    """
    text = properties.get(name)
    try:
        return None if text is None else decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidProperty(table, name) from error


class TableBusy(Exception):
    """Every attempt to make a change to the table conflicted with another writer.

    The table does not contain the change. A later sync may succeed.
    """


class CommitStateUnknown(Exception):
    """A commit may or may not have succeeded. Do not delete any of its files, because the table may contain them."""


Rewrite = Callable[[Sequence[RewriteTask]], Sequence[Rewritten]]
"""A function that rewrites data files on the executors. Raises RewriteFailed if it cannot rewrite a file."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of `Table.commit` if the commit succeeded: the batch's files are durably in the table."""


@dataclass(frozen=True, slots=True)
class Reencode:
    """The result of `Table.commit` if the batch's files do not match the table. `commit` has deleted the files.

    The caller must encode the batch again with the table's new plan. `reason` is a clause about the table, which
    appears in log lines and failure messages.
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

        Call this method before all others.
        """

    def is_empty(self) -> bool:
        """Return whether the table contains neither visible nor pending rows. May send requests to AWS.

        Pending rows are committed rows that readers do not see yet: rows of an unpublished overwrite, or rows that the
        connector has not deduplicated yet.
        """

    def is_archived(self) -> bool:
        """Return whether any sync has archived the records that it wrote to the table."""

    def position(self) -> TablePosition:
        """Return the table's position after the last commit of this sync."""

    def plan(self) -> FilePlan:
        """Return how to write the files of the next batch, such as their folder, columns and format.

        The plan takes all earlier commits of this sync into account.
        """

    def commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> Committed | Reencode:
        """Add all files to the table, or none of them.

        Readers immediately see the files of an append, unless the table deduplicates rows. They see the files of an
        overwrite only after `publish`. If the files require wider columns, this method also widens the columns. It
        then calls `rewrite` for those data files of the table that engines cannot read with the wider columns. Returns
        Reencode if the new files no longer match the table.
        """

    def merge_is_due(self) -> bool:
        """Return whether the caller should call `merge` before the end of the sync.

        Return True if the pending rows are many or old.
        """

    def merge(self) -> None:
        """Merge the pending rows of a deduplicated table into its visible rows. Do nothing if no rows are pending.

        Pending rows are committed, but readers do not see them before the merge. If a merge fails, its rows stay
        pending and are not lost.
        """

    def publish(self, rewrite: Rewrite) -> None:
        """Finish a stream that the source completed, even if the stream contained no records.

        First merge all pending rows. If the sync overwrites the table, then replace all visible rows in one step. If
        the sync appends but committed no batch, do the work that `prepare` postponed until the first batch.
        """

    def discard(self, files: Sequence[DataFile]) -> None:
        """Delete the files of a batch that the sync will not commit, and abort their unfinished uploads."""


class CommitListener:
    """An object that a sync notifies of its commits, and that may keep copies of record lines.

    The methods of this class do nothing. A subclass overrides them.

    A sync calls `begin` once per stream, `publish` before each commit, `add` after each commit, and `end` after the
    publication of the stream's table. If one of these methods raises an error, the stream fails.
    """

    def begin(self, stream: StreamId, table: Table) -> None:
        """Handle the start of a stream. Call this method after preparing the table, and before all other methods."""

    def sinks(self, stream: StreamId) -> tuple[LineSink, ...]:  # noqa: ARG002
        """Return the sinks to which executors write copies of the stream's record lines."""
        return ()

    def publish(self, files: Sequence[LineFile]) -> None:
        """Make the files that the sinks wrote for a batch visible to readers. Call this method before the commit."""

    def add(self, stream: StreamId, batch: int, files: Sequence[LineFile], position: TablePosition, rows: int) -> None:
        """Record the commit of a batch with `rows` rows. Call this method before releasing the batch's states."""

    def end(self, stream: StreamId, table: Table) -> None:
        """Handle the end of a stream. Call this method after publishing the stream's table."""

    def delete_uncommitted(self, files: Sequence[LineFile]) -> None:
        """Delete the files that the sinks wrote for an uncommitted batch, even if `publish` made them visible."""


# --- Rebuilding -------------------------------------------------------------------------------------------------------
# How to rebuild a table from its archive: read the table's state, then replace its rows.
#
# A replay of the archive writes the new rows to a second table, the *rebuilt* table, with its files in the original
# table's folder. The original table then takes over these files in one step.


@dataclass(frozen=True, slots=True)
class TableState:
    """The files, columns and version of a table at one time.

    `published_by` is the sync that published the last overwrite, or None if unknown. `has_pending` states whether the
    table contains pending rows: committed rows that readers see only after a merge. `commits_whole` states whether a
    commit makes all files of its batch visible at once.

    `sources` contains the files that readers see, with their position deletes, which mark deleted rows. `unpublished`
    contains the files that unfinished syncs have committed, but that readers do not see. `version` changes with each
    commit of visible or pending rows. `columns` contains the names of the table's columns. `is_unique` states whether
    the table records that the visible rows are unique by the key of the pending rows. A merge then replaces at most one
    visible row for each pending row.
    """

    published_by: str | None
    has_pending: bool
    commits_whole: bool
    sources: tuple[SourceFile, ...]
    version: str
    columns: tuple[str, ...]
    unpublished: tuple[SourceFile, ...] = ()
    is_unique: bool = False

    @property
    def written(self) -> tuple[SourceFile, ...]:
        """All files whose rows this connector may have written, including the deleted rows in these files.

        The returned files therefore have no position deletes.
        """
        return tuple(replace(source, position_deletes=()) for source in (*self.sources, *self.unpublished))


class Rebuild(Protocol):
    """The steps that rebuild one table from its archive.

    Methods may raise TableConflict, TableBusy, CommitStateUnknown, or exceptions of the AWS libraries.
    """

    def state(self, name: TableName) -> TableState | None:
        """Return the state of the table `name`, or None if that table does not exist."""

    def clone(self, rebuilt: TableName, marks: dict[str, str]) -> None:
        """Create the rebuilt table with the columns and layout of this table, but without rows.

        Add `marks` to the parameters of the rebuilt table.
        """

    def begin(self) -> None:
        """If the table's type allows only one writer at a time, make the next commit of each running sync fail."""

    def take_over(self, rebuilt: TableName, expected: TableState) -> bool:
        """Replace this table's rows with those of the rebuilt table in one step, and drop the rebuilt table.

        Returns False and changes nothing if this table's state differs from `expected`.
        """

    def drop(self, rebuilt: TableName) -> None:
        """Drop the rebuilt table.

        Some files of the rebuilt table may remain. Later syncs, or the maintenance that removes orphan files, delete
        them.
        """
