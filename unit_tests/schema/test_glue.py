"""Column types as Glue types, and back."""

from __future__ import annotations

import pytest
from hypothesis import given

from destination_datalake.schema.glue import describe_type, glue_type, parse_glue_type
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Decimal,
    Field,
    Float64,
    Int32,
    Json,
    List,
    String,
    Struct,
    Timestamp,
)
from unit_tests.strategies import column_types


@given(column_types)
def test_parsing_inverts_writing(column_type: ColumnType) -> None:
    assert glue_type(parse_glue_type(glue_type(column_type)) or Boolean()) == glue_type(column_type)


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
def test_hive_s_spellings_are_parsed(text: str, expected: ColumnType | None) -> None:
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
def test_a_type_that_the_connector_never_writes_is_none(text: str) -> None:
    assert parse_glue_type(text) is None


@pytest.mark.parametrize("text", ["struct<a b:int>", "struct<a-b:int,c.d:array<string>,京都:int,e$:double>"])
def test_field_names_with_any_characters_are_kept(text: str) -> None:
    parsed = parse_glue_type(text)
    assert parsed is not None
    assert glue_type(parsed) == text


@pytest.mark.parametrize(
    ("column_type", "description"),
    [
        (Json(), "JSON text"),
        (Timestamp(zoned=True), "timestamp, UTC"),
        (Timestamp(zoned=False), "timestamp"),
        (List(Json()), "array<string>"),
        (Decimal(38, 18), "decimal(38,18)"),
    ],
)
def test_a_type_is_described_by_glue_s_name_unless_that_is_ambiguous(column_type: ColumnType, description: str) -> None:
    assert describe_type(column_type) == description
