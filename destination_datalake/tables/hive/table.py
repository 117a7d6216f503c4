"""Hive tables in the Glue Data Catalog: folders of Parquet or JSON-lines files.

A Hive table has no snapshots; readers see the files in its location. So files stay pending multipart uploads until a
commit completes them, and an overwrite writes to a folder of its own, which publishing makes the table's location.

Several syncs may write to a table concurrently. Its Glue entry, changed only by compare-and-set, orders them: a commit
completes its files in the folder that they were planned for, and then updates the entry, provided that this folder
still holds the content. A sync that moves the content to another folder does so by an update, too. If it comes second
it meets a conflict, and looks for new files before it tries again; if it comes first the commit notices the move.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from destination_datalake.aws.objects import delete_uncommitted, publish_all, undone_on_failure
from destination_datalake.aws.retries import retry_until_done
from destination_datalake.files.plan import DataFile, FilePlan
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.evolution import AddColumn, evolve
from destination_datalake.schema.types import Field
from destination_datalake.tables.aws_datalake import column_naming, inherited_types
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput, TableVersion
from destination_datalake.tables.glue.storage_descriptor import (
    change_columns,
    column_sources,
    column_type_names,
    column_types,
    known_columns,
    table_location,
)
from destination_datalake.tables.hive.cleanup import Cleanup
from destination_datalake.tables.hive.compatibility import WIDENED_IN_PLACE, incompatibility
from destination_datalake.tables.hive.content import Content, folders_in_use
from destination_datalake.tables.hive.folders import Folders, PlannedFolders
from destination_datalake.tables.hive.parameters import generation_parameter, save_commit
from destination_datalake.tables.hive.partitions.creation import create_table
from destination_datalake.tables.hive.partitions.existing import scheme_of
from destination_datalake.tables.hive.partitions.index import PartitionIndex
from destination_datalake.tables.hive.partitions.scheme import PartitionScheme, wanted_scheme
from destination_datalake.tables.hive.partitions.state import mark_behind
from destination_datalake.tables.hive.widening import Widening
from destination_datalake.tables.hive.write_modes import Append, Overwrite, WriteMode
from destination_datalake.tables.limits import ColumnLimits
from destination_datalake.tables.reconcile import reconcile
from destination_datalake.tables.table import Committed, Reencode, Rewrite, TableName, table_conflict

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.tables import SchemaConflicts
    from destination_datalake.protocol.catalog import Stream
    from destination_datalake.tables.glue.database import Databases
    from destination_datalake.tables.layout.partitions import TableLayout
    from destination_datalake.tables.ownership import TableOwner


class HiveTable:
    """A stream's Hive table. `plan` lacks columns and folder, which `prepare` finds out."""

    # Set by `prepare`.
    _folders: Folders
    _partition_keys: Sequence[Any]
    _scheme: PartitionScheme | None
    _index: PartitionIndex
    _current: TableInput
    _widening: Widening
    _cleanup: Cleanup
    _mode: WriteMode

    def __init__(
        self,
        name: TableName,
        stream: Stream,
        columns: Sequence[Field],
        layout: TableLayout,
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
        self._layout = layout
        self._location = layout.location
        self._plan = replace(plan, deferred=True)
        self._access = access
        self._owner = owner
        self._sync = sync
        self._databases = databases
        self._glue_table = GlueTable(name, access)
        self._in_place = plan.format in WIDENED_IN_PLACE
        self._commits = itertools.count(1)
        self._planned = PlannedFolders()

    def prepare(self) -> None:
        """Create the table, or add columns to it; begin to append or overwrite."""
        try:
            version, created = self._glue_table.read_version(), False
        except self._access.client("glue").exceptions.EntityNotFoundException:
            version, created = self._create(), True
        self._databases.govern(self.name.database)
        table_input = version.table_input
        if problem := incompatibility(table_input, self._plan):
            raise table_conflict(self._stream.id, self.name, problem)
        self._partition_keys = table_input.get("PartitionKeys") or []
        # A partition key is a column that no field may have.
        sources = column_sources(table_input) | {key["Name"].lower(): None for key in self._partition_keys}
        naming = column_naming(self._owner.naming, table_input)
        columns = self._columns if naming == self._owner.naming else self._layout.columns(naming)
        columns = replace(self._owner, naming=naming).name_columns(
            self.name, table_input["Parameters"], sources, columns
        )
        self._columns = inherited_types(self._stream, columns, table_input)
        wanted = wanted_scheme(replace(self._layout, known=known_columns(table_input)), self._columns)
        self._scheme = scheme_of(self._stream.id, self.name, table_input, wanted, self._columns)
        location, generation = table_location(table_input), self._stream.generation
        self._location.accept(self._stream.id, self.name, "Hive", location, created=created)
        self._folders = Folders(self._location.content_root(location), self._access)
        self._widening = Widening(self._glue_table, self._folders, self._in_place, generation)
        self._index = PartitionIndex(self._glue_table, self._access, self._folders, self._stream.id, self._scheme)
        self._cleanup = Cleanup(self._glue_table, self._folders, table_input, self._index)
        append = Append(self._glue_table, self._folders, self._index, self._widening, generation, self._sync)
        new_folder = self._folders.for_table_at(location, generation)
        overwrite = Overwrite(self.name, generation, self._stream.overwrite_generation, self._sync, new_folder)

        def begin(table_input: TableInput) -> tuple[Content, tuple[Field, ...]]:
            columns = self._reconcile(table_input)
            self._mode = overwrite if overwrite.is_wanted(table_input, self._stream) else append
            self._mode.begin(table_input, columns)
            return self._reconciled_content(table_input)

        self._replan(begin, version)
        self._index.warn_of_retyped(self._current, self._columns, self._plan.columns)

    def plan(self) -> FilePlan:
        """Return the plan for the next batch: the content's folder, and columns as wide as its types."""
        return self._plan

    def commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> Committed | Reencode:
        """Complete the uploads of all files, or of none; widen the content's columns first if the files need it.

        The files become visible one after the other. Reencode if the content has another folder or other types than
        the files were planned for.
        """
        with undone_on_failure(partial(self._roll_back, files)):
            self._mode.adopt_pending(rewrite)
            self._widen_for(files, rewrite)
            if (mismatch := self._mismatch(files)) is not None:
                self.discard(files)
                return Reencode(mismatch)
            self._register_partitions(self._planned.partitions(files), self._plan.folder)
            self._complete_uploads(files)
            if self._record_commit(files):
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
        self._mode.adopt_pending(rewrite)

        def publish(table_input: TableInput) -> Sequence[str]:
            before = table_location(table_input)
            self._mode.publish(table_input)
            if table_location(table_input) != before:
                self._index.project_anew(table_input)
            self._current = table_input
            return self._cleanup.mark_dead(table_input)

        dead = self._glue_table.update(publish)
        self._current = self._index.bring_up_to_date(self._current)
        self._cleanup.delete(dead)

    def discard(self, files: Sequence[DataFile]) -> None:
        """Abort the uploads."""
        delete_uncommitted(files, self._access.client("s3"))

    # Planning

    def _create(self) -> TableVersion:
        """Create the table. An overwrite saves its generation when it is published."""
        parameters = self._owner.parameters()
        if not self._stream.overwrites_table:
            parameters |= generation_parameter(self._stream.generation)
        self._databases.ensure(self.name.database)
        create_table(self.name, self._columns, METADATA_COLUMNS, self._layout, parameters, self._plan, self._access)
        return self._glue_table.read_version()

    def _reconcile(self, table_input: TableInput) -> tuple[Field, ...]:
        """Add the columns that are missing; return the stream's columns as the table takes them.

        Columns become wider with the first batch that needs it, if that requires files to be rewritten.
        """
        existing, type_names = column_types(table_input), column_type_names(table_input)
        limits = ColumnLimits.of(self._layout.config, self._stream.id)
        reconciled = reconcile(
            self._stream.id, self.name, self._columns, existing, type_names, self._schema_conflicts, limits
        )
        change_columns(table_input, [c for c in reconciled.changes if isinstance(c, AddColumn) or self._in_place])
        if reconciled.conflicts:
            table_input["Description"] = reconciled.comment(table_input.get("Description", ""))
        return reconciled.columns

    def _reconciled_content(self, table_input: TableInput) -> tuple[Content, tuple[Field, ...]]:
        """Reconcile the table; return the content to write to, and the stream's columns. Raises Fenced."""
        columns = self._reconcile(table_input)
        return self._mode.content(table_input), columns

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
            if after != before:
                mark_behind(table_input)
            self._current = table_input
            present = [*after, *(key["Name"] for key in self._partition_keys)]
            return content, columns, present, after.keys() - before.keys()

        content, columns, present, added = self._glue_table.update(reconciled, version)
        self._databases.governance.govern_table(*self.name, present, added, self._glue_table.created)
        self._current = self._index.bring_up_to_date(self._current)
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
        self._widening.widen(self._mode, needed, rewrite)
        if self._replan().folder != content.folder:
            self._cleanup.on_left(content.folder)

    def _mismatch(self, files: Sequence[DataFile]) -> str | None:
        """Return why the files do not fit the present plan; None if they do."""
        if any(self._planned.folder(file.uri) != self._plan.folder for file in files):
            return "its files were moved to another folder after the batch was encoded"
        if not self._in_place and any(file.columns != self._plan.columns for file in files):
            return "its columns have other types than the batch was encoded with"
        return None

    # Committing

    def _register_partitions(self, partitions: Collection[str], folder: str) -> bool:
        """Register partitions by their folders if `folder` is what readers see; True if nothing had to be done."""
        if self._scheme is None or folder != table_location(self._current):
            return True
        return self._index.register(self._current, partitions)

    def _complete_uploads(self, files: Sequence[DataFile]) -> None:
        uploads = [file.pending_upload for file in files if file.pending_upload is not None]
        publish_all(uploads, self._access.client("s3"))

    def _record_commit(self, files: Sequence[DataFile]) -> bool:
        """Record the commit in the Glue entry, provided that the content has all of the files; False if it has not.

        A widening that moves the content meanwhile may have carried all of them along, or only some.
        """
        folder, commit, partitions = self._plan.folder, self._new_commit(), self._planned.partitions(files)
        while True:
            record = partial(self._record_commit_in, folder=folder, commit=commit, partitions=partitions)
            found = self._glue_table.update(record)
            if found == folder:
                if self._register_partitions(partitions, folder):
                    return True
                continue
            if (
                found is None
                or not {self._planned.name(file.uri) for file in files} <= self._folders.files(found).keys()
            ):
                return False
            folder = found

    def _record_commit_in(
        self, table_input: TableInput, folder: str, commit: str, partitions: Collection[str]
    ) -> str | None:
        """Record the commit if the content is in `folder`; return its folder, or None if its types have changed."""
        self._current, content = table_input, self._mode.content(table_input)
        if content.folder != folder:
            return content.folder
        if folder == self._plan.folder:
            now = evolve(content.types, self._plan.columns)
            if now.changes or (now.columns != self._plan.columns and not self._in_place):
                return None
        save_commit(table_input, commit)
        if folder == table_location(table_input):
            self._index.project(table_input, partitions)
        return folder

    def _roll_back(self, files: Sequence[DataFile]) -> None:
        """Abort the uploads and delete completed files, also the copies that a concurrent widening made of them."""
        try:
            self.discard(files)
        finally:
            self._folders.delete(file.uri for file in files)
            commit = self._new_commit()

            def attempt() -> bool:
                folders = folders_in_use(self._glue_table.read())
                self._folders.delete(f"{folder}/{self._planned.name(file.uri)}" for folder in folders for file in files)
                return self._glue_table.update(partial(_record_deletion, commit=commit, folders=folders))

            retry_until_done(attempt)

    def _new_commit(self) -> str:
        return f"{self._sync}-{next(self._commits)}"


def _record_deletion(table_input: TableInput, commit: str, folders: set[str]) -> bool:
    """Change the table, so that a widening looks at the folders again; False if other folders are in use by now."""
    if folders_in_use(table_input) != folders:
        return False
    save_commit(table_input, commit)
    return True
