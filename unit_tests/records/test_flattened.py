"""Fields of objects as columns of their own: their values are those that the objects have as structs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.records.undeclared import undeclared_fields
from destination_datalake.records.values.rules import Floats
from destination_datalake.schema.arrow import arrow_type, widest
from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.names import SNAKE_CASE
from destination_datalake.schema.types import Field, Nested, NumericTypes, Struct
from unit_tests.records.test_decoder import comparable
from unit_tests.strategies import strange_texts

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
ADDRESS = {
    "type": "object",
    "properties": {"city": TEXT, "geo": {"type": "object", "properties": {"lat": {"type": "number"}, "zone": WHOLE}}},
}
ORDERS = {"properties": {"id": WHOLE, "address": ADDRESS, "tags": {"type": "array", "items": ADDRESS}}}
WRONG = "DESTINATION_SERIALIZATION_ERROR"


def columns(schema: Mapping[str, object], nested: Nested, depth: int = 10) -> tuple[Field, ...]:
    return stream_columns(schema, NumericTypes.INT_FLOAT, SNAKE_CASE, nested, depth)


def line(data: str) -> bytes:
    return f'{{"type":"RECORD","record":{{"stream":"s","data":{data},"emitted_at":1700000000000}}}}'.encode(
        "utf-8", "surrogatepass"
    )


Rows = list[tuple[list[Any], list[tuple[Any, ...]]]]
"""The values of each row, and its changes."""


def decoded(lines: Sequence[bytes], fields: Sequence[Field], floats: Floats = Floats.ANY) -> Rows:
    """What the decoder makes of the lines."""
    rows: Rows = []
    for part in BlockDecoder(fields, floats).decode(b"".join(raw_line + b"\n" for raw_line in lines)):
        assert [array.type for array in part.columns] == [arrow_type(widest(field.type)) for field in fields]
        for array in part.columns:
            assert len(array) == part.rows
            array.validate(full=True)
        values: Any = [array.to_pylist() for array in part.columns]
        changes: Any = [[]] * part.rows if part.changes is None else part.changes.to_pylist()
        originals = {row: [change.original for change in noted] for row, noted in part.changed.items()}
        rows += [
            (
                [cells[row] for cells in values],
                [*(tuple(change.values()) for change in changes[row]), *originals.get(row, ())],
            )
            for row in range(part.rows)
        ]
    return rows


def flattened(rows: Rows, structs: Sequence[Field], flat: Sequence[Field]) -> Rows:
    """The same rows with the fields of their structs taken out, one by one."""
    return [([taken(values, structs, column) for column in flat], changes) for values, changes in rows]


def taken(values: Sequence[Any], structs: Sequence[Field], column: Field) -> Any:
    key, *inside = column.path
    value, type_ = next(
        (value, field.type) for value, field in zip(values, structs, strict=True) if field.source == key
    )
    for step in inside:
        assert isinstance(type_, Struct)
        member = next(field for field in type_.fields if field.source == step)
        value, type_ = None if value is None else value[member.name], member.type
    return value


# --- The law

keys = st.sampled_from(["a", "b", "a_b", "A", "a.b", "", "$.a.b", "\ud800", 'q"', "_file"])
leaves = st.sampled_from(
    [TEXT, WHOLE, {"type": "number"}, {}, {"type": "string", "format": "date"}, {"type": "array", "items": ADDRESS}]
)
schemas = st.recursive(
    leaves,
    lambda inner: st.dictionaries(keys, inner, min_size=1, max_size=3).map(
        lambda properties: {"type": "object", "properties": properties}
    ),
    max_leaves=8,
)
streams = st.dictionaries(keys, schemas, min_size=1, max_size=3).map(lambda properties: {"properties": properties})


@given(data=st.data(), schema=streams, depth=st.integers(1, 4), floats=st.sampled_from(Floats))
def test_flattened_columns_are_the_fields_of_the_structs(
    data: st.DataObject, schema: Mapping[str, object], depth: int, floats: Floats
) -> None:
    structs, flat = columns(schema, Nested.STRUCT), columns(schema, Nested.FLATTEN, depth)
    records = st.fixed_dictionaries({}, optional={field.source: strange_texts(field.type) for field in structs})
    lines = [
        line("{" + ",".join(f"{json.dumps(key)}:{text}" for key, text in members.items()) + "}")
        for members in data.draw(st.lists(records, min_size=1, max_size=5))
    ]

    expected = flattened(decoded(lines, structs, floats), structs, flat)

    assert repr(comparable(decoded(lines, flat, floats))) == repr(comparable(expected))


# --- Facts


def test_fields_of_null_and_absent_objects_are_null() -> None:
    fields = columns(ORDERS, Nested.FLATTEN)
    sent = ['{"id":1,"address":{"city":"Rom","geo":{"zone":2}}}', '{"address":null}', '{"address":{"geo":null}}', "{}"]

    assert [field.name for field in fields] == [
        "id",
        "address_city",
        "address_geo_lat",
        "address_geo_zone",
        "tags",
    ]
    assert [values for values, _ in decoded([*map(line, sent)], fields)] == [
        [1, "Rom", None, 2, None],
        [None] * 5,
        [None] * 5,
        [None] * 5,
    ]


def test_an_object_that_is_none_is_one_change_and_its_fields_are_null() -> None:
    fields = columns(ORDERS, Nested.FLATTEN)
    sent = [line('{"id":1,"address":"Rom"}'), line('{"id":2,"address":{"city":"Bern","geo":{"zone":"x"}}}')]

    assert decoded(sent, fields) == [
        ([1, None, None, None, None], [("address", "NULLED", WRONG), b'"Rom"']),
        ([2, "Bern", None, None, None], [("address.geo.zone", "NULLED", WRONG), b'"x"']),
    ]


def test_undeclared_fields_inside_flattened_objects_are_found() -> None:
    sent = line('{"id":1,"new":1,"address":{"city":"Rom","zip":1,"geo":{"alt":1}}}') + b"\n"

    for depth in (1, 2):
        assert undeclared_fields(sent, columns(ORDERS, Nested.FLATTEN, depth)) == (
            "address.geo.alt",
            "address.zip",
            "new",
        )
