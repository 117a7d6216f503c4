"""Iceberg tables in the Glue Data Catalog, committed by PyIceberg.

Executors write Parquet files that carry the table's field ids; a commit adds them in one snapshot. A stream that
replaces its table's content collects its files on a branch that starts empty, and publishing makes the branch's head
the table's current snapshot: readers see the old rows or the new ones (Iceberg spec: snapshot references).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchPropertyException, NoSuchTableError
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table import Transaction

from destination_datalake.aws.withdrawal import Withdrawable, withdraw_all
from destination_datalake.files.plan import DataFile, FilePlan, RewriteFailed
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.evolution import Widen, evolve
from destination_datalake.schema.iceberg import iceberg_field
from destination_datalake.schema.types import Field, Float64
from destination_datalake.tables.aws_datalake import how_to_continue
from destination_datalake.tables.glue.glue_table import GlueTable
from destination_datalake.tables.iceberg.branches import Branches, Target
from destination_datalake.tables.iceberg.catalog import COMMENT
from destination_datalake.tables.iceberg.commits import IcebergCommits
from destination_datalake.tables.iceberg.compatibility import obstacle
from destination_datalake.tables.iceberg.files import becoming_double, belongs, manifest_entry
from destination_datalake.tables.iceberg.promotion import Promotion
from destination_datalake.tables.iceberg.required import required_besides, required_but_null, required_inside
from destination_datalake.tables.iceberg.schema import apply, columns_of
from destination_datalake.tables.iceberg.summary import generation_property, summary_of
from destination_datalake.tables.reconcile import Reconciliation, reconcile
from destination_datalake.tables.table import Committed, Reencode, Rewrite, TableBusy, TableConflict, TableName

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import SchemaConflicts
    from destination_datalake.protocol.catalog import Stream
    from destination_datalake.tables.glue.database import Databases
    from destination_datalake.tables.location import TableLocation
    from destination_datalake.tables.ownership import TableOwner

_logger = logging.getLogger(__name__)

_PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    "write.format.default": "parquet",
    # One metadata file a commit adds up: keep the last hundred (Iceberg: table properties).
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What a sync found out of a table, and decided, in the commit that made it ready."""

    target: Target
    columns: tuple[Field, ...]


