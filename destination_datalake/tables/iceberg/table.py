"""The Iceberg table of a stream.

Spark's executors write Parquet files with the field IDs of the table. Each commit adds the files of one batch in one
snapshot. A sync that overwrites the table collects its rows on a branch. At the end of the sync, one commit makes the
head of the branch the current snapshot, so readers see either all old rows or all new rows (Iceberg spec: snapshot
references).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchPropertyException, NoSuchTableError
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table import Transaction
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.aws.objects import delete_uncommitted, pending_uploads, publish_all
from destination_datalake.errors import ConnectorError
from destination_datalake.files.plan import DataFile, Deduplication, FilePlan, RewriteFailed, RewriteTask, Rewritten
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.evolution import AddColumn, Widen, evolve
from destination_datalake.schema.iceberg import iceberg_field
from destination_datalake.schema.types import Field, Float64
from destination_datalake.tables.context import TableContext
from destination_datalake.tables.fencing import Fenced, FencingToken, Recreated
from destination_datalake.tables.iceberg.branches import (
    NEW,
    inherited_uniqueness,
    rows_on,
    state_of,
    unpublished_branches,
)
from destination_datalake.tables.iceberg.commit import COMMENT, TableOperations, Ungoverned, set_property
from destination_datalake.tables.iceberg.compatibility import (
    incompatibility,
    is_of_s3_data_lake,
    no_iceberg_table,
    publish_staged,
    require_all_written,
    require_no_equality_deletes,
    require_values_fit,
)
from destination_datalake.tables.iceberg.dedup.merge import RETRY_DELAY, Merge, is_merge_due
from destination_datalake.tables.iceberg.dedup.plan import Definition, MergeScope, deduplication
from destination_datalake.tables.iceberg.file_io import background_writes
from destination_datalake.tables.iceberg.layout import WantedLayout, partitioning, sort_order, sort_order_id
from destination_datalake.tables.iceberg.rework import folder_of_new_file
from destination_datalake.tables.iceberg.schema import (
    apply_changes,
    column_sources,
    column_types,
    known_columns,
    missing_changes,
)
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.files import (
    BranchFiles,
    Entries,
    LiveFile,
    as_sources,
    promoted_to_double,
    rewritten_entry,
    unneeded_deletes,
)
from destination_datalake.tables.iceberg.write_modes import (
    Append,
    Overwrite,
    WriteMode,
    properties_of_new_table,
    write_mode,
)
from destination_datalake.tables.naming import TableOwner
from destination_datalake.tables.reconcile import Reconciliation, StreamTable
from destination_datalake.tables.s3_data_lake import EPOCH_METADATA_COLUMNS, column_naming, inherit_types
from destination_datalake.tables.table import (
    ARCHIVED_PROPERTY,
    RECREATED,
    Committed,
    Reencode,
    Rewrite,
    TableBusy,
    TableConflict,
    TableName,
    TablePosition,
    cannot_write,
    table_conflict,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.layout import TableLayout

_logger = logging.getLogger(__name__)

_PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    "write.format.default": "parquet",
    # Every commit writes a metadata file. Keep only the last 100 of these files (Iceberg: table properties).
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}

_FRESH_SECONDS = 30.0
"""Maximum age in seconds of a loaded table or a commit that counts as recent.

