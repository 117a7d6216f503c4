"""Wider columns for files that cannot be read with them as they are: copy-on-write into a new folder.

No writer is blocked. The new folder is listed in the table's Glue entry first, the files are rewritten into it, and
then a compare-and-set makes it the folder of the content. A commit in between changes the entry, so that the
compare-and-set fails; it is repeated once the files of that commit are rewritten, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from destination_datalake.aws.retries import retry_until_done
from destination_datalake.errors import Failure
from destination_datalake.files.plan import RewriteFailed, RewriteTask, Rewritten
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput
from destination_datalake.tables.hive.content import Content, WriteTarget
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.parameters import FolderState, list_folder, other_folders
from destination_datalake.tables.table import Rewrite

_logger = logging.getLogger(__name__)


@dataclass
class _Copy:
    """The files of `source`, rewritten into `folder` with these types; `done` has the ETags of the originals."""

    source: str
    folder: str
    types: Mapping[str, ColumnType]
    done: dict[str, str] = field(default_factory=dict)

    def is_usable(self, content: Content, types: Mapping[str, ColumnType], table_input: TableInput) -> bool:
        """Whether the copy is still one of the content, with the right types, and not declared dead by another sync."""
        state = other_folders(table_input).get(self.folder)
        return self.source == content.folder and self.types == types and state is FolderState.IN_PROGRESS

    def catch_up(self, files: dict[str, str], folders: Folders, rewrite: Rewrite) -> Sequence[Rewritten]:
        """Rewrite the files that are new or changed since the last time, and delete those that are gone."""
        folders.delete(f"{self.folder}/{name}" for name in self.done.keys() - files.keys())
        new = [name for name, etag in files.items() if self.done.get(name) != etag]
        tasks = [
            RewriteTask(f"{self.source}/{name}", f"{self.folder}/{name}", self.types, folders.access) for name in new
        ]
        # A file whose rewriting fails may exist in part, and must be deleted if its original is gone the next time.
        self.done |= dict.fromkeys(new, "")
        written = rewrite(tasks) if tasks else []
        self.done = files
        return written


@dataclass(frozen=True, slots=True)
class Widening:
    """Widens the columns of a table's content; `in_place` if changing their types in the catalog is enough.

    `generation` is part of the names of new folders.
    """

    glue_table: GlueTable
    folders: Folders
    in_place: bool
    generation: int | None

    def widen(self, target: WriteTarget, columns: Sequence[Field], rewrite: Rewrite) -> None:
        """Make the content of `target` wide enough for files with these columns, unless it is already.

        Raises RewriteFailed if a file cannot be rewritten, or if every attempt meets a concurrent change.
        """
        started = time.monotonic()
        copy: _Copy | None = None
        written: list[Rewritten] = []

        def attempt() -> bool:
            nonlocal copy
            version = self.glue_table.read_version()
            content = target.content(version.table_input)
            wider = content.widened(columns)
            if wider == content:
                return True
            files = {} if self.in_place else self.folders.files(content.folder)
            if files:
                types = content.types_changed_in(wider)
                if copy is None or not copy.is_usable(content, types, version.table_input):
                    copy = self._begin_copy(content, types, copy)
                    return False
                try:
                    written.extend(copy.catch_up(files, self.folders, rewrite))
                except RewriteFailed:
                    moved = target.content(self.glue_table.read()).folder != content.folder
                    if not moved and files.keys() <= self.folders.files(content.folder).keys():
                        raise
                    return False  # A file to be read was deleted meanwhile, so there is less to rewrite.
                wider = Content(copy.folder, wider.types)
            if not self.glue_table.compare_and_set(version, partial(target.set_content, content=wider)):
                return False
            if written:
                self._log(content.types_changed_in(wider), written, time.monotonic() - started)
            return True

        if retry_until_done(attempt):
            return
        message = (
            f"Columns of table {self.glue_table.name} must become wider, for which its files are rewritten, but other "
            "writers changed the table during each attempt. Run the sync again when no other sync writes to it."
        )
        raise RewriteFailed(Failure(message, message, "transient_error"))

    def _begin_copy(self, content: Content, types: Mapping[str, ColumnType], unusable: _Copy | None) -> _Copy:
        """List a new folder for a copy of the content, and the one of a copy that is no longer usable as dead."""
        copy = _Copy(content.folder, self.folders.for_table_at(content.folder, self.generation), types)

        def begin(table_input: TableInput) -> None:
            list_folder(table_input, copy.folder, FolderState.IN_PROGRESS)
            if unusable is not None:
                list_folder(table_input, unusable.folder, FolderState.DEAD)

        self.glue_table.update(begin)
        return copy

    def _log(self, types: Mapping[str, ColumnType], written: Sequence[Rewritten], seconds: float) -> None:
        _logger.info(
            "Table %s: column %s became wider. The table's %d files were rewritten (%.1f MB, %.1f s).",
            self.glue_table.name,
            ", ".join(sorted(types)),
            len(written),
            sum(file.size for file in written) / 1e6,
            seconds,
        )
