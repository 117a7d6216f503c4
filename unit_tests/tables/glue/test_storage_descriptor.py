"""Columns and location of a Glue table: changed where they must be, and otherwise left as others wrote them."""

from __future__ import annotations

import pytest

from destination_datalake.schema.evolution import AddColumn, Widen
from destination_datalake.schema.types import Field, Int32, Int64, String, Struct
from destination_datalake.tables.glue.glue_table import TableInput
from destination_datalake.tables.glue.storage_descriptor import (
    change_columns,
    column_sources,
    column_types,
    set_column_types,
    table_location,
)


def table_input(**types: str) -> TableInput:
    columns = [{"Name": name, "Type": type_, "Comment": f"Their {name}."} for name, type_ in types.items()]
    return {"Name": "orders", "Parameters": {}, "StorageDescriptor": {"Columns": columns}}


def columns(table: TableInput) -> list[tuple[str, str, str | None]]:
    found = table["StorageDescriptor"]["Columns"]
    return [(column["Name"], column["Type"], column.get("Comment")) for column in found]


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