The first commit of a sync reuses the table that `prepare` has loaded, if that load is recent. `publish` does not check
whether another writer has recreated the table, if the last commit is recent. This saves small syncs two requests. If
another writer drops the table within this time, the outcome is the same as if it dropped the table after the sync.
"""


class IcebergTable(StreamTable):
    """The Iceberg table to which one sync writes a stream (see `Table`).

    `plan` contains how to write new files. `prepare` adds the column types, the field IDs and the data folder.
    """

    def __init__(
        self, name: TableName, layout: TableLayout, plan: FilePlan, owner: TableOwner, context: TableContext
    ) -> None:
        super().__init__(name, layout, plan, owner, context)
        self._operations = TableOperations(name, context.catalog)
        self._context = context
        self._mode: WriteMode = Append(name, layout.stream)
        self._has_merged = self._has_committed = False
        self._last_commit = 0.0
        self._no_merge_before: datetime | None = None
        self._metadata: TableMetadata
        self._prepared: tuple[PyIcebergTable, float] | None = None
        self._wanted: tuple[tuple[Field, ...], WantedLayout] | None = None

    def prepare(self) -> None:
        """Create the table, or adapt the schema of the existing table to the stream.

        Also take over or remove the unpublished rows that overwrites of earlier syncs have left. Raises TableConflict
        if the connector cannot write the stream to the existing table.
        """
        try:
            table, created = self._operations.load(), False
        except (NoSuchIcebergTableError, NoSuchPropertyException) as error:
            problem = no_iceberg_table(self._catalog.find(self.name) or {}, self._stream)
            raise TableConflict(cannot_write(self._stream.id, self.name, problem)) from error
        except NoSuchTableError:
            table, created = self._create(), True
        self._location.accept(self._stream.id, self.name, "Iceberg", table.location(), created=created)
        self._catalog.govern(self.name.database)
        pending = unpublished_branches(table.metadata)
        # Acknowledged rows that earlier syncs left unpublished count as committed. If another writer drops the table,
        # these rows are lost, so the sync must fail instead of starting again.
        self._has_committed = any(rows_on(branch, table.metadata) is not None for branch in pending)
        table, columns = self._begin(table)
        if not self._is_ours(table):
            self._wanted_layout(columns, known_columns(table.metadata)).warn_of_difference(table.metadata, self.name)
        # Unlike the partition spec, the sort order does not change during the sync, because files in a former sort
        # order stay valid.
        self._plan = replace(self._plan, sort_order=sort_order(table.metadata, self._plan.columns))
        self._plan = replace(self._plan, folder=f"{table.location().rstrip('/')}/data")

    def is_empty(self) -> bool:
        """Return whether the snapshot summaries of main and of all unpublished branches count no rows."""
        branches = (MAIN_BRANCH, *unpublished_branches(self._metadata))
        return all(rows_on(branch, self._metadata) is None for branch in branches)

    def is_archived(self) -> bool:
        """Return whether a table property records that a sync has archived its commits to the table."""
        return ARCHIVED_PROPERTY in self._metadata.properties

    def position(self) -> TablePosition:
        """Return the table's position after the last commit of this sync, from the number of the metadata file."""
        return self._operations.position

    def plan(self) -> FilePlan:
        """Return the plan for the files of the next batch, with the column types and field IDs of the last commit.

        If the catalog vends credentials for the table's files, the plan contains these credentials.
        """
        access = self._operations.access
        return replace(self._plan, vended_access=access if access.has_session_credentials else None)

    def commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> Committed | Reencode:
        """Append the files, and add or promote the columns that the files need, in one commit.

        A table may contain files that store a column as int and files that store it as long (Iceberg spec: type
        promotion). If the commit promotes a column to double, the same commit replaces the files that store the column
        as float. If the new files no longer fit the table, delete them and return Reencode. Also raises ConnectorError
        if a job fails.
        """
        self._merge_leftovers()
        self._has_merged = False
        promotion = Promotion(self.name, self._plan.folder, self._operations.access, rewrite)
        pending = pending_uploads(files)
        # The files of one batch share a few tuples of columns, even if there are a thousand files.
        # Compare identities first, because hashing such a tuple hashes all of its fields.
        written = dict.fromkeys({id(file.columns): file.columns for file in files}.values())

        def build(table: PyIcebergTable, transaction: Transaction) -> str | Ungoverned | None:
            self._require_same_table(table)
            self._mode.require(table.metadata)
            self._require_compatible(table.metadata)
            for columns in written:
                changes = missing_changes(columns, transaction)
                # Do not widen yet: if the new columns need permissions, this transaction is committed as it is, and a
                # promotion to double must be committed together with the rewritten files.
                apply_changes([change for change in changes if isinstance(change, AddColumn)], transaction)
            if (ungoverned := self._operations.ungoverned(transaction.table_metadata)) is not None:
                return ungoverned
            for columns in written:
                apply_changes(missing_changes(columns, transaction), transaction)
            metadata = transaction.table_metadata
            for file in files:
                require_values_fit(self._stream.id, self.name, file, metadata)
            promotion.rewrite_files(table, transaction, promoted_to_double(table.schema(), metadata.schema()))
            if pending:
                # The uploads may complete while the manifests are written: readers find a data file only through a
                # committed manifest. After a conflict, publishing again has no effect.
                s3 = self._operations.access.client("s3")
                background_writes(table).run(lambda: publish_all(pending, s3))
            if files:
                added = Entries(metadata)
                for file in files:
                    order = sort_order_id(file, self._plan.sort_order, metadata)
                    if (reason := added.add(file, order)) is not None:
                        # The transaction is committed without the files. Its schema changes stay, because the next
                        # attempt needs them too.
                        return reason
                self._mode.append_files(added.entries, table, transaction, NEW)
            return None

        try:
            table, reason = self._operations.commit(build, self._pop_prepared())
        except Recreated:
            self._operations.delete_uncommitted([*files, *promotion.written()])
            # Begin again only if nothing is lost: this sync has committed no rows, and no other sync has taken over the
            # new table.
            if self._has_committed or FencingToken.held(self._operations.load().properties) is not None:
                raise
            self.prepare()
            return Reencode(RECREATED)
        # Not after CommitStateUnknown: the table may then contain the files.
        except (TableConflict, TableBusy, RewriteFailed, ConnectorError):
            self._operations.delete_uncommitted([*files, *promotion.written()])
            raise
        promotion.log()
        self._use_schema(table.metadata, self._plan.columns)
        if reason is not None:
            self._operations.delete_uncommitted([*promotion.orphans(), *files])
            return Reencode(reason)
        self._operations.delete_uncommitted(promotion.orphans())
        self._has_committed, self._last_commit = True, time.monotonic()
        return Committed()

    def merge_is_due(self) -> bool:
        """Return whether pending rows are so numerous or so old that a merge should run before the stream ends.

        Return False after a merge until the next commit, and for 10 minutes after a failed merge.
        """
        scope, now = self._mode.to_merge, datetime.now(UTC)
        if self._has_merged or scope is None or scope.pending is None:
            return False
        may_be = self._no_merge_before is None or now >= self._no_merge_before
        return may_be and is_merge_due(self._metadata, now)

    def merge(self) -> None:
        """Merge pending rows into the table's content, which is what readers see.

        If other writers commit first at every attempt, log a warning and leave the rows pending. This method does not
        merge the rows of an overwrite. `publish` merges them.
        """
        self._no_merge_before = datetime.now(UTC) + RETRY_DELAY  # Reset below if the merge succeeds.
        self._merge_leftovers()
        scope = self._mode.to_merge
        try:
            if scope is not None and scope.pending is not None:
                self._merge(scope)
            self._no_merge_before = None
        except TableBusy as error:
            _logger.warning("%s", error)
        self._has_merged = True

    def publish(self, _rewrite: Rewrite) -> None:
        """Merge pending rows. If the sync overwrites the table, make the rows on its branch the table's content.

        If the sync overwrites the table but has committed no batch, the table becomes empty. Call this method only
        once. Raises Fenced if another sync has taken over the overwrite, and Recreated if another writer has dropped
        and recreated the table.
        """
        try:
            if not self._has_merged:
                self.merge()
            scope = self._mode.to_merge
            # The rows of an overwrite are merged and published by the same commit (see `Overwrite.end_merge`). If the
            # overwrite has no rows, there is no merge, and `publish` below commits alone.
            whole = scope if scope is not None and scope.pending is None else None
            is_published = whole is not None and self._merge(whole)
            if not is_published:
                if (table := self._mode.publish(self._operations)) is not None:
                    self._journal.state(self.name, state_of(table.metadata))
                elif self._has_committed and time.monotonic() >= self._last_commit + _FRESH_SECONDS:
                    self._require_same_table(self._operations.load())
        except Fenced as fenced:
            # A recreated table has no token, which looks like a fenced sync. Raise the more specific error instead.
            if not isinstance(fenced, Recreated):
                self._require_same_table(self._operations.load())
            raise
        self._mode = self._mode.published()

    def discard(self, files: Sequence[DataFile]) -> None:
        """Delete the files of a batch that will not be committed."""
        delete_uncommitted(files, self._operations.access.client("s3"))

    def _create(self) -> PyIcebergTable:
        # Any distinct IDs will do: on creation, PyIceberg assigns new ones in the schema, the spec and the sort order.
        ids = itertools.count(1)
        fields = [iceberg_field(column, lambda: next(ids)) for column in (*METADATA_COLUMNS, *self._columns)]
        schema, wanted = Schema(*fields), self._wanted_layout(self._columns)
        properties = {
            **_PROPERTIES,
            "write.parquet.compression-codec": self._plan.codec.lower(),
            **properties_of_new_table(self._stream),
            **self._parameters_of_new_table(),
            **wanted.properties(),
        }
        spec, order = wanted.new_spec(schema), wanted.iceberg_sort_order(schema)
        self._catalog.ensure(self.name.database)
        location = None if self._location.is_assigned else self._location.folder
        return self._operations.create(schema, location, spec, order, properties)

    def _begin(self, table: PyIcebergTable | None = None) -> tuple[PyIcebergTable, tuple[Field, ...]]:
        """Adapt the schema and begin the write mode, in one commit. Return the table and the columns to write."""
        table, (self._mode, columns) = self._operations.commit(self._reconcile, table)
        self._use_schema(table.metadata, columns)
        self._prepared = table, time.monotonic()
        return table, columns

    def _pop_prepared(self) -> PyIcebergTable | None:
        """Return the table after the commit of the last `_begin`, if this commit is recent. Otherwise, return None.

        Return each table only once. Other writers may have changed the table in the meantime.
        """
        prepared, self._prepared = self._prepared, None
        return prepared[0] if prepared is not None and time.monotonic() < prepared[1] + _FRESH_SECONDS else None

    def _merge(self, scope: MergeScope) -> bool:
        """Merge pending rows. Return whether any rows were pending. Raises the same errors as `Merge.run`."""
        deletes = self._layout.config.dedup.deletes
        return Merge(self.name, self._operations, self._context, deletes, scope, self._plan, self._mode).run()

    def _merge_leftovers(self) -> None:
        """Merge the pending rows of earlier syncs, before this sync writes rows without deduplication.

        Raises TableBusy if rows are pending even after four merges, because another sync keeps adding them.
        """
        for _ in range(4):
            if (scope := self._mode.leftover_merge) is None:
                return
            self._merge(scope)
            self._begin()
        if self._mode.leftover_merge is not None:
            raise TableBusy(
                f"Cannot write to table {self.name}: another sync keeps adding pending rows. Run the sync again when "
                "the other sync has finished."
            )

    def _reconcile(
        self, table: PyIcebergTable, transaction: Transaction
    ) -> tuple[WriteMode, tuple[Field, ...]] | Ungoverned:
        """Adapt the schema and begin the write mode, in a transaction. Return the mode and the columns to write.

        If new columns need permissions, return Ungoverned, so that the columns are committed before any rows.
        """
        self._require_compatible(table.metadata)
        sources, existing = column_sources(table.metadata), column_types(table.metadata)
        inherited, owner = is_of_s3_data_lake(table.metadata), self._owner
        if inherited:
            owner = replace(owner, naming=column_naming(owner.naming, existing))
        columns = self._named(owner, table.properties, sources, existing)
        for key, value in owner.name_parameters(table.properties, columns).items():
            set_property(key, value, transaction)
        if inherited:
            columns = inherit_types(columns, self._stream.json_schema, existing)
            self._plan = replace(self._plan, metadata=EPOCH_METADATA_COLUMNS)
        type_names = {field.name: str(field.field_type) for field in table.schema().fields}
        self._journal.columns(self.name, type_names)
        reconciled = self._reconciled(columns, existing, type_names)
        written = [column.name for column in (*METADATA_COLUMNS, *reconciled.columns)]
        require_all_written(self._stream, self.name, table.metadata, written, reconciled.changes)
        # Leave promotions to double to the first batch: executors must rewrite files for a promotion, and the executors
        # may still be starting.
        deferred = [change for change in reconciled.changes if isinstance(change, Widen) and change.type == Float64()]
        apply_changes([change for change in reconciled.changes if change not in deferred], transaction)
        if reconciled.conflicts:
            self._add_comment(reconciled, transaction)
        if self._is_ours(table):
            self._wanted_layout(reconciled.columns, known_columns(table.metadata)).apply(transaction)
        if self._archives:
            set_property(ARCHIVED_PROPERTY, "true", transaction)
        if (ungoverned := self._operations.ungoverned(transaction.table_metadata)) is not None:
            return ungoverned
        names = self._deduplication(reconciled.columns)
        definition = Definition.named(names, transaction.table_metadata.schema()) if names is not None else None
        mode = write_mode(
            self.name,
            self._stream,
            self._sync,
            table.metadata,
            definition,
            exclusive=self._owner.replay_of is not None,
        )
        if mode.to_merge is not None and mode.to_merge.target == MAIN_BRANCH:
            require_no_equality_deletes(self._stream.id, self.name, table)
        if inherited and not isinstance(mode, Overwrite):
            publish_staged(self.name, transaction)
        mode.begin(table, transaction)
        return mode, reconciled.columns

    def _deduplication(self, columns: Sequence[Field]) -> Deduplication | None:
        deletes_hard = self._layout.config.dedup.cdc_deletion == "hard"
        return deduplication(self._stream, self.name, columns, deletes_hard=deletes_hard)

    def _require_same_table(self, table: PyIcebergTable) -> None:
        if table.metadata.table_uuid != self._metadata.table_uuid:
            raise Recreated(self.name)

    def _require_compatible(self, metadata: TableMetadata) -> None:
        if reason := incompatibility(metadata):
            raise table_conflict(self._stream.id, self.name, reason)

    def _add_comment(self, reconciled: Reconciliation, transaction: Transaction) -> None:
        """Add the type conflicts to the table's comment. The present comment may be in Glue or in a table property."""
        glue_table = self._catalog.find(self.name)
        texts = [
            glue_table.get("Description") if glue_table is not None else None,
            transaction.table_metadata.properties.get(COMMENT),
        ]
        existing = "\n".join(dict.fromkeys(text for text in texts if text))
        if (comment := reconciled.comment(existing)) != existing:
            transaction.set_properties({COMMENT: comment})

    def _wanted_layout(self, columns: tuple[Field, ...], known: tuple[Field, ...] = ()) -> WantedLayout:
        """Return the partition fields and the sort order that the options define for the stream's `columns`.

        `known` contains the columns of the existing table. For a new table, `known` is empty.
        """
        if self._wanted is None or self._wanted[0] != columns:
            layout = replace(self._layout, known=known)
            partition_by, sort_by = layout.iceberg_fields(columns), layout.sort_fields(columns)
            self._wanted = columns, WantedLayout(self._stream.id, partition_by, sort_by)
        return self._wanted[1]

    def _is_ours(self, table: PyIcebergTable) -> bool:
        """Return whether this connector created the table for this stream."""
        owner = TableOwner.load(table.properties)
        return owner is not None and owner.stream == self._stream.id

    def _use_schema(self, metadata: TableMetadata, columns: Sequence[Field]) -> None:
        """Set the field IDs, the partition spec and the columns in the plan for new files.

        The plan gets `columns` with the types that these columns have in the table. Also record the types and the size
        of the table for the report of the sync.
        """
        written = evolve(column_types(metadata), columns).columns
        assigned = partitioning(metadata, written, self._layout.config.max_open_partitions)
        ids = index_by_name(metadata.schema())
        names = self._deduplication(written)
        self._plan = replace(self._plan, columns=written, field_ids=ids, partitioning=assigned, dedup=names)
        self._metadata = metadata
        self._journal.columns(self.name, {field.name: str(field.field_type) for field in metadata.schema().fields})
        self._journal.state(self.name, state_of(metadata))


