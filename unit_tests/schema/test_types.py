"""The column type that a JSON schema has, and the maps of the whole set of types."""

from __future__ import annotations

from itertools import count
from typing import Any, get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.records.values.registry import RULES
from destination_datalake.schema.arrow import ARROW, arrow_type
from destination_datalake.schema.glue import GLUE, glue_type
from destination_datalake.schema.iceberg import ICEBERG, iceberg_type
from destination_datalake.schema.types import (
    WELL_KNOWN,
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
    NumericTypes,
    String,
    Struct,
    Timestamp,
    column_type,
)
from unit_tests.strategies import ONE_OF_EACH, json_values


def read(schema: object, root: object = None) -> ColumnType:
    return column_type(schema, NumericTypes.INT_FLOAT, root)


def a_struct(**fields: ColumnType) -> Struct:
    return Struct(tuple(Field(name, name, type_) for name, type_ in fields.items()))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "boolean"}, Boolean()),
        ({"type": "string"}, String()),
        ({"type": "integer"}, Int32()),
        ({"type": "int"}, Int32()),
        ({"type": "number"}, Float32()),
        ({"type": "number", "airbyte_type": "integer"}, Int32()),
        ({"type": "number", "airbyte_type": "float"}, Float32()),
        ({"type": "string", "format": "date"}, Date()),
        ({"type": "string", "format": "date-time"}, Timestamp(zoned=True)),
        (
            {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"},
            Timestamp(zoned=True),
        ),
        (
            {"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"},
            Timestamp(zoned=False),
        ),
    ],
)
def test_a_simple_schema_has_the_type_that_it_names(schema: object, expected: ColumnType) -> None:
    assert read(schema) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "format": "time"},
        {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"},
        {"type": "string", "contentEncoding": "base64"},
        {"type": "string", "format": "ipv4"},
        {"type": "string", "airbyte_type": "big_number"},
        {"type": "string", "airbyte_type": "big_integer"},
        {"type": "number", "airbyte_type": "big_number"},
        {"type": "integer", "airbyte_type": "big_integer"},
        {"type": "string", "oneOf": [{"pattern": "a"}, {"enum": ["NaN"]}]},
    ],
)
def test_a_schema_that_no_catalog_type_holds_exactly_is_a_string(schema: object) -> None:
    assert read(schema) == String()


@pytest.mark.parametrize(
    ("numeric", "integer", "number"),
    [
        (NumericTypes.INT_FLOAT, Int32(), Float32()),
        (NumericTypes.BIGINT_DOUBLE, Int64(), Float64()),
        (NumericTypes.DECIMAL, Int64(), Decimal(38, 18)),
    ],
)
def test_numeric_types_chooses_the_initial_types_of_numbers(
    numeric: NumericTypes, integer: ColumnType, number: ColumnType
) -> None:
    assert column_type({"type": "integer"}, numeric) == integer
    assert column_type({"type": "number"}, numeric) == number


def test_numeric_types_has_the_values_of_the_option() -> None:
    assert [each.value for each in NumericTypes] == ["int/float", "bigint/double", "decimal"]


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("String", String()),
        ("BinaryData", String()),
        ("Date", Date()),
        ("TimestampWithTimezone", Timestamp(zoned=True)),
        ("TimestampWithoutTimezone", Timestamp(zoned=False)),
        ("TimeWithTimezone", String()),
        ("TimeWithoutTimezone", String()),
        ("Number", Float32()),
        ("Integer", Int32()),
        ("Boolean", Boolean()),
        ("SomethingOfALaterVersion", Json()),
    ],
)
def test_a_well_known_type_of_protocol_v1_has_the_type_that_it_has_in_v0(definition: str, expected: ColumnType) -> None:
    assert read({"$ref": f"WellKnownTypes.json#/definitions/{definition}"}) == expected
    assert read({"type": ["null", "string"], "$ref": f"WellKnownTypes.json#/definitions/{definition}"}) == expected


