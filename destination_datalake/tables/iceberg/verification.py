"""Verifies an Iceberg table: checks its metadata, and returns the statistics that files should have.

The expected statistics come from snapshots, manifest lists and manifests. The command `verify` compares these
statistics with the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from destination_datalake.errors import counted
from destination_datalake.files.plan import ExpectedColumnStats, ExpectedFileStats, ExpectedPartition, SourceFile
from destination_datalake.partitioning.spec import PartitionField, Transform, Void, parse_transform
from destination_datalake.tables.iceberg.branches import PENDING_BRANCH, TOTAL_ROWS, generation_branches, summary_number
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.layout import source_paths
from destination_datalake.tables.iceberg.maintenance.cleanup import is_of_a_table, table_folder
from destination_datalake.tables.iceberg.maintenance.references import File, MaintenanceSkipped, References
from destination_datalake.tables.iceberg.maintenance.second_reader import Disagreement
from destination_datalake.tables.iceberg.schema import arrow_schema, shared_members
from destination_datalake.tables.iceberg.snapshots.files import Incomplete, live_entries, live_manifests
from destination_datalake.tables.table import TableConflict
from destination_datalake.tables.verification import Finding, Reported, Total, VerifiedTable, unreadable

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.snapshots import Snapshot

    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.table import TableName

_CLAUSES = (Incomplete, Disagreement, TableConflict)
_BOUNDED = (
    BooleanType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType,
    DateType,
    TimestampType,
    TimestamptzType,
    StringType,
)
"""The column types whose values are compared with the bounds in manifests."""


class VerifiedIceberg(VerifiedTable):
    """An Iceberg table to verify, in the state that the constructor has loaded.

    With `lists_folder`, the verification also reports unreferenced objects in the table's folder.
    """

    def __init__(
        self,
        name: TableName,
        catalog: TableCatalog,
        problems: list[Finding],
        notes: list[str],
        *,
        lists_folder: bool,
    ) -> None:
        self.problems = problems
        self.notes = notes
        self._operations = TableOperations(name, catalog)
        self._lists_folder = lists_folder
        self._table = self._operations.load()
        self._schema = arrow_schema(self._table.schema())
        fields = [field for field in self._table.schema().fields if isinstance(field.field_type, _BOUNDED)]
        self._bounded = fields if self._schema is not None else []
        self._partitions = {spec.spec_id: self._fields_of(spec) for spec in self._table.specs().values()}
        self._counted: dict[str, Total] = {}
        """The numbers of live data files and rows in each manifest, by the path of the manifest."""
        self._broken = False

    def has_changed(self) -> bool:
        """Load the table again, and return whether the table now has another metadata file."""
        return self._operations.load().metadata_location != self._table.metadata_location

    def expected_files(self) -> Iterator[ExpectedFileStats]:
        """Yield the expected statistics of each file on main and on the branches of unfinished syncs.

        With `lists_folder`, also report unreferenced objects in the table's folder.
        """
        metadata = self._table.metadata
        for branch in (MAIN_BRANCH, PENDING_BRANCH, *generation_branches(metadata)):
            yield from self._expected_in(metadata.snapshot_by_name(branch))
        if self._lists_folder:
            self._check_folder()

    def conclude(self, read: Mapping[str, Total] | None, reported: Sequence[Reported]) -> None:
        """Compare the numbers of files and rows in manifests with snapshot summaries and with the reports of syncs.

        Also report each rollback that the snapshot log shows. `read` is ignored.
        """
        del read  # Not needed, because `verify` compares the statistics of each file individually.
        if shared := ", ".join(".".join(path) for path in shared_members(self._table.schema().as_struct())):
            self.notes.append(
                "Some nested fields may contain values of two source fields, because an earlier version of the "
                f"connector stored one field under two names: {shared}. Refresh the stream to separate the values."
            )
        current = self._table.metadata.current_snapshot()
        if current is not None:
            rows, files = summary_number(current, TOTAL_ROWS), summary_number(current, "total-data-files")
            self._compare(current, rows, files, "its summary")
        self._check_rollbacks({report.snapshot: report.run for report in reported})
        if not any(report.snapshot is not None for report in reported):
            self.notes.append("No report of a sync exists, so the comparison with reports was skipped.")
        expired = 0
        for report in reported:
            if report.snapshot is None:
                continue
            if (snapshot := self._table.metadata.snapshot_by_id(report.snapshot)) is None:
                # An expiry updates the metadata, so metadata that is older than the report must contain the snapshot.
                if self._table.metadata.last_updated_ms < report.finished.timestamp() * 1000:
                    description = (
                        f"lacks snapshot {report.snapshot} of run {report.run}, so another program has set the table's "
                        "metadata location back to an older file"
                    )
                    self.problems.append(Finding(self._table.metadata_location, description))
                else:
                    expired += 1
            else:
                self._compare(snapshot, report.table_rows, report.table_files, f"the report of run {report.run}")
        if expired:
            self.notes.append(
                f"The snapshots in the reports of {expired} runs have expired, so the comparison with these reports "
                "was skipped."
            )

    def _check_rollbacks(self, runs: Mapping[int | None, str]) -> None:
        """Report each rollback in the snapshot log. After a rollback, the rows of later snapshots are lost.

        In a rollback, an older snapshot replaces the current snapshot. A snapshot is older if it is an ancestor of the
        replaced snapshot, or if it was current before. It is not sufficient to check the ancestors, because the
        snapshot of an overwrite does not have the replaced snapshots as ancestors. `runs` maps snapshot IDs to the runs
        that committed the snapshots.
        """
        metadata = self._table.metadata
        earlier: set[int] = set()
        for replaced, current in pairwise(entry.snapshot_id for entry in metadata.snapshot_log):
            earlier.add(replaced)
            snapshot = metadata.snapshot_by_id(replaced)
            if snapshot is None or current == replaced:
                continue
            if current in earlier or any(older.snapshot_id == current for older in ancestors_of(snapshot, metadata)):
                run = f". Run {runs[replaced]} committed the lost snapshot" if replaced in runs else ""
                problem = f"was rolled back by another writer to the older snapshot {current}{run}"
                self.problems.append(Finding(f"snapshot {replaced}", problem))

    def _compare(self, snapshot: Snapshot, rows: int | None, files: int | None, by: str) -> None:
        for _ in self._expected_in(snapshot):
            pass  # The iteration counts the files in the snapshot's manifests.
        if self._broken:
            return
        counted = [
            self._counted[manifest.manifest_path]
            for manifest in self._manifests(snapshot)
            if manifest.content == ManifestContent.DATA
        ]
        for noun, actual, expected in (
            ("rows", sum(total.rows for total in counted), rows),
            ("data files", sum(total.files for total in counted), files),
        ):
            if expected is not None and actual != expected:
                where = f"snapshot {snapshot.snapshot_id}"
                self.problems.append(Finding(where, f"contains {actual} {noun}, but {by} records {expected}"))

    def _expected_in(self, snapshot: Snapshot | None) -> Iterator[ExpectedFileStats]:
        for manifest in self._manifests(snapshot):
            # Snapshots share manifests. Each manifest's files are yielded once.
            if manifest.manifest_path in self._counted:
                continue
            counted = self._counted[manifest.manifest_path] = Total()
            try:
                entries = live_entries(manifest, self._table.io)
            except Exception as error:
                self._add_unreadable(manifest.manifest_path, error)
                continue
            for entry in entries:
                file = entry.data_file
                counted.files += 1
                counted.rows += file.record_count
                yield self._expected(file)

    def _manifests(self, snapshot: Snapshot | None) -> list[ManifestFile]:
        try:
            return live_manifests(snapshot, self._table.io)
        except Exception as error:
            assert snapshot is not None
            self._add_unreadable(snapshot.manifest_list, error)
            return []

    def _add_unreadable(self, path: str, error: Exception) -> None:
        self._broken = True
        self.problems.append(Finding(path, unreadable(error, path, _CLAUSES)))

    def _expected(self, file: IcebergFile) -> ExpectedFileStats:
        kind = "parquet" if file.file_format == FileFormat.PARQUET else "other"
        source = SourceFile(file.file_path, file.file_size_in_bytes, file.record_count)
        if file.content != DataFileContent.DATA:
            return ExpectedFileStats(source, kind, None, group="deletes")
        for field in self._bounded:
            values = (file.value_counts or {}).get(field.field_id, file.record_count)
            if values != file.record_count:
                problem = (
                    f"contains {file.record_count} rows, but {values} values in column {field.name}, according to its "
                    "manifest"
                )
                self.problems.append(Finding(file.file_path, problem))
        columns = tuple(column for field in self._bounded if (column := _expected_column(field, file)) is not None)
        fields = self._partitions[file.spec_id]
        partition = ExpectedPartition(fields, tuple(file.partition[position] for position in range(len(fields))))
        return ExpectedFileStats(source, kind, self._schema, columns, partition=partition)

    def _fields_of(self, spec: PartitionSpec) -> tuple[PartitionField, ...]:
        """Return the fields of a partition spec. A field whose values are not verified gets the transform void."""
        schema, paths = self._table.schema(), source_paths(self._table.schema())
        fields = []
        for field in spec.fields:
            transform: Transform = Void()
            if field.source_id in paths and isinstance(schema.find_type(field.source_id), _BOUNDED):
                with suppress(ValueError):  # A later version of Iceberg may have other transforms.
                    transform = parse_transform(str(field.transform))
            fields.append(PartitionField(field.name, paths.get(field.source_id, (field.name,)), transform))
        return tuple(fields)

    def _check_folder(self) -> None:
        """Report the unreferenced objects in the table's folder.

        One note counts the objects that look like orphan files of the table. Every other object is a problem, unless
        its name, or the name of a folder around it inside the table's folder, begins with `_` or `.`.
        """
        s3 = self._operations.access.client("s3")
        references = References(self._table.io, s3)
        try:
            folder = table_folder(self._table)
            references.add_metadata(self._table.metadata, self._table.metadata_location)
            references.add_files()
        except MaintenanceSkipped as reason:
            self.notes.append(f"The search for foreign files was skipped: {reason}.")
            return
        except Exception as error:
            if not self._broken:
                where = self._table.metadata_location
                is_missing = isinstance(error, FileNotFoundError)
                problem = f"refers to a missing object: {error}" if is_missing else unreadable(error, where, _CLAUSES)
                self.problems.append(Finding(where, problem))
            return
        orphans = 0
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=folder.bucket, Prefix=f"{folder.key}/"):
            keys = [object_["Key"] for object_ in page.get("Contents", []) if not object_["Key"].endswith("/")]
            for file in references.unreferenced(File(f"s3://{folder.bucket}/{key}", 0) for key in keys):
                key = file.path.removeprefix(f"s3://{folder.bucket}/")
                if is_of_a_table(key, folder):
                    orphans += 1
                elif not any(part[:1] in ("_", ".") for part in key[len(folder.key) + 1 :].split("/")):
                    self.problems.append(Finding(file.path, "does not belong to the table"))
        if orphans:
            self.notes.append(
                f"No snapshot refers to {counted(orphans, 'file')} in the table's folder. Killed or running syncs "
                "leave such files. Run `maintain` to delete them."
            )


def _expected_column(field: NestedField, file: IcebergFile) -> ExpectedColumnStats | None:
    """Return the statistics of a column that the manifest entry of a file records, or None if it records none."""
    lower, upper = (_bound(field, bounds) for bounds in (file.lower_bounds, file.upper_bounds))
    nulls = (file.null_value_counts or {}).get(field.field_id)
    if lower is None and upper is None and nulls is None:
        return None
    return ExpectedColumnStats(field.name, lower, upper, nulls)


def _bound(field: NestedField, bounds: Mapping[int, bytes] | None) -> Any:
    """Return the bound of a column for `ExpectedColumnStats`. None if the bound is missing or cannot be decoded.

    If a bound was written before the column was promoted, the bound has the former, narrower type.
    """
    encoded = (bounds or {}).get(field.field_id)
    if encoded is None:
        return None
    type_: Any = field.field_type
    if isinstance(type_, StringType):
        return bytes(encoded)
    if len(encoded) == 4 and isinstance(type_, LongType | DoubleType):
        type_ = IntegerType() if isinstance(type_, LongType) else FloatType()
    with suppress(Exception):  # Skip a bound of another type, or in an unsupported encoding.
        return from_bytes(type_, encoded)
    return None
