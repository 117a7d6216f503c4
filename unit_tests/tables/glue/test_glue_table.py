"""Tables of the Glue Data Catalog: compare-and-set, what is read in them, and their creation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from destination_datalake.files.plan import FileFormat, FilePlan
from destination_datalake.schema.evolution import AddColumn, Widen
from destination_datalake.schema.types import Field, Int32, Int64, String, Struct
from destination_datalake.tables.glue.catalog import ensure_database
from destination_datalake.tables.glue.glue_table import (
    GlueTable,
    TableInput,
    change_columns,
    column_sources,
    column_types,
    create_hive_table,
    set_column_types,
    table_location,
)
from destination_datalake.tables.table import TableName
from unit_tests.cloud import BUCKET, Cloud, another_client, before
from unit_tests.cloud import cloud as an_account

NAME = TableName("shop", "orders")


@pytest.fixture
def table(cloud: Cloud) -> GlueTable:
    glue = cloud.access.client("glue")
    glue.create_database(DatabaseInput={"Name": NAME.database})
    glue.create_table(DatabaseName=NAME.database, TableInput={"Name": NAME.table, "Owner": "the shop"})
    return GlueTable(NAME, cloud.access)


def setting(key: str, value: str = "1") -> Callable[[TableInput], str]:
    def change(table_input: TableInput) -> str:
        table_input["Parameters"][key] = value
        return f"set {key}"

    return change


def test_update_returns_the_result_of_the_change_and_keeps_everything_else(table: GlueTable) -> None:
    assert table.update(setting("ours")) == "set ours"

    read = table.read()
    assert (read["Owner"], read["Parameters"]) == ("the shop", {"ours": "1"})


def test_update_without_a_difference_makes_no_call(table: GlueTable) -> None:
    table.update(setting("ours"))
    access, updates = another_client(), list[int]()
    before(access, "glue", "UpdateTable", updates.append)

    GlueTable(NAME, access).update(setting("ours"))

    assert updates == []


def test_update_is_retried_on_the_table_as_another_writer_left_it(table: GlueTable) -> None:
    access = another_client()
    before(access, "glue", "UpdateTable", lambda times: times == 1 and table.update(setting("theirs")))

    GlueTable(NAME, access).update(setting("ours"))

    assert table.read()["Parameters"] == {"theirs": "1", "ours": "1"}


def test_update_of_an_outdated_version_is_retried_too(table: GlueTable) -> None:
    version = table.read_version()
    table.update(setting("theirs"))

    table.update(setting("ours"), version)

    assert table.read()["Parameters"] == {"theirs": "1", "ours": "1"}


def test_update_of_a_version_just_read_does_not_read_the_table_again_nor_change_what_was_read(table: GlueTable) -> None:
    access, reads = another_client(), list[int]()
    own_table = GlueTable(NAME, access)
    version = own_table.read_version()
    before(access, "glue", "GetTable", reads.append)

    own_table.update(setting("ours"), version)

    assert (reads, table.read()["Parameters"]) == ([], {"ours": "1"})
    assert version.table_input["Parameters"] == {}


def test_table_that_does_not_exist_raises_glues_own_error(cloud: Cloud) -> None:
    missing: Any = cloud.access.client("glue").exceptions.EntityNotFoundException

    with pytest.raises(missing):
        GlueTable(NAME, cloud.access).read()


def table_input(**types: str) -> TableInput:
    columns = [{"Name": name, "Type": type_, "Comment": f"Their {name}."} for name, type_ in types.items()]
    return {"Name": "orders", "Parameters": {}, "StorageDescriptor": {"Columns": columns}}


def columns(table: TableInput) -> list[tuple[str, str, str | None]]:
    entries = table["StorageDescriptor"]["Columns"]
    return [(column["Name"], column["Type"], column.get("Comment")) for column in entries]


@pytest.mark.parametrize("location", ["s3://lake/a/b", "s3://lake/a/b/", "s3a://lake/a/b", "s3n://lake/a/b/"])
def test_location_has_the_scheme_s3_and_no_trailing_slash(location: str) -> None:
    assert table_location({"StorageDescriptor": {"Location": location}}) == "s3://lake/a/b"


def test_new_columns_are_last_with_the_key_in_the_record_as_comment() -> None:
    table = table_input(theirs="map<string,int>")

    change_columns(table, [AddColumn((), Field("id", "id", Int32())), AddColumn((), Field("a_b", "aB", String()))])

    assert columns(table) == [
        ("theirs", "map<string,int>", "Their theirs."),
        ("id", "int", None),
        ("a_b", "string", "aB"),
    ]


def test_changed_columns_keep_order_and_comments() -> None:
    table = table_input(id="int", address="struct<city:string>", name="string")

    change_columns(table, [Widen(("id",), Int64()), AddColumn(("address",), Field("zip", "zip", String()))])

    assert columns(table) == [
        ("id", "bigint", "Their id."),
        ("address", "struct<city:string,zip:string>", "Their address."),
        ("name", "string", "Their name."),
    ]


def test_column_of_a_type_that_is_never_written_has_none() -> None:
    assert column_types(table_input(id="int", theirs="map<string,int>")) == {"id": Int32(), "theirs": None}


def test_source_of_a_column_is_its_comment_or_its_name() -> None:
    table = table_input(id="int")
    table["StorageDescriptor"]["Columns"] += [{"Name": "b"}, {"Name": "c", "Comment": ""}]

    assert column_sources(table) == {"id": "Their id.", "b": "b", "c": "c"}


def test_set_types_leave_other_columns_and_equivalent_spellings_alone() -> None:
    table = table_input(id="int", count="integer", address="STRUCT<city: string>", theirs="map<string,int>")
    address = Struct((Field("city", "city", String()),))

    set_column_types(table, {"id": Int64(), "count": Int32(), "address": address, "theirs": None, "gone": Int32()})

    assert columns(table) == [
        ("id", "bigint", "Their id."),
        ("count", "integer", "Their count."),
        ("address", "STRUCT<city: string>", "Their address."),
        ("theirs", "map<string,int>", "Their theirs."),
    ]


CREATED = TableName("público", "京都")
COLUMNS = (
    Field("id", "id", Int32()),
    Field("größe", "Größe\n(cm)", Struct((Field("高さ", "高さ", Int32()),))),
    Field("x" * 255, "X" * 300, String()),
)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with an_account() as account:
        ensure_database(account.access.client("glue"), CREATED.database)
        yield account


def created(cloud: Cloud, format: FileFormat, codec: str, columns: tuple[Field, ...] = COLUMNS) -> dict[str, Any]:
    plan = FilePlan(format, codec, (), {}, "", True, 1, None, None)
    create_hive_table(CREATED, columns, [], f"s3://{BUCKET}/t/data/", {"owner": "us"}, plan, cloud.access)
    table: dict[str, Any] = cloud.access.client("glue").get_table(DatabaseName=CREATED.database, Name=CREATED.table)[
        "Table"
    ]  # type: ignore[assignment]
    return table


@pytest.mark.parametrize(
    ("format", "codec", "classification", "compression"),
    [
        ("parquet", "SNAPPY", "parquet", "snappy"),
        ("parquet", "UNCOMPRESSED", "parquet", "none"),
        ("jsonl", "GZIP", "json", "gzip"),
        ("jsonl", "UNCOMPRESSED", "json", "none"),
    ],
)
def test_new_table_describes_its_files(
    cloud: Cloud, format: FileFormat, codec: str, classification: str, compression: str
) -> None:
    table = created(cloud, format, codec)

    assert (table["TableType"], table["PartitionKeys"]) == ("EXTERNAL_TABLE", [])
    assert table["Parameters"] == {
        "classification": classification,
        "compressionType": compression,
        "typeOfData": "file",
        "projection.enabled": "false",
        "owner": "us",
    }
    assert table["StorageDescriptor"]["Compressed"] == (compression != "none")


def test_columns_have_their_names_and_the_keys_in_the_record_as_comments(cloud: Cloud) -> None:
    table = created(cloud, "parquet", "SNAPPY")

    assert table["Name"] == "京都"
    columns = [
        (column["Name"], column["Type"], column.get("Comment")) for column in table["StorageDescriptor"]["Columns"]
    ]
    assert columns == [
        ("id", "int", None),
        ("größe", "struct<高さ:int>", "Größe\ufffd(cm)"),
        ("x" * 255, "string", "X" * 252 + "…"),
    ]


def test_existing_table_is_left_unchanged(cloud: Cloud) -> None:
    before = created(cloud, "parquet", "SNAPPY")

    assert created(cloud, "jsonl", "GZIP", COLUMNS[:1]) == before
