"""Expiry of snapshots: what readers see stays, and files that only expired snapshots had are deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.file_io import MANIFESTS
from destination_datalake.tables.iceberg.maintenance.cleanup import Expirer, Expiry
from destination_datalake.tables.iceberg.maintenance.references import DeadlineExceeded, MaintenanceSkipped
from destination_datalake.tables.iceberg.maintenance.second_reader import Disagreement
from unit_tests.cloud import during, ungoverned
from unit_tests.tables.iceberg.lake import Lake, no_rewrite
from unit_tests.tables.iceberg.maintenance.misreading import misread_first_manifest

pytestmark = pytest.mark.share(6)

LATER = timedelta(days=6)


def always() -> bool:
    return True


def expirer(lake: Lake) -> Expirer:
    return Expirer(TableOperations(lake.name, ungoverned(lake.access)), timedelta(days=5), 1)


def expire(lake: Lake, *, dry_run: bool = False) -> Expiry:
    return expirer(lake).expire(datetime.now(UTC) + LATER, always, dry_run=dry_run)


def overwritten(lake: Lake) -> None:
    """A table of two commits, replaced by a third."""
    table = lake.open()
    lake.commit(table, 1)
    lake.commit(table, 2)
    new = lake.open(2, overwrite=True)
    lake.commit(new, 3)
    new.publish(no_rewrite)


def after_update(lake: Lake, act: Callable[[], object]) -> None:
    """Call `act` once, after the next update of the table."""
    events = lake.access.client("glue").meta.events

    def once(**_: object) -> None:
        events.unregister("after-call.glue.UpdateTable", once)
        act()

    events.register("after-call.glue.UpdateTable", once)


def snapshots(lake: Lake) -> int:
    return len(lake.load().metadata.snapshots)


def data_files(lake: Lake) -> int:
    return sum(key.endswith(".parquet") for key in lake.objects())


def test_files_that_only_expired_snapshots_had_are_deleted(lake: Lake) -> None:
    overwritten(lake)

    done = expire(lake)

    assert (lake.ids(), snapshots(lake), data_files(lake)) == ([3], 1, 1)
    assert (len(done.expired.snapshots), done.data.files) == (3, 2)
    assert done.data.bytes > 0
    assert sum("/snap-" in key for key in lake.objects()) == 1


def test_nothing_is_deleted_where_two_readers_find_different_files(lake: Lake) -> None:
    overwritten(lake)
    table = lake.open(2)
    lake.commit(table, 4)
    misread_first_manifest(lake)
    before = lake.objects()

    with pytest.raises(Disagreement):
        expire(lake)

    assert before <= lake.objects()


def test_files_that_are_still_live_stay(lake: Lake) -> None:
    table = lake.open()
    for id_ in range(5):
        lake.commit(table, id_)

    done = expire(lake)

    assert (lake.ids(), snapshots(lake), data_files(lake)) == ([0, 1, 2, 3, 4], 1, 5)
    assert (done.data.files, len(done.expired.snapshots)) == (0, 4)
    lake.commit(table, 5)
    assert lake.ids() == [0, 1, 2, 3, 4, 5]


def test_a_dry_run_says_exactly_what_would_be_deleted(lake: Lake) -> None:
    overwritten(lake)
    before = lake.objects()

    planned = expire(lake, dry_run=True)
    assert lake.objects() == before
    done = expire(lake)

    paths = {
        path.removeprefix(f"s3://{lake.bucket}/") for files in (planned.data, planned.metadata) for path in files.paths
    }
    assert before - lake.objects() == paths
    assert planned.expired == done.expired
    assert planned.data.bytes == done.data.bytes


def test_the_rows_of_an_unpublished_overwrite_stay(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    new = lake.open(2, overwrite=True)
    lake.commit(new, 2)
    lake.commit(new, 3)

    expire(lake)

    assert lake.ids("airbyte_generation_2") == [2, 3]
    lake.commit(new, 4)
    new.publish(no_rewrite)
    assert lake.ids() == [2, 3, 4]


def test_what_a_tag_of_others_refers_to_stays(lake: Lake) -> None:
    overwritten(lake)
    table = lake.load()
    first = table.metadata.snapshots[0].snapshot_id
    with table.manage_snapshots() as change:
        change.create_tag(first, "audit")

    done = expire(lake)

    assert lake.ids("audit") == [1]
    assert (lake.ids(), done.data.files) == ([3], 1)


def test_a_time_whose_snapshot_has_expired_has_none(lake: Lake) -> None:
    """Nor that of an older snapshot which a tag has kept."""
    table = lake.open()
    for id_ in range(3):
        lake.commit(table, id_)
    first, second, third = (entry.snapshot_id for entry in lake.load().metadata.snapshot_log)
    with lake.load().manage_snapshots() as change:
        change.create_tag(first, "audit")

    done = expire(lake)

    assert done.expired.snapshots == (second,)
    assert [entry.snapshot_id for entry in lake.load().metadata.snapshot_log] == [third]
    lake.commit(table, 3)
    assert lake.load().metadata.snapshot_log[0].snapshot_id == third


def test_files_outside_the_tables_folder_stay(lake: Lake) -> None:
    """As those are that `add_files` registers where they were."""
    overwritten(lake)
    table = lake.open()
    file = lake.write(table, 9)
    s3, key = lake.access.client("s3"), file.uri.removeprefix(f"s3://{lake.bucket}/")
    s3.copy_object(Bucket=lake.bucket, Key="hive/9.parquet", CopySource={"Bucket": lake.bucket, "Key": key})
    lake.load().add_files([f"s3://{lake.bucket}/hive/9.parquet"])
    new = lake.open(3, overwrite=True)
    new.publish(no_rewrite)

    done = expire(lake)

    assert (lake.ids(), done.data.outside) == ([], 1)
    assert "hive/9.parquet" in lake.objects()


def test_a_table_whose_files_others_share_is_left_alone(lake: Lake) -> None:
    overwritten(lake)
    lake.set_properties({"gc.enabled": "false"})

    with pytest.raises(MaintenanceSkipped, match=r"gc\.enabled"):
        expire(lake)


def test_another_writers_commit_between_plan_and_commit_is_planned_on(lake: Lake) -> None:
    overwritten(lake)
    lake.at_the_next_update(lambda: lake.append(4))

    expire(lake)

    assert (lake.ids(), snapshots(lake)) == ([3, 4], 1)


def test_a_tag_that_another_writer_sets_between_plan_and_commit_keeps_its_snapshot(lake: Lake) -> None:
    overwritten(lake)
    first = lake.load().metadata.snapshots[0].snapshot_id

    def set_tag() -> None:
        with lake.load().manage_snapshots() as change:
            change.create_tag(first, "audit")

    lake.at_the_next_update(set_tag)
    expire(lake)

    assert (lake.ids("audit"), lake.ids()) == ([1], [3])


def test_a_commit_whose_answer_is_lost_was_made_and_its_files_are_deleted(lake: Lake) -> None:
    overwritten(lake)
    lake.at_the_next_update(lambda: None, response_lost=True)

    done = expire(lake)

    assert (lake.ids(), snapshots(lake), data_files(lake), done.data.files) == ([3], 1, 1, 2)


def test_files_of_a_table_that_another_replaces_meanwhile_stay(lake: Lake) -> None:
    """As when somebody drops the table right after the commit, and a sync creates it again at the same place."""
    overwritten(lake)
    files = data_files(lake)
    glue = lake.access.client("glue")

    def replace() -> None:
        glue.delete_table(DatabaseName=lake.name.database, Name=lake.name.table)
        lake.open()

    after_update(lake, replace)
    with pytest.raises(MaintenanceSkipped, match="another table"):
        expire(lake)

    assert data_files(lake) == files


def test_a_sync_s_commit_that_was_planned_on_what_expires_is_planned_again(lake: Lake) -> None:
    """The table's only snapshot is old. Another writer commits, and it expires before the sync has read it."""
    syncing = lake.open()
    lake.commit(syncing, 1)
    file = lake.write(syncing, 2)
    for key in lake.objects():
        MANIFESTS.forget(f"s3://{lake.bucket}/{key}")
    events = lake.access.client("s3").meta.events

    def meanwhile(**_: object) -> None:
        events.unregister("before-call.s3.GetObject", meanwhile)
        lake.append(3)
        expire(lake)

    events.register("before-call.s3.GetObject", meanwhile)
    syncing.commit([file], no_rewrite)

    assert lake.ids() == [1, 2, 3]


