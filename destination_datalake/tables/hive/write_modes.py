"""Append and overwrite: where a sync's files go, what it takes over from earlier syncs, and what publishing means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from destination_datalake.protocol.catalog import Stream
from destination_datalake.schema.glue import glue_type
from destination_datalake.schema.types import Field
from destination_datalake.tables.fencing import TOKEN_PROPERTY, Fenced, FencingToken, Overwrites
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput
from destination_datalake.tables.glue.storage_descriptor import table_location
from destination_datalake.tables.hive.adoption import Adoption
from destination_datalake.tables.hive.content import Content, WriteTarget, publish_content
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.parameters import (
    FolderState,
    PendingOverwrite,
    list_folder,
    lowest_generation,
    other_folders,
    save_lowest_generation,
    save_overwrites,
    unlist_folders,
)
from destination_datalake.tables.hive.partitions.index import PartitionIndex
from destination_datalake.tables.hive.partitions.state import mark_behind
from destination_datalake.tables.hive.widening import Widening
from destination_datalake.tables.table import Rewrite, TableName


class WriteMode(WriteTarget, Protocol):
    """What differs between a sync that appends and one that overwrites.

    Methods with a `table_input` may be called again with another one, after an optimistic-concurrency conflict or when
    the answer to an update was lost.
    """

    def begin(self, table_input: TableInput, columns: Sequence[Field]) -> None:
        """Save in the table's parameters what this sync, which writes `columns`, is about to do."""

    def adopt_pending(self, rewrite: Rewrite) -> None:
        """Adopt the rows of a pending overwrite, if this sync must do that. Raises RewriteFailed."""

    def publish(self, table_input: TableInput) -> None:
        """Let readers see what was written, instead of the old content or beside it. Raises Fenced."""


class Append:
    """Writes to the content that readers see. Any number of syncs may append to a table at the same time.

    A sync that appends first adopts the rows of a pending overwrite, because they were acknowledged.
    """

    def __init__(
        self,
        glue_table: GlueTable,
        folders: Folders,
        index: PartitionIndex,
        widening: Widening,
        generation: int | None,
        sync: str,
    ) -> None:
        self._glue_table = glue_table
        self._folders = folders
        self._index = index
        self._widening = widening
        self._generation = generation
        self._sync = sync
        self._adoption: Adoption | None = None

    def begin(self, table_input: TableInput, columns: Sequence[Field]) -> None:  # noqa: ARG002
        """Save the lowest generation; take the fencing token if a pending overwrite must be adopted."""
        self._save_lowest_generation(table_input)
        parameters = table_input["Parameters"]
        self._adoption = None
        if PendingOverwrite.load(table_input) is not None or FencingToken.held(parameters) is not None:
            token = FencingToken.after(parameters, self._sync)
            self._adoption = Adoption(self._glue_table, self._folders, self._index, self._widening, self, token)
            token.write_to(parameters)

    def adopt_pending(self, rewrite: Rewrite) -> None:
        """Adopt the pending overwrite that was found at the beginning, once."""
        if self._adoption is not None:
            self._adoption.adopt(rewrite)
            self._adoption = None

    def content(self, table_input: TableInput) -> Content:
        """Return the published content."""
        return Content.published(table_input)

    def set_content(self, table_input: TableInput, content: Content) -> None:
        """Publish `content`."""
        publish_content(table_input, content, self._glue_table.name)

    def publish(self, table_input: TableInput) -> None:
        """Do nothing: readers have seen every commit at once."""

    def _save_lowest_generation(self, table_input: TableInput) -> None:
        """Take this sync's rows into account, unless other writers have filled the table."""
        before, own = lowest_generation(table_input), self._generation
        if own is not None and (before is not None or self._folders.is_empty(table_location(table_input))):
            save_lowest_generation(table_input, own if before is None else min(before, own))


