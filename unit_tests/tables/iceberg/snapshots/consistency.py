"""What holds in an Iceberg table's metadata, whoever has written it (Iceberg spec: Snapshots, Manifests)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table

from destination_datalake.tables.iceberg.snapshots.files import path_bounds
from unit_tests.tables.iceberg.lake import Lake


def assert_consistent(lake: Lake) -> None:
    """Check the head of every branch."""
    table = lake.load()
    s3 = lake.access.client("s3")
    listed = s3.list_objects_v2(Bucket=lake.bucket).get("Contents", [])
    stored = {f"s3://{lake.bucket}/{object_['Key']}": object_["Size"] for object_ in listed}
    for branch in table.metadata.refs:
        assert [*_problems(table, branch, stored)] == [], branch


def _problems(table: Table, branch: str, stored: dict[str, int]) -> Iterator[str]:
    snapshot = table.metadata.snapshot_by_name(branch)
    assert snapshot is not None
    assert snapshot.summary is not None
    live: list[ManifestEntry] = []
    for manifest in snapshot.manifests(table.io):
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        yield from _problems_of_manifest(manifest, entries)
        live += [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
    files = [entry.data_file for entry in live]
    times = Counter(file.file_path for file in files)
    yield from (f"{path} is listed {count} times" for path, count in times.items() if count > 1)
    for entry in live:
        file = entry.data_file
        if stored.get(file.file_path) != file.file_size_in_bytes:
            yield f"{file.file_path} has {stored.get(file.file_path)} bytes in place of {file.file_size_in_bytes}"
        if not 0 <= (entry.sequence_number or 0) <= (snapshot.sequence_number or 0):
            yield f"{file.file_path} has sequence number {entry.sequence_number} in snapshot {snapshot.sequence_number}"
        lower, upper = path_bounds(file)
        if lower is not None and lower == upper and lower.decode() not in times:
            yield f"{file.file_path} deletes rows of {lower.decode()}, which is not there"
    data = [file for file in files if file.content == DataFileContent.DATA]
    deletes = [file for file in files if file.content != DataFileContent.DATA]
    totals = {
        "total-data-files": len(data),
        "total-delete-files": len(deletes),
        "total-records": sum(file.record_count for file in data),
        "total-position-deletes": sum(file.record_count for file in deletes),
        "total-files-size": sum(file.file_size_in_bytes for file in files),
    }
    for name, total in totals.items():
        if snapshot.summary[name] != str(total):
            yield f"{name} is {snapshot.summary[name]} in place of {total}"


def _problems_of_manifest(manifest: ManifestFile, entries: list[ManifestEntry]) -> Iterator[str]:
    for status, files, rows in (
        (ManifestEntryStatus.ADDED, manifest.added_files_count, manifest.added_rows_count),
        (ManifestEntryStatus.EXISTING, manifest.existing_files_count, manifest.existing_rows_count),
        (ManifestEntryStatus.DELETED, manifest.deleted_files_count, manifest.deleted_rows_count),
    ):
        of_status = [entry.data_file.record_count for entry in entries if entry.status == status]
        if (len(of_status), sum(of_status)) != (files, rows):
            yield f"{manifest.manifest_path} has {of_status} {status!r} in place of {files} files, {rows} rows"
    if not entries:
        yield f"{manifest.manifest_path} is empty"
    wrong = {entry.data_file.content == DataFileContent.DATA for entry in entries} - {
        manifest.content == ManifestContent.DATA
    }
    if wrong:
        yield f"{manifest.manifest_path} has data files and delete files"
    live = [entry.sequence_number or 0 for entry in entries if entry.status != ManifestEntryStatus.DELETED]
    if live and not manifest.min_sequence_number <= min(live):
        yield f"{manifest.manifest_path} has sequence numbers below {manifest.min_sequence_number}"
