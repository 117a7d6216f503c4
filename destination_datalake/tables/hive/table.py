"""Hive tables in the Glue Data Catalog: folders of Parquet or JSON Lines files.

Hive tables have no snapshots: readers see all files in the table's location. So the connector keeps new files as
incomplete multipart uploads (small files: on the driver's disk) until a commit completes them. An overwrite writes to a
separate folder. When the sync publishes the overwrite, this folder becomes the table's location.

Only the newest sync may write to a table. This sync holds the fencing token. A commit first completes the uploads in
the folder for which the files were planned. If the sync still holds the token and the folder still holds the table's
content, the commit then updates the Glue entry by compare-and-set. A sync that takes the token after this update finds
the committed files. If another sync took the token before the update, the committing sync is fenced: it deletes the
files that it could not acknowledge, and stops.

Other engines may add files, partitions and columns, and set parameters, at any time.
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
from destination_datalake.tables.hive.moves import Cleanup, FolderOwner, Moves
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
from destination_datalake.tables.naming import recorded_names
from destination_datalake.tables.reconcile import StreamTable
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


class HiveTable(StreamTable):
    """A stream's Hive table (see `Table`). `prepare` determines the folder and the final columns of new files."""

    # Set by `prepare`.
    _named_columns: Sequence[Field]
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
        # Readers see every object in a table's folder, so executors must leave the uploads incomplete until the commit.
        super().__init__(name, layout, replace(plan, deferred=True), owner, context)
        self._access = context.access
        self._glue_table = GlueTable(name, context.access)
        self._in_place = plan.format in WIDENED_IN_PLACE
        self._began = self._published = self._has_committed = False
        self._released = False
        """Whether this sync has sent a request that releases the fencing token. The request may have failed."""
        self._created: datetime | None = None
        self._replaces_partitions = False
        """Whether any sync has replaced the content.

        If True, this sync must delete the registered partitions of the old content.
        """
        self._planned = set[str]()
        """The folders for which this sync has planned files."""

    def prepare(self) -> None:
        """Create the table or add missing columns, take the fencing token, and begin an append or an overwrite.

        Raises TableConflict if the sync cannot continue the existing table.
        """
        try:
            version, created = self._glue_table.read_version(), False
        except self._access.client("glue").exceptions.EntityNotFoundException:
            version, created = self._create(), True
        self._catalog.govern(self.name.database)
        table_input = version.table_input
        if problem := incompatibility(table_input, self._plan):
            raise table_conflict(self._stream.id, self.name, problem)
        self._partition_keys = table_input.get("PartitionKeys") or []
        # A field must not have the name of a partition key.
        sources = column_sources(table_input) | {key["Name"].lower(): None for key in self._partition_keys}
        owner = replace(self._owner, naming=column_naming(self._owner.naming, table_input))
        parameters, types = table_input["Parameters"], column_types(table_input)
        names, columns = recorded_names(parameters), self._named(owner, parameters, sources, types)
        self._named_columns = inherited_types(self._stream, columns, table_input)
        wanted = wanted_scheme(replace(self._layout, known=known_columns(table_input)), self._named_columns)
        self._scheme = scheme_of(self._stream.id, self.name, table_input, wanted, self._named_columns)
        location, generation = table_location(table_input), self._stream.generation
        self._location.accept(self._stream.id, self.name, "Hive", location, created=created)
        self._folders = Folders(self._location.content_root(location), self._access)
        self._index = PartitionIndex(self._glue_table, self._access, self._folders, self._stream.id, self._scheme)
        folder_owner = FolderOwner(self.name, self._folders, self._location, self._catalog)
        self._cleanup = Cleanup(self._glue_table, folder_owner, table_input, self._index)
        # The pending rows are acknowledged. If another program drops the table, these rows are lost, so the sync must
        # fail instead of beginning again.
        self._has_committed = PendingOverwrite.load(table_input) is not None
        append = Append(self.name, self._folders, generation, self._sync)
        new_folder = self._folders.for_table_at(location, generation)
        overwrite = Overwrite(self.name, generation, self._stream.overwrite_generation, self._sync, new_folder)

        def begin(table_input: TableInput) -> tuple[Content, tuple[Field, ...]]:
            current = table_input["Parameters"]
            folder_owner.require(table_input, self._stream.id)
            # The names were chosen on the entry that this method read first. After a conflict, another sync may have
            # recorded other names for the same columns.
            has_new_names = recorded_names(current) != names
            if has_new_names and owner.name_columns(self.name, current, sources, columns, types) != columns:
                raise TableBusy(
                    f"Cannot write to table {self.name}: another sync changed the names of new columns while this "
                    "sync began. Run the sync again."
                )
            current |= owner.name_parameters(current, columns)
            self._mode = overwrite if overwrite.is_wanted(table_input, self._stream) else append
            self._mode.begin(table_input, self._named_columns)
            if self._mode is append:
                # A commit fails if the projection is invalid, so fail before the sync reads records. Publication of an
                # overwrite replaces the projection.
                self._index.project(copy.deepcopy(table_input), ())
            if self._archives:
                current[ARCHIVED_PROPERTY] = "true"
            return self._reconciled_content(table_input)

        with self._updating_partitions_if_fenced():
            self._replan(begin, version)
        self._created = self._glue_table.created
        self._moves = Moves(self._glue_table, self._folders, self._index, self._mode, self._in_place, generation)
        self._index.warn_of_retyped(self._current, self._named_columns, self._plan.columns)

    def is_empty(self) -> bool:
        """Return whether the table's folder and the folder of any pending overwrite contain no objects."""
        return all(map(self._folders.is_empty, folders_in_use(self._current)))

    def is_archived(self) -> bool:
        """Return whether a table parameter records that a sync has archived the records that it committed."""
        return ARCHIVED_PROPERTY in self._current["Parameters"]

    def position(self) -> TablePosition:
        """Return the version of the Glue entry that this sync last read or wrote."""
        return TablePosition(str(self._glue_table.created), self._glue_table.number)

    def plan(self) -> FilePlan:
        """Return how to write the files of the next batch, such as their folder and the types of their columns."""
        return self._plan

    def commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> Committed | Reencode:
        """Complete the uploads of all files, or of none. First widen the content's columns if the files require it.

        The files of an append become visible one after the other. Returns Reencode if the content's folder or column
        types no longer match the plan that the files follow. Also returns Reencode if three conditions hold: another
        program has dropped and recreated the table, this sync has not committed anything yet, and no sync holds the
        fencing token of the new table.
        """
        try:
            return self._commit(files, rewrite)
        except Recreated:
            if self._has_committed or FencingToken.held(self._glue_table.read()["Parameters"]) is not None:
                raise
        self.prepare()
        return Reencode(RECREATED)

    def _commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> Committed | Reencode:
        with self._updating_partitions_if_fenced(), rollback_on_error(partial(self._roll_back, files)):
            # Adopt first: the adoption may widen columns, and the mismatch check below must see the result.
            self._adopt_pending(rewrite)
            self._widen_for(files, rewrite)
            if (mismatch := self._mismatch(files)) is not None:
                self.discard(files)
                return Reencode(mismatch)
            partitions = {self._relative(file.uri).rpartition("/")[0] for file in files}
            # Before the files become visible: in the other order, a kill in between would leave rows that no reader
            # finds.
            if self._is_visible:
                self._register(partitions)
            # Complete the uploads before the Glue entry records the commit. A sync that then takes the token finds
            # either all files or no record of the commit. If the process is killed in between, the files are visible
            # without an acknowledgement, and the platform sends the rows again.
            publish_all(pending_uploads(files), self._access.client("s3"))
            if self._glue_table.update(partial(self._record_commit, commit=self._new_commit(), partitions=partitions)):
                self._has_committed = True
                return Committed()
        self._roll_back(files)
        # The content has moved, so the completed files are in a folder that no reader uses, or have the wrong types.
        # Plan the batch again.
        self._replan()
        return Reencode("another writer moved the table's files or changed its columns while the batch was committed")

    def merge_is_due(self) -> bool:
        """Return False, because rows of Hive tables are not deduplicated."""
        return False

    def merge(self) -> None:
        """Do nothing, because rows of Hive tables are not deduplicated."""

    def publish(self, rewrite: Rewrite) -> None:
        """Make a pending overwrite visible, and release the fencing token.

        The next sync deletes the folder that the overwrite replaces.
        """
        if self._published:
            return
        with self._updating_partitions_if_fenced():
            self._adopt_pending(rewrite)
            # Glue cannot change the table and its partitions together, so register what can be registered before.
            self._register_ahead()
            dead = self._glue_table.update(self._publish)
            if self._mode.holds(self._current):
                # Partitions first, because the deletion keeps every folder to which a partition refers. The token stays
                # until the end, because the update of partitions requires it.
                self._bring_up_to_date()
                self._cleanup.delete(dead)
                self._end()
        self._published = True

    def take_over(self, rebuilt: TableName, expected: str) -> None:
        """Replace this table's content with that of a rebuilt table, whose folders are beside this table's folders.

        Raises Fenced if this object's sync has lost the fencing token, and TableBusy if this table's location differs
        from `expected`.
        """
        source = GlueTable(rebuilt, self._access).read()

        def change(table_input: TableInput) -> None:
            self._mode.require(table_input)
            if table_location(table_input) == table_location(source):
                return  # An earlier call succeeded, but the response was lost.
            if table_location(table_input) != expected:
                raise TableBusy(f"Another writer changed the location of table {self.name}. Run the replay again.")
            add_missing_columns(table_input, source)
            table_input["Parameters"] |= recorded_names(source["Parameters"])
            publish_content(table_input, Content.published(source), self.name)
            mark_partitions_stale(table_input, replaced=True)
            for folder in {*folders_in_use(source), *other_folders(source)} - folders_in_use(table_input):
                list_folder(table_input, folder, FolderState.DEAD)
            save_lowest_generation(table_input, lowest_generation(source))
            save_commit(table_input, self._new_commit())
            self._index.reset_projection(table_input)
            self._current = table_input

        with self._updating_partitions_if_fenced():
            self._glue_table.update(change)
            self._bring_up_to_date()
            self._end()

    def discard(self, files: Sequence[DataFile]) -> None:
        """Abort the uploads of files that will not be committed."""
        abort_all(pending_uploads(files), self._access.client("s3"))

    # Planning

    def _create(self) -> TableVersion:
        """Create the table unless another program has just created it, and return the table.

        An append stores its generation and the fencing token in the new table. This saves a request to take the token.
        An overwrite stores its generation on publication. Raises ConfigError if the stream lacks a field by which the
        options partition the table.
        """
        self._catalog.ensure(self.name.database)
        scheme, location = wanted_scheme(self._layout, self._columns), f"{self._first_folder()}/"
        parameters = self._parameters_of_new_table()
        entry: TableInput = {"Parameters": parameters, "StorageDescriptor": {"Location": location}}
        if not self._stream.overwrites_table:
            save_lowest_generation(entry, self._stream.generation)
            # If another program creates the table at the same time, Glue rejects this entry, and `begin` takes the
            # token instead.
            FencingToken.after({}, self._sync).write_to(parameters)
        if scheme is not None:
            scheme.save(entry)
            scheme.project(entry, (), reset=True)
        keys = scheme.glue_keys() if scheme is not None else []
        columns = (*METADATA_COLUMNS, *self._columns)
        create_hive_table(self.name, columns, keys, location, parameters, self._plan, self._access)
        return self._glue_table.read_version()

    def _first_folder(self) -> str:
        """Return an unused folder for a new table, so that it does not inherit files of an earlier table.

        If `path_layout` is not `hive` and the table's root folder is unused, an append uses the root folder. Object
        keys then match the keys of the destination whose layout the option names. An overwrite never uses the root
        folder, because cleanup could not delete this folder later.
        """
        folders = Folders(self._location.folder, self._access)
        appends = not self._stream.overwrites_table
        if self._layout.config.path_layout != "hive" and appends and folders.is_empty(folders.root):
            return folders.root
        return folders.for_new_table(self._stream.generation)

    def _reconciled_content(self, table_input: TableInput) -> tuple[Content, tuple[Field, ...]]:
        """Add missing columns to the content to which the sync writes.

        Returns the content, and the stream's columns with their final names and types. A pending overwrite keeps the
        types of its files, even if the table's columns have changed since. If a wider column type requires new files,
        this method leaves the column for the first batch that needs the wider type. Raises Fenced if this sync has lost
        the fencing token.
        """
        content, existing = self._mode.content(table_input), column_types(table_input)
        reconciled = self._reconciled(self._named_columns, content.types, column_type_names(table_input))
        changes = [change for change in reconciled.changes if isinstance(change, AddColumn) or self._in_place]
        types = apply_changes(content.types, changes)
        written = (*METADATA_COLUMNS, *reconciled.columns)
        missing = [AddColumn((), column) for column in written if column.name not in existing]
        is_published = content.folder == table_location(table_input)
        # Add new fields of structs. Widen a type in the catalog only if the published content has that type.
        nested = [change for change in changes if (change.parent if isinstance(change, AddColumn) else is_published)]
        change_columns(table_input, [*missing, *nested])
        if types != content.types and not is_published:
            self._mode.set_content(table_input, replace(content, types=types))
        if reconciled.conflicts:
            table_input["Description"] = reconciled.comment(table_input.get("Description", ""))
        return self._mode.content(table_input), reconciled.columns

    def _replan(
        self,
        change: Callable[[TableInput], tuple[Content, tuple[Field, ...]]] | None = None,
        version: TableVersion | None = None,
    ) -> Content:
        """Change the Glue entry, apply the configured permissions to its columns, and plan the next batch.

        `change` changes the entry and returns the content for the next batch. The default is `_reconciled_content`. The
        permissions take effect before readers see values in new columns, because the files with these columns are still
        pending. Returns the content. Raises Fenced if this sync has lost the fencing token.
        """
        change = change or self._reconciled_content

        def reconciled(table_input: TableInput) -> tuple[Content, tuple[Field, ...], Collection[str], set[str]]:
            if (table_input.get("PartitionKeys") or []) != self._partition_keys:
                problem = "another writer changed its partition keys during this sync. Run the sync again"
                raise table_conflict(self._stream.id, self.name, problem)
            former_types = column_type_names(table_input)
            content, columns = change(table_input)
            types = column_type_names(table_input)
            self._journal.columns(self.name, former_types)
            self._journal.columns(self.name, types)
            if types != former_types:
                # Each partition has its own copy of the columns, which still has the former types.
                mark_partitions_stale(table_input)
            self._current = table_input
            present = [*types, *(key["Name"] for key in self._partition_keys)]
            return content, columns, present, types.keys() - former_types.keys()

        content, columns, present, added = self._glue_table.update(reconciled, version)
        self._began = True
        self._catalog.governance.govern_table(*self.name, present, added, self._glue_table.created)
        self._bring_up_to_date()
        scheme, max_open = self._scheme, self._layout.config.max_open_partitions
        self._plan = replace(
            self._plan,
            folder=content.folder,
            columns=evolve(content.types, columns).columns,
            partitioning=None if scheme is None else scheme.partitioning(max_open, self._named_columns, columns),
        )
        self._planned.add(content.folder)
        return content

    def _widen_for(self, files: Sequence[DataFile], rewrite: Rewrite) -> None:
        """Widen the content's columns if the plan or a file requires it, and plan the next batch again."""
        content = self._replan()
        needed = self._plan.columns
        for file in files:
            needed = evolve({column.name: column.type for column in needed}, file.columns).columns
        if content.widened(needed) == content:
            return
        self._moves.widen(needed, rewrite)
        # The widening moved the files, so the former folder may go. Readers that have listed it may still read it.
        if self._replan().folder != content.folder:
            self._cleanup.replace_folder(content.folder, self._current)

    def _planned_folder(self, uri: str) -> str:
        # If planned folders are nested, the longest one is the folder for which the file was planned.
        return max((folder for folder in self._planned if uri.startswith(f"{folder}/")), key=len)

    def _relative(self, uri: str) -> str:
        """Return a file's path (partition folder and name) relative to the folder for which the file was planned."""
        return uri.removeprefix(f"{self._planned_folder(uri)}/")

    def _mismatch(self, files: Sequence[DataFile]) -> str | None:
        """Return why the files do not match the present plan, or None if they do."""
        if any(self._planned_folder(file.uri) != self._plan.folder for file in files):
            return "the table's files were moved to another folder after the batch was encoded"
        if not self._in_place and any(file.columns != self._plan.columns for file in files):
            return "the types of the table's columns changed after the batch was encoded"
        return None

    # Committing

    def _adopt_pending(self, rewrite: Rewrite) -> None:
        if self._mode.adopts:
            self._moves.adopt(rewrite)
            self._mode.adopts = False

    @property
    def _is_visible(self) -> bool:
        """Whether the next batch is planned for the published content.

        If True, readers see the batch's files immediately.
        """
        return self._plan.folder == table_location(self._current)

    def _record_commit(self, table_input: TableInput, commit: str, partitions: Collection[str]) -> bool:
        """Record the commit in the Glue entry. Return False if the content no longer matches the plan of the files."""
        self._current, content = table_input, self._mode.content(table_input)
        evolved = evolve(content.types, self._plan.columns)
        is_changed = bool(evolved.changes) or (evolved.columns != self._plan.columns and not self._in_place)
        if is_changed or content.folder != self._plan.folder:
            return False
        # `update` sends no request for an unchanged entry. With a new ID, every commit is a compare-and-set, which
        # fails if another writer has changed the entry.
        save_commit(table_input, commit)
        if self._is_visible:
            self._index.project(table_input, partitions)
        return True

    def _roll_back(self, files: Sequence[DataFile]) -> None:
        """Abort the uploads of a failed commit, and delete its completed files and their copies.

        The next sync may have made such copies.
        """
        try:
            self.discard(files)
        finally:
            originals = {file.uri for file in files}
            self._folders.delete(originals)
            folders = folders_in_use(self._glue_table.read())
            # A sync that has taken the token may have copied the completed files before they were deleted here. These
            # rows are unacknowledged, so the platform sends them again.
            copies = {f"{folder}/{self._relative(uri)}" for folder in folders for uri in originals}
            self._folders.delete(copies - originals)

    def _new_commit(self) -> str:
        return f"{self._sync}-{uuid.uuid4().hex[:12]}"

    # Publishing

    def _publish(self, table_input: TableInput) -> Sequence[str]:
        """Publish the written files, and return the folders to delete. If no work remains, release the token.

        Raises Recreated if another program dropped and recreated the table after a commit of this sync, so that the new
        table does not contain the committed files. An overwrite may also raise Fenced (see `Overwrite.publish`).
        """
        # Glue keeps the creation time on updates. Another time means another table of the same name.
        if self._has_committed and self._glue_table.created != self._created:
            raise Recreated(self.name)
        former_location = table_location(table_input)
        self._mode.publish(table_input)
        self._journal.columns(self.name, column_type_names(table_input))
        if table_location(table_input) != former_location:
            self._index.reset_projection(table_input)
        self._current = table_input
        if not self._mode.holds(table_input):
            return ()  # Another sync does the remaining work, or an earlier call succeeded and the response was lost.
        dead = self._cleanup.dead(table_input)
        self._released = not dead and StalePartitions.load(table_input) is None
        if self._released:
            self._mode.release(table_input)
        return dead

    def _end(self) -> None:
        """Release the fencing token.

        If another sync has taken the token, update the registered partitions once more.
        """
        if not self._glue_table.update(self._release):
            self._update_partitions_after_fencing()

    def _release(self, table_input: TableInput) -> bool:
        """Release the fencing token. Return False if another sync has taken it."""
        if self._mode.holds(table_input):
            self._mode.release(table_input)
            self._released = True
        return self._released and not self._mode.is_fenced(table_input)

    # Partitions

    def _register(self, partitions: Collection[str]) -> None:
        """Register partitions of the content that readers see, before the files of a batch become visible in them.

        If one of the partitions is already registered but stale, also update all stale partitions of the table. This
        update raises Fenced if this sync has lost the fencing token.
        """

        def mark(table_input: TableInput) -> None:
            self._mode.require(table_input)
            mark_partitions_stale(table_input)
            self._current = table_input

        if not self._index.register(self._current, partitions):
            self._glue_table.update(mark)
            self._bring_up_to_date()

    def _register_ahead(self) -> None:
        """Register the partitions of a pending overwrite before its publication, if the table has no visible rows.

        If the sync registered the partitions only after the publication, readers would miss rows until then. Raises
        Fenced if this method would register partitions, but this sync has lost the fencing token.
        """
        pending = PendingOverwrite.load(self._current)
        if pending is None or self._index.has_partitions_outside(self._current, pending.location):
            return
        if not self._folders.is_empty(table_location(self._current)):
            return  # The content has rows in unregistered partitions, so its column types must not change.

        def widen(table_input: TableInput) -> TableInput:
            set_column_types(table_input, self._mode.content(table_input).types)
            self._current = table_input
            # Only the copy has the new location. New partitions take their storage descriptor from it.
            relocated = copy.deepcopy(table_input)
            relocated["StorageDescriptor"]["Location"] = f"{pending.location}/"
            return relocated

        relocated = self._glue_table.update(widen)
        self._replaces_partitions = True
        self._index.register_all(relocated)

    def _bring_up_to_date(self) -> None:
        """Update stale partitions until all partitions match the content.

        Raises Fenced if partitions are stale and this sync has lost the fencing token.
        """
        while not self._update_stale_partitions(self._mode.require):
            pass

    def _update_stale_partitions(self, require: Callable[[TableInput], None]) -> bool:
        """Update stale partitions. Return False if another change has made them stale again in the meantime.

        Before this method removes the mark, it calls `require` with the table. `require` raises an error if this sync
        may no longer write.
        """
        if (stale := StalePartitions.load(self._current)) is None:
            return True
        self._replaces_partitions |= stale.replaced
        # First the partitions, then the mark. If the process is killed in between, the next sync repeats the update.
        self._index.update_stale(self._current, stale)

        def conclude(table_input: TableInput) -> bool:
            # Before the mark is removed: a fenced sync must leave it for its successor.
            require(table_input)
            self._current, is_up_to_date = table_input, StalePartitions.load(table_input) == stale
            mark_up_to_date(table_input, stale)
            return is_up_to_date

        return self._glue_table.update(conclude)

    @contextmanager
    def _updating_partitions_if_fenced(self) -> Iterator[None]:
        """Update the registered partitions once more if the block raises an error and this sync is fenced.

        In this case, raise Fenced instead of the block's error. If another program has recreated the table, raise
        Recreated without an update.
        """
        try:
            yield
        except Exception as error:
            if (fenced := self._fenced_error(error)) is None:
                raise
            try:
                if not isinstance(fenced, Recreated):
                    self._update_partitions_after_fencing()
            except Exception as update_error:
                fenced.add_note(f"Some partitions may be stale: {type(update_error).__name__}")
            if fenced is error:
                raise
            raise fenced from error

    def _fenced_error(self, error: Exception) -> Fenced | None:
        """Return a Fenced error if this sync has lost the fencing token, otherwise None.

        Returns `error` itself if it is Fenced. If another program has recreated the table, returns Recreated instead.
        For any other `error`, returns None if this sync still holds the token, has not taken it yet, or has released
        it, even if the response to the release was lost, and also if the table cannot be read.
        """
        try:
            if isinstance(error, Fenced) or self._began:
                table_input = self._glue_table.read()
                if isinstance(error, Fenced) or not self._released or self._mode.is_fenced(table_input):
                    self._mode.require(table_input)
        except Fenced as fenced:
            if self._created not in (None, self._glue_table.created):
                return Recreated(self.name)
            return error if isinstance(error, Fenced) else fenced
        except Exception as read_error:
            error.add_note(f"Cannot read the table: {type(read_error).__name__}")
        return error if isinstance(error, Fenced) else None

    def _update_partitions_after_fencing(self) -> None:
        """Make the registered partitions match the content that other syncs have written.

        Glue changes partitions unconditionally. So the last requests of this sync, which has lost the fencing token,
        may have undone updates by the sync that took the token. That successor may already have ended. If it is still
        running and changes the table during this update, it marks the partitions as stale, and another update follows.
        """
        # This sync may have pointed partitions to the folder that it last knew. They must move to the present one.
        former_folder = table_location(self._current)

        def mark(table_input: TableInput) -> None:
            mark_partitions_stale(table_input, former_folder=former_folder, replaced=self._replaces_partitions)
            self._current = table_input

        def attempt() -> bool:
            self._glue_table.update(mark)
            return self._update_stale_partitions(lambda _: None)

        retry_until_done(attempt)  # If all attempts fail, the mark stays, and the next sync updates the partitions.
