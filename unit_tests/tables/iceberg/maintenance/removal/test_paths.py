"""Manifest lists and manifests are read completely, or not at all."""

from __future__ import annotations

import pytest

from destination_datalake.tables.iceberg.maintenance.removal.paths import (
    File,
    Incomplete,
    Manifest,
    live_files,
    manifests_of,
)
from destination_datalake.tables.iceberg.metadata.io import S3FileIO
from unit_tests.tables.iceberg.lake import Lake


def test_the_paths_of_a_snapshot_are_those_that_pyiceberg_reads(lake: Lake) -> None:
    table = lake.open()
    for id_ in range(3):
        lake.commit(table, id_)
    snapshot, io = lake.load().current_snapshot(), S3FileIO(lake.access.client("s3"))
    assert snapshot is not None
    expected = snapshot.manifests(lake.load().io)

    manifests = manifests_of(snapshot.manifest_list, io)

    assert [(each.path, each.size) for each in manifests] == [
        (each.manifest_path, each.manifest_length) for each in expected
    ]
    entries = [entry.data_file for each in expected for entry in each.fetch_manifest_entry(lake.load().io)]
    assert [file for each in manifests for file in live_files(each, io)] == [
        File(entry.file_path, entry.file_size_in_bytes) for entry in entries
    ]
    assert sum(each.live or 0 for each in manifests) == 3


def test_a_manifest_list_of_no_manifests_is_complete(lake: Lake) -> None:
    lake.open(2, overwrite=True)
    snapshot = lake.load().current_snapshot()
    assert snapshot is not None

    assert manifests_of(snapshot.manifest_list, S3FileIO(lake.access.client("s3"))) == []


def test_no_part_of_a_manifest_list_or_a_manifest_is_taken_for_all_of_it(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    snapshot, s3 = lake.load().current_snapshot(), lake.access.client("s3")
    assert snapshot is not None
    io = S3FileIO(s3)
    [manifest] = manifests_of(snapshot.manifest_list, io)
    part = f"s3://{lake.bucket}/part.avro"
    for path, read in (
        (manifest.path, lambda: live_files(Manifest(part, 0, None), io)),
        (snapshot.manifest_list, lambda: manifests_of(part, io)),
    ):
        content = io.new_input(path).open().read()
        for length in range(0, len(content), len(content) // 40):
            s3.put_object(Bucket=lake.bucket, Key="part.avro", Body=content[:length])
            with pytest.raises(Incomplete):
                read()


def test_a_manifest_with_fewer_files_than_its_list_says_is_refused(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    snapshot, io = lake.load().current_snapshot(), S3FileIO(lake.access.client("s3"))
    assert snapshot is not None
    [manifest] = manifests_of(snapshot.manifest_list, io)

    with pytest.raises(Incomplete, match="1 live files in place of 2"):
        live_files(manifest._replace(live=2), io)
