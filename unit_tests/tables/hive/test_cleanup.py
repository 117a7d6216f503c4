"""Deletion of folders that a Hive table has left, and of no others."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from botocore.exceptions import ClientError

from destination_datalake.tables.table import TableConflict, TableName
from unit_tests.cloud import BUCKET, Cloud, another_client, before
from unit_tests.tables.hive.orders import (
    ROOT,
    WIDE,
    create_foreign_table_with_files,
    during_rewrite,
    glue_table,
    ids,
    parquet_of,
    put,
    rewrite,
    set_id_type,
    sync,
    update_glue_table,
)

pytestmark = pytest.mark.share(3)

COPY = TableName("shop", "orders_copy")


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


# Parameters that other programs have changed or copied


def copy_glue_entry(cloud: Cloud, name: str) -> None:
    """Copy the table's entry with its parameters, a usual way to rename a Hive table."""
    keys = ("Parameters", "StorageDescriptor", "PartitionKeys", "TableType")
    entry: Any = {key: value for key, value in glue_table(cloud).items() if key in keys} | {"Name": name}
    cloud.access.client("glue").create_table(DatabaseName="shop", TableInput=entry)


def set_parameters(cloud: Cloud, **parameters: str) -> None:
    changed = {f"airbyte.{name.replace('_', '-')}": value for name, value in parameters.items()}
    update_glue_table(cloud, Parameters=glue_table(cloud)["Parameters"] | changed)


def test_copy_of_a_table_that_is_being_widened_deletes_no_file_of_the_original(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    widening = sync(cloud)
    widening.commit("narrow", 1)
    widening.commit("wide", WIDE, rewrite=during_rewrite(lambda: copy_glue_entry(cloud, "orders_copy")))
    widening.publish()

    with caplog.at_level(logging.WARNING):
        sync(cloud, name=COPY).publish()

    assert ids(cloud) == [1, WIDE]
    (message,) = caplog.messages
    assert message.endswith("table shop.orders uses it. If no table needs the folder, delete it.")
    assert "airbyte.other-locations" not in glue_table(cloud, "orders_copy")["Parameters"]


def test_former_folder_that_a_copy_of_the_table_reads_is_kept(cloud: Cloud) -> None:
    first = sync(cloud, generation=1, overwrite=True)
    first.commit("old", 1)
    first.publish()
    former = location(cloud)
    copy_glue_entry(cloud, "orders_copy")

    second = sync(cloud, generation=2, overwrite=True)
    second.commit("new", 2)
    second.publish()
    sync(cloud, generation=2).publish()
    assert former in folders(cloud)

    renamed = sync(cloud, generation=3, overwrite=True, name=COPY)
    renamed.commit("newer", 3)
    renamed.publish()
    sync(cloud, generation=3, name=COPY).publish()
    assert former not in folders(cloud), "the copy deletes the folder when it no longer reads it"
    assert ids(cloud) == [2]


def test_former_folders_are_kept_while_the_other_tables_cannot_be_listed(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    access = another_client()
    for generation in (1, 2):
        overwriting = sync(cloud, generation=generation, overwrite=True)
        overwriting.commit(f"rows-{generation}", generation)
        overwriting.publish()

    def deny(_: int) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not authorized"}}, "GetTables")

    before(access, "glue", "GetTables", deny)
    with caplog.at_level(logging.WARNING):
        sync(cloud, generation=2, access=access).publish()

    assert len(folders(cloud)) == 2
    (message,) = caplog.messages
    assert "Glue, GetTables" in message
    assert "The next sync deletes these folders" in message
    sync(cloud, generation=2).publish()
    assert folders(cloud) == {location(cloud)}


def test_renamed_table_deletes_its_former_folders(cloud: Cloud) -> None:
    widening = sync(cloud)
    widening.commit("narrow", 1)
    widening.commit("wide", WIDE)
    widening.publish()
    copy_glue_entry(cloud, "orders_copy")
    cloud.access.client("glue").delete_table(DatabaseName="shop", Name="orders")

    sync(cloud, name=COPY).publish()

    assert folders(cloud) == {glue_table(cloud, "orders_copy")["StorageDescriptor"]["Location"].removesuffix("/")}


def test_copy_in_another_database_deletes_no_file_of_the_original(cloud: Cloud) -> None:
    widening = sync(cloud)
    widening.commit("narrow", 1)
    glue: Any = cloud.access.client("glue")
    glue.create_database(DatabaseInput={"Name": "mart"})

    def copy_entry() -> None:
        copy_glue_entry(cloud, "orders_copy")
        entry = glue_table(cloud, "orders_copy")
        keys = ("Parameters", "StorageDescriptor", "TableType")
        glue.create_table(DatabaseName="mart", TableInput={key: entry[key] for key in keys} | {"Name": "orders"})
        glue.delete_table(DatabaseName="shop", Name="orders_copy")

    widening.commit("wide", WIDE, rewrite=during_rewrite(copy_entry))
    widening.publish()

    sync(cloud, name=TableName("mart", "orders")).publish()

    assert ids(cloud) == [1, WIDE]


@pytest.mark.parametrize(
    "folder",
    [
        f"s3://{BUCKET}/shop/customers/generation-1-0123456789ab",
        f"s3://{BUCKET}/generation-1-0123456789ab",
        "s3://payroll/shop/orders/generation-1-0123456789ab",
        f"{ROOT}/archive",
    ],
)
def test_folder_outside_the_folders_of_the_table_is_unlisted_with_a_warning(
    cloud: Cloud, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    sync(cloud).publish()
    cloud.access.client("s3").create_bucket(Bucket="payroll")
    bucket, _, key = folder.removeprefix("s3://").partition("/")
    cloud.access.client("s3").put_object(Bucket=bucket, Key=f"{key}/part-0", Body=b"theirs")
    set_parameters(cloud, other_locations=json.dumps({folder: "dead"}))

    with caplog.at_level(logging.WARNING):
        sync(cloud).publish()

    assert cloud.access.client("s3").get_object(Bucket=bucket, Key=f"{key}/part-0")["Body"].read() == b"theirs"
    assert "airbyte.other-locations" not in glue_table(cloud)["Parameters"]
    (message,) = caplog.messages
    assert message.startswith(f"Folder {folder} was not deleted")


@pytest.mark.parametrize("overwrite", [False, True])
def test_pending_overwrite_outside_the_folders_of_the_table_is_refused(cloud: Cloud, overwrite: bool) -> None:
    sync(cloud, generation=1).publish()
    folder = f"s3://{BUCKET}/shop/salaries/generation-2-0123456789ab"
    put(cloud, "shop/salaries/generation-2-0123456789ab/part-0.parquet", parquet_of(7))
    set_parameters(cloud, unpublished_location=folder, unpublished_generation_id="2")

    with pytest.raises(TableConflict, match=r"airbyte\.unpublished-location names the folder .*remove it"):
        sync(cloud, generation=2, overwrite=overwrite)

    assert ids(cloud) == []
    assert "airbyte.fencing-token" not in glue_table(cloud)["Parameters"]


def test_pending_overwrite_of_the_original_is_not_continued_by_its_copy(cloud: Cloud) -> None:
    pending = sync(cloud, generation=2, overwrite=True)
    pending.commit("pending", 1)
    copy_glue_entry(cloud, "orders_copy")

    with pytest.raises(TableConflict, match=r"but table shop\.orders uses it"):
        sync(cloud, generation=2, overwrite=True, name=COPY)

    pending.publish()
    assert ids(cloud) == [1]
