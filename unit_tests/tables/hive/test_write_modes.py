"""Append and overwrite: what readers see when, and who continues, discards or fences an unpublished overwrite."""

from __future__ import annotations

import pytest

from destination_datalake.tables.fencing import Fenced
from destination_datalake.tables.table import Reencode
from unit_tests.cloud import BUCKET, Cloud, another_client, before
from unit_tests.tables.hive.orders import (
    WIDE,
    Sync,
    create,
    entry,
    ids,
    parquet_of,
    put,
    rewrite,
    sync,
    theirs,
    visible,
)


@pytest.mark.parametrize("generations", [(None, None, None), (1, 2, 3)])
def test_overwrite_becomes_visible_as_a_whole_when_it_is_published(
    cloud: Cloud, generations: tuple[int | None, ...]
) -> None:
    first, second, third = generations
    old = sync(cloud, generation=first, replaces=True)
    old.commit("old", 1)
    old.publish()

    new = sync(cloud, generation=second, replaces=True)
    new.commit("new-1", 2)
    new.commit("new-2", 3)
    assert ids(cloud) == [1]
    new.publish()

    assert visible(cloud) == ["new-1", "new-2"]
    # Who was reading the old files can read on; the next replacement takes them away.
    assert any(key.endswith("/old") for key in cloud.objects())
    sync(cloud, generation=third, replaces=True).publish()
    assert visible(cloud) == []
    assert not any(key.endswith("/old") for key in cloud.objects())


def test_overwrite_of_another_writers_table_changes_only_its_location(
    cloud: Cloud,
) -> None:
    create(cloud, StorageDescriptor=theirs())
    sync(cloud)
    before = entry(cloud)

    new = sync(cloud, replaces=True)
    new.commit("new", 1)
    new.publish()

    after = entry(cloud)
    assert after["StorageDescriptor"].pop("Location") != before["StorageDescriptor"].pop("Location")
    assert after["Parameters"].pop("airbyte.last-commit")
    for each in (before, after):
        for changing in ("UpdateTime", "VersionId"):
            each.pop(changing, None)
    assert after == before


def test_overwrite_of_a_table_around_our_folder_is_not_visible_before_it_is_published(cloud: Cloud) -> None:
    """Its readers would see the replacement before it is published."""
    create(cloud, StorageDescriptor=theirs(Location=f"s3://{BUCKET}/shop"))
    put(cloud, "shop/theirs.parquet", parquet_of(1))

    replacing = sync(cloud, replaces=True)
    replacing.commit("new", 2)

    assert ids(cloud) == [1]
    replacing.publish()
    assert ids(cloud) == [2]


def test_pending_overwrite_is_continued_by_the_same_generation(cloud: Cloud) -> None:
    old = sync(cloud, generation=1, replaces=True)
    old.commit("old", 1)
    old.publish()
    sync(cloud, generation=2, replaces=True).commit("before the failure", 2)

    again = sync(cloud, generation=2, replaces=True)
    again.commit("after the failure", 3)
    assert ids(cloud) == [1]
    again.publish()

    assert ids(cloud) == [2, 3]


def test_pending_overwrite_is_discarded_by_a_newer_generation(cloud: Cloud) -> None:
    sync(cloud, generation=1, replaces=True).commit("never published", 1)

    new = sync(cloud, generation=2, replaces=True)
    new.commit("new", 2)
    new.publish()

    assert ids(cloud) == [2]


def test_pending_overwrite_that_became_wider_is_published_with_all_its_rows(cloud: Cloud) -> None:
    sync(cloud, generation=1).commit("old", 1)
    first = sync(cloud, generation=2, replaces=True)
    first.commit("narrow", 2)
    first.commit("wide", WIDE)
    assert ids(cloud) == [1]

    again = sync(cloud, generation=2, replaces=True)
    again.commit("more", 3)
    again.publish()

    assert ids(cloud) == [2, 3, WIDE]


def test_table_with_rows_of_the_generation_only_is_appended_to(cloud: Cloud) -> None:
    """The protocol's truncate refresh that was interrupted and then resumed in the same generation."""
    done = sync(cloud, generation=2, replaces=True)
    done.commit("done", 1)
    done.publish()

    resumed = sync(cloud, generation=2, replaces=True)
    resumed.commit("more", 2)
    resumed.publish()

    assert ids(cloud) == [1, 2]


def test_overwrite_without_ids_leaves_no_generation_that_a_refresh_could_resume(cloud: Cloud) -> None:
    numbered = sync(cloud, generation=5, replaces=True)
    numbered.commit("numbered", 1)
    numbered.publish()
    without = sync(cloud, replaces=True)
    without.commit("without", 2)
    without.publish()

    refresh = sync(cloud, generation=5, replaces=True)
    refresh.commit("refreshed", 3)
    refresh.publish()

    assert ids(cloud) == [3]


def test_rows_of_other_writers_have_no_generation_that_a_refresh_could_resume(cloud: Cloud) -> None:
    create(cloud)
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key="elsewhere/theirs", Body=b"")
    sync(cloud, generation=5)

    sync(cloud, generation=5, replaces=True).publish()

    assert visible(cloud) == []


def test_published_overwrite_replaces_rows_appended_before_and_not_after_it(
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


def test_second_attempt_continues_the_overwrite_and_fences_the_first(cloud: Cloud) -> None:
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


def test_overwrite_fenced_during_a_commit_leaves_no_unacknowledged_files(
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


def test_published_overwrite_keeps_its_narrow_columns_although_the_table_became_wider(
    cloud: Cloud,
) -> None:
    appending = sync(cloud, generation=1)
    replacing = sync(cloud, generation=2, replaces=True)
    replacing.commit("new", 1)
    appending.commit("wide", WIDE)

    replacing.publish()

    assert ids(cloud) == [1]


@pytest.mark.parametrize("other_commits", [1, 3])
def test_publishing_again_after_a_lost_answer_changes_nothing(cloud: Cloud, other_commits: int) -> None:
    replacing = sync(cloud, generation=2, replaces=True)
    replacing.commit("new", 1)
    replacing.publish()
    appending = sync(cloud, generation=2)
    for number in range(other_commits):
        appending.commit(f"other-{number}", 10 + number)
    appending.commit("wide", WIDE)

    replacing.publish()

    assert ids(cloud) == [1, *range(10, 10 + other_commits), WIDE]
