"""Hive tables: preparation of the Glue table, and commits that show all of their files or none."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from destination_datalake.files.plan import FileFormat
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.names import SNAKE_CASE
from destination_datalake.schema.types import Field, Int64, List, NumericTypes, String, Struct, Timestamp
from destination_datalake.tables.fencing import Fenced
from destination_datalake.tables.naming import TableOwner
from destination_datalake.tables.table import Committed, Reencode
from unit_tests.cloud import BUCKET, Cloud, another_client, before, during
from unit_tests.tables.hive.orders import (
    PARQUET,
    ROOT,
    WIDE,
    columns,
    create_foreign_table,
    descriptor,
    glue_table,
    ids,
    no_rewrite,
    parquet_of,
    put,
    rewrite,
    sync,
    update_glue_table,
    visible_files,
)

pytestmark = pytest.mark.share(9)

META = "struct<sync_id:bigint,changes:array<struct<field:string,change:string,reason:string>>>"
COLUMNS = (
    Field("id", "id", Int64()),
    Field("lines", "lines", List(Struct((Field("sku", "sku", String()), Field("unit_price", "unitPrice", Int64()))))),
    Field("placed_at", "placedAt", String()),
)


def without_what_changes(entry: Any) -> Any:
    for key in ("UpdateTime", "VersionId"):
        entry.pop(key, None)
    return entry


@pytest.mark.parametrize(
    ("format", "serde", "input_format"),
    [
        ("parquet", PARQUET, "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"),
        ("jsonl", "org.openx.data.jsonserde.JsonSerDe", "org.apache.hadoop.mapred.TextInputFormat"),
    ],
)
def test_new_table_has_metadata_columns_then_the_streams(
    cloud: Cloud, format: FileFormat, serde: str, input_format: str
) -> None:
    sync(cloud, format=format, columns=COLUMNS)

    made = glue_table(cloud)
    assert columns(cloud)[4:] == [
        ("id", "bigint", None),
        ("lines", "array<struct<sku:string,unit_price:bigint>>", None),
        ("placed_at", "string", "placedAt"),
    ]
    assert [name for name, _, _ in columns(cloud)[:4]] == [
        "_airbyte_raw_id",
        "_airbyte_extracted_at",
        "_airbyte_meta",
        "_airbyte_generation_id",
    ]
    assert made["StorageDescriptor"]["SerdeInfo"]["SerializationLibrary"] == serde
    assert made["StorageDescriptor"]["InputFormat"] == input_format
    assert made["StorageDescriptor"]["Location"].startswith(f"{ROOT}/generation-0-")
    assert made["TableType"] == "EXTERNAL_TABLE"
    assert TableOwner.load(made["Parameters"]) == TableOwner(StreamId("shop", "Orders"), SNAKE_CASE)


def test_field_keeps_its_column_when_another_field_gets_the_same_name(cloud: Cloud) -> None:
    for fields in (["aB"], ["aB", "a_b"]):
        named = stream_columns({"properties": dict.fromkeys(fields)}, NumericTypes.INT_FLOAT)
        opened = sync(cloud, columns=named)

    assert columns(cloud)[4:] == [("a_b", "string", "aB"), ("a_b_648fa9b3", "string", "a_b")]
    assert [(column.source, column.name) for column in opened.table.plan().columns] == [
        ("aB", "a_b"),
        ("a_b", "a_b_648fa9b3"),
    ]


def test_table_of_another_writer_gets_missing_columns_and_keeps_everything_else(cloud: Cloud) -> None:
    create_foreign_table(cloud)
    before = glue_table(cloud)

    line = {"properties": {"sku": {"type": "string"}, "unit_price": {"type": "integer"}}, "additionalProperties": False}
    lines = {"type": "array", "items": {"type": "object", **line}}
    schema = {"properties": {"id": {"type": "integer"}, "lines": lines, "placedAt": {"type": "string"}}}

    opened = sync(cloud, columns=COLUMNS, schema=schema)
    sync(cloud, columns=COLUMNS, schema=schema)

    assert columns(cloud) == [
        ("theirs", "map<string,int>", "Not ours."),
        ("lines", "array<struct<sku:string,weight:double,unit_price:int>>", "What was ordered."),
        ("_airbyte_raw_id", "string", None),
        ("_airbyte_extracted_at", "timestamp", None),
        ("_airbyte_meta", META, None),
        ("_airbyte_generation_id", "bigint", None),
        ("id", "int", None),
        ("placed_at", "string", "placedAt"),
    ]
    after = glue_table(cloud)
    for name in ("airbyte.fencing-token", "airbyte.field-names"):
        del after["Parameters"][name]
    for entry in map(without_what_changes, (before, after)):
        del entry["StorageDescriptor"]["Columns"]
    assert after == before
    assert opened.folder == f"s3://{BUCKET}/elsewhere"


def test_preparation_updates_the_glue_table_once(cloud: Cloud) -> None:
    create_foreign_table(cloud)
    versions = [glue_table(cloud)["VersionId"]]

    for generation, overwrite in [(1, False), (1, False), (2, True), (2, True), (3, False), (3, False)]:
        sync(cloud, generation=generation, overwrite=overwrite)
        versions.append(glue_table(cloud)["VersionId"])

    # Each sync takes the table over from the one before it.
    assert versions == ["1", "2", "3", "4", "5", "6", "7"]


@pytest.mark.parametrize(
    "location", ["s3://lake/a/b", "s3a://lake/a/b", "s3n://lake/a/b/", "s3://lake/a b+c=%20?#/京都/"]
)
def test_location_is_written_to_however_it_is_spelled(cloud: Cloud, location: str) -> None:
    create_foreign_table(cloud, StorageDescriptor=descriptor(Location=location))

    assert sync(cloud).commit("one", 1) == 1

    assert visible_files(cloud) == ["one"]
    assert glue_table(cloud)["StorageDescriptor"]["Location"] == location


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_redirected_column_is_reused_by_every_later_sync(cloud: Cloud, format: FileFormat) -> None:
    """Also timestamps without a zone, which Glue's type does not tell from those in UTC."""
    sync(cloud, format=format, columns=(Field("x", "x", String()),))
    for _ in range(3):
        opened = sync(cloud, format=format, columns=(Field("x", "x", Timestamp(zoned=False)),))

    assert columns(cloud)[4:] == [("x", "string", None), ("x__timestamp", "timestamp", "x")]
    assert opened.table.plan().columns == (Field("x__timestamp", "x", Timestamp(zoned=False)),)


