"""Adoption of a pending overwrite by a sync that appends: its rows were acknowledged, so they move into the table."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from destination_datalake.aws.retries import retry_until_done
from destination_datalake.errors import Failure
from destination_datalake.files.plan import RewriteFailed, RewriteTask
from destination_datalake.schema.types import Field
from destination_datalake.tables.fencing import TOKEN_PROPERTY, FencingToken
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput
from destination_datalake.tables.hive.content import Content, WriteTarget
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.parameters import (
    FolderState,
    PendingOverwrite,
    list_folder,
    lowest_generation,
    save_lowest_generation,
)
from destination_datalake.tables.hive.partitions.index import PartitionIndex
from destination_datalake.tables.hive.widening import Widening
from destination_datalake.tables.table import Rewrite


@dataclass(frozen=True, slots=True)
class Adoption:
    """Copies the files of a pending overwrite into the published content, which is `target`.

    The sync holds `token`, so the one that began the overwrite is fenced and adds nothing to it. If yet another sync
    takes the token, the adoption is left to it.
    """

    glue_table: GlueTable
    folders: Folders
    index: PartitionIndex
    widening: Widening
    target: WriteTarget
    token: FencingToken

    def adopt(self, rewrite: Rewrite) -> None:
        """Copy the files and clear the pending overwrite. File names are kept, so that this is idempotent.

        Raises RewriteFailed if a file cannot be rewritten, or if every attempt meets a concurrent change.
        """
        if retry_until_done(partial(self._attempt, rewrite)):
            return
        message = (
            f"Rows of an unfinished overwrite of table {self.glue_table.name} could not be taken into it, because "
            "other writers changed the table during each attempt. Run the sync again when no other sync writes to it."
        )
        raise RewriteFailed(Failure(message, message, "transient_error"))

    def _attempt(self, rewrite: Rewrite) -> bool:
        """Adopt the content as it is now; False if that must be repeated, because it changed meanwhile."""
        table_input = self.glue_table.read()
        if self._is_fenced(table_input):
            return True
        pending, folders = PendingOverwrite.load(table_input), set[str]()
        content = self.target.content(table_input)
        if pending is not None:
            columns = [Field(name, name, type_) for name, type_ in pending.types().items() if type_ is not None]
            if content.widened(columns) != content:
                self.widening.widen(self.target, columns, rewrite)
                return False
            names = self._copy_all(pending, Content.pending(table_input, pending), content, rewrite)
            if names is None:
                return False
            folders = {name.rpartition("/")[0] for name in names}
            self.index.register(table_input, folders)
        return self.glue_table.update(partial(self._conclude, pending=pending, content=content, folders=folders))

    def _is_fenced(self, table_input: TableInput) -> bool:
        return FencingToken.held(table_input["Parameters"]) != self.token

    def _copy_all(
        self, pending: PendingOverwrite, source: Content, content: Content, rewrite: Rewrite
    ) -> Collection[str] | None:
        """Copy the files and return their names; None if that must be repeated.

        That is the case if the fenced sync has deleted some of them meanwhile, because it could not acknowledge them;
        or if the adoption is another sync's by now, whose deletion of adopted files would look the same.
        """
        names = self.folders.files(source.folder).keys()
        failure: Exception | None = None
        try:
            self._copy(names, source, content, rewrite)
        except Exception as error:
            failure = error
        deleted = names - self.folders.files(source.folder).keys()
        # Read after the files were listed: they are not deleted after adoption while this sync's token is there.
        table_input = self.glue_table.read()
        if self._is_fenced(table_input) or PendingOverwrite.load(table_input) != pending:
            return None
        self.folders.delete(f"{content.folder}/{name}" for name in deleted)
        if failure is not None and not deleted:
            raise failure
        return None if deleted else names

    def _copy(self, names: Collection[str], source: Content, content: Content, rewrite: Rewrite) -> None:
        wider = source.types_changed_in(content)
        if self.widening.in_place or not wider:
            self.folders.copy(names, source.folder, content.folder)
        elif names:
            rewrite(
                [
                    RewriteTask(f"{source.folder}/{name}", f"{content.folder}/{name}", wider, self.folders.access)
                    for name in names
                ]
            )

    def _conclude(
        self, table_input: TableInput, pending: PendingOverwrite | None, content: Content, folders: Collection[str]
    ) -> bool:
        """Clear the pending overwrite and release the token; False if the table changed since the files were copied.

        True also if another sync has the token: the rest is left to it.
        """
        if self._is_fenced(table_input):
            return True
        now = self.target.content(table_input)
        names = () if pending is None else pending.type_names
        moved = now.folder != content.folder or any(now.types.get(name) != content.types.get(name) for name in names)
        if moved or PendingOverwrite.load(table_input) != pending:
            return False
        self.index.project(table_input, folders)
        table_input["Parameters"].pop(TOKEN_PROPERTY)
        if pending is not None:
            PendingOverwrite.clear(table_input)
            list_folder(table_input, pending.location, FolderState.DEAD)
            lowest = lowest_generation(table_input)
            if lowest is not None and pending.generation is not None:
                save_lowest_generation(table_input, min(lowest, pending.generation))
        return True
