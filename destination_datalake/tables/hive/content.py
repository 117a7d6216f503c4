"""The published and the pending content of a Hive table, and how appends and overwrites change them.

The term content means a folder of data files, together with the types of the columns in these files. Readers see only
published content.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

import msgspec

from destination_datalake.aws.objects import S3Address
from destination_datalake.partitioning.projection import LOCATION
from destination_datalake.protocol.catalog import Stream
from destination_datalake.schema.evolution import Widen, apply_changes, evolve
from destination_datalake.schema.glue import glue_type, parse_glue_type
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.fencing import OVERWRITES_PROPERTY, TOKEN_PROPERTY, Fenced, FencingToken, Overwrites
from destination_datalake.tables.glue.glue_table import (
    TableInput,
    column_types,
    described,
    set_column_types,
    table_location,
)
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.partitions import mark_partitions_stale
from destination_datalake.tables.table import (
    LOWEST_GENERATION_PROPERTY,
    PUBLISHED_BY_PROPERTY,
    InvalidProperty,
    TableName,
    json_property,
    number_property,
)

# --- Content ----------------------------------------------------------------------------------------------------------
# The published and the pending content of a Hive table, as the table's Glue entry describes them.
#
# The connector changes parameters only by compare-and-set. Do not change their keys or formats, because tables that
# earlier versions of the connector created use them.

_logger = logging.getLogger(__name__)

PENDING_LOCATION = "airbyte.unpublished-location"
_PENDING_GENERATION = "airbyte.unpublished-generation-id"
_PENDING_TYPES = "airbyte.unpublished-types"
_OTHER_FOLDERS = "airbyte.other-locations"
_LAST_COMMIT = "airbyte.last-commit"

_STRINGS = msgspec.json.Decoder(dict[str, str])

CONTENT_PARAMETERS = (
    LOWEST_GENERATION_PROPERTY,
    PENDING_LOCATION,
    _PENDING_GENERATION,
    _PENDING_TYPES,
    _OTHER_FOLDERS,
    _LAST_COMMIT,
)
"""The Glue table parameters that describe the rows and the folders of a Hive table."""


@dataclass(frozen=True, slots=True)
class PendingOverwrite:
    """An overwrite that is not published yet.

    `location` is the S3 URI of the overwrite's folder. `type_names` maps the overwrite's columns to Glue's names for
    their types. The folder contains acknowledged records, which the platform does not send again. A sync of the same
    generation continues the overwrite. An overwrite of a newer generation discards the pending one. An append takes
    over the rows of the pending overwrite.
    """

    location: str
    generation: int | None
    type_names: Mapping[str, str]

    @classmethod
    def load(cls, table_input: TableInput) -> Self | None:
        """Read the pending overwrite from the table's parameters. Return None if no overwrite is pending.

        Raises InvalidProperty.
        """
        parameters = table_input["Parameters"]
        if not parameters.get(PENDING_LOCATION):
            return None
        location, table = parameters[PENDING_LOCATION], described(table_input)
        try:
            S3Address.parse(location)
        except ValueError as error:
            raise InvalidProperty(table, PENDING_LOCATION) from error
        has_generation = parameters.get(_PENDING_GENERATION) != str(None)
        generation = number_property(parameters, _PENDING_GENERATION, table) if has_generation else None
        type_names = json_property(parameters, _PENDING_TYPES, _STRINGS, table) or {}
        return cls(location, generation, type_names)

    def save(self, table_input: TableInput) -> None:
        """Record this overwrite in the table's parameters, in place of any other pending overwrite."""
        # The types of another pending overwrite must not stay, because an empty mapping is not written.
        self.clear(table_input)
        table_input["Parameters"][PENDING_LOCATION] = self.location
        table_input["Parameters"][_PENDING_GENERATION] = str(self.generation)
        if self.type_names:
            table_input["Parameters"][_PENDING_TYPES] = json.dumps(self.type_names)

    @staticmethod
    def clear(table_input: TableInput) -> None:
        """Remove the pending overwrite from the table's parameters."""
        for key in (PENDING_LOCATION, _PENDING_GENERATION, _PENDING_TYPES):
            table_input["Parameters"].pop(key, None)

    def types(self) -> dict[str, ColumnType | None]:
        """Return the types of the overwrite's columns. None stands for a type that this connector never writes."""
        return {name: parse_glue_type(type_name) for name, type_name in self.type_names.items()}


class FolderState(StrEnum):
    """The state of a folder that does not hold the table's present content."""

    SUPERSEDED = "superseded"
    """The folder held published content. Readers may still be reading it."""
    DEAD = "dead"
    """The folder was never published.

    It holds an unfinished copy, or the files of a pending overwrite that a later sync discarded or took over.
    """


