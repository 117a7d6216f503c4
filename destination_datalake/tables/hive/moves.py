"""Moves a Hive table's files to other folders. Each file keeps its name.

There are two kinds of moves. If engines cannot read the old files with wider column types, a widening rewrites all
files into a new folder. An append copies the files of a pending (unpublished) overwrite into the table's content,
because the connector has acknowledged the rows in these files. If readers may still read a former folder, the next sync
deletes it. Otherwise the same sync deletes it.

The sync that moves files holds the table's fencing token, the exclusive right to write. During the move, a sync that
has lost the token may delete its own unacknowledged files, and other engines may add files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from destination_datalake.aws.errors import explain
from destination_datalake.aws.objects import S3Address, retry_until_done
from destination_datalake.errors import Failure
from destination_datalake.files.plan import RewriteFailed, RewriteTask, Rewritten
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput, table_location
from destination_datalake.tables.hive.content import (
    PENDING_LOCATION,
    Content,
    FolderState,
    PendingOverwrite,
    WriteMode,
    folders_in_use,
    list_folder,
    lists_folder,
    lowest_generation,
    other_folders,
    save_lowest_generation,
    unlist_folders,
)
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.partitions import PartitionIndex, mark_partitions_stale
from destination_datalake.tables.table import Rewrite, TableBusy, TableName, table_conflict

if TYPE_CHECKING:
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.naming import TableLocation

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves the files of the content to which the sync writes. The write mode `target` determines this content.

    If `in_place` is True, a widening changes only the types in the catalog. The names of new folders contain
    `generation`.

    All methods may raise Fenced if this sync loses the fencing token, and TableBusy if another writer changes the
    table. They raise RewriteFailed if a file cannot be rewritten, or if other writers change files in every attempt.
    """

    glue_table: GlueTable
    folders: Folders
    index: PartitionIndex
    target: WriteMode
    in_place: bool
    generation: int | None

    def widen(self, columns: Sequence[Field], rewrite: Rewrite) -> None:
        """Widen the types of the content's columns for files with `columns`.

        Do nothing if the types are already wide enough.
        """
        content = self.target.content(self.glue_table.read())
        wider = content.widened(columns)
        if wider == content:
            return
        started, types, written = time.monotonic(), content.types_changed_in(wider), list[Rewritten]()
        if not self.in_place and self.folders.files(content.folder):
            wider = replace(wider, folder=self.folders.for_table_at(content.folder, self.generation))
            # First list the new folder. If the copy is not finished, a later sync deletes the folder.
            self.glue_table.update(partial(self._list_copy, folder=wider.folder))
            self._transfer(content.folder, wider.folder, partial(self._rewrite, types, rewrite, written))

        def switch(table_input: TableInput) -> None:
            current = self.target.content(table_input)
            widened = current.widened(columns)
            if current.folder == wider.folder and widened == current:
                return  # An earlier call succeeded, but the response was lost.
            if current.folder != content.folder or current.types_changed_in(widened) != types:
                raise _changed_meanwhile(self.glue_table.name)
            self.target.set_content(table_input, replace(widened, folder=wider.folder))

        # All files are copied. This compare-and-set makes the copies the content. If the process is killed before, the
        # new folder is listed as dead.
        self.glue_table.update(switch)
        if written:
            _logger.info(
                "Table %s: widened column %s and rewrote the table's %d files (%.1f MB, %.1f s).",
                self.glue_table.name,
                ", ".join(sorted(types)),
                len(written),
                sum(file.size for file in written) / 1e6,
                time.monotonic() - started,
            )

    def adopt(self, rewrite: Rewrite) -> None:
        """Copy the files of a pending overwrite into the content, and end the overwrite.

        Do nothing if no overwrite is pending.
        """
        pending = PendingOverwrite.load(self.glue_table.read())
        if pending is None:
            return
        self.widen([Field(name, name, type_) for name, type_ in pending.types().items() if type_ is not None], rewrite)
        table_input = self.glue_table.read()
        content = self.target.content(table_input)
        wider = Content.pending(table_input, pending).types_changed_in(content)
        is_copied = self.in_place or not wider
        transfer = self.folders.copy if is_copied else partial(self._rewrite, wider, rewrite, [])
        names = self._transfer(pending.location, content.folder, transfer)
        partitions = {name.rpartition("/")[0] for name in names}
        # Register after the copy, but before `conclude`: if the process is killed in between, the overwrite is still
        # pending, and the next sync copies the same files again under the same names.
        are_up_to_date = self.index.register(table_input, partitions)

        def conclude(table_input: TableInput) -> None:
            current = self.target.content(table_input)
            if PendingOverwrite.load(table_input) is None:
                return  # An earlier call succeeded, but the response was lost.
            has_same_types = all(current.types.get(name) == content.types.get(name) for name in pending.type_names)
            if current.folder != content.folder or not has_same_types:
                raise _changed_meanwhile(self.glue_table.name)
            self.index.project(table_input, partitions)
            if not are_up_to_date:
                mark_partitions_stale(table_input)
            PendingOverwrite.clear(table_input)
            list_folder(table_input, pending.location, FolderState.DEAD)
            lowest = lowest_generation(table_input)
            if lowest is not None and pending.generation is not None:
                # The content now also contains the adopted rows, which may be of an older generation.
                save_lowest_generation(table_input, min(lowest, pending.generation))

        self.glue_table.update(conclude)

    def _list_copy(self, table_input: TableInput, folder: str) -> None:
        # `content` checks the token: only the holder may list folders.
        self.target.content(table_input)
        list_folder(table_input, folder, FolderState.DEAD)

    def _rewrite(
        self,
        types: Mapping[str, ColumnType],
        rewrite: Rewrite,
        written: list[Rewritten],
        names: Collection[str],
        source: str,
        target: str,
    ) -> None:
        access = self.folders.access
        written += rewrite([RewriteTask(f"{source}/{name}", f"{target}/{name}", types, access) for name in names])

    def _transfer(
        self, source: str, target: str, transfer: Callable[[Collection[str], str, str], object]
    ) -> Collection[str]:
        """Transfer all files from one folder to another with the function `transfer`. Return the files' names.

        If another writer adds files during the transfer, transfer them too. If a file disappears during the transfer,
        it belonged to a failed commit, so delete its copy. Raises RewriteFailed if files change in every attempt.
        """
        etags: dict[str, str] = {}
        """The names and ETags of the transferred files. The ETag is empty if the transfer of a file may have failed."""

        def attempt() -> bool:
            nonlocal etags
            files = self.folders.files(source)
            if deleted := etags.keys() - files.keys():
                # Check the token after the listing. If another sync holds the token by now, it may have adopted these
                # files and deleted the originals. The copies must then stay.
                self.target.content(self.glue_table.read())
                self.folders.delete(f"{target}/{name}" for name in deleted)
            new = [name for name, etag in files.items() if etags.get(name) != etag]
            if not new:
                return True
            # An empty ETag equals no real one, so the next attempt transfers these files again if this one fails.
            etags = {**dict.fromkeys(new, ""), **{name: etags[name] for name in files if name in etags}}
            try:
                transfer(new, source, target)
            except Exception:
                # All files are still there, so the error has another cause.
                if files.keys() <= self.folders.files(source).keys():
                    raise
                return False  # A file was deleted during the transfer.
            # List again: another engine may have added files during the transfer. Only a listing without changes ends
            # the loop.
            etags = files
            return False

        if not retry_until_done(attempt):
            message = (
                f"Cannot move the files of table {self.glue_table.name} to another folder, because other writers "
                "changed them during each attempt. Run the sync again when no other program writes to the table."
            )
            raise RewriteFailed(Failure(message, message, "transient_error"))
        return etags.keys()


