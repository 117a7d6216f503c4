"""Wider columns for files that cannot be read with them as they are: all are written anew, out of readers' sight.

Nobody is kept waiting for it. The new folder is listed in the table's entry first, the files are written into it, and
then a compare-and-set makes the table's content be there. Whoever commits in between changes the entry, so that the
move fails, and is made again with what has come.
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
from destination_datalake.tables.hive.content import Content, Place
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.leftovers import Standing, leftovers, note
from destination_datalake.tables.table import Rewrite, TableName

_logger = logging.getLogger(__name__)


@dataclass
class _Copy:
    """The files of `source`, written anew into `folder` with these types; `done` has the ETags of those that were."""

    source: str
    folder: str
    types: Mapping[str, ColumnType]
    done: dict[str, str] = field(default_factory=dict)

    def serves(self, content: Content, types: Mapping[str, ColumnType], entry: TableInput) -> bool:
        """Whether it is still of use: not if the content has moved, or if the folder has been given up for dead."""
        listed = leftovers(entry).get(self.folder)
        return self.source == content.folder and self.types == types and listed is Standing.WRITTEN

    def catch_up(self, files: dict[str, str], folders: Folders, rewrite: Rewrite) -> Sequence[Rewritten]:
        """Write what has come or changed since the last time, and drop what has gone."""
        folders.delete(f"{self.folder}/{name}" for name in self.done.keys() - files.keys())
        new = [name for name, etag in files.items() if self.done.get(name) != etag]
        tasks = [
            RewriteTask(f"{self.source}/{name}", f"{self.folder}/{name}", self.types, folders.access) for name in new
        ]
        # Of those that fail now, nothing may be left if they are gone the next time.
        self.done |= dict.fromkeys(new, "")
        written = rewrite(tasks) if tasks else []
        self.done = files
        return written


@dataclass(frozen=True, slots=True)
class Widening:
    """Makes a table's content wider. `in_place` if its files have no widths, so that the catalog's word is enough."""

    table: TableName
    entry: GlueTable
    place: Place
    folders: Folders
    in_place: bool
    generation: int | None

    def widen(self, columns: Sequence[Field], rewrite: Rewrite) -> None:
        """Make the content wide enough for files with these columns, unless it is already.

        Raises RewriteFailed if a file cannot be written anew, or if others change the table again and again.
        """
        started = time.monotonic()
        copy: _Copy | None = None
        written: list[Rewritten] = []

        def attempt() -> bool:
            nonlocal copy, written
            seen = self.entry.read_version()
            content = self.place.content(seen.entry)
            wider = content.widened(columns)
            if wider == content:
                return True
            files = {} if self.in_place else self.folders.files(content.folder)
            if files:
                types = content.changed(wider)
                if copy is None or not copy.serves(content, types, seen.entry):
                    copy = self._begin(content, types, copy)
                    return False
                try:
                    written += copy.catch_up(files, self.folders, rewrite)
                except RewriteFailed:
                    moved = self.place.content(self.entry.read()).folder != content.folder
                    if not moved and files.keys() <= self.folders.files(content.folder).keys():
                        raise
                    return False  # What was to be read has been swept or withdrawn.
                wider = Content(copy.folder, wider.types)
            if not self.entry.compare_and_set(seen, partial(self.place.point, content=wider)):
                return False
            if written:
                self._tell(content.changed(wider), written, time.monotonic() - started)
            return True

        if retry_until_done(attempt):
            return
        message = (
            f"Columns of table {self.table} must become wider, for which its files are written anew, but other writers "
            "have changed the table each time before that was done. Run the sync again when they are through."
        )
        raise RewriteFailed(Failure(message, message, "transient_error"))

    def _begin(self, content: Content, types: Mapping[str, ColumnType], given_up: _Copy | None) -> _Copy:
        """List a new folder for a copy of the content; one whose content has moved meanwhile is of no use any more."""
        copy = _Copy(content.folder, self.folders.new(content.folder, self.generation), types)

        def begin(entry: TableInput) -> None:
            note(entry, copy.folder, Standing.WRITTEN)
            if given_up is not None:
                note(entry, given_up.folder, Standing.DEAD)

        self.entry.update(begin)
        return copy

    def _tell(self, types: Mapping[str, ColumnType], written: Sequence[Rewritten], seconds: float) -> None:
        _logger.info(
            "Table %s: column %s became wider. The table's %d files were written anew (%.1f MB, %.1f s).",
            self.table,
            ", ".join(sorted(types)),
            len(written),
            sum(file.size for file in written) / 1e6,
            seconds,
        )
