"""How a table's files move between folders, each file under its own name.

A widening rewrites all files into a new folder, for files of a format that cannot be read with wider columns as they
are. A sync that appends copies the files of a pending overwrite into the table, because their rows were acknowledged.
What the table has left is deleted: by the next sync if readers may still be in it, else by the same one.

The sync that does so holds the table's fencing token. A fenced one may still delete files of its own, which it could
not acknowledge; other engines may add files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from destination_datalake.aws.errors import explain
from destination_datalake.aws.objects import retry_until_done
from destination_datalake.errors import Failure
from destination_datalake.files.plan import RewriteFailed, RewriteTask, Rewritten
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput, table_location
from destination_datalake.tables.hive.content import (
    Content,
    FolderState,
    PendingOverwrite,
    WriteMode,
    folders_in_use,
    list_folder,
    lowest_generation,
    other_folders,
    save_lowest_generation,
    unlist_folders,
)
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.partitions import PartitionIndex, mark_partitions_stale
from destination_datalake.tables.table import Rewrite, TableBusy, TableName

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves the files of `target`, the content that the sync writes to.

    Columns become wider `in_place` if changing their types in the catalog is enough. `generation` is part of the names
    of new folders. All methods raise Fenced, and RewriteFailed if a file cannot be rewritten.
    """

    glue_table: GlueTable
    folders: Folders
    index: PartitionIndex
    target: WriteMode
    in_place: bool
    generation: int | None

    def widen(self, columns: Sequence[Field], rewrite: Rewrite) -> None:
        """Make the content wide enough for files with these columns, unless it is already."""
        content = self.target.content(self.glue_table.read())
        wider = content.widened(columns)
        if wider == content:
            return
        started, types, written = time.monotonic(), content.types_changed_in(wider), list[Rewritten]()
        if not self.in_place and self.folders.files(content.folder):
            wider = replace(wider, folder=self.folders.for_table_at(content.folder, self.generation))
            # Listed first, so that a later sync deletes what is left of a copy that is not finished.
            self.glue_table.update(partial(self._list_copy, folder=wider.folder))
            self._transfer(content.folder, wider.folder, partial(self._rewrite, types, rewrite, written))

        def switch(table_input: TableInput) -> None:
            now = self.target.content(table_input)
            if now.folder == wider.folder and now.widened(columns) == now:
                return  # An answer was lost: this is done.
            widened = now.widened(columns)
            if now.folder != content.folder or now.types_changed_in(widened) != types:
                raise _changed_meanwhile(self.glue_table.name)
            self.target.set_content(table_input, replace(widened, folder=wider.folder))

        self.glue_table.update(switch)
        if written:
            _logger.info(
                "Table %s: column %s became wider. The table's %d files were rewritten (%.1f MB, %.1f s).",
                self.glue_table.name,
                ", ".join(sorted(types)),
                len(written),
                sum(file.size for file in written) / 1e6,
                time.monotonic() - started,
            )

    def adopt(self, rewrite: Rewrite) -> None:
        """Copy the rows of a pending overwrite into the content, and clear it. Does nothing if there is none."""
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
        is_followed = self.index.register(table_input, partitions)

        def conclude(table_input: TableInput) -> None:
            now = self.target.content(table_input)
            if PendingOverwrite.load(table_input) is None:
                return  # An answer was lost: this is done.
            if now.folder != content.folder or any(
                now.types.get(n) != content.types.get(n) for n in pending.type_names
            ):
                raise _changed_meanwhile(self.glue_table.name)
            self.index.project(table_input, partitions)
            if not is_followed:
                mark_partitions_stale(table_input)
            PendingOverwrite.clear(table_input)
            list_folder(table_input, pending.location, FolderState.DEAD)
            lowest = lowest_generation(table_input)
            if lowest is not None and pending.generation is not None:
                save_lowest_generation(table_input, min(lowest, pending.generation))

        self.glue_table.update(conclude)

    def _list_copy(self, table_input: TableInput, folder: str) -> None:
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
        """Transfer all files of a folder into another, and those that come meanwhile; return their names.

        What is deleted meanwhile was of a commit that has failed, so its copy is deleted as well.
        """
        done: dict[str, str] = {}

        def attempt() -> bool:
            nonlocal done
            files = self.folders.files(source)
            if gone := done.keys() - files.keys():
                # Read after the files were listed: if another sync has the token, it may have taken these into the
                # table and deleted the originals since.
                self.target.content(self.glue_table.read())
                self.folders.delete(f"{target}/{name}" for name in gone)
            new = [name for name, etag in files.items() if done.get(name) != etag]
            if not new:
                return True
            # A file whose transfer fails may exist in part.
            done = {**dict.fromkeys(new, ""), **{name: done[name] for name in files if name in done}}
            try:
                transfer(new, source, target)
            except Exception:
                if files.keys() <= self.folders.files(source).keys():
                    raise
                return False
            done = files
            return False

        if not retry_until_done(attempt):
            message = (
                f"Files of table {self.glue_table.name} must be moved to another folder, but other writers changed "
                "them during each attempt. Run the sync again when nothing else writes to it."
            )
            raise RewriteFailed(Failure(message, message, "transient_error"))
        return done.keys()


def _changed_meanwhile(table: TableName) -> TableBusy:
    return TableBusy(
        f"Another writer has changed the location or the columns of table {table} while its files were moved. Run the "
        "sync again."
    )


class Cleanup:
    """Decides when folders are deleted that the table has left, and deletes them.

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

    def dead(self, table_input: TableInput) -> Sequence[str]:
        """Return the folders that may be deleted, of a table of which this sync holds the fencing token."""
        listed = other_folders(table_input).items()
        dead = {folder for folder, state in listed if state is FolderState.DEAD or folder in self._obsolete}
        return sorted(dead - folders_in_use(table_input))

    def on_left(self, folder: str, table_input: TableInput) -> None:
        """Delete what this sync left before `folder`, which it has just left. Failures are logged as by `delete`."""
        self._obsolete |= self._last_left
        self._last_left = {folder} - {self._first_folder}
        self.delete(self.dead(table_input))

    def delete(self, dead: Sequence[str]) -> None:
        """Delete folders that `dead` returned, and take them out of the list.

        A failure is logged and not raised, as the table's rows are right without it.
        """
        if not dead:
            return
        try:
            table_input = self._glue_table.read()
            self._index.leave_former_folders(table_input)
            unused = self._unused(dead, table_input)
            for folder in unused:
                self._folders.delete_folder(folder)
            self._glue_table.update(lambda table_input: unlist_folders(table_input, *unused))
        except Exception as error:
            table = f"table {self._glue_table.name}"
            failure = explain(error, doing="remove old files of", resource=table)
            _logger.warning(
                "%s The table's rows are right, and the sync continues. The next one tries again: %s.",
                failure.message if failure is not None else f"Cannot remove old files of {table}: {error!r}.",
                ", ".join(dead),
            )

    def _unused(self, dead: Sequence[str], table_input: TableInput) -> list[str]:
        """Return the folders where nothing is that the table refers to, nor around them: engines read to any depth."""
        kept: dict[str, str] = {}
        for location in chain(folders_in_use(table_input), self._index.locations(table_input)):
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
