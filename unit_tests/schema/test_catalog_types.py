"""Every column type in the terms of Arrow, Glue and Iceberg, and back."""

from __future__ import annotations

from itertools import count
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from destination_datalake.records.record import COERCERS
from destination_datalake.schema.arrow import ARROW, arrow_field, arrow_type
from destination_datalake.schema.evolution import TYPE_SUFFIX
from destination_datalake.schema.glue import GLUE, glue_type, parse_glue_type
from destination_datalake.schema.iceberg import ICEBERG, from_iceberg, iceberg_field, iceberg_type
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Field,
    Float32,
    Float64,
    Int32,
    Int64,
    Json,
    List,
    String,
    Struct,
    Timestamp,
)
from unit_tests.schema.strategies import ONE_OF_EACH, column_types, stored

ORDER = Struct((Field("id", "Id", Int64()), Field("tags", "tags", List(String()))))


@pytest.mark.parametrize("rules", [ARROW, GLUE, ICEBERG, TYPE_SUFFIX, COERCERS])
def test_every_table_of_rules_has_the_whole_set_of_types(rules: dict[type, object]) -> None:
    assert set(rules) == set(get_args(ColumnType)) == {type(each) for each in ONE_OF_EACH}


@pytest.mark.parametrize(
    ("column_type", "arrow", "glue", "iceberg"),
    [
        (Boolean(), pa.bool_(), "boolean", "boolean"),
        (Int32(), pa.int32(), "int", "int"),
        (Int64(), pa.int64(), "bigint", "long"),
        (Float32(), pa.float32(), "float", "float"),
        (Float64(), pa.float64(), "double", "double"),
        (Decimal(38, 18), pa.decimal128(38, 18), "decimal(38,18)", "decimal(38, 18)"),
        (String(), pa.string(), "string", "string"),
        (Json(), pa.string(), "string", "string"),
        (Date(), pa.date32(), "date", "date"),
        (Timestamp(zoned=True), pa.timestamp("us", tz="UTC"), "timestamp", "timestamptz"),
        (Timestamp(zoned=False), pa.timestamp("us"), "timestamp", "timestamp"),
        (
            ORDER,
            pa.struct([("id", pa.int64()), ("tags", pa.list_(pa.field("element", pa.string())))]),
            "struct<id:bigint,tags:array<string>>",
            "struct<1: id: optional long (Id), 2: tags: optional list<string>>",
        ),
        (List(Int32()), pa.list_(pa.field("element", pa.int32())), "array<int>", "list<int>"),
    ],
)
def test_a_type_in_each_systems_terms(column_type: ColumnType, arrow: pa.DataType, glue: str, iceberg: str) -> None:
    ids = count(1)
    assert arrow_type(column_type) == arrow
    assert glue_type(column_type) == glue
    assert str(iceberg_type(column_type, lambda: next(ids))) == iceberg


def test_every_arrow_field_bears_the_catalogs_name_and_takes_nulls() -> None:
    field = arrow_field(Field("order", "Order", ORDER))
    assert field.name == "order"
    assert field.nullable
    assert isinstance(field.type, pa.StructType)
    assert field.type.field(0).nullable


@given(column_types)
def test_glue_gives_back_the_type_it_was_given(column_type: ColumnType) -> None:
    assert glue_type(parse_glue_type(glue_type(column_type)) or Boolean()) == glue_type(column_type)


@given(column_types)
def test_iceberg_gives_back_the_type_it_was_given(column_type: ColumnType) -> None:
    ids = count(1)
    assert from_iceberg(iceberg_type(column_type, lambda: next(ids))) == stored(column_type)


@given(column_types)
def test_no_two_fields_of_an_iceberg_table_share_an_id(column_type: ColumnType) -> None:
    ids = count(1)
    schema = Schema(iceberg_field(Field("a", "a", column_type), lambda: next(ids)))
    assert sorted(schema._lazy_id_to_name) == list(range(1, next(ids)))


def test_iceberg_keeps_the_original_name_as_doc_where_it_differs() -> None:
    assert iceberg_field(Field("order_id", "orderId", Int64()), lambda: 1).doc == "orderId"
    assert iceberg_field(Field("id", "id", Int64()), lambda: 1).doc is None
    struct = Struct((Field("order_id", "orderId", Int64()),))
    ids = count(1)
    assert from_iceberg(iceberg_type(struct, lambda: next(ids))) == struct


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("STRING", String()),
        ("integer", Int32()),
        ("decimal", Decimal(10, 0)),
        ("decimal( 10 , 2 )", Decimal(10, 2)),
        ("decimal(5)", Decimal(5, 0)),
        ("Array < Struct < a : int , b : array<double> > >", None),
        ("timestamp", Timestamp(zoned=None)),
    ],
)
def test_glue_types_are_read_as_hive_writes_them(text: str, expected: ColumnType | None) -> None:
    nested = List(Struct((Field("a", "a", Int32()), Field("b", "b", List(Float64())))))
    assert parse_glue_type(text) == (expected or nested)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "varchar(65535)",
        "tinyint",
        "binary",
        "map<string,int>",
        "array<binary>",
        "array<int",
        "array<int>>",
        "struct<>",
        "struct<a>",
        "struct<a:int",
        "struct<a:int;b:int>",
        "struct<a:map<string,int>>",
        "int garbage",
        "decimal(x)",
        "decimal(38000,1)",
        "struct<a" + " " * 1_000_000 + "b",
    ],
)
def test_a_glue_type_that_is_not_ours_is_none(text: str) -> None:
    assert parse_glue_type(text) is None


@pytest.mark.parametrize("text", ["struct<a b:int>", "struct<a-b:int,c.d:array<string>,京都:int,e$:double>"])
def test_names_that_others_have_given_fields_are_read_as_they_are(text: str) -> None:
    parsed = parse_glue_type(text)
    assert parsed is not None
    assert glue_type(parsed) == text


@pytest.mark.parametrize(
    "iceberg",
    [
        UUIDType(),
        BinaryType(),
        MapType(1, StringType(), 2, LongType()),
        ListType(1, BinaryType()),
        StructType(NestedField(1, "a", IntegerType()), NestedField(2, "b", UUIDType())),
    ],
)
def test_an_iceberg_type_that_is_not_ours_is_none(iceberg: IcebergType) -> None:
    assert from_iceberg(iceberg) is None
