"""Several syncs in one Hive table: what one acknowledged, no other loses, moves out of sight, or doubles."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from destination_datalake.tables.fencing import Fenced
from destination_datalake.tables.table import Committed, Reencode
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.tables.orders import (
    WIDE,
    Sync,
    another_client,
    before,
    columns,
    entry,
    ids,
    meanwhile,
    rewrite,
    sync,
    update,
    visible,
)


def test_a_batch_that_was_planned_for_a_folder_the_table_has_left_is_encoded_again(cloud: Cloud) -> None:
    first = sync(cloud)
    first.commit("first-1", 1)
    planned = first.encode("first-2", 2)
    sync(cloud).commit("second", WIDE)

    assert isinstance(first.table.commit([planned], rewrite), Reencode)
    first.commit("first-2", 2)

    assert ids(cloud) == [1, 2, WIDE]
    assert cloud.unfinished_uploads() == []


def test_two_syncs_that_widen_one_after_the_other_keep_what_both_acknowledged(cloud: Cloud) -> None:
    first, second = sync(cloud), sync(cloud)
    first.commit("first-1", 1)
    second.commit("second-1", WIDE)
    second.commit("second-2", 2)
    first.commit("first-2", WIDE + 1)
    for each in (first, second):
        each.publish()

    assert ids(cloud) == [1, 2, WIDE, WIDE + 1]


def test_two_syncs_that_widen_at_the_same_time_keep_what_both_acknowledged(cloud: Cloud) -> None:
    first, second = sync(cloud), sync(cloud)
    first.commit("first-1", 1)

    first.commit("first-2", WIDE, rewrite=meanwhile(lambda: second.commit("second", WIDE + 1)))

    assert ids(cloud) == [1, WIDE, WIDE + 1]


def test_a_table_that_becomes_wider_while_it_is_empty_does_so_for_every_sync(cloud: Cloud) -> None:
    first, second = sync(cloud), sync(cloud)
    planned = first.encode("first", 1)
    second.commit("second", WIDE)

    assert isinstance(first.table.commit([planned], rewrite), Reencode)
    first.commit("first", 1)

    assert ids(cloud) == [1, WIDE]


def test_what_is_committed_while_files_are_written_anew_is_written_anew_as_well(cloud: Cloud) -> None:
    appending, widening = sync(cloud), sync(cloud)
    appending.commit("before", 1)

    widening.commit("wide", WIDE, rewrite=meanwhile(lambda: appending.commit("meanwhile", 2)))
    appending.commit("after", 3)

    assert ids(cloud) == [1, 2, 3, WIDE]


def test_files_that_a_widening_carried_along_before_they_were_committed_are_not_written_twice(cloud: Cloud) -> None:
    """The table moves between the completion of the files and the commit's word in the catalog."""
    access = another_client()
    appending, widening = sync(cloud, access=access), sync(cloud)
    widening.commit("before", 1)
    before(access, "glue", "UpdateTable", lambda time: time == 1 and widening.commit("wide", WIDE))

    assert appending.table.commit([appending.encode("a", 2), appending.encode("b", 3)], rewrite) == Committed()

    assert ids(cloud) == [1, 2, 3, WIDE]
    appending.commit("later", 4)
    assert ids(cloud) == [1, 2, 3, 4, WIDE]


def test_files_of_which_a_widening_found_only_some_are_there_once_all_the_same(cloud: Cloud) -> None:
    access = another_client()
    appending, widening = sync(cloud, access=access), sync(cloud)
    widening.commit("before", 1)

    def widen(times: int) -> None:
        if times == 2:
            wait_until_visible(cloud, "part-0")
            widening.commit("wide", WIDE)

    before(access, "s3", "CompleteMultipartUpload", widen)
    files = [appending.encode(f"part-{n}", 10 + n) for n in range(2)]
    assert isinstance(appending.table.commit(files, rewrite), Reencode)

    assert ids(cloud) == [1, WIDE]
    appending.commit("part-0", 10, 11)
    assert ids(cloud) == [1, 10, 11, WIDE]


def wait_until_visible(cloud: Cloud, *names: str) -> None:
    for _ in range(500):
        if any(name in each for each in visible(cloud) for name in names):
            return
        time.sleep(0.01)
    raise AssertionError(f"{names} are not there")


def test_a_replacement_that_is_published_takes_the_place_of_what_others_appended_before_and_not_after(
    cloud: Cloud,
) -> None:
    appending = sync(cloud, generation=1)
    appending.commit("old", 1)
    replacing = sync(cloud, generation=2, replaces=True)
    replacing.commit("new", 2)
    planned = appending.encode("late", 3)
    replacing.publish()

    assert isinstance(appending.table.commit([planned], rewrite), Reencode)
    appending.commit("late", 3)

    assert ids(cloud) == [2, 3]