def _changed_meanwhile(table: TableName) -> TableBusy:
    return TableBusy(
        f"Another writer changed the location or the columns of table {table} while its files were moved. Run the sync "
        "again."
    )


@dataclass(frozen=True, slots=True)
class FolderOwner:
    """Checks whether folders that the parameters of the table `name` list belong to this table.

    Other programs can change the parameters, or copy them to another table.
    """

    name: TableName
    folders: Folders
    location: TableLocation
    catalog: TableCatalog

    def foreign(self, listed: Collection[str], table_input: TableInput) -> dict[str, str]:
        """Map each of the `listed` folders that does not belong to the table, or not to it alone, to the reason.

        Raises the catalog's errors.
        """
        location = table_location(table_input)
        reasons = {
            folder: "this connector does not create folders of the table there"
            for folder in listed
            if not self.folders.owns(folder, location)
        }
        own = [folder for folder in listed if folder not in reasons]
        for table, entry in self._other_tables(own):
            for folder in own:
                if _uses(entry, folder):
                    reasons[folder] = f"table {table} uses it"
        return reasons

    def require(self, table_input: TableInput, stream: StreamId) -> None:
        """Raise TableConflict if the folder of a pending overwrite does not belong to the table, or not to it alone.

        May also raise the catalog's errors.
        """
        pending = PendingOverwrite.load(table_input)
        if pending is None:
            return
        has_path = self.location.is_path_of(pending.location.rpartition("/")[0])
        if has_path and self.folders.owns(pending.location, table_location(table_input)):
            return  # This saves the requests that list the other tables.
        if reason := self.foreign([pending.location], table_input).get(pending.location):
            problem = (
                f"its parameter {PENDING_LOCATION} names the folder {pending.location}, but {reason}. If another "
                "program copied or changed the parameter, remove it from the table. Otherwise, restore the former "
                "location of the table or the former options"
            )
            raise table_conflict(stream, self.name, problem)

    def _other_tables(self, folders: Collection[str]) -> Iterator[tuple[TableName, Mapping[str, Any]]]:
        """Yield the other tables that may use one of `folders`."""
        if not folders:
            return
        databases = {self.name.database}
        # Tables that were copied from another database may be at the location of the original table.
        if not all(self.location.is_path_of(folder.rpartition("/")[0]) for folder in folders):
            databases |= {database.name for database in self.catalog.databases()}
        for database in sorted(databases):
            for listed in self.catalog.tables(database):
                table = TableName(database, listed.glue_table["Name"])
                if str(table).lower() != str(self.name).lower():  # Glue converts names to lower case.
                    yield table, listed.glue_table


