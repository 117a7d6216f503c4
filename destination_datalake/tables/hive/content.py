"""Where a sync's files belong in a Hive table: among the rows that it shows, or aside, until they are published."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from destination_datalake.schema.evolution import Widen, apply_changes, evolve
from destination_datalake.schema.glue import glue_type, parse_glue_type
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.fencing import TOKEN_PROPERTY, Fenced, FencingToken
from destination_datalake.tables.glue.glue_table import TableInput
from destination_datalake.tables.glue.storage_descriptor import column_types, set_column_types, table_location
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.leftovers import Standing, leftovers, note, strike
from destination_datalake.tables.hive.replacement import (
    PendingOverwrite,
    forget,
    note_lowest_generation,
)
from destination_datalake.tables.table import TableName

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Content:
    """A folder (an S3 URI without a slash at the end), and the types of the columns that its files hold."""

    folder: str
    types: Mapping[str, ColumnType | None]

    def widened(self, columns: Sequence[Field]) -> Content:
        """Return the content once it is wide enough for files with these columns; equal if it is already."""
        widenings = [change for change in evolve(self.types, columns).changes if isinstance(change, Widen)]
        return replace(self, types=apply_changes(self.types, widenings))

    def changed(self, other: Content) -> dict[str, ColumnType]:
        """Return the types that differ in `other`, as they are there."""
        return {n: type_ for n, type_ in other.types.items() if type_ is not None and type_ != self.types.get(n)}


class Place(Protocol):
    """Where files belong. Both methods work on the table's entry as it is being read or updated."""

    def content(self, entry: TableInput) -> Content:
        """Return what the entry says. Raises Fenced if the place is another sync's by now."""

    def point(self, entry: TableInput, content: Content) -> None:
        """Let the entry say that the content is there, with those types; a folder that it leaves is listed as left."""

    def publish(self, entry: TableInput) -> None:
        """Let readers see the place's content instead of what they see now. Raises Fenced."""


class Shown:
    """What the table shows: its own location and types. Any sync may append to it."""

    def __init__(self, table: TableName) -> None:
        self._table = table

    def content(self, entry: TableInput) -> Content:
        """Return the table's location and types."""
        return Content(table_location(entry), column_types(entry))

    def point(self, entry: TableInput, content: Content) -> None:
        """Change the table's location and types."""
        _show(entry, content, self._table)

    def publish(self, entry: TableInput) -> None:
        """Do nothing: it is what readers see."""


class Aside:
    """A replacement that is not published. Only the sync that has the table's fencing token may touch it."""

    def __init__(self, table: TableName, token: FencingToken) -> None:
        self._table = table
        self._token = token
        self._published = ""

    def content(self, entry: TableInput) -> Content:
        """Return the replacement's folder and types."""
        left = self._left(entry)
        noted = {name: parse_glue_type(text) for name, text in left.types.items()}
        return Content(left.location, {**column_types(entry), **noted})

    def point(self, entry: TableInput, content: Content) -> None:
        """Change what the entry notes of the replacement; no reader has been in the folder that it leaves."""
        left = self._left(entry)
        if left.location != content.folder:
            note(entry, left.location, Standing.DEAD)
            strike(entry, content.folder)
        PendingOverwrite(content.folder, left.generation, words_of(content.types)).note(entry)

    def publish(self, entry: TableInput) -> None:
        """Let the table show the replacement, with its types; nobody needs the table for itself any more."""
        if self._published and self._published in (table_location(entry), *leftovers(entry)):
            return  # An answer was lost: this is the entry as it was left, or as others have changed it since.
        left, content = self._left(entry), self.content(entry)
        self._published = content.folder
        _show(entry, content, self._table)
        forget(entry)
        entry["Parameters"].pop(TOKEN_PROPERTY, None)
        note_lowest_generation(entry, left.generation)

    def _left(self, entry: TableInput) -> PendingOverwrite:
        self._token.require(entry["Parameters"], self._table)
        left = PendingOverwrite.noted(entry)
        if left is None:
            raise Fenced(self._table)
        return left


def words_of(types: Mapping[str, ColumnType | None]) -> dict[str, str]:
    """Return types in Glue's words, without those that are not ours."""
    return {name: glue_type(type_) for name, type_ in types.items() if type_ is not None}


def _show(entry: TableInput, content: Content, table: TableName) -> None:
    before = table_location(entry)
    set_column_types(entry, content.types)
    if before == content.folder:
        return
    entry["StorageDescriptor"]["Location"] = f"{content.folder}/"
    strike(entry, content.folder)
    if Folders.ours(before):
        note(entry, before, Standing.SUPERSEDED)
    else:
        _logger.info(
            "Table %s has moved from %s, where its old files stay: they are not ours to remove.", table, before
        )