def test_two_at_once_delete_nothing_that_is_needed(lake: Lake) -> None:
    overwritten(lake)
    lake.at_the_next_update(lambda: expire(lake))

    second = expire(lake)

    assert (lake.ids(), snapshots(lake), data_files(lake)) == ([3], 1, 1)
    assert not second.expired


def test_with_a_clock_that_is_wrong_nothing_expires(lake: Lake) -> None:
    overwritten(lake)

    def another_time(parsed: dict[str, Any], **_: object) -> None:
        parsed["ResponseMetadata"]["HTTPHeaders"]["date"] = "Mon, 01 Jan 2024 00:00:00 GMT"

    with (
        during(lake.access, "after-call.s3.ListObjectsV2", another_time),
        pytest.raises(MaintenanceSkipped, match="clock"),
    ):
        expire(lake)

    assert snapshots(lake) > 1


def test_without_time_nothing_more_is_deleted(lake: Lake) -> None:
    overwritten(lake)
    files = data_files(lake)

    with pytest.raises(DeadlineExceeded):
        expirer(lake).expire(datetime.now(UTC) + LATER, lambda: False, dry_run=False)

    assert (lake.ids(), data_files(lake)) == ([3], files)


def test_nothing_expires_before_a_snapshot_is_old_nor_twice(lake: Lake) -> None:
    overwritten(lake)

    assert not expirer(lake).expire(datetime.now(UTC), always, dry_run=False).expired
    assert expire(lake).expired
    assert not expire(lake).expired