class IcebergTable:
    """A stream's Iceberg table. `plan` gives all but what only the table knows: columns, field ids and folder."""

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
        self._location = location
        self._plan = plan
        self._access = access
        self._owner = owner
        self._databases = databases
        self._commits = IcebergCommits(name, access)
        self._branches = Branches(name, stream, sync)
        self._target = Target()

    def prepare(self) -> None:
        """Create the table, or add and widen columns; settle the branches that earlier syncs left."""
        try:
            table, created = self._commits.load(), False
        except (NoSuchIcebergTableError, NoSuchPropertyException) as error:
            go_on = how_to_continue(GlueTable(self.name, self._access).read()) or "table_type to HIVE to go on with it"
            raise TableConflict(
                f"Cannot write stream {self._stream.id} to table {self.name}: it exists and is not an Iceberg table. "
                f"Set {go_on}, or table_prefix, or another lakeformation_database_name, to begin another table."
            ) from error
        except NoSuchTableError:
            table, created = self._create(), True
        self._location.accept(self._stream.id, self.name, "Iceberg", table.location(), created=created)
        table, prepared = self._commits.change(self._make_ready, table)
        self._target = prepared.target
        self._use_schema(table.metadata, prepared.columns)
        self._plan = replace(self._plan, folder=f"{table.location().rstrip('/')}/data")

    def plan(self) -> FilePlan:
        """The plan, with columns as wide as they have become."""
        return self._plan

    def commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> Committed | Reencode:
        """One snapshot with all the files, after the columns they outgrew were widened, in one metadata commit.

        Files of int and of bigint stand side by side (Iceberg spec: type promotion); where a column becomes double, the
        files that hold it as float are written anew in the same commit.
        """
        promotion = Promotion(self.name, self._plan.folder, self._access, rewrite)

        def add(table: PyIcebergTable, transaction: Transaction) -> bool:
            self._target.require(table.metadata, self.name)
            self._refuse_obstacles(table.metadata)
            for file in files:
                apply(transaction, evolve(columns_of(transaction.table_metadata), file.columns).changes)
            metadata = transaction.table_metadata
            for file in files:
                if (column := required_but_null(file, metadata.schema())) is not None:
                    raise self._refusal(column, "records have no value for it")
            promotion.swap(table, transaction, becoming_double(table.schema(), metadata.schema()))
            if not all(belongs(file, metadata.schema()) for file in files):
                return False
            if files:
                self._append(transaction, [manifest_entry(file, metadata) for file in files])
            return True

        try:
            table, belong = self._commits.change(add)
        except (TableConflict, TableBusy, RewriteFailed):
            self._clear([*files, *promotion.written()])
            raise
        promotion.conclude()
        self._use_schema(table.metadata, self._plan.columns)
        self._clear([*promotion.unused(), *([] if belong else files)])
        if not belong:
            return Reencode("its columns have been dropped, renamed or promoted to double since the files were planned")
        return Committed()

    def publish(self, _rewrite: Rewrite) -> None:
        """Make the branch the table's current state, empty if nothing was written, and drop the branch."""
        if self._target.token is None:
            return
        self._commits.change(lambda table, transaction: self._branches.publish(self._target, table, transaction))
        self._target = Target()

    def discard(self, files: Sequence[DataFile]) -> None:
        """Delete the objects."""
        withdraw_all(files, self._access.client("s3"))

    def _clear(self, objects: Sequence[Withdrawable]) -> None:
        """Delete objects that no commit holds. If that fails, what was decided of them is done all the same."""
        try:
            withdraw_all(objects, self._access.client("s3"))
        except Exception:
            _logger.warning("Files that table %s does not hold could not be removed.", self.name, exc_info=True)

    def _make_ready(self, table: PyIcebergTable, transaction: Transaction) -> _Prepared:
        """Let the table fit the stream; settle what earlier syncs left."""
        self._refuse_obstacles(table.metadata)
        sources = {field.name.lower(): field.doc or field.name for field in table.schema().fields}
        columns = self._owner.name_columns(self.name, table.properties, sources, self._columns)
        type_names = {field.name: str(field.field_type) for field in table.schema().fields}
        fit = reconcile(
            self._stream.id, self.name, columns, columns_of(table.metadata), type_names, self._schema_conflicts
        )
        written = (*METADATA_COLUMNS, *fit.columns)
        if column := required_besides(table.schema(), [column.name for column in written]):
            raise self._refusal(column, "the stream has no such field")
        if column := required_inside(table.schema(), [column.name for column in written]):
            raise self._refusal(column, "whether nested records have a value for it would not be noticed")
        # What becomes double waits for a batch: only then are there executors to write files anew.
        apply(transaction, [each for each in fit.changes if not (isinstance(each, Widen) and each.type == Float64())])
        if fit.conflicts:
            self._document(fit, transaction)
        return _Prepared(self._branches.settle(table, transaction), fit.columns)

    def _refuse_obstacles(self, metadata: TableMetadata) -> None:
        if problem := obstacle(metadata):
            raise TableConflict(
                f"Cannot write stream {self._stream.id} to table {self.name}: {problem}, or choose another "
                "lakeformation_database_name."
            )

    def _document(self, fit: Reconciliation, transaction: Transaction) -> None:
        """Tell of conflicts in the table's comment, after what is there: in Glue, in Iceberg, or in both."""
        there = [
            GlueTable(self.name, self._access).read().get("Description"),
            transaction.table_metadata.properties.get(COMMENT),
        ]
        before = "\n".join(dict.fromkeys(text for text in there if text))
        if (comment := fit.comment(before)) != before:
            transaction.set_properties({COMMENT: comment})

    def _refusal(self, column: str, why: str) -> TableConflict:
        return TableConflict(
            f"Cannot write stream {self._stream.id} to table {self.name}: its column {column} is required, and {why}. "
            f"Make the column optional (ALTER TABLE ... ALTER COLUMN {column} DROP NOT NULL), or choose another "
            "lakeformation_database_name."
        )

    def _create(self) -> PyIcebergTable:
        ids = itertools.count(1)
        fields = [iceberg_field(column, lambda: next(ids)) for column in (*METADATA_COLUMNS, *self._columns)]
        codec = {"write.parquet.compression-codec": self._plan.codec.lower()}
        # Noted here already, unless the rows are to be kept aside until they are published.
        generation = None if self._stream.outdates(None) else self._stream.generation
        counted = generation_property(generation)
        properties = {**_PROPERTIES, **codec, **counted, **self._owner.parameters()}
        self._databases.ensure(self.name.database)
        return self._commits.create(Schema(*fields), self._location.folder, properties)

    def _use_schema(self, metadata: TableMetadata, columns: Sequence[Field]) -> None:
        """Take the field ids, and the types as the table now has them, into the plan."""
        written = evolve(columns_of(metadata), columns).columns
        self._plan = replace(self._plan, columns=written, field_ids=index_by_name(metadata.schema()))

    def _append(self, transaction: Transaction, files: Iterable[IcebergFile]) -> None:
        update = transaction.update_snapshot(snapshot_properties=summary_of(self._stream), branch=self._target.branch)
        with update.fast_append() as append:
            for file in files:
                append.append_data_file(file)
