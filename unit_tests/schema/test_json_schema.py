"""The column type that a JSON schema has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.schema import json_schema
from destination_datalake.schema.json_schema import WELL_KNOWN, Untyped, column_type, property_types
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
    NumericTypes,
    String,
    Struct,
    Timestamp,
)
from unit_tests.strategies import json_values


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
        (NumericTypes.INT_DECIMAL, Int32(), Decimal(38, 18)),
        (NumericTypes.DECIMAL, Decimal(38, 0), Decimal(38, 18)),
    ],
)
def test_numeric_types_chooses_the_initial_types_of_numbers(
    numeric: NumericTypes, integer: ColumnType, number: ColumnType
) -> None:
    assert column_type({"type": "integer"}, numeric) == integer
    assert column_type({"type": "number"}, numeric) == number


def test_numeric_types_has_the_values_of_the_option() -> None:
    assert [option.value for option in NumericTypes] == ["int/float", "bigint/double", "int/decimal", "decimal"]


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
        ({"type": ["integer", "null", "number"]}, Float32()),
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


A, B, C = ({"type": "object", "properties": {key: {"type": "integer"}}} for key in "abc")
ONE_OF = {"oneOf": [B, C]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        # allOf: intersection of kinds, union of properties
        ({"allOf": [A, B]}, a_struct(a=Int32(), b=Int32())),
        (
            {"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"d": {"type": "string"}}}]},
            a_struct(a=Int32(), d=String()),
        ),
        ({"type": "object", "allOf": [A, B]}, a_struct(a=Int32(), b=Int32())),
        ({**A, "allOf": [{"allOf": [B]}, {"$ref": "#/$defs/C"}]}, a_struct(a=Int32(), b=Int32(), c=Int32())),
        ({"allOf": [{"type": "string"}, {"format": "date-time"}]}, Timestamp(zoned=True)),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]}, Int32()),
        ({"allOf": [{"type": "number"}, {"type": "integer"}]}, Int32()),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, Json()),
        ({"allOf": [{"properties": {"a": {}}}, A]}, a_struct(a=Int32())),
        ({"type": "array", "items": A, "allOf": [{"items": B}]}, List(a_struct(a=Int32(), b=Int32()))),
        # Unions
        (ONE_OF, Json()),
        ({**A, **ONE_OF}, a_struct(a=Int32(), b=Int32(), c=Int32())),
        ({"properties": A["properties"], **ONE_OF}, a_struct(a=Int32(), b=Int32(), c=Int32())),
        ({"type": "object", **ONE_OF}, Json()),
        (
            {**A, "anyOf": [{"properties": {"b": {"type": t}}} for t in ("string", "boolean")]},
            a_struct(a=Int32(), b=Json()),
        ),
        ({**A, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, a_struct(a=Int32())),
        ({"properties": A["properties"], "oneOf": [{"type": "string"}, {"type": "object"}]}, Json()),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "string"}]}, String()),
        ({"anyOf": [{"type": "string", "format": format_} for format_ in ("date", "date-time")]}, String()),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}, Date()),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]}, Float32()),
        ({"oneOf": [{"oneOf": [{"type": "null"}]}, {"type": "boolean"}]}, Boolean()),
        ({"oneOf": [A, True]}, Json()),
        ({"oneOf": [A, False]}, a_struct(a=Int32())),
        # What holds for some values only
        (
            {**A, "if": {}, "then": B, "else": {"properties": {"c": {"type": "string"}}}},
            a_struct(a=Int32(), b=Int32(), c=String()),
        ),
        ({**A, "dependentSchemas": {"a": B}}, a_struct(a=Int32(), b=Int32())),
        ({**A, "dependencies": {"a": B, "b": ["c"]}}, a_struct(a=Int32(), b=Int32())),
        # A declared type decides.
        ({"type": "number", "oneOf": [{"type": "integer"}]}, Float32()),
        ({"type": "string", "enum": [1]}, String()),
        ({"type": "string", "anyOf": [{"format": "date-time"}]}, String()),
        ({"$ref": "#/$defs/A", "type": "object", "properties": {"d": {}}}, a_struct(a=Int32(), d=Json())),
        ({"$ref": "#/$defs/A", "type": ["null", "object"]}, a_struct(a=Int32())),
        # Values
        ({"enum": ["open"]}, String()),
        ({"enum": ["open", None]}, String()),
        ({"const": "open"}, String()),
        ({"const": True}, Boolean()),
        ({"enum": [1, 2]}, Int32()),
        ({"enum": [1, 2.5]}, Float32()),
        ({"enum": ["open", 1]}, Json()),
        ({"enum": [{"a": 1}]}, Json()),
        ({"enum": [[1]]}, Json()),
        ({"enum": [None]}, Json()),
        ({"enum": []}, Json()),
        ({"$ref": "#/$defs/text", "enum": ["open"]}, String()),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, String()),
        (
            {**A, "oneOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": "x"}}}]},
            a_struct(a=Int32()),
        ),
        # Arrays
        ({"type": "array", "prefixItems": [{"type": "integer"}]}, Json()),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, List(Json())),
        ({"type": "array", "prefixItems": [A], "items": B}, List(a_struct(b=Int32(), a=Int32()))),
        # A first item whose member is of another kind, or wider, than the same member of the items
        ({"type": "array", "prefixItems": [{"properties": {"a": {"type": "string"}}}], "items": A}, List(Json())),
        ({"type": "array", "prefixItems": [{"properties": {"a": {"type": "number"}}}], "items": A}, List(Json())),
        (
            {"type": "array", "prefixItems": [A], "items": {"properties": {"a": {"type": "number"}}}},
            List(a_struct(a=Float32())),
        ),
        ({"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "integer"}}, List(Json())),
        # References
        ({"$ref": "#text"}, String()),
        ({"$dynamicRef": "#text"}, String()),
        ({"$ref": "#nowhere"}, Json()),
        ({"$ref": "part.json"}, a_struct(x=String())),
        ({"$ref": "part.json#/$defs/own"}, String()),
        ({"$ref": "part.json#nowhere"}, Json()),
        ({"$ref": "other.json"}, Json()),
        ({"$ref": "#/$defs/part/properties/x"}, String()),
        ({"$ref": "#/$defs/part/properties/whole"}, a_struct(a=Int32())),
        ({"$ref": f"#/$defs/list/{'9' * 5000}"}, Json()),
        ({"$ref": "#/$defs/loop"}, Json()),
        ({"allOf": [{"$ref": "#/$defs/loop"}, A]}, a_struct(a=Int32())),
    ],
)
def test_schemas_are_combined(schema: object, expected: ColumnType) -> None:
    own, whole = {"$ref": "#/$defs/own"}, {"$ref": "#/$defs/A"}
    definitions = {
        "A": A,
        "C": C,
        "text": {"$anchor": "text", "type": "string"},
        "part": {
            "$id": "part.json",
            "type": "object",
            "properties": {"x": own},
            "$defs": {"own": {"type": "string"}},
        },
        "list": [],
        "loop": {"$ref": "#/$defs/loop"},
    }
    definitions["part"]["properties"] |= {"whole": whole} if "whole" in str(schema) else {}  # type: ignore[index]
    assert read(schema, {"$defs": definitions}) == expected


NODE = {"type": "object", "properties": {"id": {"type": "integer"}, "next": {"$ref": "#/$defs/Node"}}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"$ref": "#/$defs/Node", "$defs": {"Node": NODE}}, {"id": Int32(), "next": Json()}),
        (
            {"$ref": "#/$defs/Node", "properties": {"x": {}}, "$defs": {"Node": NODE}},
            {"x": Json(), "id": Int32(), "next": Json()},
        ),
        ({"allOf": [{"$ref": "#/definitions/A"}], "definitions": {"A": A}}, {"a": Int32()}),
        ({"allOf": [A, B]}, {"a": Int32(), "b": Int32()}),
        ({"type": "object", "oneOf": [A, B]}, {"a": Int32(), "b": Int32()}),
        (
            {"anyOf": [{"type": "null"}, A, {"properties": {"a": {"type": "string"}, "b": True}}]},
            {"a": Json(), "b": Json()},
        ),
        ({**A, **ONE_OF}, {"a": Int32(), "b": Int32(), "c": Int32()}),
        ({**A, "allOf": [{"properties": {"a": {"type": "string"}}}]}, {"a": Int32()}),
        ({**A, "if": {}, "then": B}, {"a": Int32(), "b": Int32()}),
        ({"allOf": [{"$ref": "#"}], "properties": {"a": {"$ref": "#"}}}, {"a": a_struct(a=Json())}),
        (
            {"type": ["null", "object"], "properties": {"a": {"$ref": "#/properties/b"}, "b": {"const": "x"}}},
            {"a": String(), "b": String()},
        ),
        ({"$ref": "#/nowhere"}, {}),
        ({"additionalProperties": {"type": "string"}}, {}),
        ({"oneOf": [{"type": "string"}]}, {}),
        ({}, {}),
    ],
)
def test_every_property_that_a_stream_declares_is_found(schema: Any, expected: dict[str, ColumnType]) -> None:
    assert property_types(schema, NumericTypes.INT_FLOAT) == expected


def test_a_reference_to_the_whole_schema_is_json_text_where_it_recurs() -> None:
    child = a_struct(id=Int32(), child=Json())
    schema = {"properties": {"id": {"type": "integer"}, "child": {"$ref": "#"}}}
    assert property_types(schema, NumericTypes.INT_FLOAT) == {"id": Int32(), "child": child}


def doubling(keyword: str, levels: int = 30) -> dict[str, Any]:
    """A schema of some kilobytes that expands to 2^levels schemas."""
    doubled: dict[str, Callable[[Any], Any]] = {
        "properties": lambda ref: {"type": "object", "properties": {"x": ref, "y": ref}},
        "allOf": lambda ref: {"allOf": [ref, ref]},
        "oneOf": lambda ref: {"oneOf": [ref, ref]},
        "items": lambda ref: {"type": "array", "items": [ref, ref]},
    }
    twice = doubled[keyword]
    return {str(level): twice({"$ref": f"#/$defs/{level + 1}"}) for level in range(levels)} | {str(levels): A}


@pytest.mark.parametrize("keyword", ["properties", "allOf", "oneOf", "items"])
def test_a_schema_that_expands_without_end_is_json_text(keyword: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "MAX_COLUMN_SCHEMAS", 500)
    bomb = {"$ref": "#/$defs/0"}
    schema = {"properties": {"before": A, "bomb": bomb, "after": A}, "$defs": doubling(keyword)}

    types = property_types(schema, NumericTypes.INT_FLOAT)

    assert types == {"before": a_struct(a=Int32()), "bomb": Json(), "after": a_struct(a=Int32())}


def test_the_columns_of_a_stream_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "MAX_COLUMN_SCHEMAS", 60)
    monkeypatch.setattr(json_schema, "MAX_STREAM_SCHEMAS", 100)
    bombs = {f"bomb {number}": {"$ref": "#/$defs/0"} for number in range(1000)}

    types = property_types({"properties": {"a": A, **bombs}, "$defs": doubling("oneOf")}, NumericTypes.INT_FLOAT)

    assert types == {"a": a_struct(a=Int32()), **dict.fromkeys(bombs, Json())}
    assert property_types({"$ref": "#/$defs/0", "$defs": doubling("allOf")}, NumericTypes.INT_FLOAT) == {}


@pytest.mark.parametrize("keyword", ["allOf", "oneOf", "anyOf", "then"])
def test_schemas_within_schemas_without_end_are_json_text(keyword: str) -> None:
    schema: Any = {"type": "string"}
    for _ in range(400):
        schema = {"if": True, "then": schema} if keyword == "then" else {keyword: [schema]}
    assert read(schema) == Json()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"enum": ["open"]}, Json()),
        ({"type": ["integer", "number"]}, Json()),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "string"}]}, Json()),
        ({"allOf": [A, B]}, Json()),
        ({"type": "object", "allOf": [A]}, Json()),
        ({"allOf": [A]}, a_struct(a=Int32())),
        ({**A, "allOf": [B]}, a_struct(a=Int32(), b=Int32())),
        ({"properties": {"s": {"const": "x"}}}, a_struct(s=Json())),
    ],
)
def test_an_older_table_goes_on_with_json_text_where_types_were_not_inferred(
    schema: object, expected: ColumnType
) -> None:
    assert column_type(schema, NumericTypes.INT_FLOAT, untyped=Untyped.JSON_TEXT) == expected


@given(json_values, st.sampled_from(NumericTypes))
def test_no_schema_raises_an_error(schema: object, numeric: NumericTypes) -> None:
    column_type(schema, numeric)
    column_type({"type": schema, "properties": schema, "items": schema, "$ref": schema, "oneOf": schema}, numeric)
    column_type({"type": "number", "airbyte_type": schema, "format": schema}, numeric)
