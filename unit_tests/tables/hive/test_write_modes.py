"""Append and overwrite: what readers see when, and who continues, discards or fences an unpublished overwrite."""

from __future__ import annotations

import pytest

from destination_datalake.tables.fencing import Fenced
from unit_tests.cloud import BUCKET, Cloud, another_client, before
from unit_tests.tables.hive.orders import (
    WIDE,
    Sync,
    create_foreign_table,
    descriptor,
    glue_table,
    ids,
    parquet_of,
    put,
    rewrite,
    set_id_type,
    sync,
    visible_files,
)


def test_files_that_an_overwrite_has_replaced_are_kept_for_readers_until_the_next_one(cloud: Cloud) -> None:
    for generation, name in ((1, "old"), (2, "new")):
        overwriting = sync(cloud, generation=generation, overwrite=True)
        overwriting.commit(name, generation)
        overwriting.publish()

    assert visible_files(cloud) == ["new"]
    assert any(key.endswith("/old") for key in cloud.objects())
    sync(cloud, generation=3, overwrite=True).publish()
    assert visible_files(cloud) == []
    assert not any(key.endswith("/old") for key in cloud.objects())


def test_overwrite_of_another_writers_table_changes_only_its_location(cloud: Cloud) -> None:
    create_foreign_table(cloud, StorageDescriptor=descriptor())
    sync(cloud).publish()
    before = glue_table(cloud)

    new = sync(cloud, overwrite=True)
    new.commit("new", 1)
    new.publish()

    after = glue_table(cloud)
    assert after["StorageDescriptor"].pop("Location") != before["StorageDescriptor"].pop("Location")
    assert after["Parameters"].pop("airbyte.last-commit")
    assert after["Parameters"].pop("airbyte.published-by")
    for entry in (before, after):
        for changing in ("UpdateTime", "VersionId"):
            entry.pop(changing, None)
    assert after == before


def test_overwrite_of_a_table_around_our_folder_is_not_visible_before_it_is_published(cloud: Cloud) -> None:
    """Readers would see the files of a folder inside the table's location."""
    create_foreign_table(cloud, StorageDescriptor=descriptor(Location=f"s3://{BUCKET}/shop"))
    put(cloud, "shop/theirs.parquet", parquet_of(1))

    overwriting = sync(cloud, overwrite=True)
    overwriting.commit("new", 2)

    assert ids(cloud) == [1]
    overwriting.publish()
    assert ids(cloud) == [2]


def test_overwrite_fenced_during_a_commit_leaves_no_unacknowledged_files(cloud: Cloud) -> None:
    access = another_client()
    overwriting = sync(cloud, generation=2, overwrite=True, access=access)
    overwriting.commit("acknowledged", 1)
    taken: list[Sync] = []

    def take_over(times: int) -> None:
        if times == 1:
            taken.append(sync(cloud, generation=2, overwrite=True))
            taken[0].commit("wide", WIDE)

    before(access, "glue", "UpdateTable", take_over)
    with pytest.raises(Fenced):
        overwriting.table.commit([overwriting.encode("late", 3)], rewrite)
    taken[0].publish()

    assert ids(cloud) == [1, WIDE]


def test_published_overwrite_keeps_its_narrow_columns_although_another_engine_made_the_table_wider(
    cloud: Cloud,
) -> None:
    overwriting = sync(cloud, generation=2, overwrite=True)
    overwriting.commit("new", 1)
    set_id_type(cloud, "bigint")

    overwriting.publish()

    assert ids(cloud) == [1]
