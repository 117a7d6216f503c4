"""What an Iceberg table says of its files: by its snapshots, manifest lists and manifests."""

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

from destination_datalake.files.plan import ExpectedColumnStats, ExpectedFileStats, SourceFile
from destination_datalake.tables.iceberg.branches import PENDING_BRANCH, TOTAL_ROWS, generation_branches, summary_number
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.maintenance.deletion import MaintenanceSkipped
from destination_datalake.tables.iceberg.maintenance.orphans import is_of_a_table, table_folder
from destination_datalake.tables.iceberg.maintenance.references import File, References
from destination_datalake.tables.iceberg.maintenance.second_reader import Disagreement
from destination_datalake.tables.iceberg.schema import arrow_schema, shared_members
from destination_datalake.tables.iceberg.snapshots.branch_files import Incomplete, live_entries, live_manifests
from destination_datalake.tables.table import TableConflict
from destination_datalake.tables.verification import Finding, Reported, Total, VerifiedTable, unreadable

if TYPE_CHECKING:
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
"""Types of columns whose values are compared with bounds."""


class VerifiedIceberg(VerifiedTable):
    """One table. `lists_folder`: objects that it does not refer to may be looked for, as the folder is its own."""

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
        self._counted: dict[str, Total] = {}
        """The live data files of each manifest that was read."""
        self._broken = False

    def has_changed(self) -> bool:
        """Whether there is another metadata file."""
        return self._operations.load().metadata_location != self._table.metadata_location

    def expected_files(self) -> Iterator[ExpectedFileStats]:
        """Yield the expected statistics of the files of the content and of branches of unfinished syncs."""
        metadata = self._table.metadata
        for branch in (MAIN_BRANCH, PENDING_BRANCH, *generation_branches(metadata)):
            yield from self._of_snapshot(metadata.snapshot_by_name(branch))
        if self._lists_folder:
            self._look_for_others()

    def conclude(self, read: Mapping[str, Total] | None, reported: Sequence[Reported]) -> None:
        """Compare the manifests of the current snapshot, and of those in reports, with the counts that those say."""
        del read  # Each file has its own statistics.
        if shared := ", ".join(".".join(path) for path in shared_members(self._table.schema().as_struct())):
            self.notes.append(
                f"Fields inside objects may hold values of two fields, as an earlier version stored a field under two "
                f"names: {shared}. Refresh the stream to separate them."
            )
        current = self._table.metadata.current_snapshot()
        if current is not None:
            rows, files = summary_number(current, TOTAL_ROWS), summary_number(current, "total-data-files")
            self._compare(current, rows, files, "its summary")
        self._look_for_rollbacks({each.snapshot: each.run for each in reported})
        if not any(each.snapshot is not None for each in reported):
            self.notes.append("There is no report of a sync to compare it with.")
        expired = 0
        for each in reported:
            if each.snapshot is None:
                continue
            if (snapshot := self._table.metadata.snapshot_by_id(each.snapshot)) is None:
                expired += 1
            else:
                self._compare(snapshot, each.table_rows, each.table_files, f"the report of run {each.run}")
        if expired:
            self.notes.append(f"The snapshots in the reports of {expired} runs have expired.")

    def _look_for_rollbacks(self, runs: Mapping[int | None, str]) -> None:
        """Report snapshots that were current until an older one was again: their rows are gone.

        The older one is an ancestor, or was current before. The snapshot of an overwrite has no ancestor in the table.
        """
        metadata = self._table.metadata
        earlier: set[int] = set()
        for replaced, current in pairwise(entry.snapshot_id for entry in metadata.snapshot_log):
            earlier.add(replaced)
            snapshot = metadata.snapshot_by_id(replaced)
            if snapshot is None or current == replaced:
                continue
            if current in earlier or any(
                ancestor.snapshot_id == current for ancestor in ancestors_of(snapshot, metadata)
            ):
                run = f" of run {runs[replaced]}" if replaced in runs else ""
                what = f"was rolled back by another writer: from it{run} to the older snapshot {current}"
                self.problems.append(Finding(f"snapshot {replaced}", what))

    def _compare(self, snapshot: Snapshot, rows: int | None, files: int | None, by: str) -> None:
        for _ in self._of_snapshot(snapshot):
            pass  # Its manifests are counted.
        if self._broken:
            return
        counted = [
            self._counted[each.manifest_path]
            for each in self._manifests(snapshot)
            if each.content == ManifestContent.DATA
        ]
        for what, found, said in (
            ("rows", sum(each.rows for each in counted), rows),
            ("data files", sum(each.files for each in counted), files),
        ):
            if said is not None and found != said:
                where = f"snapshot {snapshot.snapshot_id}"
                self.problems.append(Finding(where, f"has {found} {what}, and {said} by {by}"))

    def _of_snapshot(self, snapshot: Snapshot | None) -> Iterator[ExpectedFileStats]:
        for manifest in self._manifests(snapshot):
            if manifest.manifest_path in self._counted:
                continue
            counted = self._counted[manifest.manifest_path] = Total()
            try:
                entries = live_entries(manifest, self._table.io)
            except Exception as error:
                self._break(manifest.manifest_path, error)
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
            self._break(snapshot.manifest_list, error)
            return []

    def _break(self, path: str, error: Exception) -> None:
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
                what = f"has {file.record_count} rows and {values} values in column {field.name} by its manifest"
                self.problems.append(Finding(file.file_path, what))
        columns = tuple(column for field in self._bounded if (column := _expected_column(field, file)) is not None)
        return ExpectedFileStats(source, kind, self._schema, columns)

    def _look_for_others(self) -> None:
        """Tell of objects in the table's folder that it does not refer to: those of killed writers are no fault."""
        s3 = self._operations.access.client("s3")
        references = References(self._table.io, s3)
        try:
            folder = table_folder(self._table)
            references.add_metadata(self._table.metadata, self._table.metadata_location)
            references.add_files()
        except MaintenanceSkipped as reason:
            self.notes.append(f"Foreign files were not looked for: {reason}.")
            return
        except Exception as error:
            if not self._broken:
                where = self._table.metadata_location
                gone = isinstance(error, FileNotFoundError)
                what = f"refers to what is not there: {error}" if gone else unreadable(error, where, _CLAUSES)
                self.problems.append(Finding(where, what))
            return
        orphans = 0
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=folder.bucket, Prefix=f"{folder.key}/"):
            keys = [each["Key"] for each in page.get("Contents", []) if not each["Key"].endswith("/")]
            for file in references.unreferenced(File(f"s3://{folder.bucket}/{key}", 0) for key in keys):
                key = file.path.removeprefix(f"s3://{folder.bucket}/")
                if is_of_a_table(key, folder):
                    orphans += 1
                elif not any(part[:1] in ("_", ".") for part in key[len(folder.key) + 1 :].split("/")):
                    self.problems.append(Finding(file.path, "is no file of the table"))
        if orphans:
            self.notes.append(
                f"{orphans} files are of no snapshot, as killed or running syncs leave them; `maintain` removes them."
            )


def _expected_column(field: NestedField, file: IcebergFile) -> ExpectedColumnStats | None:
    """Return what a manifest says of a column; None if it says nothing."""
    lower, upper = (_bound(field, bounds) for bounds in (file.lower_bounds, file.upper_bounds))
    nulls = (file.null_value_counts or {}).get(field.field_id)
    if lower is None and upper is None and nulls is None:
        return None
    return ExpectedColumnStats(field.name, lower, upper, nulls)


def _bound(field: NestedField, bounds: Mapping[int, bytes] | None) -> Any:
    """Return a bound of `ExpectedColumnStats`; None without one. Bounds older than a promotion have the narrow type."""
    encoded = (bounds or {}).get(field.field_id)
    if encoded is None:
        return None
    type_: Any = field.field_type
    if isinstance(type_, StringType):
        return bytes(encoded)
    if len(encoded) == 4 and isinstance(type_, LongType | DoubleType):
        type_ = IntegerType() if isinstance(type_, LongType) else FloatType()
    with suppress(Exception):  # Of another type, or of a writer that PyIceberg does not follow: nothing is said.
        return from_bytes(type_, encoded)
    return None
