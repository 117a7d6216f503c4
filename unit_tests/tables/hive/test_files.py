"""Files of Hive tables: when readers see them, and what is left of those that nothing needs."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from destination_datalake.files.plan import FileFormat
from destination_datalake.tables.table import Committed, Reencode
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.tables.orders import (
    NAME,
    ROOT,
    WIDE,
    another_client,
    before,
    entry,
    ids,
    meanwhile,
    no_rewrite,
    parquet_of,
    put,
    rewrite,
    sync,
    update,
    visible,
)


def test_files_are_seen_once_they_are_committed(cloud: Cloud) -> None:
    opened = sync(cloud)
    files = [opened.encode("a", 1), opened.encode("b", 2)]
    assert visible(cloud) == []

    assert opened.table.commit(files, no_rewrite) == Committed()
    opened.publish(no_rewrite)

    assert visible(cloud) == ["a", "b"]
    assert cloud.unfinished_uploads() == []


def test_files_that_will_not_be_committed_leave_nothing(cloud: Cloud) -> None:
    opened = sync(cloud)

    opened.table.discard([opened.encode("a", 1)])

    assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])


@pytest.mark.parametrize("position", [0, 1, 2])
def test_when_one_file_cannot_be_committed_none_is(cloud: Cloud, position: int) -> None:
    opened = sync(cloud)
    files, lost = [opened.encode("a", 1), opened.encode("b", 2)], opened.encode("lost", 3)
    upload = lost.pending_upload
    assert upload is not None
    broken = replace(lost, pending_upload=replace(upload, bucket="nobody-s-bucket"))

    with pytest.raises(ClientError):
        opened.table.commit([*files[:position], broken, *files[position:]], no_rewrite)

    assert visible(cloud) == []
    assert cloud.unfinished_uploads() == [upload.key]


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_columns_become_wider_from_batch_to_batch(cloud: Cloud, format: FileFormat) -> None:
    opened = sync(cloud, format=format)

    for number, id in enumerate([1, WIDE, 2, WIDE + 1]):
        opened.commit(f"batch-{number}", id)
    opened.publish()

    assert ids(cloud) == [1, 2, WIDE, WIDE + 1]
    if format == "jsonl":
        assert len(visible(cloud)) == 4


# --- Tables that were there before


def drop(cloud: Cloud) -> None:
    cloud.access.client("glue").delete_table(DatabaseName=NAME.database, Name=NAME.table)


def test_a_table_that_was_dropped_and_comes_again_is_empty(cloud: Cloud) -> None:
    for number in range(3):
        opened = sync(cloud)
        assert ids(cloud) == []
        opened.commit(f"file-{number}", number)
        assert ids(cloud) == [number]
        drop(cloud)


@pytest.mark.parametrize("key", ["data/part-0.parquet", "part-0.parquet", "metadata/part-0.parquet"])
def test_a_new_table_does_not_show_what_lies_in_its_folder(cloud: Cloud, key: str) -> None:
    """An Iceberg table may have been there, or another writer's files."""
    put(cloud, f"shop/orders/{key}", parquet_of(1))

    sync(cloud)

    assert ids(cloud) == []


def test_a_late_commit_to_a_dropped_table_is_not_seen_in_the_one_that_came_after(cloud: Cloud) -> None:
    late = sync(cloud)
    planned = late.encode("late", 1)
    drop(cloud)
    sync(cloud)

    assert isinstance(late.table.commit([planned], rewrite), Reencode)

    assert ids(cloud) == []


# --- Clearing up


def folders(cloud: Cloud) -> set[str]:
    """The folders in which the table's files lie, whoever sees them."""
    return {f"s3://{BUCKET}/{key.rpartition('/')[0]}" for key in cloud.objects()}


def location(cloud: Cloud) -> str:
    found: str = entry(cloud)["StorageDescriptor"]["Location"]
    return found.removesuffix("/")