def other_folders(table_input: TableInput) -> dict[str, FolderState]:
    """Return the folders listed in the table's parameters, as S3 URIs, with their states.

    This connector lists only folders that it created, and none that holds the present content. Callers must not delete
    folders outside the list. Other programs can change or copy the list, so callers must also check that the folders
    belong to this table. Raises InvalidProperty.
    """
    listed = json_property(table_input["Parameters"], _OTHER_FOLDERS, _STRINGS, described(table_input)) or {}
    superseded = FolderState.SUPERSEDED
    return {folder: superseded if state == superseded else FolderState.DEAD for folder, state in listed.items()}


def list_folder(table_input: TableInput, folder: str, state: FolderState) -> None:
    """Add a folder to the list in the table's parameters, or change the state of a listed folder."""
    _save_folders(table_input, {**other_folders(table_input), folder: state})


def unlist_folders(table_input: TableInput, *folders: str) -> None:
    """Remove folders from the list in the table's parameters. The folders are deleted, or now hold the content."""
    listed = other_folders(table_input)
    _save_folders(table_input, {folder: state for folder, state in listed.items() if folder not in folders})


def lists_folder(glue_table: Mapping[str, Any], folder: str) -> bool:
    """Return whether the parameters of a table of any kind, which may be malformed, name a folder of a Hive table."""
    parameters = glue_table.get("Parameters", {})
    texts = [parameters.get(key, "") for key in (PENDING_LOCATION, _OTHER_FOLDERS)]
    return any(name in text for name in (folder, json.dumps(folder)[1:-1]) for text in texts)


def _save_folders(table_input: TableInput, listed: Mapping[str, FolderState]) -> None:
    if listed:
        table_input["Parameters"][_OTHER_FOLDERS] = json.dumps(listed)
    else:
        table_input["Parameters"].pop(_OTHER_FOLDERS, None)


def lowest_generation(table_input: TableInput) -> int | None:
    """Return the lowest generation of the table's rows, or None if other writers have added rows to the table.

    Raises InvalidProperty.
    """
    return number_property(table_input["Parameters"], LOWEST_GENERATION_PROPERTY, described(table_input))


def save_lowest_generation(table_input: TableInput, generation: int | None) -> None:
    """Record the lowest generation of the table's rows.

    If `generation` is None, remove the recorded value, because the stream's records have no generation.
    """
    if generation is None:
        table_input["Parameters"].pop(LOWEST_GENERATION_PROPERTY, None)
    else:
        table_input["Parameters"][LOWEST_GENERATION_PROPERTY] = str(generation)


def save_overwrites(table_input: TableInput, overwrites: Overwrites) -> None:
    """Record the generations of the table's overwrites in its parameters, unless they are unchanged."""
    if overwrites != Overwrites.load(table_input["Parameters"]):
        table_input["Parameters"][OVERWRITES_PROPERTY] = str(overwrites)


def save_commit(table_input: TableInput, commit: str) -> None:
    """Record the unique ID of a commit in the table's parameters.

    Every commit thus changes the Glue entry, so that other writers detect the commit by compare-and-set.
    """
    table_input["Parameters"][_LAST_COMMIT] = commit


def last_commit(table_input: TableInput) -> str:
    """Return the ID of the last commit, or an empty string if the table has no commits."""
    commit: str = table_input["Parameters"].get(_LAST_COMMIT, "")
    return commit


@dataclass(frozen=True, slots=True)
class Content:
    """A folder of data files, with the types of the columns in these files.

    `folder` is an S3 URI without a trailing slash. In `types`, None stands for a type that this connector never writes.
    """

    folder: str
    types: Mapping[str, ColumnType | None]

    @classmethod
    def published(cls, table_input: TableInput) -> Self:
        """Return the published content: the table's location and columns."""
        return cls(table_location(table_input), column_types(table_input))

    @classmethod
    def pending(cls, table_input: TableInput, overwrite: PendingOverwrite) -> Self:
        """Return the content of a pending overwrite: its folder, and the table's columns with the overwrite's types."""
        return cls(overwrite.location, {**column_types(table_input), **overwrite.types()})

    def widened(self, columns: Sequence[Field]) -> Self:
        """Return this content with types that are wide enough for files with `columns`.

        If the types are already wide enough, the result equals this content.
        """
        widenings = [change for change in evolve(self.types, columns).changes if isinstance(change, Widen)]
        return replace(self, types=apply_changes(self.types, widenings))

    def types_changed_in(self, changed: Content) -> dict[str, ColumnType]:
        """Return the columns whose types in `changed` differ from those in this content, with the new types."""
        types = changed.types.items()
        return {name: type_ for name, type_ in types if type_ is not None and type_ != self.types.get(name)}


