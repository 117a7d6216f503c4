"""Hive tables in the Glue Data Catalog: folders of Parquet or JSON-lines files.

Such a table has no snapshots; its files are its content. So files stay unfinished multipart uploads until the commit
completes them, and a stream that replaces its table's content writes to a folder of its own, beside the table's,
which publishing makes the table's location.

Several syncs may write to a table at the same time. What keeps them apart is the table's entry in the catalog, which
is only ever changed by compare-and-set: a commit completes its files in the folder that they were planned for, and
then tells the entry, on condition that this folder is still where they belong. Whoever moves the content elsewhere
either finds the entry changed, and looks at the folder again, or was first, and then it is the commit that finds out.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from destination_datalake.aws.errors import explain
from destination_datalake.aws.retries import retry_until_done
from destination_datalake.aws.withdrawal import undone_on_failure, withdraw_all
from destination_datalake.files.plan import DataFile, FilePlan
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.evolution import AddColumn, evolve
from destination_datalake.schema.types import Field
from destination_datalake.tables.aws_datalake import inherited_columns
from destination_datalake.tables.fencing import FencingToken
from destination_datalake.tables.glue.creation import create_hive_table
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput, TableVersion
from destination_datalake.tables.glue.storage_descriptor import (
    change_columns,
    column_types,
    storage_columns,
    table_location,
)
from destination_datalake.tables.hive.adoption import Adoption
from destination_datalake.tables.hive.content import Aside, Content, Place, Shown, words_of
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.layout import PROMOTED_IN_PLACE, obstacle
from destination_datalake.tables.hive.leftovers import Standing, leftovers, note, strike
from destination_datalake.tables.hive.replacement import (
    PendingOverwrite,
    generation_parameter,
    lowest_generation,
    note_lowest_generation,
)
from destination_datalake.tables.hive.widening import Widening
from destination_datalake.tables.reconcile import reconcile
from destination_datalake.tables.table import Committed, Reencode, Rewrite, TableConflict, TableName

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import SchemaConflicts
    from destination_datalake.protocol.catalog import Stream
    from destination_datalake.tables.glue.database import Databases
    from destination_datalake.tables.location import TableLocation
    from destination_datalake.tables.ownership import TableOwner

_logger = logging.getLogger(__name__)

_LAST_COMMIT = "airbyte.last-commit"
"""Who committed last, which is a change of the entry with every commit."""

_CALLS_AT_ONCE = 8


class HiveTable:
    """A stream's Hive table. `plan` lacks columns and folder."""

    def __init__(
        self,
        name: TableName,
        stream: Stream,
        columns: Sequence[Field],
        location: TableLocation,
        plan: FilePlan,
        access: AwsAccess,
        owner: TableOwner,
        conflicts: SchemaConflicts,
        sync: str,
        databases: Databases,
    ) -> None:
        self.name = name
        self._stream = stream
        self._columns = tuple(columns)
        self._schema_conflicts = conflicts
        self._plan = replace(plan, hidden=True)
        self._access = access
        self._owner = owner
        self._sync = sync
        self._databases = databases
        self._entry = GlueTable(name, access)
        self._promotes = plan.format in PROMOTED_IN_PLACE
        self._location = location
        self._folders = Folders(location.folder, access)
        self._place: Place = Shown(name)
        self._adoption: Adoption | None = None
        self._commits = itertools.count(1)
        self._began_in = ""
        # The folder that this sync has left last, and folders that were left before it began, or before that one.
        self._left: set[str] = set()
        self._to_sweep: set[str] = set()

    def prepare(self) -> None:
        """Create the table, or add and widen columns; take over what an unfinished replacement left."""
        try:
            seen, created = self._entry.read_version(), False
        except self._access.client("glue").exceptions.EntityNotFoundException:
            seen, created = self._create(), True
        entry = seen.entry
        if problem := obstacle(entry, self._plan):
            raise TableConflict(
                f"Cannot write stream {self._stream.id} to table {self.name}: {problem}, or choose another "
                "lakeformation_database_name."
            )
        sources = {column["Name"]: column.get("Comment") or column["Name"] for column in storage_columns(entry)}
        columns = self._owner.name_columns(self.name, entry["Parameters"], sources, self._columns)
        self._columns = inherited_columns(self.name, self._stream, columns, self._owner.naming, entry)
        self._began_in = table_location(entry)
        self._location.accept(self._stream.id, self.name, "Hive", self._began_in, created=created)
        self._folders = Folders(self._location.content_root(self._began_in), self._access)
        self._to_sweep = set(leftovers(entry))
        fresh = self._folders.new(self._began_in, self._stream.generation)

        def begin(entry: TableInput) -> tuple[Content, tuple[Field, ...]]:
            self._begin(entry, fresh)
            return self._settle(entry)

        self._replan(begin, seen)

    def plan(self) -> FilePlan:
        """The plan, with columns as wide as they have become."""
        return self._plan

    def commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> Committed | Reencode:
        """Make the files visible, all of them, or none when one fails; first make the columns as wide as they need.

        They become visible one after the other. Reencode also if the table's content has moved since they were planned.
        """
        with undone_on_failure(partial(self._withdraw, files)):
            self._adopt(rewrite)
            self._make_room(files, rewrite)
            if not all(self._belongs(file) for file in files):
                self.discard(files)
                return Reencode("its content or the types of its columns have changed since the files were planned")
            self._complete(files)
            if self._are_in_the_table(files):
                return Committed()
        self._withdraw(files)
        self._replan()
        return Reencode("another writer has changed its content or the types of its columns during the commit")

    def publish(self, rewrite: Rewrite) -> None:
        """Let readers see what was kept aside. The old files stay until the next time, for readers still in them."""
        self._adopt(rewrite)

        def publish(entry: TableInput) -> Sequence[str]:
            self._place.publish(entry)
            return self._bury(entry)

        self._sweep(self._entry.update(publish))

    def discard(self, files: Sequence[DataFile]) -> None:
        """Abort the uploads."""
        withdraw_all(files, self._access.client("s3"))

    # Making the table fit, and deciding where this sync's files belong.

    def _create(self) -> TableVersion:
        """Create the table in a folder that nobody has used, whatever lies where one of this name was before."""
        columns, parameters = (*METADATA_COLUMNS, *self._columns), self._owner.parameters()
        if not self._stream.outdates(None):
            # Else the rows are kept aside until they are published.
            parameters |= generation_parameter(self._stream.generation)
        folder = self._folders.first(self._stream.generation)
        self._databases.ensure(self.name.database)
        create_hive_table(self.name, columns, f"{folder}/", parameters, self._plan, self._access)
        return self._entry.read_version()

    def _begin(self, entry: TableInput, fresh: str) -> None:
        """Let the table fit, and its entry say what this sync is about. `fresh` is a folder for a replacement.

        Called again when another writer was faster, or when the answer to an update was lost.
        """
        fitted = self._fit(entry)
        left, held = PendingOverwrite.noted(entry), FencingToken.held(entry["Parameters"])
        token = FencingToken.after(entry["Parameters"], self._sync)
        if self._stream.outdates(lowest_generation(entry)):
            self._place, self._adoption = Aside(self.name, token), None
            self._begin_replacement(entry, left, fresh, fitted)
            token.write_to(entry["Parameters"])
            return
        self._place, self._adoption = Shown(self.name), None
        self._count_generation(entry)
        if left is not None or held is not None:
            self._adoption = Adoption(self.name, token, self._entry, self._folders, self._promotes)
            token.write_to(entry["Parameters"])

    def _begin_replacement(
        self, entry: TableInput, left: PendingOverwrite | None, fresh: str, fitted: Sequence[Field]
    ) -> None:
        """Note which folder takes the new content: one that an attempt at the same generation left, or a fresh one."""
        attempt = self._stream.replacement_generation
        if left is not None and (left.location == fresh or (attempt is not None and left.generation == attempt)):
            return
        if left is not None:
            note(entry, left.location, Standing.DEAD)
        types = Content(fresh, column_types(entry)).widened(fitted).types
        PendingOverwrite(fresh, self._stream.generation, words_of(types)).note(entry)

    def _fit(self, entry: TableInput) -> tuple[Field, ...]:
        """Add the columns that are missing; return the stream's as the table takes them.

        Wider ones wait for the first batch if the old files must be rewritten.
        """
        type_names = {column["Name"]: column.get("Type", "") for column in storage_columns(entry)}
        fit = reconcile(
            self._stream.id, self.name, self._columns, column_types(entry), type_names, self._schema_conflicts
        )
        change_columns(entry, [c for c in fit.changes if isinstance(c, AddColumn) or self._promotes])
        if fit.conflicts:
            entry["Description"] = fit.comment(entry.get("Description", ""))
        return fit.columns

    def _count_generation(self, entry: TableInput) -> None:
        """Note the lowest generation of the rows, this sync's among them; not where others have filled the table."""
        before, own = lowest_generation(entry), self._stream.generation
        if own is not None and (before is not None or self._folders.empty(table_location(entry))):
            note_lowest_generation(entry, own if before is None else min(before, own))

    def _settle(self, entry: TableInput) -> tuple[Content, tuple[Field, ...]]:
        """Let the table fit; return where files belong by now, and the stream's columns. Raises Fenced."""
        fitted = self._fit(entry)
        return self._place.content(entry), fitted

    def _replan(
        self,
        settle: Callable[[TableInput], tuple[Content, tuple[Field, ...]]] | None = None,
        seen: TableVersion | None = None,
    ) -> Content:
        """Take from the entry where files belong by now, and which types they need. Raises Fenced."""
        content, fitted = self._entry.update(settle or self._settle, seen)
        self._plan = replace(self._plan, folder=content.folder, columns=evolve(content.types, fitted).columns)
        return content

    def _adopt(self, rewrite: Rewrite) -> None:
        if self._adoption is not None:
            self._adoption.adopt(partial(self._widening().widen, rewrite=rewrite), rewrite)
            self._adoption = None

    # Committing.

    def _make_room(self, files: Sequence[DataFile], rewrite: Rewrite) -> None:
        """Make the content as wide as the plan and the widest of the files; plan by what is there then."""
        content = self._replan()
        needed = self._plan.columns
        for file in files:
            needed = evolve({column.name: column.type for column in needed}, file.columns).columns
        if content.widened(needed) == content:
            return
        self._widening().widen(needed, rewrite)
        if self._replan().folder != content.folder:
            # Readers may be in the folder that was left last, not in those before it.
            self._to_sweep |= self._left
            self._left = {content.folder} - {self._began_in}
            self._sweep()

    def _widening(self) -> Widening:
        return Widening(self.name, self._entry, self._place, self._folders, self._promotes, self._stream.generation)

    def _belongs(self, file: DataFile) -> bool:
        """Whether the file is where it belongs by now, with the types that it needs there."""
        placed = file.uri.rpartition("/")[0] == self._plan.folder
        return placed and (self._promotes or file.columns == self._plan.columns)

    def _complete(self, files: Sequence[DataFile]) -> None:
        s3 = self._access.client("s3")
        with ThreadPoolExecutor(_CALLS_AT_ONCE, "publish") as pool:
            list(pool.map(lambda file: file.pending_upload.publish(s3), files))

    def _are_in_the_table(self, files: Sequence[DataFile]) -> bool:
        """Tell the entry of the commit, if the files are where readers, or the replacement's owner, will find them.

        A widening that has moved the content meanwhile may have found all of them in the old folder, or only some.
        """
        where, commit = self._plan.folder, f"{self._sync}-{next(self._commits)}"
        while True:
            found = self._entry.update(partial(self._tell, where=where, commit=commit))
            if found == where:
                return True
            if found is None or not {_name(file) for file in files} <= self._folders.files(found).keys():
                return False
            where = found

    def _tell(self, entry: TableInput, where: str, commit: str) -> str | None:
        """Note the commit if the content is at `where`; return where it is, or None if its types are others now."""
        content = self._place.content(entry)
        if content.folder != where:
            return content.folder
        if where == self._plan.folder:
            now = evolve(content.types, self._plan.columns)
            if now.changes or (now.columns != self._plan.columns and not self._promotes):
                return None
        entry["Parameters"][_LAST_COMMIT] = commit
        return where

    def _withdraw(self, files: Sequence[DataFile]) -> None:
        """Remove files that may have been visible, wherever a widening has carried them; see that none does after."""
        try:
            self.discard(files)
        finally:
            self._folders.delete(file.uri for file in files)
            withdrawal = f"{self._sync}-{next(self._commits)}"

            def attempt() -> bool:
                folders = _in_use(self._entry.read())
                self._folders.delete(f"{folder}/{_name(file)}" for folder in folders for file in files)
                return self._entry.update(partial(_note_commit, commit=withdrawal, folders=folders))

            retry_until_done(attempt)

    # Clearing up.

    def _sweep(self, dead: Sequence[str] | None = None) -> None:
        """Empty the folders that nothing needs any more, and are `dead` if that was declared with a change before.

        Failing that, say so: what readers see is right.
        """
        folders = dead or ()
        try:
            if dead is None:
                folders = self._entry.update(self._bury)
            if not folders:
                return
            for folder in folders:
                self._folders.clear(folder)
            self._entry.update(lambda entry: strike(entry, *folders))
        except Exception as error:
            failure = explain(error, doing="remove old files of", resource=f"table {self.name}")
            _logger.warning(
                "%s The table's rows are right, and the sync goes on. The next one tries again: %s.",
                failure.message if failure is not None else f"Cannot remove old files of table {self.name}: {error!r}.",
                ", ".join(folders) or "folders that the table has left",
            )

    def _bury(self, entry: TableInput) -> Sequence[str]:
        """Declare dead what is to be swept; return all that is dead. Who was writing there will find that out."""
        for folder in leftovers(entry).keys() & self._to_sweep:
            note(entry, folder, Standing.DEAD)
        dead = {folder for folder, standing in leftovers(entry).items() if standing is Standing.DEAD}
        return sorted(dead - _in_use(entry))


def _name(file: DataFile) -> str:
    return file.uri.rpartition("/")[2]


def _in_use(entry: TableInput) -> set[str]:
    """The folders that hold what the table shows, or will show."""
    left = PendingOverwrite.noted(entry)
    return {table_location(entry), *([left.location] if left is not None else [])}


def _note_commit(entry: TableInput, commit: str, folders: set[str]) -> bool:
    """Change the entry, so that nobody goes on with what the folders held before; False if they are others now."""
    if _in_use(entry) != folders:
        return False
    entry["Parameters"][_LAST_COMMIT] = commit
    return True