def test_database_is_ensured_only_for_a_new_table(cloud: Cloud) -> None:
    access, asked = another_client(), list[int]()
    before(access, "glue", "GetDatabase", asked.append)

    sync(cloud, access=access)
    sync(cloud, access=access)

    assert asked == [1]


@pytest.mark.parametrize("key", ["data/part-0.parquet", "part-0.parquet", "metadata/part-0.parquet"])
def test_new_table_shows_no_files_that_lie_in_its_folder_already(cloud: Cloud, key: str) -> None:
    """They may be of a dropped Iceberg table, or of another writer."""
    put(cloud, f"shop/orders/{key}", parquet_of(1))

    sync(cloud)

    assert ids(cloud) == []


def test_files_that_wait_in_s3_and_on_the_disk_are_committed_together(cloud: Cloud, tmp_path: Path) -> None:
    opened = sync(cloud)
    files = [opened.encode("a", 1), opened.encode("b", 2, spool_folder=str(tmp_path))]
    assert visible_files(cloud) == []

    assert opened.table.commit(files, no_rewrite) == Committed()

    assert (ids(cloud), cloud.unfinished_uploads(), [*tmp_path.iterdir()]) == ([1, 2], [], [])


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_no_file_is_visible_if_one_cannot_be_committed(
    cloud: Cloud, tmp_path: Path, position: int, on_disk: bool
) -> None:
    opened = sync(cloud)
    spool_folder = str(tmp_path) if on_disk else None
    files = [opened.encode(name, id, spool_folder=spool_folder) for name, id in (("a", 1), ("b", 2))]
    lost = opened.encode("lost", 3)
    upload = lost.pending_upload
    assert upload is not None
    broken = replace(lost, pending_upload=replace(upload, bucket="nobody-s-bucket"))

    with pytest.raises(ClientError):
        opened.table.commit([*files[:position], broken, *files[position:]], no_rewrite)

    assert visible_files(cloud) == []
    assert cloud.unfinished_uploads() == [upload.key]


