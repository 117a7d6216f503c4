"""Hive tables as the catalog keeps them: what is ours to change, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.files.plan import FileFormat
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.names import SNAKE_CASE
from destination_datalake.schema.types import Field, Int64, List, NumericTypes, String, Struct, Timestamp
from destination_datalake.tables.ownership import TableOwner
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.tables.orders import (
    PARQUET,
    ROOT,
    another_client,
    before,
    columns,
    create,
    entry,
    sync,
    theirs,
    visible,
)

META = "struct<sync_id:bigint,changes:array<struct<field:string,change:string,reason:string>>>"
COLUMNS = (
    Field("id", "id", Int64()),
    Field("lines", "lines", List(Struct((Field("sku", "sku", String()), Field("unit_price", "unitPrice", Int64()))))),
    Field("placed_at", "placedAt", String()),
)


def without_what_changes(found: Any) -> Any:
    for each in ("UpdateTime", "VersionId"):
        found.pop(each, None)
    return found


@pytest.mark.parametrize(
    ("format", "serde", "input_format"),
    [
        ("parquet", PARQUET, "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"),
        ("jsonl", "org.openx.data.jsonserde.JsonSerDe", "org.apache.hadoop.mapred.TextInputFormat"),
    ],
)
def test_a_new_table_has_the_metadata_columns_then_the_stream_s_and_is_read_as_what_it_is(
    cloud: Cloud, format: FileFormat, serde: str, input_format: str
) -> None:
    sync(cloud, format=format, columns=COLUMNS)

    made = entry(cloud)
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
    assert TableOwner.of(made["Parameters"]) == TableOwner(StreamId("shop", "Orders"), SNAKE_CASE)


def test_a_field_keeps_its_column_when_another_comes_whose_name_is_the_same(cloud: Cloud) -> None:
    for fields in (["aB"], ["aB", "a_b"]):
        named = stream_columns({"properties": dict.fromkeys(fields)}, NumericTypes.INT_FLOAT)
        opened = sync(cloud, columns=named)

    assert columns(cloud)[4:] == [("a_b", "string", "aB"), ("a_b_648fa9b3", "string", "a_b")]
    assert [(column.source, column.name) for column in opened.table.plan().columns] == [
        ("aB", "a_b"),
        ("a_b", "a_b_648fa9b3"),
    ]


def test_a_table_of_somebody_else_s_gets_what_is_missing_and_keeps_the_rest(cloud: Cloud) -> None:
    create(cloud)
    before = entry(cloud)

    opened = sync(cloud, columns=COLUMNS)
    sync(cloud, columns=COLUMNS)

    assert columns(cloud) == [
        ("theirs", "map<string,int>", "Not ours."),
        ("lines", "array<struct<sku:string,weight:double,unit_price:bigint>>", "What was ordered."),
        ("_airbyte_raw_id", "string", None),
        ("_airbyte_extracted_at", "timestamp", None),
        ("_airbyte_meta", META, None),
        ("_airbyte_generation_id", "bigint", None),
        ("id", "bigint", None),
        ("placed_at", "string", "placedAt"),
    ]
    after = entry(cloud)
    for each in map(without_what_changes, (before, after)):
        del each["StorageDescriptor"]["Columns"]
    assert after == before
    assert opened.folder == f"s3://{BUCKET}/elsewhere"


def test_preparing_a_table_changes_its_entry_once_and_only_if_it_must(cloud: Cloud) -> None:
    create(cloud)
    versions = [entry(cloud)["VersionId"]]

    for generation, replaces in [(1, False), (1, False), (2, True), (2, True), (3, False), (3, False)]:
        sync(cloud, generation=generation, replaces=replaces)
        versions.append(entry(cloud)["VersionId"])

    # Columns are added and the generation noted; then each sync takes the replacement over from the one before it.
    assert versions == ["1", "2", "2", "3", "4", "5", "6"]


def test_rows_of_others_have_no_generation_that_a_refresh_could_take_for_its_own(cloud: Cloud) -> None:
    create(cloud)
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key="elsewhere/theirs", Body=b"")
    sync(cloud, generation=5)

    sync(cloud, generation=5, replaces=True).publish()

    assert visible(cloud) == []


@pytest.mark.parametrize(
    "location", ["s3://lake/a/b", "s3a://lake/a/b", "s3n://lake/a/b/", "s3://lake/a b+c=%20?#/京都/"]
)
def test_a_location_is_written_to_however_others_spell_it(cloud: Cloud, location: str) -> None:
    create(cloud, StorageDescriptor=theirs(Location=location))

    assert sync(cloud).commit("one", 1) == 1

    assert visible(cloud) == ["one"]
    assert entry(cloud)["StorageDescriptor"]["Location"] == location


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_columns_beside_a_conflict_take_the_values_of_every_later_sync(cloud: Cloud, format: FileFormat) -> None:
    """Wall clocks, too, of which the catalog cannot tell that they are none in UTC."""
    sync(cloud, format=format, columns=(Field("x", "x", String()),))
    for _ in range(3):
        opened = sync(cloud, format=format, columns=(Field("x", "x", Timestamp(zoned=False)),))

    assert columns(cloud)[4:] == [("x", "string", None), ("x__timestamp", "timestamp", "x")]
    assert opened.table.plan().columns == (Field("x__timestamp", "x", Timestamp(zoned=False)),)


def test_a_sync_asks_for_the_database_only_of_a_table_that_is_not_there(cloud: Cloud) -> None:
    access, asked = another_client(), list[int]()
    before(access, "glue", "GetDatabase", asked.append)

    sync(cloud, access=access)
    sync(cloud, access=access)

    assert asked == [1]


def test_a_sync_that_leaves_no_folder_asks_for_the_entry_once_at_its_end(cloud: Cloud) -> None:
    """To publish, which also says that there is nothing to sweep."""
    access, asked = another_client(), list[int]()
    syncing = sync(cloud, access=access)
    before(access, "glue", "GetTable", asked.append)

    syncing.publish()

    assert asked == [1]
