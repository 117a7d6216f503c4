"""Taking the rows of a replacement that was never published into the table: they were acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from destination_datalake.aws.retries import retry_until_done
from destination_datalake.errors import Failure
from destination_datalake.files.plan import RewriteFailed, RewriteTask
from destination_datalake.schema.glue import parse_glue_type
from destination_datalake.schema.types import Field
from destination_datalake.tables.fencing import TOKEN_PROPERTY, FencingToken
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput
from destination_datalake.tables.hive.content import Content, Shown
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.leftovers import Standing, note
from destination_datalake.tables.hive.replacement import (
    PendingOverwrite,
    forget,
    lowest_generation,
    note_lowest_generation,
)
from destination_datalake.tables.table import Rewrite, TableName


@dataclass(frozen=True, slots=True)
class Adoption:
    """What a sync does that appends and has taken the fencing token from whoever was replacing the table's content.

    The replacement's owner adds nothing to it any more. If another sync takes the token in turn, it is that one's part.
    """

    table: TableName
    token: FencingToken
    entry: GlueTable
    folders: Folders
    in_place: bool

    def adopt(self, widen: Callable[[Sequence[Field]], None], rewrite: Rewrite) -> None:
        """Put the replacement's files beside the table's, under the same names however often it is tried.

        `widen` makes the table's content wide enough for columns. Raises RewriteFailed.
        """

        def attempt() -> bool:
            entry = self.entry.read()
            left = PendingOverwrite.noted(entry)
            if FencingToken.held(entry["Parameters"]) != self.token:
                return True
            content = Shown(self.table).content(entry)
            if left is not None:
                noted = {name: parse_glue_type(text) for name, text in left.types.items()}
                columns = [Field(name, name, type_) for name, type_ in noted.items() if type_ is not None]
                if content.widened(columns) != content:
                    widen(columns)
                    return False
                if not self._copied(left, Content(left.location, {**content.types, **noted}), content, rewrite):
                    return False
            return self.entry.update(partial(self._settle, left=left, content=content))

        if retry_until_done(attempt):
            return
        message = (
            f"Rows of an unfinished replacement of table {self.table} could not be taken into it, because other "
            "writers have changed the table each time before that was done. Run the sync again when they are through."
        )
        raise RewriteFailed(Failure(message, message, "transient_error"))

    def _copied(self, left: PendingOverwrite, source: Content, target: Content, rewrite: Rewrite) -> bool:
        """Copy the files. False if their owner has withdrawn some of them meanwhile, which it could not acknowledge.

        False, too, if the replacement is another sync's part by now: what is missing then may have been adopted, and
        swept.
        """
        names = self.folders.files(source.folder).keys()
        failure: Exception | None = None
        try:
            self._copy(names, source, target, rewrite)
        except Exception as error:
            failure = error
        withdrawn = names - self.folders.files(source.folder).keys()
        # Read after the files were listed: nobody sweeps them as long as the entry says that they are ours to adopt.
        entry = self.entry.read()
        if FencingToken.held(entry["Parameters"]) != self.token or PendingOverwrite.noted(entry) != left:
            return False
        self.folders.delete(f"{target.folder}/{name}" for name in withdrawn)
        if failure is not None and not withdrawn:
            raise failure
        return not withdrawn

    def _copy(self, names: Collection[str], source: Content, target: Content, rewrite: Rewrite) -> None:
        wider = source.changed(target)
        if self.in_place or not wider:
            self.folders.copy(names, source.folder, target.folder)
        elif names:
            rewrite(
                [
                    RewriteTask(f"{source.folder}/{name}", f"{target.folder}/{name}", wider, self.folders.access)
                    for name in names
                ]
            )

    def _settle(self, entry: TableInput, left: PendingOverwrite | None, content: Content) -> bool:
        """Forget the replacement, unless the table has changed meanwhile. Another sync's token: that is its part."""
        if FencingToken.held(entry["Parameters"]) != self.token:
            return True
        now = Shown(self.table).content(entry)
        wanted = () if left is None else left.types
        moved = now.folder != content.folder or any(now.types.get(name) != content.types.get(name) for name in wanted)
        if moved or PendingOverwrite.noted(entry) != left:
            return False
        entry["Parameters"].pop(TOKEN_PROPERTY)
        if left is not None:
            forget(entry)
            note(entry, left.location, Standing.DEAD)
            lowest = lowest_generation(entry)
            if lowest is not None and left.generation is not None:
                note_lowest_generation(entry, min(lowest, left.generation))
        return True
