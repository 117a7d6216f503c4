"""Iceberg tables in the Glue Data Catalog, committed by PyIceberg.

Executors write Parquet files that carry the table's field ids; a commit adds them in one snapshot. A stream that
replaces its table's content collects its files on a branch that starts empty, and publishing makes the branch's head
the table's current snapshot: readers see the old rows or the new ones (Iceberg spec: snapshot references).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchIcebergTableError,
    NoSuchPropertyException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.update.snapshot import ManageSnapshots

from destination_datalake.aws.withdrawal import withdraw_all
from destination_datalake.datafiles import DataFile, FilePlan
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.evolution import evolve
from destination_datalake.schema.iceberg import iceberg_field
from destination_datalake.schema.types import Field
from destination_datalake.tables.attempts import attempts
from destination_datalake.tables.base import Rewrite, TableConflict, TableName
from destination_datalake.tables.database import ensure_database
from destination_datalake.tables.entry import CatalogEntry
from destination_datalake.tables.fitting import Fit, Fitting
from destination_datalake.tables.iceberg_catalog import COMMENT, KeepingGlueCatalog
from destination_datalake.tables.iceberg_files import belongs, manifest_entry
from destination_datalake.tables.iceberg_schema import apply, columns_of
from destination_datalake.tables.iceberg_summary import lowest_generation, summary_of
from destination_datalake.tables.required import required_besides, required_but_null

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config import SchemaConflicts
    from destination_datalake.protocol.catalog import Stream
    from destination_datalake.tables.holding import Holding
    from destination_datalake.tables.site import Site

BRANCH = "airbyte_generation_"
"""Begins the name of the branch that an unfinished replacement is kept on; the generation follows."""

_PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    "write.format.default": "parquet",
    # One metadata file a commit adds up: keep the last hundred (Iceberg: table properties).
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergTable:
    """A stream's Iceberg table. `plan` gives all but what only the table knows: columns, field ids and folder."""

    def __init__(
        self,
        name: TableName,
        stream: Stream,
        columns: Sequence[Field],
        site: Site,
        plan: FilePlan,
        access: AwsAccess,
        holding: Holding,
        conflicts: SchemaConflicts,
        sync: str,
    ) -> None:
        self.name = name
        self._stream = stream
        self._columns = tuple(columns)
        self._fitting = Fitting(name, stream.id, conflicts)
        self._site = site
        self._plan = plan
        self._access = access
        self._holding = holding
        self._sync = sync
        self._branch = "main"

    def prepare(self) -> None:
        """Create the table, or add and widen columns; settle the branches that earlier syncs left."""
        ensure_database(self._access.client("glue"), self.name.database)
        try:
            table, created = self._load(), False
        except (NoSuchIcebergTableError, NoSuchPropertyException) as error:
            raise TableConflict(
                f"Cannot write stream {self._stream.id} to table {self.name}: it exists and is not an Iceberg table. "
                "Set table_type to HIVE, or choose another lakeformation_database_name or bucket_prefix."
            ) from error
        except NoSuchTableError:
            table, created = self._create(), True
        self._site.accept(self._stream.id, self.name, "Iceberg", table.location(), created=created)
        there = {field.name: field.doc or field.name for field in table.schema().fields}
        self._columns = self._holding.settle(self.name, table.properties, there, self._columns)
        table = self._transact(self._settle, table)
        self._use_schema(table.metadata, self._plan.columns)
        self._plan = replace(self._plan, folder=f"{table.location().rstrip('/')}/data")

    def plan(self) -> FilePlan:
        """The plan, with columns as wide as they have become."""
        return self._plan

    def commit(self, files: Sequence[DataFile], _rewrite: Rewrite) -> bool:
        """One snapshot with all the files, after the columns they outgrew were widened, in one metadata commit.

        Files of the narrower and the wider type stand side by side (Iceberg spec: type promotion).
        """
        columns = self._plan.columns
        belong = True

        def add(_table: PyIcebergTable, transaction: Transaction) -> None:
            nonlocal columns, belong
            for file in files:
                evolution = evolve(columns_of(transaction.table_metadata), file.columns)
                apply(transaction, evolution.changes)
                columns = evolution.columns
            metadata = transaction.table_metadata
            for file in files:
                if (column := required_but_null(file, metadata.schema())) is not None:
                    raise self._refusal(column, "records have no value for it")
            belong = all(belongs(file, metadata.schema()) for file in files)
            if belong:
                self._append(transaction, [manifest_entry(file, metadata) for file in files])

        try:
            table = self._transact(add)
        except TableConflict:
            self.discard(files)
            raise
        self._use_schema(table.metadata, columns)
        if not belong:
            self.discard(files)
        return belong

    def publish(self, _rewrite: Rewrite) -> None:
        """Make the branch the table's current state, empty if nothing was written, and drop the branch."""
        if self._branch == "main":
            return
        if self._branch not in self._load().metadata.refs:
            self._transact(lambda _, transaction: self._append(transaction, []))

        def make_current(table: PyIcebergTable, transaction: Transaction) -> None:
            head = table.metadata.refs[self._branch].snapshot_id
            with ManageSnapshots(transaction) as snapshots:
                snapshots.set_current_snapshot(snapshot_id=head).remove_branch(self._branch)

        self._transact(make_current)

    def discard(self, files: Sequence[DataFile]) -> None:
        """Delete the objects."""
        withdraw_all(files, self._access.client("s3"))

    def _transact(
        self, change: Callable[[PyIcebergTable, Transaction], None], table: PyIcebergTable | None = None
    ) -> PyIcebergTable:
        """Make changes in one metadata commit, or in none if there are none; return the table as it then is.

        When another writer was faster, `change` is made again, on the table that they left. `table` is what to begin
        with, if it was just loaded.
        """
        for last in attempts():
            table = table if table is not None else self._load()
            # PyIceberg's own retries would add the files to whatever schema another writer has made of ours.
            once = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
            table.metadata = table.metadata.model_copy(update={"properties": once})
            transaction = table.transaction()
            change(table, transaction)
            try:
                return transaction.commit_transaction()
            except CommitFailedException:
                if last:
                    raise
                table = None
        raise AssertionError("every attempt returns or raises")

    def _settle(self, table: PyIcebergTable, transaction: Transaction) -> None:
        """Let the table fit the stream; settle what earlier syncs left."""
        words = {field.name: str(field.field_type) for field in table.schema().fields}
        fit = self._fitting.to(self._columns, columns_of(table.metadata), words)
        if column := required_besides(table.schema(), [c.name for c in (*METADATA_COLUMNS, *fit.columns)]):
            raise self._refusal(column, "the stream has no such field")
        apply(transaction, fit.changes)
        if fit.conflicts:
            self._document(fit, transaction)
        self._plan = replace(self._plan, columns=fit.columns)
        self._settle_branches(table, transaction)

    def _document(self, fit: Fit, transaction: Transaction) -> None:
        """Tell of conflicts in the table's comment, after what is there: in Glue, in Iceberg, or in both."""
        there = [
            CatalogEntry(self.name, self._access).read().get("Description"),
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

    def _load(self) -> PyIcebergTable:
        return self._catalog().load_table(self.name)

    def _catalog(self) -> KeepingGlueCatalog:
        # Made anew each time: the properties hold credentials that expire.
        glue = self._access.client("glue")
        return KeepingGlueCatalog("glue", client=glue, **self._access.iceberg_properties())

    def _create(self) -> PyIcebergTable:
        ids = itertools.count(1)
        fields = [iceberg_field(column, lambda: next(ids)) for column in (*METADATA_COLUMNS, *self._columns)]
        codec = {"write.parquet.compression-codec": self._plan.codec.lower()}
        properties = {**_PROPERTIES, **codec, **self._holding.parameters()}
        try:
            return self._catalog().create_table(
                self.name, Schema(*fields), location=self._site.folder, properties=properties
            )
        except TableAlreadyExistsError:
            return self._load()

    def _use_schema(self, metadata: TableMetadata, columns: Sequence[Field]) -> None:
        """Take the field ids, and the types as the table now has them, into the plan."""
        written = evolve(columns_of(metadata), columns).columns
        self._plan = replace(self._plan, columns=written, field_ids=index_by_name(metadata.schema()))

    def _settle_branches(self, table: PyIcebergTable, transaction: Transaction) -> None:
        """Decide where this sync's files go, and what becomes of replacements that were never published.

        Their records were acknowledged, so the platform will not send them again. A sync of the same generation goes
        on with its branch. A newer replacement makes the older ones worthless. A sync that appends takes their rows in,
        in the commit that removes the branch: if it were still there they would be taken in again.
        """
        outdated = {ref for ref in table.metadata.refs if ref.startswith(BRANCH)}
        if self._replaces(table.metadata):
            generation = self._stream.replacement_generation
            if table.current_snapshot() is None:
                # PyIceberg makes no branch in a table without snapshots. This one says nothing of generations.
                with transaction.update_snapshot().fast_append():
                    pass
            self._branch = f"{BRANCH}{generation if generation is not None else 'none'}"
            if generation is not None:
                outdated.discard(self._branch)
        else:
            for branch in sorted(outdated):
                self._append(transaction, self._files(table, branch))
        if outdated:
            with ManageSnapshots(transaction) as snapshots:
                for branch in sorted(outdated):
                    snapshots.remove_branch(branch)

    def _replaces(self, metadata: TableMetadata) -> bool:
        """Whether the old rows must go."""
        return self._stream.outdates(lowest_generation(metadata, metadata.current_snapshot()))

    @staticmethod
    def _files(table: PyIcebergTable, branch: str) -> list[IcebergFile]:
        """Return the data files that a branch holds."""
        head = table.metadata.refs[branch].snapshot_id
        return [task.file for task in table.scan(snapshot_id=head).plan_files()]

    def _append(self, transaction: Transaction, files: Iterable[IcebergFile]) -> None:
        summary = summary_of(transaction.table_metadata, self._branch, self._stream)
        update = transaction.update_snapshot(snapshot_properties=summary, branch=self._branch)
        with update.fast_append() as append:
            for file in files:
                append.append_data_file(file)