def test_batch_planned_for_a_folder_that_the_table_has_left_is_encoded_again(cloud: Cloud) -> None:
    first = sync(cloud)
    first.commit("first-1", 1)
    planned = first.encode("first-2", 2)
    first.commit("second", WIDE)

    assert first.table.commit([planned], rewrite) == Reencode(
        "the table's files were moved to another folder after the batch was encoded"
    )
    first.commit("first-2", 2)

    assert ids(cloud) == [1, 2, WIDE]
    assert cloud.unfinished_uploads() == []


@pytest.mark.parametrize(
    ("service", "operation", "time"), [("glue", "UpdateTable", 1), ("s3", "CompleteMultipartUpload", 2)]
)
def test_commit_that_is_taken_over_by_a_widening_leaves_no_copies_of_its_files(
    cloud: Cloud, service: str, operation: str, time: int
) -> None:
    """The table moves after all uploads are completed, or some."""
    access = another_client()
    appending = sync(cloud, access=access)
    appending.commit("before", 1)

    def widen(times: int) -> None:
        if times == time:
            wait_until_visible(cloud, "part-0", "part-1")
            sync(cloud).commit("wide", WIDE)

    files = [appending.encode(f"part-{n}", 10 + n) for n in range(2)]
    before(access, service, operation, widen)
    with pytest.raises(Fenced):
        appending.table.commit(files, rewrite)

    assert ids(cloud) == [1, WIDE]


def wait_until_visible(cloud: Cloud, *names: str) -> None:
    for _ in range(500):
        if any(name in file for file in visible_files(cloud) for name in names):
            return
        time.sleep(0.01)
    raise AssertionError(f"{names} are not there")


def test_column_dropped_by_another_writer_is_added_by_the_next_commit(cloud: Cloud) -> None:
    syncing = sync(cloud)
    syncing.commit("one", 1)
    storage = glue_table(cloud)["StorageDescriptor"]
    storage["Columns"] = [column for column in storage["Columns"] if column["Name"] != "id"]
    update_glue_table(cloud, StorageDescriptor=storage)

    syncing.commit("two", 2)

    assert ids(cloud) == [1, 2]


def test_publication_whose_responses_are_all_lost_is_not_taken_for_a_fenced_one(cloud: Cloud) -> None:
    """Also if the next sync has begun since, with the token that the publication released."""
    for act in (lambda: None, lambda: sync(cloud, generation=1)):
        access = another_client()
        appending = sync(cloud, generation=1, access=access)
        appending.commit("one", 1)

        def lose(**_: object) -> None:
            act()  # noqa: B023
            raise ConnectionClosedError(endpoint_url="glue")

        with during(access, "after-call.glue.UpdateTable", lose), pytest.raises(ConnectionClosedError):
            appending.table.publish(rewrite)


def test_publication_that_is_taken_over_before_its_request_is_lost_is_fenced(cloud: Cloud) -> None:
    access = another_client()
    appending = sync(cloud, generation=1, access=access)
    appending.commit("one", 1)

    def take_over(_times: int) -> None:
        sync(cloud, generation=1)
        raise ConnectionClosedError(endpoint_url="glue")

    before(access, "glue", "UpdateTable", take_over)
    with pytest.raises(Fenced):
        appending.table.publish(rewrite)


def test_failed_commit_raises_its_cause_even_if_rolling_back_fails_too(cloud: Cloud) -> None:
    overwriting = sync(cloud, generation=2, overwrite=True)
    planned = overwriting.encode("late", 1)
    sync(cloud, generation=2)

    with cloud.refusing("DeleteObject"), pytest.raises(Fenced):
        overwriting.table.commit([planned], rewrite)

    assert cloud.unfinished_uploads() == []
