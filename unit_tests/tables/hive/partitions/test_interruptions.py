"""Partitioned Hive tables under kills, lost answers and other syncs, between any two calls.

A reader between two calls finds no row with another type than its file has, none twice, and in each partition rows of
one generation. The next sync, of any mode, brings what a killed one has left to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError

from destination_datalake.aws.access import AwsAccess
from destination_datalake.files.plan import FileFormat
from destination_datalake.tables.fencing import Fenced
from destination_datalake.tables.hive.partitions import StalePartitions, mark_partitions_stale, mark_up_to_date
from unit_tests.cloud import BUCKET, Cloud, another_client
from unit_tests.tables.hive.partitions.events import (
    AT,
    FEB,
    ID,
    JAN,
    MAR,
    NOTE,
    WIDE,
    Killed,
    Row,
    Sync,
    between_calls,
    glue_table,
    ids,
    location,
    locations,
    partitions,
    register,
    rows,
    sync,
)

pytestmark = pytest.mark.share(4)


def killed_before(
    number: int, access: AwsAccess, act: Callable[[], object], since: Callable[[], bool] = lambda: True
) -> bool:
    """Act until the numbered call, and make neither it nor any later one; return whether all was done before.

    Calls are counted from the first one before which `since` holds.
    """
    counted: list[str] = []

    def kill(_number: int, call: str) -> None:
        if counted or since():
            counted.append(call)
        if len(counted) > number:
            raise Killed

    try:
        with between_calls(access, kill):
            act()
    except Killed:
        return False
    return True


def begin_anew(cloud: Cloud, format: FileFormat = "parquet", *rows: Row) -> None:
    """Fill a new table, without anything of the one before."""
    glue, s3 = cloud.access.client("glue"), cloud.access.client("s3")
    with suppress(glue.exceptions.EntityNotFoundException):
        glue.delete_table(DatabaseName="shop", Name="events")
    for key in cloud.objects():
        s3.delete_object(Bucket=BUCKET, Key=key)
    if rows:
        sync(cloud, format=format, generation=1).commit(*rows)


def is_settled(cloud: Cloud) -> bool:
    """Whether all partitions with files are registered in the content, and say what the table says."""
    table = glue_table(cloud)["StorageDescriptor"]
    described = [partition["StorageDescriptor"] for partition in partitions(cloud).values()]
    return "behind" not in glue_table(cloud)["Parameters"].get("airbyte.partition-index", "") and all(
        descriptor["Columns"] == table["Columns"] and descriptor["Location"].startswith(table["Location"])
        for descriptor in described
    )


def test_partitions_that_are_behind_twice_are_brought_up_to_date_for_both_causes() -> None:
    # Given a table whose content was replaced, and whose partitions have not followed
    table: Any = {"PartitionKeys": [{"Name": "day", "Type": "date"}], "Parameters": {}}
    mark_partitions_stale(table, replaced=True)
    mark_partitions_stale(table, former_folder="s3://lake/one")
    first = StalePartitions.load(table)

    # When it moves once more
    mark_partitions_stale(table, former_folder="s3://lake/two")

    # Then who follows knows all of it, and who followed the first time has not done all
    stale = StalePartitions.load(table)
    assert first is not None
    assert stale is not None
    assert (stale.replaced, stale.former_folders) == (True, ("s3://lake/one", "s3://lake/two"))
    mark_up_to_date(table, first)
    assert StalePartitions.load(table) == stale


@pytest.mark.share(1)
@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_widening_is_seen_right_between_any_two_calls(cloud: Cloud, format: FileFormat) -> None:
    access = another_client()
    sync(cloud, format=format).commit((1, JAN), (2, FEB))
    widening = sync(cloud, format=format, access=access)
    seen: list[list[int]] = []

    with between_calls(access, lambda *_: seen.append(ids(cloud))):
        widening.commit((WIDE, JAN), (3, MAR))
        widening.publish()

    assert all(set(visible_ids) >= {1, 2} and len(set(visible_ids)) == len(visible_ids) for visible_ids in seen)
    assert ids(cloud) == [1, 2, 3, WIDE]
    assert is_settled(cloud)


@pytest.mark.slow
@pytest.mark.parametrize(("format", "mode"), [("parquet", "append"), ("jsonl", "overwrite")])
def test_widening_killed_between_any_two_calls_is_finished_by_the_next_sync(
    cloud: Cloud, format: FileFormat, mode: str
) -> None:
    access, since = another_client(), lambda: not is_settled(cloud)
    for number in range(30):
        begin_anew(cloud, format, (1, JAN), (2, FEB))
        killed = sync(cloud, format=format, generation=1, access=access)
        finished = killed_before(number, access, lambda: killed.commit((WIDE, JAN), (3, MAR)), since)  # noqa: B023
        assert set(ids(cloud)) >= {1, 2}, number

        sync(cloud, format=format, generation=2 if mode == "overwrite" else 1, overwrite=mode == "overwrite")
        assert set(ids(cloud)) >= {1, 2}, number
        assert is_settled(cloud), number
        sync(cloud, format=format, generation=1).publish()
        assert set(ids(cloud)) >= {1, 2}, "a folder was deleted while partitions referred to it"
        if finished:
            return
    raise AssertionError("a commit has fewer calls")


def test_new_column_is_seen_right_between_any_two_calls(cloud: Cloud) -> None:
    access = another_client()
    sync(cloud).commit((1, JAN), (2, FEB))
    seen: list[set[tuple[int, int | None]]] = []

    with between_calls(access, lambda *_: seen.append({(id, note) for id, _, note in rows(cloud)})):
        sync(cloud, columns=(ID, AT, NOTE), access=access).commit((3, JAN), note=7)

    assert all(visible_rows <= {(1, None), (2, None), (3, 7)} for visible_rows in seen)
    assert is_settled(cloud)


@pytest.mark.share(1)
@pytest.mark.parametrize("generations", [(None, None), (1, 2)])
def test_reader_between_any_two_calls_of_an_overwrite_sees_each_partition_old_or_new_and_none_missing(
    cloud: Cloud, generations: tuple[int | None, int | None]
) -> None:
    first, second = generations
    old = sync(cloud, generation=first)
    old.commit((1, JAN), (2, FEB))
    access = another_client()
    new = sync(cloud, generation=second, overwrite=True, access=access)
    seen: list[list[int]] = []

    with between_calls(access, lambda *_: seen.append(ids(cloud))):
        new.commit((11, FEB), (12, MAR))
        assert seen[-1] == [1, 2]
        new.publish()

    assert list(dict.fromkeys(map(tuple, seen))) == [(1, 2), (1, 2, 12), (1, 11, 12), (11, 12)]
    assert locations(cloud) == {FEB: f"created_at_date={FEB}/", MAR: f"created_at_date={MAR}/"}
    assert is_settled(cloud)


def test_row_that_an_overwrite_moves_to_a_partition_of_one_generation_is_always_visible(cloud: Cloud) -> None:
    sync(cloud, generation=1).commit((1, FEB), (2, JAN), (3, FEB))
    access = another_client()
    new = sync(cloud, generation=2, overwrite=True, access=access)
    new.commit((1, MAR), (2, FEB), (3, FEB))
    seen: list[set[int]] = []

    with between_calls(access, lambda *_: seen.append(set(ids(cloud)))):
        new.publish()

    assert all(visible_ids == {1, 2, 3} for visible_ids in seen)
    assert rows(cloud) == [(2, (FEB,), None), (3, (FEB,), None), (1, (MAR,), None)]


def test_partition_that_an_overwrite_replaces_keeps_nothing_of_others(cloud: Cloud) -> None:
    sync(cloud, generation=1).commit((1, JAN))
    register(cloud, [FEB], f"s3://{BUCKET}/theirs/")

    new = sync(cloud, generation=2, overwrite=True)
    new.commit((2, FEB))
    new.publish()

    (replaced,) = partitions(cloud).values()
    assert (replaced["StorageDescriptor"]["Location"], replaced["Parameters"]) == (
        f"{location(cloud)}/created_at_date={FEB}/",
        {},
    )


@pytest.mark.slow
@pytest.mark.share(1)
@pytest.mark.parametrize("old", [((1, JAN), (2, FEB)), ()], ids=["rows", "no rows"])
@pytest.mark.parametrize("next_mode", ["append", "overwrite", "the same overwrite"])
def test_publication_killed_between_any_two_calls_is_rolled_forward_by_the_next_sync(
    cloud: Cloud, next_mode: str, old: tuple[Row, ...]
) -> None:
    access, before = another_client(), [id for id, _ in old]
    for number in range(60):
        begin_anew(cloud, "parquet", *old)
        killed = sync(cloud, generation=2, overwrite=True, access=access)
        killed.commit((11, FEB), (12, MAR))
        finished = killed_before(number, access, killed.publish)
        assert ids(cloud) in ([*before], [*before, 12], [1, 11, 12], [11, 12]), number
        published = "unpublished-location" not in str(glue_table(cloud)["Parameters"])
        assert old or not published or ids(cloud) == [11, 12], number
        if next_mode == "append":
            sync(cloud, generation=2).publish()
            expected = [11, 12] if published else [*before, 11, 12]
        elif next_mode == "overwrite":
            newer = sync(cloud, generation=3, overwrite=True)
            assert not old or ids(cloud) == ([11, 12] if published else before), number
            newer.commit((21, FEB))
            newer.publish()
            expected = [21]
        else:
            sync(cloud, generation=2, overwrite=True).publish()
            expected = [11, 12]
        assert ids(cloud) == expected, number
        assert is_settled(cloud)
        if finished:
            return
    raise AssertionError("publishing has fewer calls")


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_rows_of_a_new_table_are_in_registered_partitions_between_any_two_calls(
    cloud: Cloud, mode: str, format: FileFormat
) -> None:
    access = another_client()
    first = sync(cloud, generation=1, overwrite=mode == "overwrite", format=format, access=access)
    acknowledged = set[int]()

    def look(*_: object) -> None:
        if "unpublished-location" not in str(glue_table(cloud)["Parameters"]):
            assert acknowledged <= set(ids(cloud))

    with between_calls(access, look):
        first.commit((1, JAN), (2, FEB))
        acknowledged |= {1, 2}
        first.commit((WIDE, JAN), (3, MAR))
        acknowledged |= {3, WIDE}
        first.publish()

    assert ids(cloud) == [1, 2, 3, WIDE]
    assert is_settled(cloud)


def test_fenced_sync_that_is_killed_moves_no_partition_back(cloud: Cloud) -> None:
    """Its late calls come after its successor has ended, and no sync follows."""
    sync(cloud).commit((1, JAN), (2, FEB))
    access, newer = another_client(), list[Sync]()
    older = sync(cloud, access=access)

    def overtake(_number: int, call: str) -> None:
        if newer and not call.endswith("Partition"):
            raise Killed
        if call == "BatchGetPartition":
            newer.append(sync(cloud))
            newer[0].commit((WIDE, JAN))
            newer[0].publish()

    with between_calls(access, overtake), pytest.raises(Killed):
        older.commit((3, JAN))

    assert ids(cloud) == [1, 2, WIDE]
    assert is_settled(cloud)


def test_partitions_of_others_leave_the_catalog_with_an_overwrite_and_their_files_stay(cloud: Cloud) -> None:
    sync(cloud, generation=1).commit((1, JAN))
    register(cloud, ["2020-01-01"], f"s3://{BUCKET}/theirs/")
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key="theirs/file", Body=b"theirs")

    new = sync(cloud, generation=2, overwrite=True)
    new.commit((2, FEB))
    new.publish()

    assert set(locations(cloud)) == {FEB}
    assert cloud.objects()["theirs/file"] == b"theirs"


def test_rows_of_an_overwrite_that_was_never_published_are_adopted_into_their_partitions(cloud: Cloud) -> None:
    sync(cloud, generation=1).commit((1, JAN))
    sync(cloud, generation=2, overwrite=True).commit((11, JAN), (12, MAR))

    sync(cloud, generation=2).commit((3, FEB))

    assert ids(cloud) == [1, 3, 11, 12]
    assert set(locations(cloud)) == {JAN, FEB, MAR}
    assert is_settled(cloud)


@pytest.mark.slow
def test_append_during_a_publication_adds_its_rows_to_the_new_generation(cloud: Cloud) -> None:
    """The sync that appends brings the partitions up to date first."""
    sync(cloud, generation=1).commit((1, JAN), (2, FEB))
    publishing, appending = another_client(), another_client()
    new = sync(cloud, generation=2, overwrite=True, access=publishing)
    new.commit((11, FEB))
    seen: list[list[int]] = []

    def append_once(_number: int, call: str) -> None:
        if call == "BatchDeletePartition" and not seen:
            with between_calls(appending, lambda *_: seen.append(ids(cloud))):
                sync(cloud, generation=2, access=appending).commit((21, JAN))

    with between_calls(publishing, append_once), pytest.raises(Fenced):
        new.publish()

    assert [visible_ids for visible_ids in seen if 21 in visible_ids and visible_ids != [11, 21]] == []
    sync(cloud, generation=2)
    assert ids(cloud) == [11, 21]
    assert is_settled(cloud)


def test_partitions_that_a_fenced_sync_changes_late_are_brought_up_to_date_by_its_successor(cloud: Cloud) -> None:
    """The last call of the older one takes a column away that the newer one has added."""
    sync(cloud).commit((1, JAN), (2, FEB))
    access, newer = another_client(), list[Sync]()

    def take_over(_number: int, call: str) -> None:
        if call == "BatchUpdatePartition" and not newer:
            newer.append(sync(cloud, columns=(ID, AT, replace(NOTE, name="more", source="more"))))

    with between_calls(access, take_over), pytest.raises(Fenced):
        sync(cloud, columns=(ID, AT, NOTE), access=access)

    newer[0].commit((3, MAR))
    assert ids(cloud) == [1, 2, 3]
    assert is_settled(cloud)


@pytest.mark.parametrize("fails", [False, True], ids=["", "and fails"])
@pytest.mark.parametrize("call", ["GetPartitions", "BatchDeletePartition", "BatchCreatePartition"])
def test_partitions_that_a_fenced_sync_changes_after_its_successor_has_ended_follow_the_table(
    cloud: Cloud, call: str, *, fails: bool
) -> None:
    """No sync comes after it that would bring them up to date."""
    sync(cloud, generation=1).commit((1, JAN), (2, FEB))
    access, overtaken = another_client(), list[str]()
    older = sync(cloud, generation=2, overwrite=True, access=access)
    older.commit((11, FEB), (12, MAR))

    def overtake(_number: int, name: str) -> None:
        if name == call and not overtaken:
            overtaken.append(name)
            newer = sync(cloud, generation=3, overwrite=True)
            newer.commit((21, JAN))
            newer.publish()
            if fails:
                raise ConnectTimeoutError(endpoint_url="https://glue")

    with between_calls(access, overtake), pytest.raises(Fenced):
        older.publish()

    assert ids(cloud) == [21]
    assert is_settled(cloud)


@pytest.mark.parametrize(
    "call", ["BatchCreatePartition", "BatchUpdatePartition", "BatchDeletePartition", "UpdateTable"]
)
def test_lost_answers_change_nothing(cloud: Cloud, call: str) -> None:
    """AWS has acted, and botocore sends the request again."""
    sync(cloud, generation=1).commit((1, JAN), (2, FEB))
    access = another_client()
    events: Any = access.client("glue").meta.events
    lost: list[str] = []

    def lose(**_: object) -> int | None:
        lost.append(call)
        return 0 if len(lost) % 2 else None

    events.register_first(f"needs-retry.glue.{call}", lose)
    new = sync(cloud, columns=(ID, AT, NOTE), generation=1, access=access)
    new.commit((WIDE, JAN), (3, MAR), note=7)
    overwriting = sync(cloud, generation=2, overwrite=True, access=access)
    overwriting.commit((11, FEB), (12, MAR))
    overwriting.publish()

    assert lost
    assert ids(cloud) == [11, 12]
    assert is_settled(cloud)
    assert location(cloud) in {
        partition["StorageDescriptor"]["Location"].rpartition("/created")[0] for partition in partitions(cloud).values()
    }
