"""Deletion of folders that a Hive table has left, and of no others."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from unit_tests.cloud import BUCKET, Cloud, another_client, before
from unit_tests.tables.hive.orders import (
    ROOT,
    WIDE,
    create_foreign_table_with_files,
    glue_table,
    ids,
    put,
    rewrite,
    set_id_type,
    sync,
)

pytestmark = pytest.mark.share(3)


def folders(cloud: Cloud) -> set[str]:
    """The folders that have files, whether or not readers see them."""
    return {f"s3://{BUCKET}/{key.rpartition('/')[0]}" for key in cloud.objects()}


def location(cloud: Cloud) -> str:
    uri: str = glue_table(cloud)["StorageDescriptor"]["Location"]
    return uri.removesuffix("/")


def test_folder_that_the_table_has_left_is_kept_for_readers_until_the_next_sync(cloud: Cloud) -> None:
    widening = sync(cloud)
    widening.commit("narrow", 1)
    old_folder = location(cloud)
    widening.commit("wide", WIDE)
    widening.publish()
    assert folders(cloud) == {old_folder, location(cloud)}

    sync(cloud).publish()

    assert folders(cloud) == {location(cloud)}
    assert "airbyte.other-locations" not in glue_table(cloud)["Parameters"]


def test_copy_of_a_sync_that_died_while_widening_is_deleted(cloud: Cloud) -> None:
    dying = sync(cloud)
    dying.commit("narrow", 1)

    def rewrite_and_die(tasks: Any) -> Any:
        rewrite(tasks)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dying.table.commit([dying.encode("wide", WIDE)], rewrite_and_die)
    assert len(folders(cloud)) == 2

    sync(cloud).publish()

    assert folders(cloud) == {location(cloud)}
    assert ids(cloud) == [1]


def test_discarded_pending_overwrite_is_deleted(cloud: Cloud) -> None:
    sync(cloud, generation=1, overwrite=True).commit("never published", 1)

    newer = sync(cloud, generation=2, overwrite=True)
    newer.commit("new", 2)
    newer.publish()

    assert ids(cloud) == [2]
    assert folders(cloud) == {location(cloud)}


def test_sync_that_widens_repeatedly_keeps_only_its_first_and_last_folder(cloud: Cloud) -> None:
    began = sync(cloud)
    began.commit("narrow", 1)
    began_in = location(cloud)
    widening = sync(cloud)
    old_folders = []
    for number in range(4):
        old_folders.append(location(cloud))
        widening.commit(f"wide-{number}", WIDE + number)
        set_id_type(cloud, "int")  # As if the stream had another column that becomes wider next.

    assert folders(cloud) == {began_in, old_folders[-1], location(cloud)}


def test_folders_that_the_glue_table_does_not_list_are_kept(cloud: Cloud) -> None:
    foreign_names = ["data/theirs", "generation-7-theirs/file", "generation-1-0123456789ab/file"]
    for name in foreign_names:
        put(cloud, f"shop/orders/{name}", b"theirs")

    for generation in (1, 2, 3):
        overwriting = sync(cloud, generation=generation, overwrite=True)
        overwriting.commit(f"new-{generation}", generation)
        overwriting.publish()

    assert {f"shop/orders/{name}" for name in foreign_names} <= cloud.objects().keys()
    assert ids(cloud) == [3]


def test_folder_of_another_writer_is_kept_when_the_table_has_left_it(cloud: Cloud) -> None:
    create_foreign_table_with_files(cloud)
    before = {key: body for key, body in cloud.objects().items() if key.startswith("elsewhere/")}

    for id in range(3):
        syncing = sync(cloud)
        syncing.commit(f"new-{id}", WIDE + id)
        syncing.publish()
    sync(cloud, overwrite=True).publish()
    sync(cloud).publish()

    assert before.items() <= cloud.objects().items()


def test_failed_deletion_after_publishing_is_only_a_warning(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    sync(cloud, generation=1, overwrite=True).commit("old", 1)
    overwriting = sync(cloud, generation=2, overwrite=True)
    overwriting.commit("new", 2)

    with caplog.at_level(logging.WARNING), cloud.refusing("DeleteObject"):
        overwriting.publish()

    assert ids(cloud) == [2]
    (message,) = caplog.messages
    assert message.startswith("Cannot remove old files of table shop.orders (S3, DeleteObject): ")
    assert f"The next sync deletes these folders: {ROOT}/generation-1-" in message

    sync(cloud, generation=2).publish()
    assert folders(cloud) == {location(cloud)}


def test_sync_that_left_no_folder_reads_the_glue_table_once_at_its_end(cloud: Cloud) -> None:
    """Publishing also finds out that there is nothing to delete."""
    access, asked = another_client(), list[int]()
    syncing = sync(cloud, access=access)
    before(access, "glue", "GetTable", asked.append)

    syncing.publish()

    assert asked == [1]
