"""Whatever a schema admits, by an independent validator, is in a column as it was sent, or as JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker

from destination_datalake.records.record import record_coercer
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.columns import RecordFields, stream_columns
from destination_datalake.schema.json_schema import Untyped
from destination_datalake.schema.types import Date, Field, Json, List, Nested, NumericTypes, String, Struct, Timestamp
from unit_tests.strategies import json_values

Schema = Any

DAY, MOMENT = "2024-02-29", "2024-02-29T12:00:00"
formats = FormatChecker(())
formats.checks("date")(lambda value: not isinstance(value, str) or value == DAY)
formats.checks("date-time")(lambda value: not isinstance(value, str) or value == f"{MOMENT}Z")

REFERENCES = ("#/$defs/A", "#/$defs/a~1b/properties/b", "#anchor", "#/$defs/alias", "part.json", "#")
KEYS = ("a", "b", "A b")

scalars: st.SearchStrategy[Schema] = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "format": "date"},
        {"type": ["null", "string"], "format": "date-time"},
        {"type": "integer"},
        {"type": ["number", "null"]},
        {"type": ["integer", "number"]},
        {"type": ["string", "integer"]},
        {"type": "boolean"},
        {"enum": ["open", "closed"]},
        {"enum": [1, "open", None]},
        {"const": 2.5},
        {"type": "object"},
        {"type": "array"},
        {"description": "anything"},
        True,
    ]
)
references = st.sampled_from(REFERENCES).map(lambda reference: {"$ref": reference})


def _of_objects(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    members = st.dictionaries(st.sampled_from(KEYS), inner, min_size=1, max_size=2)
    objects = members.map(lambda properties: {"type": "object", "properties": properties})
    parts = st.lists(objects | references, min_size=1, max_size=2)
    return st.one_of(
        objects,
        parts.map(lambda schemas: {"allOf": schemas}),
        parts.map(lambda schemas: {"anyOf": [*schemas, {"type": "null"}]}),
        st.builds(lambda own, branches: {**own, "oneOf": branches}, objects, parts),
        st.builds(lambda own, every: {**own, "allOf": every}, objects, parts),
        st.builds(lambda own, sometimes: {**own, "if": True, "then": sometimes}, objects, objects),
        st.builds(lambda own, reference: {**own, **reference}, objects, references),
    )


def _combined(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    several = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        inner,
        _of_objects(inner),
        inner.map(lambda items: {"type": "array", "items": items}),
        st.builds(lambda first, items: {"type": "array", "prefixItems": first, "items": items}, several, inner),
        several.map(lambda branches: {"anyOf": branches}),
    )


simple = scalars | references
nested = _combined(simple)


@st.composite
def documents(draw: st.DrawFn) -> Mapping[str, Any]:
    """A stream's schema, of objects, with definitions that its references lead to."""
    named = {
        "A": draw(nested),
        "a/b": {"type": "object", "properties": {"b": draw(simple)}},
        "c": {"$anchor": "anchor", "type": "object", "properties": {"b": draw(scalars), "a": {"$ref": "#/$defs/A"}}},
        "alias": {"$ref": "#/$defs/A"},
        "d": {
            "$id": "part.json",
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/own"}},
            "$defs": {"own": draw(scalars)},
        },
    }
    # Elsewhere, properties without a type admit by the letter what is no object.
    plain = nested.map(lambda schema: {"properties": {"a": schema}})
    return {**draw(_of_objects(nested) | plain), "$defs": named}


ABSENT = object()


def value_of(draw: st.DrawFn, schema: Schema, document: Mapping[str, Any], depth: int = 0) -> Any:
    """Draw what a schema means; ABSENT if it means nothing, or recurs too deeply. Of its unions one branch counts."""
    value = _value_of(draw, schema, document, depth) if depth <= 6 else ABSENT
    return value if value is ABSENT or is_valid(value, schema, document) else ABSENT


def is_valid(value: Any, schema: Schema, document: Mapping[str, Any]) -> bool:
    """Whether the validator accepts a value; not if a schema refers to itself and to nothing else."""
    try:
        return bool(Draft202012Validator(document, format_checker=formats).evolve(schema=schema).is_valid(value))
    except RecursionError:
        return False


def _value_of(draw: st.DrawFn, schema: Schema, document: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, dict):
        return draw(st.sampled_from(["x", 1, None, {}, [{"a": 1}, "x"]]))
    parts: list[Any] = []
    if (reference := schema.get("$ref")) is not None:
        parts.append(value_of(draw, _target(reference, document), document, depth + 1))
    parts += [value_of(draw, subschema, document, depth + 1) for subschema in schema.get("allOf", [])]
    for key in ("oneOf", "anyOf"):
        if key in schema:
            parts.append(value_of(draw, draw(st.sampled_from(schema[key])), document, depth + 1))
    if "then" in schema:
        parts.append(value_of(draw, schema["then"], document, depth + 1))
    own = _own_value(draw, schema, document, depth)
    parts = [part for part in (own, *parts) if part is not ABSENT]
    if parts and all(isinstance(part, dict) for part in parts):
        return {key: value for part in parts for key, value in part.items()}
    return parts[-1] if parts else ABSENT


