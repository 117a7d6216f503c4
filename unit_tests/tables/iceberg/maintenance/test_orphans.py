"""Removal of orphans: files in the table's folder that are old, of the table's kinds, and referred to by nothing."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from destination_datalake.tables.glue.compare_and_set import METADATA
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.file_io import MANIFESTS
from destination_datalake.tables.iceberg.maintenance.cleanup import Expirer, OrphanRemover, Orphans
from destination_datalake.tables.iceberg.maintenance.references import MaintenanceSkipped
from destination_datalake.tables.iceberg.maintenance.second_reader import Disagreement
from destination_datalake.tables.iceberg.snapshots.files import Incomplete
from destination_datalake.tables.table import Committed
from unit_tests.cloud import ungoverned
from unit_tests.tables.iceberg.lake import Lake, no_rewrite
from unit_tests.tables.iceberg.maintenance.misreading import misread_first_manifest

pytestmark = pytest.mark.share(7)

LATER = timedelta(days=4)


def always() -> bool:
    return True


def remove(lake: Lake, *, dry_run: bool = False, after: timedelta = LATER) -> Orphans:
    remover = OrphanRemover(TableOperations(lake.name, ungoverned(lake.access)), timedelta(days=3))
    return remover.remove(datetime.now(UTC) + after, always, dry_run=dry_run)


def keep_nothing(lake: Lake) -> None:
    """Forget what this process has read and written of metadata, as another one would not have it."""
    for uri in lake.uris():
        MANIFESTS.forget(uri)


def put(lake: Lake, key: str, body: bytes = b"x") -> str:
    lake.write_object(f"s3://{lake.bucket}/{key}", body)
    return key


ORPHANS = (
    "orders/data/1f2e-000001.parquet",
    "orders/data/day=2026-01-01/1f2e-000001.parquet",
    "orders/metadata/4711-m0.avro",
    "orders/metadata/snap-1-0-4711.avro",
)
FOREIGN_FILES = (
    "orders/data/readme.txt",
    "orders/data/_temporary/0/part.parquet",
    "orders/data/.part.parquet",
    "orders/_staging/part.parquet",
    "orders/part.parquet",
    "orders/other/part.parquet",
    "orders_2/data/part.parquet",
    "order/data/part.parquet",
)


def test_what_nothing_refers_to_is_removed_and_what_may_be_of_others_stays(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    before = lake.objects()
    for key in (*ORPHANS, *FOREIGN_FILES):
        put(lake, key)

    removed = remove(lake)

    assert lake.objects() == before | {*FOREIGN_FILES}
    assert (removed.files.files, removed.files.bytes, lake.ids()) == (len(ORPHANS), len(ORPHANS), [1])


def test_nothing_is_removed_where_two_readers_find_different_files(lake: Lake) -> None:
    table = lake.open()
    for id_ in (1, 2):
        lake.commit(table, id_)
    put(lake, ORPHANS[0])
    misread_first_manifest(lake)
    before = lake.objects()

    with pytest.raises(
        Disagreement, match=r"refers to .*\.parquet, but only one of the connector's two readers found this reference"
    ):
        remove(lake)

    assert lake.objects() == before
    keep_nothing(lake)
    assert remove(lake).files.files == 1
    assert lake.ids() == [1, 2]


def test_what_is_young_stays(lake: Lake) -> None:
    """A running sync uploads files before it commits them."""
    lake.commit(lake.open(), 1)
    key = put(lake, "orders/data/1f2e-000001.parquet")

    remove(lake, after=timedelta(days=2))

    assert key in lake.objects()


def test_everything_that_any_snapshot_branch_or_tag_refers_to_stays(lake: Lake) -> None:
    table = lake.open()
    lake.commit(table, 1)
    with lake.load().manage_snapshots() as change:
        change.create_tag(lake.load().metadata.snapshots[0].snapshot_id, "audit")
    new = lake.open(2, overwrite=True)
    lake.commit(new, 2)
    new.publish(no_rewrite)
    lake.commit(lake.open(3, overwrite=True), 3)
    before = lake.objects()

    removed = remove(lake)

    assert lake.objects() == before
    assert (removed.files.files, removed.old_metadata.files) == (0, 0)
    assert (lake.ids(), lake.ids("audit"), lake.ids("airbyte_generation_3")) == ([2], [1], [3])


@pytest.mark.parametrize(
    "written",
    [
        "s3a://{bucket}/orders/data/{name}",
        "S3N://{bucket}/orders/data/{name}",
        "s3a://{bucket}/orders//data/{name}",
        "s3a://{bucket}//orders/./data/{name}",
        "s3://lake-ap-a1b2c3-s3alias/orders/data/{name}",
        "s3a://arn:aws:s3:eu-west-1:123456789012:accesspoint:lake/orders/data/{name}",
    ],
)
def test_a_file_stays_however_its_writer_has_written_its_address(lake: Lake, written: str) -> None:
    """Hadoop's file systems take several slashes for one, and a bucket has other names at its access points."""
    table = lake.open()
    file = lake.write(table, 1)
    name = file.uri.rpartition("/")[2]
    committed = replace(file, uri=written.format(bucket=lake.bucket, name=name))
    assert table.commit([committed], no_rewrite) == Committed()

    assert remove(lake).files.files == 0

    assert f"orders/data/{name}" in lake.objects()