def test_the_folder_that_a_table_has_left_is_there_for_its_readers_until_the_next_sync_is_through(
    cloud: Cloud,
) -> None:
    widening = sync(cloud)
    widening.commit("narrow", 1)
    left = location(cloud)
    widening.commit("wide", WIDE)
    widening.publish()
    assert folders(cloud) == {left, location(cloud)}

    sync(cloud).publish()

    assert folders(cloud) == {location(cloud)}
    assert "airbyte.other-locations" not in entry(cloud)["Parameters"]


def test_what_a_sync_left_that_died_while_it_wrote_files_anew_is_cleared_away(cloud: Cloud) -> None:
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


def test_an_unfinished_replacement_that_is_worth_nothing_any_more_is_cleared_away(cloud: Cloud) -> None:
    sync(cloud, generation=1, replaces=True).commit("never published", 1)

    newer = sync(cloud, generation=2, replaces=True)
    newer.commit("new", 2)
    newer.publish()

    assert ids(cloud) == [2]
    assert folders(cloud) == {location(cloud)}


def test_a_sync_that_widens_again_and_again_does_not_keep_every_copy(cloud: Cloud) -> None:
    """That of the beginning and the last one are kept for readers."""
    began = sync(cloud)
    began.commit("narrow", 1)
    began_in = location(cloud)
    widening = sync(cloud)
    left = []
    for number in range(4):
        left.append(location(cloud))
        # As a sync with five columns, which become wider one after the other: here the one is made narrow again.
        widening.commit(f"wide-{number}", WIDE + number)
        narrow_again(cloud)

    assert folders(cloud) == {began_in, left[-1], location(cloud)}


def narrow_again(cloud: Cloud) -> None:
    """Let the table hold a narrow column, as one that another stream writes next."""
    storage = entry(cloud)["StorageDescriptor"]
    (id,) = [column for column in storage["Columns"] if column["Name"] == "id"]
    id["Type"] = "int"
    update(cloud, StorageDescriptor=storage)


def test_nothing_is_deleted_that_only_looks_like_the_table_s(cloud: Cloud) -> None:
    others = ["data/theirs", "generation-7-theirs/file", "generation-1-0123456789ab/file"]
    for name in others:
        put(cloud, f"shop/orders/{name}", b"theirs")

    for generation in (1, 2, 3):
        replacing = sync(cloud, generation=generation, replaces=True)
        replacing.commit(f"new-{generation}", generation)
        replacing.publish()

    assert {f"shop/orders/{name}" for name in others} <= cloud.objects().keys()
    assert ids(cloud) == [3]


def forbid(service: str, operation: str) -> Any:
    """Clients that may not do something."""
    access = another_client()

    def refuse(_times: int) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}, operation)

    before(access, service, operation, refuse)
    return access


def test_files_that_cannot_be_cleared_away_after_a_publication_are_warned_of_and_nothing_more(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    sync(cloud, generation=1, replaces=True).commit("old", 1)
    replacing = sync(cloud, generation=2, replaces=True, access=forbid("s3", "DeleteObject"))
    replacing.commit("new", 2)

    with caplog.at_level(logging.WARNING):
        replacing.publish()

    assert ids(cloud) == [2]
    (said,) = caplog.messages
    assert said.startswith("Cannot remove old files of table shop.orders (S3, DeleteObject): ")
    assert f"The next one tries again: {ROOT}/generation-1-" in said

    sync(cloud, generation=2).publish()
    assert folders(cloud) == {location(cloud)}


def test_a_widening_that_cannot_read_the_old_files_fails_the_batch_and_leaves_no_file_of_it(cloud: Cloud) -> None:
    opened = sync(cloud)
    opened.commit("narrow", 1)

    with pytest.raises(RuntimeError):
        opened.table.commit([opened.encode("wide", WIDE)], meanwhile(_fail))

    assert ids(cloud) == [1]
    assert cloud.unfinished_uploads() == []


def _fail() -> None:
    raise RuntimeError("the executors are gone")