def test_a_running_replacement_loses_nothing_that_it_acknowledged_to_a_sync_that_appends(cloud: Cloud) -> None:
    """Its owner is stopped, and its rows are taken into the table, those that were committed and no others."""
    sync(cloud, generation=1).commit("old", 1)
    replacing = sync(cloud, generation=2, replaces=True)
    replacing.commit("acknowledged", 2)

    appending = sync(cloud, generation=2)
    with pytest.raises(Fenced, match="another sync of the stream has taken over"):
        replacing.table.commit([replacing.encode("late", 3)], rewrite)
    appending.commit("appended", 4)
    with pytest.raises(Fenced):
        replacing.publish()

    assert ids(cloud) == [1, 2, 4]
    assert cloud.unfinished_uploads() == []


def test_a_sync_that_may_delete_nothing_says_what_stopped_it_and_not_what_it_could_not_remove(cloud: Cloud) -> None:
    replacing = sync(cloud, generation=2, replaces=True)
    planned = replacing.encode("late", 1)
    sync(cloud, generation=2)

    with cloud.refusing("DeleteObject"), pytest.raises(Fenced):
        replacing.table.commit([planned], rewrite)

    assert cloud.unfinished_uploads() == []


def test_a_replacement_that_is_taken_over_while_it_commits_does_not_leave_what_it_could_not_acknowledge(
    cloud: Cloud,
) -> None:
    access = another_client()
    replacing = sync(cloud, generation=2, replaces=True, access=access)
    replacing.commit("acknowledged", 1)
    taken: list[Sync] = []

    def take_over(times: int) -> None:
        if times == 1:
            taken.append(sync(cloud, generation=2, replaces=True))
            taken[0].commit("wide", WIDE)

    before(access, "glue", "UpdateTable", take_over)
    with pytest.raises(Fenced):
        replacing.table.commit([replacing.encode("late", 3)], rewrite)
    taken[0].publish()

    assert ids(cloud) == [1, WIDE]


def test_a_newer_attempt_at_a_replacement_goes_on_with_it_and_the_older_one_stops(cloud: Cloud) -> None:
    sync(cloud, generation=1).commit("old", 1)
    older = sync(cloud, generation=2, replaces=True)
    older.commit("acknowledged", 2)
    newer = sync(cloud, generation=2, replaces=True)
    for step in (lambda: older.table.commit([older.encode("late", 3)], rewrite), older.publish):
        with pytest.raises(Fenced):
            step()

    newer.commit("more", 4)
    newer.publish()

    assert ids(cloud) == [2, 4]


def test_a_sync_that_appends_goes_on_when_another_adopts_in_its_stead(cloud: Cloud) -> None:
    sync(cloud, generation=2, replaces=True).commit("acknowledged", 1)
    first, second = sync(cloud, generation=2), sync(cloud, generation=2)

    first.commit("first", 2)
    second.commit("second", 3)
    first.publish()
    second.publish()

    assert ids(cloud) == [1, 2, 3]


def test_rows_are_adopted_once_also_if_the_table_moves_meanwhile(cloud: Cloud) -> None:
    widening = sync(cloud, generation=1)
    widening.commit("old", 1)
    sync(cloud, generation=2, replaces=True).commit("acknowledged", 2)
    access = another_client()
    adopting = sync(cloud, generation=2, access=access)
    before(access, "glue", "UpdateTable", lambda times: times == 1 and widening.commit("wide", WIDE))

    adopting.commit("appended", 3)

    assert ids(cloud) == [1, 2, 3, WIDE]


def test_narrow_rows_are_adopted_into_a_table_that_has_become_wider(cloud: Cloud) -> None:
    widening = sync(cloud, generation=1)
    sync(cloud, generation=2, replaces=True).commit("acknowledged", 2)
    widening.commit("wide", WIDE)

    sync(cloud, generation=2).publish()

    assert ids(cloud) == [2, WIDE]


def test_a_replacement_keeps_its_narrow_columns_when_the_table_becomes_wider_before_it_is_published(
    cloud: Cloud,
) -> None:
    appending = sync(cloud, generation=1)
    replacing = sync(cloud, generation=2, replaces=True)
    replacing.commit("new", 1)
    appending.commit("wide", WIDE)

    replacing.publish()

    assert ids(cloud) == [1]


@pytest.mark.parametrize("other_commits", [1, 3])
def test_a_publication_whose_answer_is_lost_is_recognised_whatever_has_come_since(
    cloud: Cloud, other_commits: int
) -> None:
    replacing = sync(cloud, generation=2, replaces=True)
    replacing.commit("new", 1)
    replacing.publish()
    appending = sync(cloud, generation=2)
    for number in range(other_commits):
        appending.commit(f"other-{number}", 10 + number)
    appending.commit("wide", WIDE)

    replacing.publish()

    assert ids(cloud) == [1, *range(10, 10 + other_commits), WIDE]


