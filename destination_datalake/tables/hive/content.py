"""The content of a Hive table, published or pending, and what the table's Glue entry says of it in its parameters.

Parameters are changed only by compare-and-set. Keys and values stay as they are: tables of earlier versions have them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from destination_datalake.partitioning.projection import LOCATION
from destination_datalake.schema.evolution import Widen, apply_changes, evolve
from destination_datalake.schema.glue import parse_glue_type
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.fencing import OVERWRITES_PROPERTY, Overwrites
from destination_datalake.tables.glue.glue_table import TableInput, column_types, set_column_types, table_location
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.partition_index import mark_partitions_stale
from destination_datalake.tables.table import LOWEST_GENERATION_PROPERTY, TableName

_logger = logging.getLogger(__name__)

_PENDING_LOCATION = "airbyte.unpublished-location"
_PENDING_GENERATION = "airbyte.unpublished-generation-id"
_PENDING_TYPES = "airbyte.unpublished-types"
_OTHER_FOLDERS = "airbyte.other-locations"
_LAST_COMMIT = "airbyte.last-commit"

OF_CONTENT = (
    LOWEST_GENERATION_PROPERTY,
    _PENDING_LOCATION,
    _PENDING_GENERATION,
    _PENDING_TYPES,
    _OTHER_FOLDERS,
    _LAST_COMMIT,
)
"""The parameters that say something of a table's rows and folders."""


@dataclass(frozen=True, slots=True)
class PendingOverwrite:
    """An overwrite that is not published: its folder (an S3 URI), generation, and Glue's type names by column.

    Its records were acknowledged, so the platform will not send them again: a sync of the same generation continues
    it, an overwrite of a newer generation discards it, and a sync that appends adopts its rows.
    """

    location: str
    generation: int | None
    type_names: Mapping[str, str]

    @classmethod
    def load(cls, table_input: TableInput) -> Self | None:
        """Return the table's pending overwrite, or None if it has none."""
        parameters = table_input["Parameters"]
        if not parameters.get(_PENDING_LOCATION):
            return None
        generation = parameters.get(_PENDING_GENERATION, "")
        type_names: dict[str, str] = json.loads(parameters.get(_PENDING_TYPES, "{}"))
        return cls(parameters[_PENDING_LOCATION], int(generation) if generation.isdecimal() else None, type_names)

    def save(self, table_input: TableInput) -> None:
        """Make it the table's pending overwrite, in place of any other."""
        self.clear(table_input)
        table_input["Parameters"][_PENDING_LOCATION] = self.location
        table_input["Parameters"][_PENDING_GENERATION] = str(self.generation)
        if self.type_names:
            table_input["Parameters"][_PENDING_TYPES] = json.dumps(self.type_names)

    @staticmethod
    def clear(table_input: TableInput) -> None:
        """Leave the table without a pending overwrite."""
        for key in (_PENDING_LOCATION, _PENDING_GENERATION, _PENDING_TYPES):
            table_input["Parameters"].pop(key, None)

    def types(self) -> dict[str, ColumnType | None]:
        """Return the types of its columns."""
        return {name: parse_glue_type(type_name) for name, type_name in self.type_names.items()}


class FolderState(StrEnum):
    """The state of a folder that does not hold the table's content."""

    SUPERSEDED = "superseded"
    """It held the content that readers saw, and they may still be reading it."""
    DEAD = "dead"
    """No reader has been in it: a copy that is being made, or a pending overwrite that was given up or taken in."""


def other_folders(table_input: TableInput) -> dict[str, FolderState]:
    """Return the listed folders (S3 URIs) with their states.

    Only folders created by this connector are listed, and only a listed folder may be deleted.
    """
    listed: dict[str, str] = json.loads(table_input["Parameters"].get(_OTHER_FOLDERS, "{}"))
    superseded = FolderState.SUPERSEDED
    return {folder: superseded if state == superseded else FolderState.DEAD for folder, state in listed.items()}


def list_folder(table_input: TableInput, folder: str, state: FolderState) -> None:
    """List a folder in this state, whether or not it was listed before."""
    _save_folders(table_input, {**other_folders(table_input), folder: state})


