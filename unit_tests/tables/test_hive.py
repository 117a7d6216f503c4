"""Hive tables as the catalog keeps them: what is ours to change, what is not, and what a replacement does when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest

from destination_datalake.aws.upload import Upload
from destination_datalake.config import SchemaConflicts
from destination_datalake.datafiles import DataFile, FileFormat, FilePlan, RewriteTask, Rewritten
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.names import SNAKE_CASE
from destination_datalake.schema.types import Field, Int64, List, NumericTypes, String, Struct
from destination_datalake.tables.base import TableConflict, TableName
from destination_datalake.tables.hive import HiveTable
from destination_datalake.tables.holding import Holding
from destination_datalake.tables.site import Site
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.cloud import cloud as an_account

NAME = TableName("shop", "orders")
ROOT = f"s3://{BUCKET}/shop/orders"
SITE = Site(ROOT, f"s3://{BUCKET}/", follow=False)
PARQUET = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
META = "struct<sync_id:bigint,changes:array<struct<field:string,change:string,reason:string>>>"
COLUMNS = (
    Field("id", "id", Int64()),
    Field("lines", "lines", List(Struct((Field("sku", "sku", String()), Field("unit_price", "unitPrice", Int64()))))),
    Field("placed_at", "placedAt", String()),
)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with an_account() as account:
        yield account


def table(
    cloud: Cloud,
    *,
    generation: int | None = None,
    replaces: bool = False,
    format: FileFormat = "parquet",
    conflicts: SchemaConflicts = "new_column",
) -> HiveTable:
    """The table as one sync meets it, prepared."""
    stream = Stream(StreamId("shop", "Orders"), {}, replaces and generation is None, generation, None, None)
    if replaces and generation is not None:
        stream = Stream(stream.id, {}, False, generation, generation, None)
    plan = FilePlan(format, "SNAPPY", COLUMNS, {}, "", False, 1, generation, None)
    holding = Holding(stream.id, SNAKE_CASE)
    opened = HiveTable(NAME, stream, COLUMNS, SITE, plan, cloud.access, holding, conflicts, uuid4().hex)
    opened.prepare()
    return opened


def entry(cloud: Cloud) -> Any:
    return cloud.access.client("glue").get_table(DatabaseName="shop", Name="orders")["Table"]


def columns(cloud: Cloud) -> list[tuple[str, str, str | None]]:
    return [(each["Name"], each["Type"], each.get("Comment")) for each in entry(cloud)["StorageDescriptor"]["Columns"]]


def create(cloud: Cloud, **changes: Any) -> None:
    """A table that somebody else made."""
    glue = cloud.access.client("glue")
    glue.create_database(DatabaseInput={"Name": "shop"})
    table_input: Any = {
        "Name": "orders",
        "Description": "Every order.",
        "Owner": "the shop",
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {"classification": "parquet", "cost-centre": "7"},
        "StorageDescriptor": {
            "Columns": [
                {"Name": "theirs", "Type": "map<string,int>", "Comment": "Not ours."},
                {"Name": "lines", "Type": "array<struct<sku:string,weight:double>>", "Comment": "What was ordered."},
            ],
            "Location": f"s3://{BUCKET}/elsewhere/",
            "SerdeInfo": {"SerializationLibrary": PARQUET, "Parameters": {"serialization.format": "1"}},
            "BucketColumns": ["theirs"],
        },
    }
    glue.create_table(DatabaseName="shop", TableInput=table_input | changes)


def no_rewrite(_tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
    raise AssertionError("nothing became wider")


def write(cloud: Cloud, into: HiveTable, name: str) -> DataFile:
    """A data file as executors leave it: there, and not to be seen."""
    plan = into.plan()
    folder = plan.folder.removeprefix(f"s3://{BUCKET}/")
    upload = Upload(cloud.access.client("s3"), BUCKET, f"{folder}/{name}", hidden=True)
    upload.write(name.encode())
    upload.close()
    return DataFile(
        uri=upload.uri,
        size=upload.written,
        rows=1,
        columns=plan.columns,
        footer=b"",
        hidden_object=upload.hidden_object,
    )


def commit(cloud: Cloud, into: HiveTable, *names: str) -> None:
    assert into.commit([write(cloud, into, name) for name in names], no_rewrite)


def visible(cloud: Cloud) -> list[str]:
    """The names of the files that a reader of the table finds."""
    location = entry(cloud)["StorageDescriptor"]["Location"].removeprefix(f"s3://{BUCKET}/")
    return sorted(key.removeprefix(location) for key in cloud.objects() if key.startswith(location))


# --- The entry in the catalog


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
    table(cloud, format=format)

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
    assert made["StorageDescriptor"]["Location"] == f"{ROOT}/data/"
    assert made["TableType"] == "EXTERNAL_TABLE"
    assert Holding.of(made["Parameters"]) == Holding(StreamId("shop", "Orders"), SNAKE_CASE)


def test_a_field_keeps_its_column_when_another_comes_whose_name_is_the_same(cloud: Cloud) -> None:
    stream = Stream(StreamId("shop", "Orders"), {}, False, None, None, None)
    for fields in (["aB"], ["aB", "a_b"]):
        named = stream_columns({"properties": dict.fromkeys(fields)}, NumericTypes.INT_FLOAT)
        plan = FilePlan("parquet", "SNAPPY", named, {}, "", False, 1, None, None)
        holding = Holding(stream.id, SNAKE_CASE)
        opened = HiveTable(NAME, stream, named, SITE, plan, cloud.access, holding, "new_column", uuid4().hex)
        opened.prepare()

    assert columns(cloud)[4:] == [("a_b", "string", "aB"), ("a_b_648fa9b3", "string", "a_b")]
    assert [(column.source, column.name) for column in opened.plan().columns] == [
        ("aB", "a_b"),
        ("a_b", "a_b_648fa9b3"),
    ]


def test_a_table_of_somebody_else_s_gets_what_is_missing_and_keeps_the_rest(cloud: Cloud) -> None:
    create(cloud)
    before = entry(cloud)

    opened = table(cloud)
    table(cloud)

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
    for each in (before, after):
        for changing in ("UpdateTime", "VersionId"):
            each.pop(changing, None)
        del each["StorageDescriptor"]["Columns"]
    assert after == before
    assert opened.plan().folder == f"s3://{BUCKET}/elsewhere"


def test_preparing_a_table_changes_its_entry_once_and_only_if_it_must(cloud: Cloud) -> None:
    create(cloud)
    versions = [entry(cloud)["VersionId"]]

    for generation, replaces in [(1, False), (1, False), (2, True), (2, True), (3, False), (3, False)]:
        table(cloud, generation=generation, replaces=replaces)
        versions.append(entry(cloud)["VersionId"])

    # Columns are added and the generation noted; a replacement is begun, and later taken in. Every other time: nothing.
    assert versions == ["1", "2", "2", "3", "3", "4", "4"]


def test_rows_of_others_have_no_generation_that_a_refresh_could_take_for_its_own(cloud: Cloud) -> None:
    create(cloud)
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key="elsewhere/theirs", Body=b"")
    table(cloud, generation=5)

    new = table(cloud, generation=5, replaces=True)
    new.publish(no_rewrite)

    assert visible(cloud) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"Parameters": {"table_type": "iceberg"}}, "it is an Iceberg table and table_type is HIVE"),
        ({"PartitionKeys": [{"Name": "day", "Type": "date"}]}, "it is partitioned"),
        (
            {"StorageDescriptor": {"SerdeInfo": {"SerializationLibrary": "org.openx.data.jsonserde.JsonSerDe"}}},
            "its files are read by org.openx.data.jsonserde.JsonSerDe, not as parquet",
        ),
        ({"StorageDescriptor": {}}, "its files are read by no SerDe, not as parquet"),
        ({"StorageDescriptor": {"SerdeInfo": {"SerializationLibrary": PARQUET}}}, "it has no location"),
        (
            {
                "StorageDescriptor": {
                    "Columns": [{"Name": "_airbyte_meta", "Type": "string"}],
                    "Location": f"s3://{BUCKET}/elsewhere/",
                    "SerdeInfo": {"SerializationLibrary": PARQUET},
                }
            },
            "its column _airbyte_meta has another type",
        ),
    ],
)
def test_a_table_that_cannot_take_the_stream_is_refused_and_left_as_it_is(
    cloud: Cloud, changes: dict[str, Any], said: str
) -> None:
    create(cloud, **changes)
    before = entry(cloud)

    with pytest.raises(TableConflict) as refused:
        table(cloud)

    assert str(refused.value).startswith("Cannot write stream shop.Orders to table shop.orders: ")
    assert said in str(refused.value)
    assert entry(cloud) == before


def test_the_partitions_of_a_table_that_is_refused_stay_as_they_are(cloud: Cloud) -> None:
    create(cloud, PartitionKeys=[{"Name": "day", "Type": "date"}])
    glue = cloud.access.client("glue")
    theirs: Any = {
        "Values": ["2024-02-29"],
        "Parameters": {"theirs": "yes"},
        "StorageDescriptor": {
            "Columns": [{"Name": "theirs", "Type": "map<string,int>", "Comment": "Not ours."}],
            "Location": f"s3://{BUCKET}/elsewhere/day=2024-02-29/",
            "SerdeInfo": {"SerializationLibrary": PARQUET, "Parameters": {"serialization.format": "1"}},
        },
    }
    glue.create_partition(DatabaseName="shop", TableName="orders", PartitionInput=theirs)
    before = glue.get_partitions(DatabaseName="shop", TableName="orders")["Partitions"]

    with pytest.raises(TableConflict):
        table(cloud)

    assert glue.get_partitions(DatabaseName="shop", TableName="orders")["Partitions"] == before


# --- Its files


def test_files_are_seen_once_they_are_committed(cloud: Cloud) -> None:
    opened = table(cloud)
    files = [write(cloud, opened, name) for name in ("a", "b")]
    assert visible(cloud) == []

    assert opened.commit(files, no_rewrite)
    opened.publish(no_rewrite)

    assert visible(cloud) == ["a", "b"]
    assert cloud.unfinished_uploads() == []


def test_files_that_will_not_be_committed_leave_nothing(cloud: Cloud) -> None:
    opened = table(cloud)

    opened.discard([write(cloud, opened, "a")])

    assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])


@pytest.mark.parametrize("position", [0, 1, 2])
def test_when_one_file_cannot_be_committed_none_is(cloud: Cloud, position: int) -> None:
    opened = table(cloud)
    files, lost = [write(cloud, opened, name) for name in ("a", "b")], write(cloud, opened, "lost")
    s3 = cloud.access.client("s3")
    upload = lost.hidden_object
    assert upload is not None
    broken = DataFile(
        uri=lost.uri,
        size=lost.size,
        rows=lost.rows,
        columns=lost.columns,
        footer=b"",
        hidden_object=type(upload)("nobody-s-bucket", upload.key, upload.upload_id, upload.etags),
    )

    with pytest.raises(s3.exceptions.ClientError):
        opened.commit([*files[:position], broken, *files[position:]], no_rewrite)

    assert visible(cloud) == []
    assert cloud.unfinished_uploads() == [upload.key]


# --- Replacing what it holds


@pytest.mark.parametrize("generations", [(None, None, None), (1, 2, 3)])
def test_a_replacement_is_seen_at_once_and_whole_when_it_is_published(
    cloud: Cloud, generations: tuple[int | None, ...]
) -> None:
    first, second, third = generations
    commit(cloud, old := table(cloud, generation=first, replaces=True), "old")
    old.publish(no_rewrite)

    new = table(cloud, generation=second, replaces=True)
    commit(cloud, new, "new-1")
    commit(cloud, new, "new-2")
    assert visible(cloud) == ["old"]
    new.publish(no_rewrite)

    assert visible(cloud) == ["new-1", "new-2"]
    # Who was reading the old files can read on; the next replacement takes them away.
    assert any(key.endswith("/old") for key in cloud.objects())
    newest = table(cloud, generation=third, replaces=True)
    newest.publish(no_rewrite)
    assert visible(cloud) == []
    assert not any(key.endswith("/old") for key in cloud.objects())


def test_replacing_the_content_of_somebody_else_s_table_changes_its_location_and_nothing_of_theirs(
    cloud: Cloud,
) -> None:
    create(cloud)
    table(cloud)
    before = entry(cloud)

    new = table(cloud, replaces=True)
    commit(cloud, new, "new")
    new.publish(no_rewrite)

    after = entry(cloud)
    assert after["StorageDescriptor"].pop("Location") != before["StorageDescriptor"].pop("Location")
    assert after["Parameters"].pop("airbyte.superseded-location") == f"s3://{BUCKET}/elsewhere"
    for each in (before, after):
        for changing in ("UpdateTime", "VersionId"):
            each.pop(changing, None)
    assert after == before


def test_an_unpublished_replacement_goes_on_when_its_generation_is_tried_again(cloud: Cloud) -> None:
    commit(cloud, old := table(cloud, generation=1, replaces=True), "old")
    old.publish(no_rewrite)
    commit(cloud, table(cloud, generation=2, replaces=True), "before the failure")

    again = table(cloud, generation=2, replaces=True)
    commit(cloud, again, "after the failure")
    assert visible(cloud) == ["old"]
    again.publish(no_rewrite)

    assert visible(cloud) == ["after the failure", "before the failure"]


def test_an_unpublished_replacement_is_worth_nothing_to_a_newer_one(cloud: Cloud) -> None:
    commit(cloud, table(cloud, generation=1, replaces=True), "never published")

    new = table(cloud, generation=2, replaces=True)
    commit(cloud, new, "new")
    new.publish(no_rewrite)

    assert visible(cloud) == ["new"]


def test_an_unpublished_replacement_is_taken_in_by_a_sync_that_appends(cloud: Cloud) -> None:
    """Its records were acknowledged: nobody will send them again."""
    commit(cloud, old := table(cloud, generation=1), "old")
    old.publish(no_rewrite)
    commit(cloud, table(cloud, generation=2, replaces=True), "acknowledged")

    appended = table(cloud, generation=2)
    commit(cloud, appended, "appended")

    assert visible(cloud) == ["acknowledged", "appended", "old"]


def test_a_table_whose_rows_are_all_of_the_generation_is_not_replaced_again(cloud: Cloud) -> None:
    """The protocol's truncate refresh that was interrupted and then resumed in the same generation."""
    commit(cloud, done := table(cloud, generation=2, replaces=True), "done")
    done.publish(no_rewrite)

    resumed = table(cloud, generation=2, replaces=True)
    commit(cloud, resumed, "more")
    resumed.publish(no_rewrite)

    assert visible(cloud) == ["done", "more"]