class Overwrite:
    """Writes to a folder of its own, which publishing makes the table's location. Holds the table's fencing token.

    `attempt` is the generation by which attempts at the same overwrite recognise each other, None if they cannot;
    `new_folder` is an unused folder for an overwrite that continues no earlier one.
    """

    def __init__(
        self, table: TableName, generation: int | None, attempt: int | None, sync: str, new_folder: str
    ) -> None:
        self._table = table
        self._generation = generation
        self._attempt = attempt
        self._sync = sync
        self._new_folder = new_folder
        self._token = FencingToken.after({}, sync)
        self._published = ""

    def is_wanted(self, table_input: TableInput, stream: Stream) -> bool:
        """Whether the sync is to overwrite the table. Raises TableConflict if its generation may not write to it."""
        pending = self._continues(PendingOverwrite.load(table_input))
        overwrites = Overwrites.of(table_input["Parameters"])
        return overwrites.overwritten_by(stream, self._table, lowest_generation(table_input), pending=pending)

    def begin(self, table_input: TableInput, columns: Sequence[Field]) -> None:
        """Take the fencing token; continue a pending overwrite of the same attempt, or begin a new one."""
        pending = PendingOverwrite.load(table_input)
        removed = [] if pending is None or pending.generation is None else [pending.generation]
        overwrites = Overwrites.of(table_input["Parameters"])
        save_overwrites(table_input, overwrites.begun(self._attempt, [] if self._continues(pending) else removed))
        self._token = FencingToken.after(table_input["Parameters"], self._sync)
        if not self._continues(pending):
            if pending is not None:
                list_folder(table_input, pending.location, FolderState.DEAD)
            types = Content.published(table_input).widened(columns).types
            self._save(table_input, Content(self._new_folder, types), self._generation)
        self._token.write_to(table_input["Parameters"])

    def adopt_pending(self, rewrite: Rewrite) -> None:
        """Do nothing: a pending overwrite was continued or discarded at the beginning."""

    def content(self, table_input: TableInput) -> Content:
        """Return the content of the pending overwrite."""
        return Content.pending(table_input, self._pending(table_input))

    def set_content(self, table_input: TableInput, content: Content) -> None:
        """Save `content` as that of the pending overwrite; no reader has been in the folder that it leaves."""
        pending = self._pending(table_input)
        if pending.location != content.folder:
            list_folder(table_input, pending.location, FolderState.DEAD)
            unlist_folders(table_input, content.folder)
        self._save(table_input, content, pending.generation)

    def publish(self, table_input: TableInput) -> None:
        """Make the pending overwrite the published content, and release the fencing token."""
        if self._published and self._published in (table_location(table_input), *other_folders(table_input)):
            return  # An answer was lost: this table has been published already, and perhaps changed by others since.
        pending, content = self._pending(table_input), self.content(table_input)
        self._published = content.folder
        publish_content(table_input, content, self._table)
        mark_behind(table_input, replaced=True)
        PendingOverwrite.clear(table_input)
        table_input["Parameters"].pop(TOKEN_PROPERTY, None)
        save_lowest_generation(table_input, pending.generation)
        save_overwrites(table_input, Overwrites.of(table_input["Parameters"]).published())

    def _continues(self, pending: PendingOverwrite | None) -> bool:
        if pending is None:
            return False
        same_attempt = self._attempt is not None and pending.generation == self._attempt
        return same_attempt or pending.location == self._new_folder

    def _pending(self, table_input: TableInput) -> PendingOverwrite:
        self._token.require(table_input["Parameters"], self._table)
        pending = PendingOverwrite.load(table_input)
        if pending is None:
            raise Fenced(self._table)
        return pending

    def _save(self, table_input: TableInput, content: Content, generation: int | None) -> None:
        type_names = {name: glue_type(type_) for name, type_ in content.types.items() if type_ is not None}
        PendingOverwrite(content.folder, generation, type_names).save(table_input)