def test_a_column_that_somebody_drops_meanwhile_is_there_again_with_the_next_commit(cloud: Cloud) -> None:
    syncing = sync(cloud)
    syncing.commit("one", 1)
    storage = entry(cloud)["StorageDescriptor"]
    storage["Columns"] = [each for each in storage["Columns"] if each["Name"] != "id"]
    update(cloud, StorageDescriptor=storage)

    syncing.commit("two", 2)

    assert ids(cloud) == [1, 2]


def test_a_table_that_is_dropped_and_made_again_meanwhile_takes_what_comes_after(cloud: Cloud) -> None:
    syncing = sync(cloud)
    syncing.commit("one", 1)
    cloud.access.client("glue").delete_table(DatabaseName="shop", Name="orders")
    sync(cloud).commit("of another", 2)

    syncing.commit("two", 3)

    assert ids(cloud) == [2, 3]


def test_a_sweep_does_not_take_away_what_another_sync_is_writing(cloud: Cloud) -> None:
    """That one notices, and begins its folder anew."""
    widening = sync(cloud)
    widening.commit("old", 1)

    def sweep() -> None:
        other = sync(cloud)
        other.commit("other", 2)
        other.publish()

    widening.commit("wide", WIDE, rewrite=meanwhile(sweep))

    assert ids(cloud) == [1, 2, WIDE]
    assert ("id", "bigint", None) in columns(cloud)


def test_a_table_whose_entry_others_change_again_and_again_becomes_wider_all_the_same(cloud: Cloud) -> None:
    """Every other update finds a column, a parameter or a comment of theirs."""
    access = another_client()
    syncing = sync(cloud, access=access)
    syncing.commit("narrow", 1)

    def add_a_column(times: int) -> None:
        if times % 2:
            storage = entry(cloud)["StorageDescriptor"]
            storage["Columns"].append({"Name": f"theirs_{times}", "Type": "map<string,int>"})
            update(cloud, StorageDescriptor=storage)

    before(access, "glue", "UpdateTable", add_a_column)
    syncing.commit("wide", WIDE)

    assert ids(cloud) == [1, WIDE]
    assert ("theirs_1", "map<string,int>", None) in columns(cloud)


def test_a_file_that_is_withdrawn_while_others_are_written_anew_is_not_missed(cloud: Cloud) -> None:
    """Its commit has failed, so it must not come along, and the others must."""
    syncing = sync(cloud)
    syncing.commit("kept", 1)
    syncing.commit("withdrawn", 2)
    s3, key = cloud.access.client("s3"), f"{syncing.folder.removeprefix(f's3://{BUCKET}/')}/withdrawn"

    syncing.commit("wide", WIDE, rewrite=meanwhile(lambda: s3.delete_object(Bucket=BUCKET, Key=key)))

    assert ids(cloud) == [1, WIDE]


def test_a_file_that_its_stopped_owner_withdraws_while_it_is_adopted_is_not_missed(cloud: Cloud) -> None:
    replacing = sync(cloud, generation=2, replaces=True)
    for number, name in enumerate(["acknowledged", "withdrawn"]):
        replacing.commit(name, number)
    s3, key = cloud.access.client("s3"), f"{replacing.folder.removeprefix(f's3://{BUCKET}/')}/withdrawn"
    access = another_client()
    adopting = sync(cloud, generation=2, access=access)
    before(access, "s3", "CopyObject", lambda times: times == 1 and s3.delete_object(Bucket=BUCKET, Key=key))

    adopting.commit("appended", 2)

    assert ids(cloud) == [0, 2]


def test_rows_that_another_sync_has_adopted_and_whose_folder_it_has_swept_stay_in_the_table(cloud: Cloud) -> None:
    """Whoever was adopting them as well finds the folder empty, which does not mean that they were withdrawn."""
    sync(cloud, generation=2, replaces=True).commit("acknowledged", 1)
    access = another_client()
    slow = sync(cloud, generation=2, access=access)

    def adopt_and_sweep(times: int) -> None:
        if times == 1:
            fast = sync(cloud, generation=2)
            fast.commit("fast", 2)
            fast.publish()

    before(access, "s3", "CopyObject", adopt_and_sweep)
    slow.commit("slow", 3)

    assert ids(cloud) == [1, 2, 3]


def test_a_widening_that_fails_says_so_and_leaves_the_table_as_it_was(cloud: Cloud) -> None:
    syncing = sync(cloud)
    syncing.commit("one", 1)

    def fail() -> None:
        raise RuntimeError("the executors are gone")

    with suppress(RuntimeError):
        syncing.commit("wide", WIDE, rewrite=meanwhile(fail))

    assert ids(cloud) == [1]
    syncing.commit("two", 2)
    assert ids(cloud) == [1, 2]