def _own_value(draw: st.DrawFn, schema: Mapping[str, Any], document: Mapping[str, Any], depth: int) -> Any:
    if "const" in schema or "enum" in schema:
        return draw(st.sampled_from(schema.get("enum") or [schema["const"]]))
    declared = schema.get("type", "object" if "properties" in schema else [])
    kinds = declared if isinstance(declared, list) else [declared]
    match draw(st.sampled_from(kinds)) if kinds else None:
        case "string":
            texts = {"date": DAY, "date-time": f"{MOMENT}Z"}
            return texts[schema["format"]] if "format" in schema else draw(st.sampled_from(["", "x", "1", DAY]))
        case "integer":
            return draw(st.integers(-9, 9))
        case "number":
            return draw(st.sampled_from([0.5, -2.25, 7]))
        case "boolean":
            return draw(st.booleans())
        case "array":
            items = [*schema.get("prefixItems", ()), *[schema.get("items", True)] * 2]
            values = [
                value_of(draw, subschema, document, depth + 1)
                for subschema in items[: draw(st.integers(0, len(items)))]
            ]
            return [None if value is ABSENT else value for value in values]
        case "object":
            properties = schema.get("properties", {}) if depth or "properties" in schema else {}
            drawn = {
                key: value_of(draw, subschema, document, depth + 1)
                for key, subschema in properties.items()
                if draw(st.booleans())
            }
            return {key: value for key, value in drawn.items() if value is not ABSENT}
    return ABSENT if not kinds else None


def _target(reference: str, document: Mapping[str, Any]) -> Schema:
    named = document["$defs"]
    return {
        "#": document,
        "#/$defs/A": named["A"],
        "#/$defs/alias": named["A"],
        "#/$defs/a~1b/properties/b": named["a/b"]["properties"]["b"],
        "#anchor": named["c"],
        "part.json": {"type": "object", "properties": {"a": named["d"]["$defs"]["own"]}},
    }[reference]


@st.composite
def admitted(draw: st.DrawFn, *, meant: bool) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """A stream's schema, and a record that the validator accepts: one that is meant, or any other."""
    document = draw(documents())
    if meant:
        record = value_of(draw, document, document)
    else:
        record = draw(st.dictionaries(st.sampled_from(KEYS), json_values | st.just("x"), max_size=3))
    assume(isinstance(record, dict) and is_valid(record, document, document))
    return document, record


def departures(value: Any, field: Field, stored: Any, path: str) -> list[str]:
    """Return the paths of what is stored otherwise than it was sent; those of undeclared fields end in `?`."""
    match field.type:
        case _ if value is None:
            return [] if stored in (None, "null") else [path]
        case Json():
            return [] if stored == json.dumps(value) else [path]
        case Struct(fields) if isinstance(value, dict) and isinstance(stored, dict):
            known = {inner.source: inner for inner in fields}
            return [
                departure
                for key, member in value.items()
                for departure in (
                    departures(member, known[key], stored[known[key].name], f"{path}.{key}")
                    if key in known
                    else [f"{path}.{key}?"]
                )
            ]
        case List(element) if isinstance(value, list) and isinstance(stored, list) and len(value) == len(stored):
            return [
                departure
                for number, (item, inner) in enumerate(zip(value, stored, strict=True))
                for departure in departures(item, Field("", "", element), inner, f"{path}.{number}")
            ]
        case Date() | Timestamp():
            read = pa.scalar(stored, arrow_type(field.type)).as_py()
            return [] if read is not None and read.isoformat().startswith(str(value).rstrip("Z")) else [path]
        case String():
            return [] if stored == (value if isinstance(value, str) else json.dumps(value)) else [path]
    return [] if stored == value and type(stored) is not str else [path]


def stored_of(document: Mapping[str, Any], record: Mapping[str, Any], untyped: Untyped) -> tuple[list[str], set[str]]:
    """Return the paths of what is stored otherwise than it was sent, and of what is reported as changed."""
    columns = stream_columns(document, NumericTypes.BIGINT_DOUBLE, nested=Nested.STRUCT, untyped=untyped)
    line = json.dumps({"type": "RECORD", "record": {"stream": "s", "data": record, "emitted_at": 1}}).encode()
    row = record_coercer(RecordFields.for_columns(columns).fields)(line)
    by_source = {column.source: (column, value) for column, value in zip(columns, row.values, strict=True)}
    lost = [
        departure
        for key, value in record.items()
        for departure in (departures(value, *by_source[key], key) if key in by_source else [f"{key}?"])
    ]
    return lost, {change.field or "" for change in row.changes}


@given(admitted(meant=True))
def test_every_value_that_a_schema_admits_is_stored_as_it_was_sent(
    drawn: tuple[Mapping[str, Any], dict[str, Any]],
) -> None:
    assert stored_of(*drawn, Untyped.INFER) == ([], set())


@given(admitted(meant=False), st.sampled_from(Untyped))
def test_a_value_that_a_column_does_not_take_is_reported(
    drawn: tuple[Mapping[str, Any], dict[str, Any]], untyped: Untyped
) -> None:
    lost, changed = stored_of(*drawn, untyped)

    assert [path for path in lost if path[-1:] != "?" and not any(path.startswith(change) for change in changed)] == []