def publish_content(table_input: TableInput, content: Content, table: TableName) -> None:
    """Publish `content`: set the table's location and column types.

    If this connector created the former folder, list that folder as superseded. Mark registered partitions as stale.
    Readers of these partitions see the new content only after a sync has updated the partitions.
    """
    former_folder, types = table_location(table_input), column_types(table_input)
    set_column_types(table_input, content.types)
    if former_folder != content.folder or types != column_types(table_input):
        mark_partitions_stale(table_input, former_folder=former_folder)
    if former_folder == content.folder:
        return
    # Readers that begin after this change list the new folder. Registered partitions follow later.
    table_input["StorageDescriptor"]["Location"] = f"{content.folder}/"
    # Partition projection has a location template of its own, which must follow the table's location.
    template = table_input["Parameters"].get(LOCATION, "")
    if template.startswith(f"{former_folder}/"):
        table_input["Parameters"][LOCATION] = f"{content.folder}{template.removeprefix(former_folder)}"
    # While it was being filled, the folder was listed as dead.
    unlist_folders(table_input, content.folder)
    if Folders.is_created_by_connector(former_folder):
        list_folder(table_input, former_folder, FolderState.SUPERSEDED)
    else:
        _logger.info(
            "Table %s no longer uses folder %s. The old files stay in this folder, because this connector did not "
            "create the folder. Delete the files when no reader needs them.",
            table,
            former_folder,
        )


def folders_in_use(table_input: TableInput) -> set[str]:
    """Return the folders of the published content and of the pending overwrite."""
    pending = PendingOverwrite.load(table_input)
    return {table_location(table_input), *([pending.location] if pending is not None else [])}


# --- Write modes ------------------------------------------------------------------------------------------------------
# Appends and overwrites differ in three ways: the folder for a sync's files, the work that the sync continues from
# earlier syncs, and how the sync publishes.
#
# Only the newest sync may write to a Hive table. It takes the table's fencing token when it begins. Every later change
# of the Glue entry requires that the sync still holds the token.


class WriteMode(ABC):
    """How a sync writes to a Hive table. The subclasses are `Append` and `Overwrite`.

    Methods that change `table_input` must be repeatable: after a conflict with another writer or a lost response, the
    caller calls them again with a newer version of the table.
    """

    adopts: bool = False
    """Whether the table has a pending overwrite whose acknowledged rows the sync must first take over."""

    def __init__(self, table: TableName, sync: str) -> None:
        self._table = table
        self._sync = sync
        self._token = FencingToken.after({}, sync)

    @abstractmethod
    def begin(self, table_input: TableInput, columns: Sequence[Field]) -> None:
        """Take the fencing token, and record in the Glue entry that a sync that writes `columns` has begun."""

    @abstractmethod
    def content(self, table_input: TableInput) -> Content:
        """Return the content to which the sync writes.

        Raises Fenced unless this sync holds the fencing token. An overwrite also raises Fenced if the table records no
        pending overwrite.
        """

    @abstractmethod
    def set_content(self, table_input: TableInput, content: Content) -> None:
        """Make the sync write to `content`, and list the former folder.

        `content` must contain the same rows as the former content.
        """

    @abstractmethod
    def publish(self, table_input: TableInput) -> None:
        """Make the written files visible. An overwrite replaces the old content with these files.

        The files of an append are already visible, so this method does nothing for an append. An overwrite that is not
        published yet raises Fenced in the same cases as the method `content`.
        """

    def require(self, table_input: TableInput) -> None:
        """Raise Fenced unless this sync holds the fencing token."""
        self._token.require(table_input["Parameters"], self._table)

    def holds(self, table_input: TableInput) -> bool:
        """Return whether this sync holds the fencing token."""
        return FencingToken.held(table_input["Parameters"]) == self._token

    def is_fenced(self, table_input: TableInput) -> bool:
        """Return whether another sync has taken the fencing token while this sync held it.

        The epochs begin again at 1 after a release. So a later epoch shows that this sync has not released the token.
        """
        held = FencingToken.held(table_input["Parameters"])
        return held is not None and held.epoch > self._token.epoch

    def release(self, table_input: TableInput) -> None:
        """Remove this sync's fencing token. Do nothing if another sync holds the token."""
        if self.holds(table_input):
            del table_input["Parameters"][TOKEN_PROPERTY]

    def _take(self, table_input: TableInput) -> None:
        self._token = FencingToken.after(table_input["Parameters"], self._sync)
        self._token.write_to(table_input["Parameters"])


