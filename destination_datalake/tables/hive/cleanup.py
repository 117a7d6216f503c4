"""Deletion of folders that a Hive table has left. Readers may still be in a folder when the table leaves it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain

from destination_datalake.aws.errors import explain
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput
from destination_datalake.tables.glue.storage_descriptor import table_location
from destination_datalake.tables.hive.content import folders_in_use
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.parameters import FolderState, list_folder, other_folders, unlist_folders
from destination_datalake.tables.hive.partitions.index import PartitionIndex

_logger = logging.getLogger(__name__)


class Cleanup:
    """Decides when folders are deleted, and deletes them.

    `table_input` is the table at the beginning of the sync: folders listed then were left by earlier syncs, and are
    deleted by this one. Of the folders that this sync leaves, the table's first and the last are kept for readers until
    the next sync. Before any folder is deleted, partitions in it follow the content, and what the table and all its
    partitions refer to then is read anew.
    """

    def __init__(self, glue_table: GlueTable, folders: Folders, table_input: TableInput, index: PartitionIndex) -> None:
        self._glue_table = glue_table
        self._folders = folders
        self._index = index
        self._first_folder = table_location(table_input)
        self._last_left: set[str] = set()
        self._obsolete = set(other_folders(table_input))

    def mark_dead(self, table_input: TableInput) -> Sequence[str]:
        """List the obsolete folders as dead; return all dead ones. A sync that is writing to one will notice."""
        for folder in other_folders(table_input).keys() & self._obsolete:
            list_folder(table_input, folder, FolderState.DEAD)
        dead = {folder for folder, state in other_folders(table_input).items() if state is FolderState.DEAD}
        return sorted(dead - folders_in_use(table_input))

    def on_left(self, folder: str) -> None:
        """Delete what this sync left before `folder`, which it has just left. Failures are logged as by `delete`."""
        self._obsolete |= self._last_left
        self._last_left = {folder} - {self._first_folder}
        try:
            dead = self._glue_table.update(self.mark_dead)
        except Exception as error:
            self._warn(error, ())
        else:
            self.delete(dead)

    def delete(self, dead: Sequence[str]) -> None:
        """Delete folders that `mark_dead` returned, and take them out of the list.

        A failure is logged and not raised, as the table's rows are right without it.
        """
        if not dead:
            return
        try:
            self._index.leave_former_folders()
            unused = self._unused(dead)
            for folder in unused:
                self._folders.delete_folder(folder)
            self._glue_table.update(lambda table_input: unlist_folders(table_input, *unused))
        except Exception as error:
            self._warn(error, dead)

    def _unused(self, dead: Sequence[str]) -> list[str]:
        """Return the folders where nothing is that the table refers to, nor around them: engines read to any depth."""
        kept: dict[str, str] = {}
        for location in chain(folders_in_use(self._glue_table.read()), self._index.locations()):
            kept |= {each: location for each in dead if f"{location}/".startswith(f"{each}/")}
            kept |= {each: location for each in dead if each.startswith(f"{location}/")}
        for folder in kept:
            _logger.warning(
                "Folder %s is not deleted: table %s has left it, and refers to it again by its location or that of a "
                "partition. Move the rows that are needed elsewhere, or ignore this.",
                folder,
                self._glue_table.name,
            )
        return [each for each in dead if each not in kept]

    def _warn(self, error: Exception, folders: Sequence[str]) -> None:
        table = f"table {self._glue_table.name}"
        failure = explain(error, doing="remove old files of", resource=table)
        _logger.warning(
            "%s The table's rows are right, and the sync continues. The next one tries again: %s.",
            failure.message if failure is not None else f"Cannot remove old files of {table}: {error!r}.",
            ", ".join(folders) or "folders that the table has left",
        )