def _uses(glue_table: Mapping[str, Any], folder: str) -> bool:
    """Return whether a table has its location in a folder, or lists the folder in its parameters.

    A location around the folder does not count, because a table over a whole bucket contains the folders of all tables.
    """
    location = glue_table.get("StorageDescriptor", {}).get("Location", "")
    try:
        is_inside = f"{S3Address.parse(location)}/".startswith(f"{folder}/")
    except ValueError:
        is_inside = False
    return is_inside or lists_folder(glue_table, folder)


class Cleanup:
    """Deletes the former folders of a table when no reader needs them any more.

    `table_input` is the table's Glue entry at the beginning of the sync. This sync deletes the folders that are listed
    there, because earlier syncs replaced them. If this sync replaces several folders, the next sync deletes the first
    and the last of them, because readers may still use these two.

    Before the cleanup deletes a folder, it points partitions that are still registered in this folder to the present
    folder. It then reads all locations of the table and its partitions again, and keeps each folder to which a location
    still refers. It also keeps the folders that `FolderOwner.foreign` returns, and removes them from the table's list.
    """

    def __init__(
        self, glue_table: GlueTable, owner: FolderOwner, table_input: TableInput, index: PartitionIndex
    ) -> None:
        self._glue_table = glue_table
        self._owner = owner
        self._folders = owner.folders
        self._index = index
        self._first_folder = table_location(table_input)
        self._last_replaced: set[str] = set()
        self._obsolete = set(other_folders(table_input))

    def dead(self, table_input: TableInput) -> Sequence[str]:
        """Return the former folders that this sync may delete. The sync must hold the table's fencing token."""
        listed = other_folders(table_input).items()
        dead = {folder for folder, state in listed if state is FolderState.DEAD or folder in self._obsolete}
        return sorted(dead - folders_in_use(table_input))

    def replace_folder(self, folder: str, table_input: TableInput) -> None:
        """Keep `folder`, which the sync has just replaced, and delete the folder that the sync replaced before.

        Also keep the folder that held the content at the start of the sync.
        """
        # Readers that began before the last replacement may still use its folder, so delete only the one before it.
        self._obsolete |= self._last_replaced
        self._last_replaced = {folder} - {self._first_folder}
        self.delete(self.dead(table_input))

    def delete(self, dead: Sequence[str]) -> None:
        """Delete folders that the method `dead` returned, and remove them from the table's list.

        Only log a failure, because the table's rows do not depend on these folders.
        """
        if not dead:
            return
        try:
            table_input = self._glue_table.read()
            # First move the partitions, then read all locations again, then delete. An engine must not find a partition
            # whose files are gone.
            self._index.leave_former_folders(table_input)
            foreign = self._owner.foreign(dead, table_input)
            unused = self._unused([folder for folder in dead if folder not in foreign], table_input)
            for folder in unused:
                self._folders.delete_folder(folder)
            for folder, reason in foreign.items():
                _logger.warning(
                    "Folder %s was not deleted, although a parameter of table %s lists it as a former folder: %s. If "
                    "no table needs the folder, delete it.",
                    folder,
                    self._glue_table.name,
                    reason,
                )
            # Unlist last. If the process is killed before, the next sync finds the folders in the list and deletes the
            # rest.
            self._glue_table.update(lambda table_input: unlist_folders(table_input, *unused, *foreign))
        except Exception as error:
            table = f"table {self._glue_table.name}"
            failure = explain(error, doing="remove old files of", resource=table)
            _logger.warning(
                "%s The table's rows are correct, and the sync continues. The next sync deletes these folders: %s.",
                failure.message if failure is not None else f"Cannot remove old files of {table}: {error!r}.",
                ", ".join(dead),
            )

    def _unused(self, dead: Sequence[str], table_input: TableInput) -> list[str]:
        """Return the dead folders to which no location of the table or its partitions refers.

        Log a warning about the other dead folders.

        A location refers to a folder if one contains the other, because engines read folders recursively.
        """
        referenced = dict[str, None]()
        for location in chain(folders_in_use(table_input), self._index.locations(table_input)):
            for folder in dead:
                if f"{location}/".startswith(f"{folder}/") or folder.startswith(f"{location}/"):
                    referenced[folder] = None
        for folder in referenced:
            _logger.warning(
                "Folder %s was not deleted, because the location of table %s or of one of its partitions still "
                "refers to this folder. Move rows that you need to another folder. Otherwise, ignore this warning.",
                folder,
                self._glue_table.name,
            )
        return [folder for folder in dead if folder not in referenced]
