"""Replacing what a Hive table holds: what readers see when, and what becomes of an attempt that was not finished."""

from __future__ import annotations

import pytest

from destination_datalake.files.plan import FileFormat
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.tables.orders import WIDE, columns, create, entry, ids, sync, theirs, visible


@pytest.mark.parametrize("generations", [(None, None, None), (1, 2, 3)])
def test_a_replacement_is_seen_at_once_and_whole_when_it_is_published(
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


def test_replacing_the_content_of_somebody_else_s_table_changes_its_location_and_nothing_of_theirs(
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


def test_an_unpublished_replacement_goes_on_when_its_generation_is_tried_again(cloud: Cloud) -> None:
    old = sync(cloud, generation=1, replaces=True)
    old.commit("old", 1)
    old.publish()
    sync(cloud, generation=2, replaces=True).commit("before the failure", 2)

    again = sync(cloud, generation=2, replaces=True)
    again.commit("after the failure", 3)
    assert ids(cloud) == [1]
    again.publish()

    assert ids(cloud) == [2, 3]


def test_an_unpublished_replacement_is_worth_nothing_to_a_newer_one(cloud: Cloud) -> None:
    sync(cloud, generation=1, replaces=True).commit("never published", 1)

    new = sync(cloud, generation=2, replaces=True)
    new.commit("new", 2)
    new.publish()

    assert ids(cloud) == [2]


@pytest.mark.parametrize("acknowledged", [2, WIDE])
@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_an_unpublished_replacement_is_taken_in_by_a_sync_that_appends(
    cloud: Cloud, acknowledged: int, format: FileFormat
) -> None:
    """Its records were acknowledged: nobody will send them again."""
    sync(cloud, generation=1, format=format).commit("old", 1)
    sync(cloud, generation=2, replaces=True, format=format).commit("acknowledged", acknowledged)

    appending = sync(cloud, generation=2, format=format)
    appending.commit("appended", 3)
    appending.publish()

    assert ids(cloud) == sorted([1, acknowledged, 3])
    assert "airbyte.fencing-token" not in entry(cloud)["Parameters"]
    if acknowledged == WIDE:
        assert ("id", "bigint", None) in columns(cloud)


def test_an_unpublished_replacement_that_became_wider_again_and_again_is_published_whole(cloud: Cloud) -> None:
    sync(cloud, generation=1).commit("old", 1)
    first = sync(cloud, generation=2, replaces=True)
    first.commit("narrow", 2)
    first.commit("wide", WIDE)
    assert ids(cloud) == [1]

    again = sync(cloud, generation=2, replaces=True)
    again.commit("more", 3)
    again.publish()

    assert ids(cloud) == [2, 3, WIDE]


def test_a_table_whose_rows_are_all_of_the_generation_is_not_replaced_again(cloud: Cloud) -> None:
    """The protocol's truncate refresh that was interrupted and then resumed in the same generation."""
    done = sync(cloud, generation=2, replaces=True)
    done.commit("done", 1)
    done.publish()

    resumed = sync(cloud, generation=2, replaces=True)
    resumed.commit("more", 2)
    resumed.publish()

    assert ids(cloud) == [1, 2]


def test_an_overwrite_without_ids_leaves_no_generation_that_a_refresh_could_take_for_its_own(cloud: Cloud) -> None:
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


def test_adopted_rows_count_among_the_generations_of_the_table(cloud: Cloud) -> None:
    sync(cloud, generation=2, replaces=True).commit("acknowledged", 1)
    sync(cloud, generation=3).publish()

    assert entry(cloud)["Parameters"]["airbyte.lowest-generation-id"] == "2"
    resumed = sync(cloud, generation=2, replaces=True)
    resumed.publish()
    assert ids(cloud) == [1]
    assert f"s3://{BUCKET}/" in entry(cloud)["StorageDescriptor"]["Location"]
