"""The content of a Hive table: a folder with files and the types in them, published or pending."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from destination_datalake.partitioning.projection import LOCATION
from destination_datalake.schema.evolution import Widen, apply_changes, evolve
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.glue.glue_table import TableInput
from destination_datalake.tables.glue.storage_descriptor import column_types, set_column_types, table_location
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.parameters import FolderState, PendingOverwrite, list_folder, unlist_folders
from destination_datalake.tables.hive.partitions.state import mark_behind
from destination_datalake.tables.table import TableName

_logger = logging.getLogger(__name__)


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


class WriteTarget(Protocol):
    """The content that a sync writes to. Both methods are called while the table's Glue entry is read or updated."""

    def content(self, table_input: TableInput) -> Content:
        """Return the content. Raises Fenced if another sync has taken it over."""

    def set_content(self, table_input: TableInput, content: Content) -> None:
        """Replace the content by an equivalent one, and list the folder that is left. Raises Fenced."""


def publish_content(table_input: TableInput, content: Content, table: TableName) -> None:
    """Let readers see `content`: set the table's location and column types, and list the folder that is left.

    Of a partitioned table, they see it when the registered partitions are brought up to date.
    """
    before, types = table_location(table_input), column_types(table_input)
    set_column_types(table_input, content.types)
    if before != content.folder or types != column_types(table_input):
        mark_behind(table_input, left=before)
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