class Append(WriteMode):
    """Appends: a sync writes directly to the published content."""

    def __init__(self, table: TableName, folders: Folders, generation: int | None, sync: str) -> None:
        super().__init__(table, sync)
        self._folders = folders
        self._generation = generation

    def begin(self, table_input: TableInput, columns: Sequence[Field]) -> None:  # noqa: ARG002
        """Take the fencing token. Record the lowest generation, unless other writers have added rows to the table."""
        self._take(table_input)
        self.adopts = PendingOverwrite.load(table_input) is not None
        lowest, generation = lowest_generation(table_input), self._generation
        # Rows without a known generation are in the folder, unless it is empty. The lowest generation then stays
        # unknown.
        if generation is not None and (lowest is not None or self._folders.is_empty(table_location(table_input))):
            save_lowest_generation(table_input, generation if lowest is None else min(lowest, generation))

    def content(self, table_input: TableInput) -> Content:
        """Return the published content. Raises Fenced unless this sync holds the fencing token."""
        self.require(table_input)
        return Content.published(table_input)

    def set_content(self, table_input: TableInput, content: Content) -> None:
        """Publish `content` at once."""
        publish_content(table_input, content, self._table)

    def publish(self, table_input: TableInput) -> None:
        """Do nothing, because each commit of an append was visible immediately. Never raises Fenced."""


class Overwrite(WriteMode):
    """Overwrites: a sync writes to a separate folder, which becomes the table's location on publication.

    All syncs that attempt the same overwrite share the generation `attempt`, which is None if the platform sends no
    generation. `new_folder` is an unused folder. It stays unused if the sync continues an earlier attempt.
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
        """Return whether the sync must overwrite the table. If False, it must append.

        Raises TableConflict if the sync's generation is not allowed (see `Overwrites.overwritten_by`).
        """
        pending = self._continues(PendingOverwrite.load(table_input))
        overwrites = Overwrites.load(table_input["Parameters"])
        return overwrites.overwritten_by(stream, self._table, lowest_generation(table_input), pending=pending)

    def begin(self, table_input: TableInput, columns: Sequence[Field]) -> None:
        """Take the fencing token. Then continue the pending overwrite of the same attempt, or begin a new overwrite.

        A new overwrite discards a pending overwrite of another attempt: this method lists the folder of the discarded
        overwrite as dead.
        """
        self._take(table_input)
        pending = PendingOverwrite.load(table_input)
        removed = [] if pending is None or pending.generation is None else [pending.generation]
        overwrites = Overwrites.load(table_input["Parameters"])
        save_overwrites(table_input, overwrites.begun(self._attempt, [] if self._continues(pending) else removed))
        if self._continues(pending):
            return
        if pending is not None:
            list_folder(table_input, pending.location, FolderState.DEAD)
        types = Content.published(table_input).widened(columns).types
        self._save(table_input, Content(self._new_folder, types), self._generation)

    def content(self, table_input: TableInput) -> Content:
        """Return the content of the pending overwrite.

        Raises Fenced unless this sync holds the fencing token and the table records a pending overwrite.
        """
        return Content.pending(table_input, self._pending(table_input))

    def set_content(self, table_input: TableInput, content: Content) -> None:
        """Record `content` as that of the pending overwrite.

        If the former folder differs from the new one, list the former folder as dead, because no reader has seen it.
        Raises Fenced in the same cases as the method `content`.
        """
        pending = self._pending(table_input)
        if pending.location != content.folder:
            list_folder(table_input, pending.location, FolderState.DEAD)
            unlist_folders(table_input, content.folder)
        self._save(table_input, content, pending.generation)

    def publish(self, table_input: TableInput) -> None:
        """Publish the content of the pending overwrite. Do nothing if an earlier call has published the content.

        Otherwise, raises Fenced in the same cases as the method `content`.
        """
        if self._published and self._was_content(self._published, table_input):
            # An earlier call published the overwrite, but its response was lost. Other writers may have changed the
            # table since then.
            return
        pending, content = self._pending(table_input), self.content(table_input)
        # The update may be repeated after a lost response. Then this folder shows that the first request took effect.
        self._published = content.folder
        publish_content(table_input, content, self._table)
        mark_partitions_stale(table_input, replaced=True)
        PendingOverwrite.clear(table_input)
        save_lowest_generation(table_input, pending.generation)
        save_overwrites(table_input, Overwrites.load(table_input["Parameters"]).published())
        table_input["Parameters"][PUBLISHED_BY_PROPERTY] = self._sync

    @staticmethod
    def _was_content(folder: str, table_input: TableInput) -> bool:
        """Return whether readers of the table see, or once saw, the files in a folder.

        Folders listed as dead were never published.
        """
        is_superseded = other_folders(table_input).get(folder) is FolderState.SUPERSEDED
        return folder == table_location(table_input) or is_superseded

    def _continues(self, pending: PendingOverwrite | None) -> bool:
        if pending is None:
            return False
        # Without a generation, only the folder shows that this sync itself has begun the overwrite.
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
