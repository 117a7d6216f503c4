"""Streams that continue columns that AWS Datalake created."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.evolution import evolve
from destination_datalake.schema.glue import parse_glue_type
from destination_datalake.schema.names import AWS_DATALAKE
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Field,
    Float64,
    Int64,
    Json,
    List,
    Nested,
    NumericTypes,
    String,
    Struct,
    Timestamp,
)
from destination_datalake.tables.migration import inherit_types
from unit_tests.strategies import json_values

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
DATE_TIME = {"type": "string", "format": "date-time"}
WITHOUT_ZONE = {**DATE_TIME, "airbyte_type": "timestamp_without_timezone"}
DATE = {"type": "string", "format": "date"}


def an_object(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties}


def an_array(items: object) -> dict[str, object]:
    return {"type": "array", "items": items}


def a_struct(**fields: ColumnType) -> Struct:
    return Struct(tuple(Field(name, name, type_) for name, type_ in fields.items()))


# A JSON schema, the Glue type that AWS Datalake 0.1.35 derived from it, and the column type in which it is written.
DERIVED: list[tuple[dict[str, Any], str, ColumnType]] = [
    (STRING, "string", String()),
    ({"type": ["null", "string"]}, "string", String()),
    (DATE_TIME, "timestamp", Timestamp(zoned=True)),
    ({**DATE_TIME, "airbyte_type": "timestamp_with_timezone"}, "timestamp", Timestamp(zoned=True)),
    (WITHOUT_ZONE, "timestamp", Timestamp(zoned=False)),
    (DATE, "date", Date()),
    ({"type": "string", "format": "time"}, "string", String()),
    ({"type": "string", "format": "time", "airbyte_type": "time_without_timezone"}, "string", String()),
    ({"type": "string", "contentEncoding": "base64"}, "string", String()),
    (INTEGER, "bigint", Int64()),
    ({"type": ["null", "integer"]}, "bigint", Int64()),
    ({"type": "integer", "airbyte_type": "big_integer"}, "bigint", Int64()),
    ({"type": "number", "airbyte_type": "integer"}, "bigint", Int64()),
    (NUMBER, "double", Float64()),
    (NUMBER, "decimal(38,25)", Decimal(38, 25)),
    ({"type": "number", "airbyte_type": "big_number"}, "decimal(38,25)", Decimal(38, 25)),
    ({"type": "boolean"}, "boolean", Boolean()),
    ({"type": "null"}, "string", String()),
    ({}, "string", String()),
    # Unions, references and schemas without a type are text, not JSON text: strings have no quotes.
    ({"type": ["string", "integer"]}, "string", String()),
    ({"type": ["string", "integer"], "format": "date-time"}, "timestamp", Timestamp(zoned=True)),
    ({"oneOf": [INTEGER, {"type": "null"}]}, "string", String()),
    ({"oneOf": [INTEGER, STRING]}, "string", String()),
    ({"anyOf": [DATE_TIME]}, "string", String()),
    ({"$ref": "WellKnownTypes.json#/definitions/TimestampWithTimezone"}, "string", String()),
    ({"properties": {"a": INTEGER}}, "string", String()),
    # Objects
    (an_object(a=INTEGER, b=STRING), "struct<a:bigint,b:string>", a_struct(a=Int64(), b=String())),
    (an_object(at=DATE_TIME, on=DATE), "struct<at:timestamp,on:date>", a_struct(at=Timestamp(zoned=True), on=Date())),
    (an_object(n=NUMBER), "struct<n:decimal(38, 25)>", a_struct(n=Decimal(38, 25))),
    (an_object(a=an_object(b=NUMBER)), "struct<a:struct<b:double>>", a_struct(a=a_struct(b=Float64()))),
    (an_object(a=an_array(DATE)), "struct<a:array<string>>", a_struct(a=List(String()))),
    ({"type": "object"}, "string", Json()),
    (an_object(), "string", Json()),
    # An open schema anywhere inside makes the whole object text.
    (an_object(a=INTEGER, b={"type": "object"}), "string", Json()),
    (an_object(a={"type": ["string", "integer"]}), "string", Json()),
    (an_object(a={"oneOf": [STRING, INTEGER]}), "string", Json()),
    (an_object(a={"type": "array"}), "string", Json()),
    (an_object(a=an_array(an_object(b={"type": "object"}))), "string", Json()),
    # So does one that names its properties and allows others: undeclared members are in the text.
    ({**an_object(a=INTEGER), "additionalProperties": True}, "string", Json()),
    ({**an_object(a=INTEGER), "additionalProperties": {"type": "string"}}, "string", Json()),
    ({**an_object(a=INTEGER), "additionalProperties": False}, "struct<a:bigint>", a_struct(a=Int64())),
    ({**an_object(a=INTEGER), "additionalProperties": {}}, "struct<a:bigint>", a_struct(a=Int64())),
    (an_object(a={**an_object(b=NUMBER), "additionalProperties": True}), "struct<a:string>", a_struct(a=Json())),
    # Arrays
    (
        an_array({**an_object(a=NUMBER), "additionalProperties": True}),
        "array<struct<a:double>>",
        List(a_struct(a=Float64())),
    ),
    (an_array(STRING), "array<string>", List(String())),
    (an_array(INTEGER), "array<bigint>", List(Int64())),
    (an_array(NUMBER), "array<double>", List(Float64())),
    (an_array(NUMBER), "array<decimal(38, 25)>", List(Decimal(38, 25))),
    (an_array({"type": "number", "airbyte_type": "integer"}), "array<bigint>", List(Int64())),
    (an_array({"type": ["null", "number"], "airbyte_type": "integer"}), "array<double>", List(Float64())),
    (an_array({"type": "boolean"}), "array<boolean>", List(Boolean())),
    (an_array(DATE_TIME), "array<string>", List(String())),
    (an_array(DATE), "array<string>", List(String())),
    (an_array({"oneOf": [INTEGER]}), "array<string>", List(String())),
    (an_array([INTEGER]), "array<bigint>", List(Int64())),
    (an_array([INTEGER, STRING]), "array<bigint>", List(Int64())),
    (an_array(an_object(at=DATE_TIME)), "array<struct<at:timestamp>>", List(a_struct(at=Timestamp(zoned=True)))),
    ({"type": "array"}, "string", Json()),
    (an_array({}), "string", Json()),
    (an_array({"type": ["string", "integer"]}), "string", Json()),
    (an_array(an_object(a={"type": "object"})), "string", Json()),
]


@pytest.mark.parametrize("numeric", NumericTypes)
@pytest.mark.parametrize(("schema", "derived", "written"), DERIVED)
def test_a_column_of_aws_datalake_is_continued_in_its_type(
    schema: dict[str, Any], derived: str, written: ColumnType, numeric: NumericTypes
) -> None:
    """Whatever `numeric_types` is: the table's column decides, and no second one is added."""
    json_schema = {"properties": {"value": schema}}
    [column] = stream_columns(json_schema, numeric, AWS_DATALAKE)
    existing = {"value": parse_glue_type(derived)}

    [now] = inherit_types([column], json_schema, existing)

    assert now == Field("value", "value", written)
    existing = {"value": parse_glue_type(derived)}
    assert evolve(existing, [now]).changes == ()
    assert evolve(existing, [now]).columns == (now,)