def unlist_folders(table_input: TableInput, *folders: str) -> None:
    """Take folders out of the list, because they hold the table's content now or were deleted."""
    listed = other_folders(table_input)
    _save_folders(table_input, {folder: state for folder, state in listed.items() if folder not in folders})


def _save_folders(table_input: TableInput, listed: Mapping[str, FolderState]) -> None:
    if listed:
        table_input["Parameters"][_OTHER_FOLDERS] = json.dumps(listed)
    else:
        table_input["Parameters"].pop(_OTHER_FOLDERS, None)


def lowest_generation(table_input: TableInput) -> int | None:
    """Return the lowest generation among the table's rows; None if it is unknown, as for tables of other writers."""
    lowest = table_input["Parameters"].get(LOWEST_GENERATION_PROPERTY)
    return None if lowest is None else int(lowest)


def save_lowest_generation(table_input: TableInput, generation: int | None) -> None:
    """Set the lowest generation among the table's rows; None if their records have no generation."""
    if generation is None:
        table_input["Parameters"].pop(LOWEST_GENERATION_PROPERTY, None)
    else:
        table_input["Parameters"][LOWEST_GENERATION_PROPERTY] = str(generation)


def save_overwrites(table_input: TableInput, overwrites: Overwrites) -> None:
    """Set the generations of the table's overwrites."""
    if overwrites != Overwrites.of(table_input["Parameters"]):
        table_input["Parameters"][OVERWRITES_PROPERTY] = str(overwrites)


def save_commit(table_input: TableInput, commit: str) -> None:
    """Record a commit by its unique id, so that every commit is a change that compare-and-set notices."""
    table_input["Parameters"][_LAST_COMMIT] = commit


def last_commit(table_input: TableInput) -> str:
    """Return the id of the commit that was made last; empty if there was none."""
    commit: str = table_input["Parameters"].get(_LAST_COMMIT, "")
    return commit


@dataclass(frozen=True, slots=True)
class Content:
    """A folder (an S3 URI without a trailing slash), and the types of the columns that its files hold.

    None is a type that this connector never writes.
    """

    folder: str
    types: Mapping[str, ColumnType | None]

    @classmethod
    def published(cls, table_input: TableInput) -> Self:
        """Return the content that readers see: the table's location and columns."""
        return cls(table_location(table_input), column_types(table_input))

    @classmethod
    def pending(cls, table_input: TableInput, overwrite: PendingOverwrite) -> Self:
        """Return the content of the table's pending overwrite."""
        return cls(overwrite.location, {**column_types(table_input), **overwrite.types()})

    def widened(self, columns: Sequence[Field]) -> Self:
        """Return the content with types wide enough for files with these columns; equal if it has them already."""
        widenings = [change for change in evolve(self.types, columns).changes if isinstance(change, Widen)]
        return replace(self, types=apply_changes(self.types, widenings))

    def types_changed_in(self, other: Content) -> dict[str, ColumnType]:
        """Return the types of `other` that differ from this content's."""
        return {n: type_ for n, type_ in other.types.items() if type_ is not None and type_ != self.types.get(n)}


def publish_content(table_input: TableInput, content: Content, table: TableName) -> None:
    """Let readers see `content`: set the table's location and column types, and list the folder that is left.

    Of a partitioned table, they see it when the registered partitions are brought up to date.
    """
    before, types = table_location(table_input), column_types(table_input)
    set_column_types(table_input, content.types)
    if before != content.folder or types != column_types(table_input):
        mark_partitions_stale(table_input, left=before)
    if before == content.folder:
        return
    table_input["StorageDescriptor"]["Location"] = f"{content.folder}/"
    template = table_input["Parameters"].get(LOCATION, "")
    if template.startswith(f"{before}/"):
        table_input["Parameters"][LOCATION] = f"{content.folder}{template.removeprefix(before)}"
    unlist_folders(table_input, content.folder)
    if Folders.is_ours(before):
        list_folder(table_input, before, FolderState.SUPERSEDED)
    else:
        _logger.info(
            "Table %s has moved from %s. Its old files stay there, as this connector did not create that folder.",
            table,
            before,
        )


def folders_in_use(table_input: TableInput) -> set[str]:
    """Return the folders of the published content and of the pending overwrite."""
    pending = PendingOverwrite.load(table_input)
    return {table_location(table_input), *([pending.location] if pending is not None else [])}