def test_the_table_of_well_known_types_is_complete() -> None:
    assert len(WELL_KNOWN) == 10


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": ["null", "integer"]}, Int32()),
        ({"type": ["string", "null"], "format": "date"}, Date()),
        ({"type": ["boolean"]}, Boolean()),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, Int32()),
        ({"anyOf": [{"type": "string", "format": "date-time"}, {"type": ["null"]}]}, Timestamp(zoned=True)),
        ({"allOf": [{"type": "boolean"}]}, Boolean()),
        ({"oneOf": [{"type": "string"}, {"type": "string", "format": "uuid"}]}, String()),
    ],
)
def test_a_union_with_one_type_left_is_that_type(schema: object, expected: ColumnType) -> None:
    assert read(schema) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "potato"},
        {"type": None},
        {"type": "null"},
        {"type": ["null"]},
        {"type": []},
        {"type": ["string", "integer"]},
        {"type": ["integer", "number"]},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"oneOf": [{"type": "null"}]},
        {"oneOf": []},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "array"},
        {"type": "array", "items": {}},
        {"type": "array", "items": []},
        {"type": "array", "items": True},
        {"$ref": "#/definitions/nowhere"},
        {"$ref": "https://example.com/schema.json"},
        {"type": {"a": 1}},
        True,
        None,
        "string",
        [1, 2],
    ],
)
def test_an_open_or_unknown_schema_is_json_text(schema: object) -> None:
    assert read(schema) == Json()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, a_struct(a=Int32())),
        ({"properties": {"a": {"type": "string"}}}, a_struct(a=String())),
        ({"type": ["null", "object"], "properties": {"a": {}}}, a_struct(a=Json())),
        ({"type": "array", "items": {"type": "string"}}, List(String())),
        ({"type": "array", "items": {"type": "object"}}, List(Json())),
        ({"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}, List(Json())),
        ({"type": "array", "items": [{"type": "string"}, {"type": "null"}]}, List(String())),
        (
            {"type": "array", "items": {"properties": {"x": {"type": "array", "items": {"type": "boolean"}}}}},
            List(a_struct(x=List(Boolean()))),
        ),
    ],
)
def test_closed_objects_and_arrays_keep_their_structure(schema: object, expected: ColumnType) -> None:
    assert read(schema) == expected


def test_the_fields_of_a_struct_have_identifiers_and_sources() -> None:
    schema = {"type": "object", "properties": {"firstName": {"type": "string"}, "9lives": {"type": "boolean"}}}
    assert read(schema) == Struct((Field("first_name", "firstName", String()), Field("_9lives", "9lives", Boolean())))


ADDRESS = {"type": "object", "properties": {"street": {"type": "string"}}}


@pytest.mark.parametrize(
    ("reference", "root"),
    [
        ("#/definitions/Address", {"definitions": {"Address": ADDRESS}}),
        ("#/$defs/a~1b", {"$defs": {"a/b": ADDRESS}}),
        ("#/$defs/a%20b", {"$defs": {"a b": ADDRESS}}),
        ("#/branches/1", {"branches": [{}, ADDRESS]}),
        ("#/definitions/Alias", {"definitions": {"Alias": {"$ref": "#/definitions/A"}, "A": ADDRESS}}),
    ],
)
def test_a_local_reference_is_followed(reference: str, root: object) -> None:
    assert read({"$ref": reference}, root) == a_struct(street=String())


def test_a_schema_may_use_a_definition_twice() -> None:
    root = {"definitions": {"A": ADDRESS}}
    twice = {"properties": {"home": {"$ref": "#/definitions/A"}, "work": {"$ref": "#/definitions/A"}}}
    assert read(twice, root) == a_struct(home=a_struct(street=String()), work=a_struct(street=String()))


def test_a_recursive_schema_is_json_text_where_it_recurs() -> None:
    node = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/definitions/N"}}},
    }
    assert read({"$ref": "#/definitions/N"}, {"definitions": {"N": node}}) == a_struct(
        name=String(), children=List(Json())
    )
    assert read({"$ref": "#/definitions/L"}, {"definitions": {"L": {"$ref": "#/definitions/L"}}}) == Json()


def test_a_schema_nested_too_deeply_is_json_text_at_the_limit() -> None:
    schema: Any = {"type": "string"}
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    innermost = read(schema)
    while isinstance(innermost, List):
        innermost = innermost.element
    assert innermost == Json()


@given(json_values, st.sampled_from(NumericTypes))
def test_no_schema_raises_an_error(schema: object, numeric: NumericTypes) -> None:
    column_type(schema, numeric)
    column_type({"type": schema, "properties": schema, "items": schema, "$ref": schema, "oneOf": schema}, numeric)
    column_type({"type": "number", "airbyte_type": schema, "format": schema}, numeric)


ORDER = Struct((Field("id", "Id", Int64()), Field("tags", "tags", List(String()))))


@pytest.mark.parametrize("rules", [ARROW, GLUE, ICEBERG, RULES])
def test_every_map_covers_the_whole_set_of_types(rules: dict[type, object]) -> None:
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
def test_a_type_maps_to_arrow_glue_and_iceberg(
    column_type: ColumnType, arrow: pa.DataType, glue: str, iceberg: str
) -> None:
    ids = count(1)
    assert arrow_type(column_type) == arrow
    assert glue_type(column_type) == glue
    assert str(iceberg_type(column_type, lambda: next(ids))) == iceberg