# --- promotion of float columns to double -----------------------------------------------------------------------------


class Promotion:
    """Rewrites the live files that store a column as float when a commit promotes the column to double.

    The Iceberg spec permits such files to stay, but Trino fails on their statistics when a query filters by the column
    (trinodb/trino#30544). The promotion also rewrites files on unpublished branches, because all branches share the
    table's schema. Retries of the commit reuse the new files.

    If an old file is inside `folder`, an S3 URI without a trailing slash, the new file goes to the folder of the old
    file. Otherwise, the new file goes to `folder`.
    """

    def __init__(self, table: TableName, folder: str, access: AwsAccess, rewrite: Rewrite) -> None:
        self._table = table
        self._folder = folder
        self._access = access
        self._rewrite = rewrite
        self._rewritten: dict[tuple[tuple[str, ...], frozenset[int]], Rewritten] = {}
        self._added: list[Rewritten] = []
        self._without_field_ids = 0
        self._columns = ""
        self._started = time.monotonic()

    def rewrite_files(self, table: PyIcebergTable, transaction: Transaction, to_double: frozenset[int]) -> None:
        """Rewrite the files that contain promoted columns, and replace these files in one snapshot per branch.

        `to_double` contains the IDs of the promoted fields. If `to_double` is empty, do nothing. The new files do not
        contain the rows that position deletes remove. Raises RewriteFailed if a file cannot be rewritten. Raises
        TableConflict if equality deletes apply to a file. Such deletes would not apply to the new file, so the deleted
        rows would be visible again.
        """
        # Reset the counts, because the commit calls this method again after a conflict.
        self._added, self._without_field_ids = [], 0
        if not to_double:
            return
        names = [table.schema().find_column_name(id_) or "" for id_ in to_double]
        self._columns = ", ".join(sorted(names))
        branches = (MAIN_BRANCH, *unpublished_branches(table.metadata))
        # Keep all metrics, because the entries of the new files repeat those of the old ones.
        live = {branch: BranchFiles(metrics=None).on_branch(table, branch) for branch in branches}
        files = {branch: self._rewritable(of_branch, branch) for branch, of_branch in live.items()}
        self._write([file for of_branch in files.values() for file in of_branch], to_double)
        for branch, of_branch in files.items():
            replaced, added = [], []
            for file in of_branch:
                new = self._rewritten[file.state, to_double]
                if new.uri == file.path:
                    # The file has no such field ID. Value counts show that it contains the column, but without field
                    # IDs.
                    self._without_field_ids += not to_double.isdisjoint(file.entry.value_counts or ())
                    continue
                replaced.append(file)
                # If position deletes remove all rows of a file, no new file replaces it.
                if new.rows:
                    self._added.append(new)
                    added.append(rewritten_entry(file.entry, new, to_double))
            if replaced:
                removed = [*(file.entry for file in replaced), *unneeded_deletes(replaced, live[branch])]
                uniqueness = inherited_uniqueness(branch, table.metadata)
                change_branch(Change(added, removed), branch, table, transaction, uniqueness)

    def log(self) -> None:
        """Log the number of rewritten files. Also log a warning if files without field IDs could not be rewritten.

        Call this method after the commit.
        """
        if self._added:
            _logger.info(
                "Table %s: promoted column %s to double, and rewrote the %d files that stored the column as float "
                "(%.1f MB, %.1f s).",
                self._table,
                self._columns,
                len(self._added),
                sum(file.size for file in self._added) / 1e6,
                time.monotonic() - self._started,
            )
        if self._without_field_ids:
            _logger.warning(
                "Table %s: column %s was promoted to double, but %d files that other writers created without field "
                "IDs still store the column as float. Some engines, such as Trino, fail on these files when a query "
                "filters by the column. Rewrite these files with another engine.",
                self._table,
                self._columns,
                self._without_field_ids,
            )

    def orphans(self) -> list[Rewritten]:
        """Return the new files that the last attempt of the commit did not add to the table."""
        added = {file.uri for file in self._added}
        return [file for file in self.written() if file.uri not in added]

    def written(self) -> list[Rewritten]:
        """Return the new files of all attempts. If a rewrite failed, some of these files may not exist."""
        return [file for file in self._rewritten.values() if file.uri != file.source]

    def _rewritable(self, live: Sequence[LiveFile], branch: str) -> list[LiveFile]:
        """Return a branch's Parquet files. Raises TableConflict if equality deletes apply to one of them."""
        files = [file for file in live if file.entry.file_format == FileFormat.PARQUET]
        if any(file.has_equality_deletes for file in files):
            raise TableConflict(
                f"Cannot write to table {self._table}: its column {self._columns} must become double, which requires "
                "that the files with this column are rewritten. The connector cannot rewrite them, because equality "
                f"deletes apply to these files on branch {branch}, but would not apply to the new files: deleted rows "
                "would reappear. Compact the table (Athena: OPTIMIZE; Spark: rewrite_data_files with "
                "delete-file-threshold 1), or promote the column to double. Then run the sync again."
            )
        return files

    def _write(self, files: Iterable[LiveFile], to_double: frozenset[int]) -> None:
        missing = {file.state: file for file in files if (file.state, to_double) not in self._rewritten}
        tasks = {key: self._task(file, to_double) for key, file in sorted(missing.items())}
        if not tasks:
            return
        try:
            done = {file.uri: file for file in self._rewrite([*tasks.values()])}
        except RewriteFailed:
            # Record all new files for deletion, because any of them may have been written.
            for key, task in tasks.items():
                self._rewritten[key, to_double] = Rewritten(task.target, 0, 0, source=task.source)
            raise
        for key, task in tasks.items():
            # A file that stores no promoted field is not rewritten, and is reported under its own URI.
            self._rewritten[key, to_double] = done.get(task.target) or done[task.source]

    def _task(self, file: LiveFile, to_double: frozenset[int]) -> RewriteTask:
        target = f"{folder_of_new_file(file.path, self._folder)}/{uuid4().hex}.parquet"
        return RewriteTask(file.path, target, {}, self._access, to_double, as_sources(file.deletes))
