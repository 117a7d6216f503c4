"""Manifest lists and manifests are read completely, or not at all, by both readers."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    FixedType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    UUIDType,
)

from destination_datalake.tables.iceberg.file_io import S3FileIO
from destination_datalake.tables.iceberg.maintenance.references import File, live_files
from destination_datalake.tables.iceberg.maintenance.second_reader import Disagreement, SecondReader
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.files import Incomplete, manifests_of
from unit_tests.tables.iceberg.lake import Lake
from unit_tests.tables.iceberg.maintenance.blocks import in_blocks_of


def test_the_paths_of_a_snapshot_are_those_that_pyiceberg_reads(lake: Lake) -> None:
    table = lake.open()
    for id_ in range(3):
        lake.commit(table, id_)
    snapshot, io = lake.load().current_snapshot(), S3FileIO(lake.access.client("s3"))
    assert snapshot is not None
    expected = snapshot.manifests(lake.load().io)

    manifests = manifests_of(snapshot.manifest_list, io)

    assert [(manifest.manifest_path, manifest.manifest_length) for manifest in manifests] == [
        (manifest.manifest_path, manifest.manifest_length) for manifest in expected
    ]
    second = SecondReader(lake.access.client("s3"))
    assert second.manifests(snapshot.manifest_list) == [
        (manifest.manifest_path, manifest.sequence_number) for manifest in manifests
    ]
    assert [second.live_files(manifest.manifest_path) for manifest in manifests] == [
        [file.path for file in live_files(manifest, io)] for manifest in manifests
    ]
    entries = [entry.data_file for manifest in expected for entry in manifest.fetch_manifest_entry(lake.load().io)]
    assert [file for manifest in manifests for file in live_files(manifest, io)] == [
        File(entry.file_path, entry.file_size_in_bytes) for entry in entries
    ]
    assert sum(manifest.added_files_count or 0 for manifest in manifests) == 3


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
    second = SecondReader(s3)
    for path, first_reads, second_reads in (
        (manifest.manifest_path, partial(live_files, at(part, manifest), io), partial(second.live_files, part)),
        (snapshot.manifest_list, partial(manifests_of, part, io), partial(second.manifests, part)),
    ):
        content = io.new_input(path).open().read()
        for length in range(0, len(content), len(content) // 40):
            lake.write_object(part, content[:length])
            with pytest.raises(Incomplete):
                first_reads()
            with pytest.raises(Disagreement):
                second_reads()


@pytest.mark.share(5)
@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (DecimalType(10, 2), Decimal("0.03")),
        (DecimalType(38, 0), Decimal(10**37)),
        (UUIDType(), UUID(int=1 << 100)),
        (FixedType(5), b"\0\x02abc"),
        (BinaryType(), b"\x80" * 200),
        (StringType(), "\u00e9" * 100),
        (TimestampType(), 1 << 50),
        (LongType(), None),
    ],
)
def test_both_readers_find_files_of_all_kinds_of_partitions_in_blocks_of_several(
    lake: Lake, type_: PrimitiveType, value: Any, version: str
) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", type_))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    table = lake.create(schema, partition_spec=spec, properties={"format-version": version})
    paths = [f"s3://{lake.bucket}/orders/data/{number}.parquet" for number in range(5)]
    with table.transaction() as transaction:
        change_branch(Change([of_partition(path, value) for path in paths]), "main", table, transaction)
    snapshot, io, s3 = lake.load().current_snapshot(), S3FileIO(lake.access.client("s3")), lake.access.client("s3")
    assert snapshot is not None
    [manifest] = manifests_of(snapshot.manifest_list, io)
    content = io.new_input(manifest.manifest_path).open().read()
    for number, entries in enumerate((1, 2, 5)):
        path = f"s3://{lake.bucket}/{number}.avro"
        lake.write_object(path, in_blocks_of(entries, content))

        assert [file.path for file in live_files(at(path, manifest, 5), io)] == paths
        assert SecondReader(s3).live_files(path) == paths


def of_partition(path: str, value: Any) -> DataFile:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(value),
        record_count=1,
        file_size_in_bytes=1,
    )
    file.spec_id = 0
    return file


def at(path: str, manifest: ManifestFile, added: int | None = 1) -> ManifestFile:
    """Return a manifest list's entry for another path, which says that the manifest has `added` live files."""
    return ManifestFile.from_args(
        manifest_path=path,
        manifest_length=manifest.manifest_length,
        partition_spec_id=manifest.partition_spec_id,
        content=manifest.content,
        sequence_number=manifest.sequence_number,
        min_sequence_number=manifest.min_sequence_number,
        added_snapshot_id=manifest.added_snapshot_id,
        added_files_count=added,
        existing_files_count=None if added is None else 0,
    )


def test_a_block_with_more_than_its_entries_is_refused(lake: Lake) -> None:
    table = lake.open()
    for id_ in range(3):
        lake.commit(table, id_)
    snapshot, s3 = lake.load().current_snapshot(), lake.access.client("s3")
    assert snapshot is not None
    io = S3FileIO(s3)
    [manifest, *_] = manifests_of(snapshot.manifest_list, io)
    longer = in_blocks_of(2, io.new_input(manifest.manifest_path).open().read(), more=b"\0")
    path = f"s3://{lake.bucket}/longer.avro"
    lake.write_object(path, longer)

    with pytest.raises(Incomplete, match="bytes of a block"):
        live_files(at(path, manifest), io)
    with pytest.raises(Disagreement, match="1 bytes of a block belong to no entry"):
        SecondReader(s3).live_files(path)


@pytest.mark.parametrize(
    ("listed", "problem"), [(2, "1 of 2 live files"), (0, "1 live files, but the manifest list records 0")]
)
def test_a_manifest_with_other_files_than_its_list_says_is_refused(lake: Lake, listed: int, problem: str) -> None:
    lake.commit(lake.open(), 1)
    snapshot, io = lake.load().current_snapshot(), S3FileIO(lake.access.client("s3"))
    assert snapshot is not None
    [manifest] = manifests_of(snapshot.manifest_list, io)

    with pytest.raises(Incomplete, match=problem):
        live_files(at(manifest.manifest_path, manifest, listed), io)
    assert len(live_files(at(manifest.manifest_path, manifest, None), io)) == 1
