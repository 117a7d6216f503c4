"""Hive tables in the Glue Data Catalog: folders of Parquet or JSON-lines files.

A Hive table has no snapshots; readers see the files in its location. So files stay pending multipart uploads, or small
ones on the driver's disk, until a commit completes them, and an overwrite writes to a folder of its own, which
publishing makes the table's location.

One sync at a time writes to a table: the newest, which holds the fencing token. A commit completes its files in the
folder that they were planned for, and then updates the table's Glue entry by compare-and-set, provided that the token
is still there and that this folder still holds the content. A sync that takes the token after that finds the files; one
that took it before fences this sync, which deletes what it could not acknowledge.

Other engines may add files, partitions and columns at any time, and set parameters.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from destination_datalake.aws.objects import (
    abort_all,
    pending_uploads,
    publish_all,
    retry_until_done,
    rollback_on_error,
)
from destination_datalake.files.plan import DataFile, FilePlan
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.evolution import AddColumn, apply_changes, evolve
from destination_datalake.schema.json_schema import Untyped
from destination_datalake.schema.types import Field
from destination_datalake.tables.context import TableContext
from destination_datalake.tables.fencing import Fenced, FencingToken, Recreated
from destination_datalake.tables.glue.glue_table import (
    GlueTable,
    TableInput,
    TableVersion,
    add_missing_columns,
    change_columns,
    column_sources,
    column_type_names,
    column_types,
    create_hive_table,
    known_columns,
    set_column_types,
    table_location,
)
from destination_datalake.tables.hive.content import (
    Append,
    Content,
    FolderState,
    Overwrite,
    PendingOverwrite,
    WriteMode,
    folders_in_use,
    list_folder,
    lowest_generation,
    other_folders,
    publish_content,
    save_commit,
    save_lowest_generation,
)
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.moves import Cleanup, Moves
from destination_datalake.tables.hive.partitions import (
    PartitionIndex,
    StalePartitions,
    mark_partitions_stale,
    mark_up_to_date,
)
from destination_datalake.tables.hive.scheme import (
    WIDENED_IN_PLACE,
    PartitionScheme,
    incompatibility,
    scheme_of,
    wanted_scheme,
)
from destination_datalake.tables.migration import column_naming, inherited_types
from destination_datalake.tables.naming import recorded_names, untyped_in
from destination_datalake.tables.reconcile import ColumnLimits, reconcile
from destination_datalake.tables.table import (
    ARCHIVED_PROPERTY,
    RECREATED,
    Committed,
    Reencode,
    Rewrite,
    TableBusy,
    TableName,
    TablePosition,
    table_conflict,
)

if TYPE_CHECKING:
    from datetime import datetime

    from destination_datalake.tables.layout import TableLayout
    from destination_datalake.tables.naming import TableOwner


class HiveTable:
    """A stream's Hive table. `plan` lacks columns and folder, which `prepare` finds out."""

    # Set by `prepare`.
    _folders: Folders
    _partition_keys: Sequence[Any]
    _scheme: PartitionScheme | None
    _index: PartitionIndex
    _current: TableInput
    _mode: WriteMode
    _moves: Moves
    _cleanup: Cleanup

    def __init__(
        self, name: TableName, layout: TableLayout, plan: FilePlan, owner: TableOwner, context: TableContext
    ) -> None:
        self.name = name
        self._stream = layout.stream
        self._columns = self._stream_columns = plan.columns
        self._layout = layout
        self._location = layout.location
        self._plan = replace(plan, deferred=True)
        self._access = context.access
        self._owner = owner
        self._sync = context.sync
        self._archives = context.archives
        self._catalog = context.catalog
        self._journal = context.journal
        self._glue_table = GlueTable(name, context.access)
        self._in_place = plan.format in WIDENED_IN_PLACE
        self._began = self._published = self._released = self._has_committed = False
        self._created: datetime | None = None
        self._replaces_partitions = False
        """Whether this sync has taken partitions away: others, too, if another sync has overwritten the table since."""
        self._planned = set[str]()
        """The folders of content that files were planned for."""

    def prepare(self) -> None:
        """Create the table, or add columns to it; begin to append or overwrite."""
        try:
            version, created = self._glue_table.read_version(), False
        except self._access.client("glue").exceptions.EntityNotFoundException:
            version, created = self._create(), True
        self._catalog.govern(self.name.database)
        table_input = version.table_input
        if problem := incompatibility(table_input, self._plan):
            raise table_conflict(self._stream.id, self.name, problem)
        self._partition_keys = table_input.get("PartitionKeys") or []
        # A partition key is a column that no field may have.
        sources = column_sources(table_input) | {key["Name"].lower(): None for key in self._partition_keys}
        naming = column_naming(self._owner.naming, table_input)
        parameters = table_input["Parameters"]
        untyped = untyped_in(parameters)
        is_as_new = naming == self._owner.naming and untyped is Untyped.INFER
        columns = self._stream_columns if is_as_new else self._layout.columns(naming, untyped)
        owner = replace(self._owner, naming=naming)
        read, types = recorded_names(parameters), column_types(table_input)
        columns = owner.name_columns(self.name, parameters, sources, columns, types)
        self._columns = inherited_types(self._stream, columns, table_input)
        wanted = wanted_scheme(replace(self._layout, known=known_columns(table_input)), self._columns)
        self._scheme = scheme_of(self._stream.id, self.name, table_input, wanted, self._columns)
        location, generation = table_location(table_input), self._stream.generation
        self._location.accept(self._stream.id, self.name, "Hive", location, created=created)
        self._folders = Folders(self._location.content_root(location), self._access)
        self._index = PartitionIndex(self._glue_table, self._access, self._folders, self._stream.id, self._scheme)
        self._cleanup = Cleanup(self._glue_table, self._folders, table_input, self._index)
        self._has_committed = PendingOverwrite.load(table_input) is not None
        append = Append(self.name, self._folders, generation, self._sync)
        new_folder = self._folders.for_table_at(location, generation)
        overwrite = Overwrite(self.name, generation, self._stream.overwrite_generation, self._sync, new_folder)

        def begin(table_input: TableInput) -> tuple[Content, tuple[Field, ...]]:
            now = table_input["Parameters"]
            if recorded_names(now) != read and owner.name_columns(self.name, now, sources, columns, types) != columns:
                raise TableBusy(f"Another sync has given names to new fields of table {self.name}. Run the sync again.")
            now |= owner.name_parameters(now, columns)
            self._mode = overwrite if overwrite.is_wanted(table_input, self._stream) else append
            self._mode.begin(table_input, self._columns)
            if self._archives:
                table_input["Parameters"][ARCHIVED_PROPERTY] = "true"
            return self._reconciled_content(table_input)

        with self._successor_followed():
            self._replan(begin, version)
        self._created = self._glue_table.created
        self._moves = Moves(self._glue_table, self._folders, self._index, self._mode, self._in_place, generation)
        self._index.warn_of_retyped(self._current, self._columns, self._plan.columns)

    def is_empty(self) -> bool:
        """Whether its folders, that of a pending overwrite too, have no objects."""
        return all(map(self._folders.is_empty, folders_in_use(self._current)))

    def is_archived(self) -> bool:
        """Whether it has the parameter that syncs with an archive set."""
        return ARCHIVED_PROPERTY in self._current["Parameters"]

    def position(self) -> TablePosition:
        """Return the version of the Glue entry that this sync has written or read last."""
        return TablePosition(str(self._glue_table.created), self._glue_table.number)

    def plan(self) -> FilePlan:
        """Return the plan for the next batch: the content's folder, and columns as wide as its types."""
        return self._plan

    def commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> Committed | Reencode:
        """Complete the uploads of all files, or of none; widen the content's columns first if the files need it.

        The files become visible one after the other. Reencode if the content has another folder or other types than
        the files were planned for.
        """
        try:
            return self._commit(files, rewrite)
        except Recreated:
            if self._has_committed or FencingToken.held(self._glue_table.read()["Parameters"]) is not None:
                raise
        self.prepare()
        return Reencode(RECREATED)

    def _commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> Committed | Reencode:
        with self._successor_followed(), rollback_on_error(partial(self._roll_back, files)):
            self._adopt_pending(rewrite)
            self._widen_for(files, rewrite)
            if (mismatch := self._mismatch(files)) is not None:
                self.discard(files)
                return Reencode(mismatch)
            partitions = {self._relative(file.uri).rpartition("/")[0] for file in files}
            if self._is_visible:
                self._register(partitions)
            publish_all(pending_uploads(files), self._access.client("s3"))
            if self._glue_table.update(partial(self._record_commit, commit=self._new_commit(), partitions=partitions)):
                self._has_committed = True
                return Committed()
        self._roll_back(files)
        self._replan()
        return Reencode("another writer moved its files, or changed its columns, while the batch was committed")

    def merge_is_due(self) -> bool:
        """Return False: rows of Hive tables are not deduplicated."""
        return False

    def merge(self) -> None:
        """Do nothing."""

    def publish(self, rewrite: Rewrite) -> None:
        """Let readers see a pending overwrite. The folder that it replaces is deleted by the next sync."""
        if self._published:
            return
        with self._successor_followed():
            self._adopt_pending(rewrite)
            self._register_ahead()
            dead = self._glue_table.update(self._publish)
            if self._mode.holds(self._current):
                self._bring_up_to_date()
                self._cleanup.delete(dead)
                self._end()
        self._published = True

    def take_over(self, made: TableName, seen: str) -> None:
        """Make the content of another table that of this one, whose location is `seen`. Raises Fenced, and TableBusy.

        The folders of the other one lie beside this one's.
        """
        other = GlueTable(made, self._access).read()

        def change(table_input: TableInput) -> None:
            self._mode.require(table_input)
            if table_location(table_input) == table_location(other):
                return  # An answer was lost: this is done.
            if table_location(table_input) != seen:
                raise TableBusy(f"The location of table {self.name} was changed. Run the replay again.")
            add_missing_columns(table_input, other)
            table_input["Parameters"] |= recorded_names(other["Parameters"])
            publish_content(table_input, Content.published(other), self.name)
            mark_partitions_stale(table_input, replaced=True)
            for folder in {*folders_in_use(other), *other_folders(other)} - folders_in_use(table_input):
                list_folder(table_input, folder, FolderState.DEAD)
            save_lowest_generation(table_input, lowest_generation(other))
            save_commit(table_input, self._new_commit())
            self._index.project_anew(table_input)
            self._current = table_input

        with self._successor_followed():
            self._glue_table.update(change)
            self._bring_up_to_date()
            self._end()

    def discard(self, files: Sequence[DataFile]) -> None:
        """Abort the uploads."""
        abort_all(pending_uploads(files), self._access.client("s3"))

    # Planning

    def _create(self) -> TableVersion:
        """Create the table, unless it exists by now. An overwrite saves its generation when it is published.

        One that appends has the fencing token from the start, which saves the call that takes it. Raises ConfigError
        if the options mean partitions that the stream cannot have.
        """
        self._catalog.ensure(self.name.database)
        scheme, location = wanted_scheme(self._layout, self._columns), f"{self._first_folder()}/"
        parameters = self._owner.parameters() | self._owner.name_parameters({}, self._columns)
        if self._archives:
            parameters[ARCHIVED_PROPERTY] = "true"
        entry: TableInput = {"Parameters": parameters, "StorageDescriptor": {"Location": location}}
        if not self._stream.overwrites_table:
            save_lowest_generation(entry, self._stream.generation)
            FencingToken.after({}, self._sync).write_to(parameters)
        if scheme is not None:
            scheme.save(entry)
            scheme.project(entry, (), anew=True)
        keys = scheme.glue_keys() if scheme is not None else []
        columns = (*METADATA_COLUMNS, *self._columns)
        create_hive_table(self.name, columns, keys, location, parameters, self._plan, self._access)
        return self._glue_table.read_version()

    def _first_folder(self) -> str:
        """Return an unused folder, so that files of an earlier table of that name do not show in the new one.

        In layouts of other lakes it is the table's own folder if that is unused: keys are then exactly theirs. The
        first content of an overwrite lies beside it as all later ones do, because a folder of the table's own is never
        deleted.
        """
        folders = Folders(self._location.folder, self._access)
        appends = not self._stream.overwrites_table
        if self._layout.config.path_layout != "hive" and appends and folders.is_empty(folders.root):
            return folders.root
        return folders.for_new_table(self._stream.generation)

    def _reconciled_content(self, table_input: TableInput) -> tuple[Content, tuple[Field, ...]]:
        """Add the columns that the content lacks; return it, and the stream's columns as it takes them. Raises Fenced.

        The types of a pending overwrite are those of its files, whatever the columns of the table have become since.
        Columns become wider with the first batch that needs it, if that requires files to be rewritten.
        """
        content, existing = self._mode.content(table_input), column_types(table_input)
        config = self._layout.config
        reconciled = reconcile(
            self._stream.id,
            self.name,
            self._columns,
            content.types,
            column_type_names(table_input),
            config.schema_conflicts,
            ColumnLimits.of(config, self._stream.id),
        )
        changes = [each for each in reconciled.changes if isinstance(each, AddColumn) or self._in_place]
        types = apply_changes(content.types, changes)
        written = (*METADATA_COLUMNS, *reconciled.columns)
        missing = [AddColumn((), column) for column in written if column.name not in existing]
        is_published = content.folder == table_location(table_input)
        inside = [each for each in changes if (each.parent if isinstance(each, AddColumn) else is_published)]
        change_columns(table_input, [*missing, *inside])
        if types != content.types and not is_published:
            self._mode.set_content(table_input, replace(content, types=types))
        if reconciled.conflicts:
            self._journal.redirected(self.name, {each.column: each.redirected_to for each in reconciled.conflicts})
            table_input["Description"] = reconciled.comment(table_input.get("Description", ""))
        return self._mode.content(table_input), reconciled.columns

    def _replan(
        self,
        change: Callable[[TableInput], tuple[Content, tuple[Field, ...]]] | None = None,
        version: TableVersion | None = None,
    ) -> Content:
        """Update the table, govern its columns, and plan the next batch for the content that it then has.

        No row is visible in a column that the update adds: the files that have it are pending. Raises Fenced.
        """
        change = change or self._reconciled_content

        def reconciled(table_input: TableInput) -> tuple[Content, tuple[Field, ...], Collection[str], set[str]]:
            if (table_input.get("PartitionKeys") or []) != self._partition_keys:
                problem = "its partition keys have changed since this sync began. Run the sync again"
                raise table_conflict(self._stream.id, self.name, problem)
            before = column_type_names(table_input)
            content, columns = change(table_input)
            after = column_type_names(table_input)
            self._journal.columns(self.name, before)
            self._journal.columns(self.name, after)
            if after != before:
                mark_partitions_stale(table_input)
            self._current = table_input
            present = [*after, *(key["Name"] for key in self._partition_keys)]
            return content, columns, present, after.keys() - before.keys()

        content, columns, present, added = self._glue_table.update(reconciled, version)
        self._began = True
        self._catalog.governance.govern_table(*self.name, present, added, self._glue_table.created)
        self._bring_up_to_date()
        scheme, max_open = self._scheme, self._layout.config.max_open_partitions
        self._plan = replace(
            self._plan,
            folder=content.folder,
            columns=evolve(content.types, columns).columns,
            partitioning=None if scheme is None else scheme.partitioning(max_open, self._columns, columns),
        )
        self._planned.add(content.folder)
        return content

    def _widen_for(self, files: Sequence[DataFile], rewrite: Rewrite) -> None:
        """Widen the content's columns to those of the plan and of all files; plan for the content after that."""
        content = self._replan()
        needed = self._plan.columns
        for file in files:
            needed = evolve({column.name: column.type for column in needed}, file.columns).columns
        if content.widened(needed) == content:
            return
        self._moves.widen(needed, rewrite)
        if self._replan().folder != content.folder:
            self._cleanup.on_left(content.folder, self._current)

    def _planned_folder(self, uri: str) -> str:
        return max((folder for folder in self._planned if uri.startswith(f"{folder}/")), key=len)

    def _relative(self, uri: str) -> str:
        """Return a file's path in the folder that it was planned for: its partition's folder and its own name."""
        return uri.removeprefix(f"{self._planned_folder(uri)}/")

    def _mismatch(self, files: Sequence[DataFile]) -> str | None:
        """Return why the files do not fit the present plan; None if they do."""
        if any(self._planned_folder(file.uri) != self._plan.folder for file in files):
            return "its files were moved to another folder after the batch was encoded"
        if not self._in_place and any(file.columns != self._plan.columns for file in files):
            return "its columns have other types than the batch was encoded with"
        return None

    # Committing

    def _adopt_pending(self, rewrite: Rewrite) -> None:
        if self._mode.adopts:
            self._moves.adopt(rewrite)
            self._mode.adopts = False

    @property
    def _is_visible(self) -> bool:
        """Whether readers see the content that the next batch is planned for."""
        return self._plan.folder == table_location(self._current)

    def _record_commit(self, table_input: TableInput, commit: str, partitions: Collection[str]) -> bool:
        """Record the commit in the Glue entry; False if the content is not what the files were planned for any more."""
        self._current, content = table_input, self._mode.content(table_input)
        now = evolve(content.types, self._plan.columns)
        is_changed = bool(now.changes) or (now.columns != self._plan.columns and not self._in_place)
        if is_changed or content.folder != self._plan.folder:
            return False
        save_commit(table_input, commit)
        if self._is_visible:
            self._index.project(table_input, partitions)
        return True

    def _roll_back(self, files: Sequence[DataFile]) -> None:
        """Abort the uploads and delete completed files, also the copies that the next sync has made of them."""
        try:
            self.discard(files)
        finally:
            originals = {file.uri for file in files}
            self._folders.delete(originals)
            folders = folders_in_use(self._glue_table.read())
            copies = {f"{folder}/{self._relative(uri)}" for folder in folders for uri in originals}
            self._folders.delete(copies - originals)

    def _new_commit(self) -> str:
        return f"{self._sync}-{uuid.uuid4().hex[:12]}"

    # Publishing

    def _publish(self, table_input: TableInput) -> Sequence[str]:
        """Publish what was written; release the token if that is all. Return the folders to be deleted."""
        before = table_location(table_input)
        self._mode.publish(table_input)
        self._journal.columns(self.name, column_type_names(table_input))
        if table_location(table_input) != before:
            self._index.project_anew(table_input)
        self._current = table_input
        if not self._mode.holds(table_input):
            return ()  # Another sync has taken over all that is left to do, or an answer was lost.
        dead = self._cleanup.dead(table_input)
        if not dead and StalePartitions.of(table_input) is None:
            self._mode.release(table_input)
        return dead

    def _end(self) -> None:
        """Release the token. If another sync has taken it, partitions may have been changed after that one has."""
        if not self._glue_table.update(self._release):
            self._follow_successor()

    def _release(self, table_input: TableInput) -> bool:
        """Release the token; False if another sync has taken it."""
        if self._mode.holds(table_input):
            self._mode.release(table_input)
            self._released = True
        return self._released

    # Partitions

    def _register(self, partitions: Collection[str]) -> None:
        """Register partitions of the published content before files become visible in them. Raises Fenced."""

        def mark(table_input: TableInput) -> None:
            self._mode.require(table_input)
            mark_partitions_stale(table_input)
            self._current = table_input

        if not self._index.register(self._current, partitions):
            self._glue_table.update(mark)
            self._bring_up_to_date()

    def _register_ahead(self) -> None:
        """Register the partitions of an overwrite before it is published, if readers see no rows now. Raises Fenced.

        Then no moment comes at which it is published and its rows are in no partition.
        """
        pending, before = PendingOverwrite.load(self._current), table_location(self._current)
        if pending is None or self._index.has_elsewhere(self._current, pending.location):
            return
        if not self._folders.is_empty(before):
            return  # Rows that no partition shows yet: their types must stay.

        def widen(table_input: TableInput) -> TableInput:
            set_column_types(table_input, self._mode.content(table_input).types)
            self._current = table_input
            ahead = copy.deepcopy(table_input)
            ahead["StorageDescriptor"]["Location"] = f"{pending.location}/"
            return ahead

        ahead = self._glue_table.update(widen)
        self._replaces_partitions = True
        self._index.register_all(ahead)

    def _bring_up_to_date(self) -> None:
        """Let the registered partitions follow the content. Raises Fenced."""
        while not self._follow(self._mode.require):
            pass

    def _follow(self, require: Callable[[TableInput], None]) -> bool:
        """Let the registered partitions follow the content; False if another change has left them behind meanwhile."""
        if (stale := StalePartitions.of(self._current)) is None:
            return True
        self._replaces_partitions |= stale.replaced
        self._index.follow(self._current, stale)

        def conclude(table_input: TableInput) -> bool:
            require(table_input)
            self._current, is_followed = table_input, StalePartitions.of(table_input) == stale
            mark_up_to_date(table_input, stale)
            return is_followed

        return self._glue_table.update(conclude)

    @contextmanager
    def _successor_followed(self) -> Iterator[None]:
        """Bring the registered partitions up to date once more if this sync is fenced, whatever it fails by."""
        try:
            yield
        except Exception as error:
            if (fenced := self._fenced(error)) is None:
                raise
            try:
                if not isinstance(fenced, Recreated):
                    self._follow_successor()
            except Exception as another:
                fenced.add_note(f"Its partitions may be behind: {type(another).__name__}")
            if fenced is error:
                raise
            raise fenced from error

    def _fenced(self, error: Exception) -> Fenced | None:
        """Return what a failed sync raises if another one has taken its token; None if it holds it, or never has."""
        try:
            if isinstance(error, Fenced) or (self._began and not self._released):
                self._mode.require(self._glue_table.read())
        except Fenced as fenced:
            if self._created not in (None, self._glue_table.created):
                return Recreated(self.name)
            return error if isinstance(error, Fenced) else fenced
        except Exception as another:
            error.add_note(f"The table could not be read: {type(another).__name__}")
        return error if isinstance(error, Fenced) else None

    def _follow_successor(self) -> None:
        """Let the registered partitions follow what other syncs have made of the table.

        Glue changes partitions unconditionally: the last that this sync has changed may be ones that its successor had
        brought up to date before, and the successor may have ended. If it has not, and changes the table meanwhile, it
        says that they are behind, and they are followed again.
        """
        left = table_location(self._current)

        def mark(table_input: TableInput) -> None:
            mark_partitions_stale(table_input, left=left, replaced=self._replaces_partitions)
            self._current = table_input

        def attempt() -> bool:
            self._glue_table.update(mark)
            return self._follow(lambda _: None)

        retry_until_done(attempt)  # Else the next sync follows.