def test_a_struct_field_keeps_its_source() -> None:
    json_schema = {"properties": {"x": an_object(unitPrice=NUMBER)}}
    columns = stream_columns(json_schema, NumericTypes.INT_FLOAT, AWS_DATALAKE)
    existing = {"x": parse_glue_type("struct<unitPrice:double>")}

    [column] = inherit_types(columns, json_schema, existing)

    assert column.type == Struct((Field("unitprice", "unitPrice", Float64()),))
    assert evolve(existing, [column]).changes == ()


def test_a_field_of_a_flattened_object_is_no_column_of_aws_datalake() -> None:
    """Not even if a key of the record has the field's name, or a column its own."""
    json_schema = {"properties": {"id": DATE_TIME, "x": an_object(id=INTEGER)}}
    columns = stream_columns(json_schema, NumericTypes.INT_FLOAT, AWS_DATALAKE, Nested.FLATTEN)
    existing: dict[str, ColumnType | None] = {
        "id": Timestamp(zoned=None),
        "x": a_struct(id=Int64()),
        "x_id": Timestamp(zoned=None),
    }

    id_, x_id = inherit_types(columns, json_schema, existing)

    assert (id_.type, x_id) == (Timestamp(zoned=True), columns[1])
    assert [change.path for change in evolve(existing, [id_, x_id]).changes] == [("x_id__int",)]


@pytest.mark.parametrize(
    ("schema", "derived", "written"),
    [
        (an_object(a=INTEGER), "struct<a:bigint>", "x__json"),
        (an_array(INTEGER), "array<bigint>", "x__json"),
        (an_object(a={"type": "object"}), "string", "x"),
    ],
)
def test_json_text_of_nested_values_is_written_to_the_column_if_that_is_text(
    schema: dict[str, Any], derived: str, written: str
) -> None:
    json_schema = {"properties": {"x": schema}}
    columns = stream_columns(json_schema, NumericTypes.INT_FLOAT, AWS_DATALAKE, Nested.JSON)
    existing = {"x": parse_glue_type(derived)}

    evolution = evolve(existing, inherit_types(columns, json_schema, existing))

    assert evolution.columns == (Field(written, "x", Json()),)


@pytest.mark.parametrize(
    ("schema", "existing"),
    [
        (INTEGER, None),
        (INTEGER, String()),
        (DATE, Timestamp(zoned=True)),
        (STRING, Int64()),
        # A number with more digits than a double is redirected to a string column.
        ({"type": "number", "airbyte_type": "big_number"}, Float64()),
        (an_object(a=INTEGER), Int64()),
        (an_array(INTEGER), String()),
    ],
)
def test_a_column_that_aws_datalake_would_not_have_created_is_like_any_other(
    schema: dict[str, Any], existing: ColumnType | None
) -> None:
    json_schema = {"properties": {"x": schema}}
    columns = stream_columns(json_schema, NumericTypes.INT_FLOAT, AWS_DATALAKE)

    assert inherit_types(columns, json_schema, {"x": existing}) == columns
    assert inherit_types(columns, json_schema, {}) == columns


@given(
    json_values | st.sampled_from([schema for schema, _, _ in DERIVED]),
    st.sampled_from(NumericTypes),
    st.sampled_from([derived for _, derived, _ in DERIVED]),
)
def test_no_schema_and_column_raise_an_error(schema: object, numeric: NumericTypes, derived: str) -> None:
    json_schema = {"properties": {"x": schema}}
    columns = stream_columns(json_schema, numeric, AWS_DATALAKE)

    [now] = inherit_types(columns, json_schema, {"x": parse_glue_type(derived)})

    assert (now.name, now.source) == ("x", "x")
