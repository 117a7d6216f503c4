"""Append and overwrite: where a sync's files go, what it takes over from earlier syncs, and what publishing means.

One sync at a time writes to a Hive table: the newest. It takes the table's fencing token when it begins, and every
change of the table's Glue entry requires that it is still there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from destination_datalake.protocol.catalog import Stream
from destination_datalake.schema.glue import glue_type
from destination_datalake.schema.types import Field
from destination_datalake.tables.fencing import TOKEN_PROPERTY, Fenced, FencingToken, Overwrites
from destination_datalake.tables.glue.glue_table import TableInput, table_location
from destination_datalake.tables.hive.content import (
    Content,
    FolderState,
    PendingOverwrite,
    list_folder,
    lowest_generation,
    other_folders,
    publish_content,
    save_lowest_generation,
    save_overwrites,
    unlist_folders,
)
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.partition_index import mark_partitions_stale
from destination_datalake.tables.table import PUBLISHED_BY_PROPERTY, TableName


class WriteMode(ABC):
    """What differs between a sync that appends and one that overwrites.

    Methods with a `table_input` may be called again with another one, after an optimistic-concurrency conflict or when
    the answer to an update was lost.
    """

    adopts: bool = False
    """Whether the rows of a pending overwrite, which were acknowledged, must be taken into the content first."""

    def __init__(self, table: TableName, sync: str) -> None:
        self._table = table
        self._sync = sync
        self._token = FencingToken.after({}, sync)

    @abstractmethod
    def begin(self, table_input: TableInput, columns: Sequence[Field]) -> None:
        """Save what this sync, which writes `columns`, is about to do; take the fencing token."""

    @abstractmethod
    def content(self, table_input: TableInput) -> Content:
        """Return the content that the sync writes to. Raises Fenced if another sync has taken the table over."""

    @abstractmethod
    def set_content(self, table_input: TableInput, content: Content) -> None:
        """Replace the content by an equivalent one, and list the folder that is left."""

    @abstractmethod
    def publish(self, table_input: TableInput) -> None:
        """Let readers see what was written, instead of the old content or beside it. Raises Fenced."""

    def require(self, table_input: TableInput) -> None:
        """Raise Fenced unless this sync holds the fencing token."""
        self._token.require(table_input["Parameters"], self._table)

    def holds(self, table_input: TableInput) -> bool:
        """Whether this sync holds the fencing token."""
        return FencingToken.held(table_input["Parameters"]) == self._token

    def release(self, table_input: TableInput) -> None:
        """Remove the fencing token if it is this sync's."""
        if self.holds(table_input):
            del table_input["Parameters"][TOKEN_PROPERTY]

    def _take(self, table_input: TableInput) -> None:
        self._token = FencingToken.after(table_input["Parameters"], self._sync)
        self._token.write_to(table_input["Parameters"])


class Append(WriteMode):
    """Writes to the content that readers see."""

    def __init__(self, table: TableName, folders: Folders, generation: int | None, sync: str) -> None:
        super().__init__(table, sync)
        self._folders = folders
        self._generation = generation

    def begin(self, table_input: TableInput, columns: Sequence[Field]) -> None:  # noqa: ARG002
        """Take the token; save the lowest generation, unless other writers have filled the table."""
        self._take(table_input)
        self.adopts = PendingOverwrite.load(table_input) is not None
        before, own = lowest_generation(table_input), self._generation
        if own is not None and (before is not None or self._folders.is_empty(table_location(table_input))):
            save_lowest_generation(table_input, own if before is None else min(before, own))

    def content(self, table_input: TableInput) -> Content:
        """Return the published content."""
        self.require(table_input)
        return Content.published(table_input)

    def set_content(self, table_input: TableInput, content: Content) -> None:
        """Publish `content`."""
        publish_content(table_input, content, self._table)

    def publish(self, table_input: TableInput) -> None:
        """Do nothing: readers have seen every commit at once, also those of a sync that is fenced by now."""


class Overwrite(WriteMode):
    """Writes to a folder of its own, which publishing makes the table's location.

    `attempt` is the generation by which attempts at the same overwrite recognise each other, None if they cannot;
    `new_folder` is an unused folder for an overwrite that continues no earlier one.
    """

    def __init__(
        self, table: TableName, generation: int | None, attempt: int | None, sync: str, new_folder: str
    ) -> None:
        super().__init__(table, sync)
        self._generation = generation
        self._attempt = attempt
        self._new_folder = new_folder
        self._published = ""

    def is_wanted(self, table_input: TableInput, stream: Stream) -> bool:
        """Whether the sync is to overwrite the table. Raises TableConflict if its generation may not write to it."""
        pending = self._continues(PendingOverwrite.load(table_input))
        overwrites = Overwrites.of(table_input["Parameters"])
        return overwrites.overwritten_by(stream, self._table, lowest_generation(table_input), pending=pending)

    def begin(self, table_input: TableInput, columns: Sequence[Field]) -> None:
        """Take the token; continue a pending overwrite of the same attempt, or begin a new one."""
        self._take(table_input)
        pending = PendingOverwrite.load(table_input)
        removed = [] if pending is None or pending.generation is None else [pending.generation]
        overwrites = Overwrites.of(table_input["Parameters"])
        save_overwrites(table_input, overwrites.begun(self._attempt, [] if self._continues(pending) else removed))
        if self._continues(pending):
            return
        if pending is not None:
            list_folder(table_input, pending.location, FolderState.DEAD)
        types = Content.published(table_input).widened(columns).types
        self._save(table_input, Content(self._new_folder, types), self._generation)

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
        """Make the pending overwrite the published content."""
        if self._published and self._published in (table_location(table_input), *other_folders(table_input)):
            return  # An answer was lost: this table has been published already, and perhaps changed by others since.
        pending, content = self._pending(table_input), self.content(table_input)
        self._published = content.folder
        publish_content(table_input, content, self._table)
        mark_partitions_stale(table_input, replaced=True)
        PendingOverwrite.clear(table_input)
        save_lowest_generation(table_input, pending.generation)
        save_overwrites(table_input, Overwrites.of(table_input["Parameters"]).published())
        table_input["Parameters"][PUBLISHED_BY_PROPERTY] = self._sync

    def _continues(self, pending: PendingOverwrite | None) -> bool:
        if pending is None:
            return False
        same_attempt = self._attempt is not None and pending.generation == self._attempt
        return same_attempt or pending.location == self._new_folder

    def _pending(self, table_input: TableInput) -> PendingOverwrite:
        self.require(table_input)
        pending = PendingOverwrite.load(table_input)
        if pending is None:
            raise Fenced(self._table)
        return pending

    def _save(self, table_input: TableInput, content: Content, generation: int | None) -> None:
        type_names = {name: glue_type(type_) for name, type_ in content.types.items() if type_ is not None}
        PendingOverwrite(content.folder, generation, type_names).save(table_input)
