"""Random column types and JSON values, for laws that hold for all of them."""

from __future__ import annotations

import json
from functools import cache

from hypothesis import strategies as st

from destination_datalake.schema.names import PRESERVE
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

EXAMPLE_TYPES: tuple[ColumnType, ...] = (
    Boolean(),
    Int32(),
    Int64(),
    Float32(),
    Float64(),
    Decimal(38, 18),
    String(),
    Json(),
    Date(),
    Timestamp(zoned=True),
    Timestamp(zoned=False),
    Struct((Field("id", "Id", Int64()), Field("tags", "tags", List(String())))),
    List(Int32()),
)

decimals = st.integers(1, 38).flatmap(lambda p: st.builds(Decimal, st.just(p), st.integers(0, p)))
names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True) | st.text(max_size=6).map(PRESERVE.inside.identifier)


def _nested(inner: st.SearchStrategy[ColumnType]) -> st.SearchStrategy[ColumnType]:
    fields = st.builds(lambda name, type_: Field(name, name, type_), names, inner)
    structs = st.lists(fields, min_size=1, max_size=4, unique_by=lambda field: field.name)
    return st.builds(List, inner) | st.builds(lambda chosen: Struct(tuple(chosen)), structs)


scalars = st.sampled_from([type_ for type_ in EXAMPLE_TYPES if not isinstance(type_, Struct | List)]) | decimals
column_types = st.recursive(scalars, _nested, max_leaves=8)
# Left to itself, the recursion hardly ever ends at once: half of these are as plain as most columns are.
everyday_types = (
    st.sampled_from(EXAMPLE_TYPES) | st.sampled_from(EXAMPLE_TYPES) | st.recursive(scalars, _nested, max_leaves=4)
)

moments = st.datetimes().map(str) | st.dates().map(str)
numbers = st.integers().map(str) | st.floats().map(str) | st.decimals().map(str)
json_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | moments | numbers
json_values = st.recursive(
    json_scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | names, inner, max_size=4),
    max_leaves=12,
)


def stored(column_type: ColumnType) -> ColumnType:
    """The type as a catalog remembers it: JSON text is text."""
    match column_type:
        case Json():
            return String()
        case List(element):
            return List(stored(element))
        case Struct(fields):
            return Struct(tuple(Field(field.name, field.source, stored(field.type)) for field in fields))
    return column_type


_zones = st.sampled_from(["", "Z", "+00:00", "-05:30", "+14:00", "-0800"])
_clocks = st.datetimes().map(lambda moment: moment.isoformat()) | st.datetimes().map(str)
_odd_moments = st.sampled_from(
    [
        "0000-00-00 00:00:00",
        "0000-01-01",
        "9999-12-31T23:59:59-05:00",
        "0001-01-01T00:00:00+05:00",
        "2024-02-30",
        "2024-02-29T24:00:00Z",
        "2024-02-29T12:00:00.123456789Z",
        "2024-02-29T12:00:00.100000000",
        "2024-02-29T12",
        "2024-02-29T12+05",
        "2024-02-29Z",
        "12345-01-01",
        "0044-03-15 BC",
    ]
)
_odd_numbers = st.sampled_from(
    [
        "1.0",
        "1.5",
        "-0",
        "-0.0",
        "1e3",
        "1E400",
        "1e-400",
        "0.1",
        "9223372036854775808",
        "123456789012345678901234567890",
    ]
)
_odd_number_texts = _odd_numbers | st.sampled_from(
    ["007", "+5", "5.", ".5", "NaN", "-Infinity", "0x10", "1_0", " 1", ""]
)
_number_texts = (
    st.integers(-(2**70), 2**70).map(str) | st.floats().map(repr) | st.decimals().map(str) | _odd_number_texts
)
_strange = st.sampled_from(['"\\ud800"', "NaN", '{"a":1,"a":"2"}', '"\\u0031"', "[" * 200 + "]" * 200])


def usual_texts(column_type: ColumnType) -> st.SearchStrategy[str]:
    """JSON texts that a column takes as they are, in the forms that sources send; inside of them sometimes anything."""
    match column_type:
        case Boolean():
            return st.sampled_from(["true", "false"])
        case Int32() | Int64():
            return st.integers(-(2**63), 2**63 - 1).map(str)
        case Float32() | Float64():
            return st.floats(allow_nan=False, allow_infinity=False).map(json.dumps) | st.integers().map(str)
        case Decimal(precision, scale):
            largest = 10 ** (precision - scale) - 1
            return st.decimals(-largest, largest, places=scale).map(lambda number: f"{number:f}")
        case Date():
            return st.dates().map(lambda day: f'"{day}"')
        case Timestamp():
            return st.tuples(_clocks, _zones).map(lambda parts: f'"{parts[0]}{parts[1]}"')
        case Struct(fields):
            members = {field.source: json_texts(field.type) for field in fields}
            return st.fixed_dictionaries({}, optional=members).map(_object_text)
        case List(element):
            return st.lists(json_texts(element), max_size=3).map(lambda texts: f"[{', '.join(texts)}]")
    return st.text().map(json.dumps) | json_values.filter(lambda value: value == value).map(_valid_json)


def _object_text(members: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(key)}:{text}" for key, text in members.items()) + "}"


def _valid_json(value: object) -> str:
    return json.dumps(value).replace("NaN", "null").replace("Infinity", "1e400")


_odd = (
    json_values.map(_valid_json)
    | (_odd_moments | _number_texts | _clocks).map(json.dumps)
    | _odd_numbers
    | st.sampled_from(["null", "true", "5", '"x"', "[]", "{}"])
)


@cache
def json_texts(column_type: ColumnType) -> st.SearchStrategy[str]:
    """JSON texts for a column: mostly what it takes as it is, in the forms that sources send, sometimes anything."""
    usual = usual_texts(column_type)
    return st.one_of(usual, usual, usual, st.just("null"), _odd)


@cache
def strange_texts(column_type: ColumnType) -> st.SearchStrategy[str]:
    """Like `json_texts`, with what is JSON to some readers only: NaN, lone surrogates, keys that are there twice."""
    return st.one_of(json_texts(column_type), json_texts(column_type), json_texts(column_type), _strange)