def test_metadata_files_that_the_log_has_dropped_are_removed(lake: Lake) -> None:
    table = lake.open()
    lake.set_properties(
        {"write.metadata.delete-after-commit.enabled": "false", "write.metadata.previous-versions-max": "2"}
    )
    for id_ in range(4):
        lake.commit(table, id_)
    metadata = {key for key in lake.objects() if key.endswith(".metadata.json")}

    removed = remove(lake)

    logged = {entry.metadata_file for entry in lake.load().metadata.metadata_log} | {lake.load().metadata_location}
    kept = {key for key in lake.objects() if key.endswith(".metadata.json")}
    assert {f"s3://{lake.bucket}/{key}" for key in kept} == logged
    assert removed.old_metadata.files == len(metadata) - len(kept) > 0
    assert lake.ids() == [0, 1, 2, 3]


def test_a_dry_run_removes_nothing_and_says_what_would_be(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    key = put(lake, "orders/data/1f2e-000001.parquet")

    planned = remove(lake, dry_run=True)

    assert key in lake.objects()
    assert planned.files.paths == [f"s3://{lake.bucket}/{key}"]


@pytest.mark.parametrize("folder", ["orders/metadata", "orders/data/nested/metadata"])
@pytest.mark.parametrize("zipped", [False, True])
def test_a_folder_that_also_holds_another_table_is_left_alone(lake: Lake, folder: str, *, zipped: bool) -> None:
    """As it does when a table was dropped from the catalog, which keeps its files, and created again."""
    lake.commit(lake.open(), 1)
    body = json.dumps({"format-version": 2, "table-uuid": "another", "location": "s3://lake/orders"}).encode()
    name = "00000-1.metadata.json.gz" if zipped else "00000-1.metadata.json"
    put(lake, f"{folder}/{name}", gzip.compress(body) if zipped else body)
    orphan = put(lake, "orders/data/1f2e-000001.parquet")

    with pytest.raises(MaintenanceSkipped, match="of table another"):
        remove(lake)

    assert orphan in lake.objects()


def test_a_file_that_is_committed_while_the_folder_is_listed_stays(lake: Lake) -> None:
    """Late, and nevertheless: nothing is removed that the table refers to at the end."""
    table = lake.open()
    lake.commit(table, 1)
    late = lake.write(table, 2)
    events = lake.access.client("s3").meta.events
    listed = iter(range(100))

    def commit_late(**_: object) -> None:
        if next(listed) == 1:  # Not the first listing, which looks for other tables.
            events.unregister("before-call.s3.ListObjectsV2", commit_late)
            table.commit([late], no_rewrite)

    events.register("before-call.s3.ListObjectsV2", commit_late)
    removed = remove(lake)

    assert (lake.ids(), removed.files.files) == ([1, 2], 0)


def test_snapshots_that_expire_while_the_table_is_read_are_no_failure(lake: Lake) -> None:
    """What another process deletes belongs to metadata that is not the table's any more."""
    overwritten = lake.open()
    lake.commit(overwritten, 1)
    new = lake.open(2, overwrite=True)
    lake.commit(new, 2)
    new.publish(no_rewrite)
    orphan = put(lake, "orders/data/1f2e-000001.parquet")
    events = lake.access.client("s3").meta.events

    def expire_first(**_: object) -> None:
        events.unregister("before-call.s3.GetObject", expire_first)
        expirer = Expirer(TableOperations(lake.name, ungoverned(lake.access)), timedelta(days=1), 1)
        expirer.expire(datetime.now(UTC) + LATER, always, dry_run=False)

    keep_nothing(lake)
    events.register("before-call.s3.GetObject", expire_first)
    removed = remove(lake)

    assert (lake.ids(), removed.files.files) == ([2], 1)
    assert orphan not in lake.objects()


def test_a_file_that_is_missing_and_still_referred_to_stops_everything(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    orphan = put(lake, "orders/data/1f2e-000001.parquet")
    [manifest] = lake.uris("-m0.avro")
    keep_nothing(lake)
    lake.delete_object(manifest)

    with pytest.raises(FileNotFoundError, match="m0"):
        remove(lake)

    assert orphan in lake.objects()


def test_a_manifest_that_cannot_be_read_to_its_end_stops_everything(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    orphan = put(lake, "orders/data/1f2e-000001.parquet")
    [manifest] = lake.uris("-m0.avro")
    lake.write_object(manifest, lake.read_object(manifest)[:-40])
    keep_nothing(lake)

    with pytest.raises(Incomplete):
        remove(lake)

    assert orphan in lake.objects()


def test_a_table_of_one_location_for_a_whole_bucket_is_left_alone(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    lake.edit_metadata({"location": f"s3://{lake.bucket}/"})
    METADATA.forget(lake.load().metadata_location)

    with pytest.raises(MaintenanceSkipped, match="whole bucket"):
        remove(lake)
