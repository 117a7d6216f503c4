"""The columns of a stream's table, and the collisions among their names."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from destination_datalake.schema.columns import METADATA_COLUMNS, find_collisions, stream_columns
from destination_datalake.schema.names import METADATA_NAMES, PRESERVE, SNAKE_CASE, Naming
from destination_datalake.schema.types import Field, Int32, List, NumericTypes, String, Struct


def test_columns_have_the_order_of_the_schema_and_their_sources() -> None:
    schema = {"type": "object", "properties": {"zip": {"type": "string"}, "orderId": {"type": "integer"}}}
    assert stream_columns(schema, NumericTypes.INT_FLOAT) == (
        Field("zip", "zip", String()),
        Field("order_id", "orderId", Int32()),
    )


def test_references_are_resolved_in_the_schema_of_the_stream() -> None:
    schema = {
        "properties": {"parent": {"$ref": "#/definitions/Node"}},
        "definitions": {"Node": {"type": "object", "properties": {"id": {"type": "integer"}}}},
    }
    (parent,) = stream_columns(schema, NumericTypes.INT_FLOAT)
    assert parent.type == Struct((Field("id", "id", Int32()),))


def test_properties_with_metadata_names_are_left_out() -> None:
    schema = {"properties": {**{name: {"type": "string"} for name in METADATA_NAMES}, "id": {"type": "integer"}}}
    assert [column.name for column in stream_columns(schema, NumericTypes.INT_FLOAT)] == ["id"]


def test_a_property_whose_identifier_is_a_metadata_name_gets_a_suffix() -> None:
    (column,) = stream_columns({"properties": {"_airbyte_rawId": {"type": "string"}}}, NumericTypes.INT_FLOAT)
    assert column.source == "_airbyte_rawId"
    assert column.name.startswith("_airbyte_raw_id_")


def test_colliding_columns_are_all_kept() -> None:
    columns = stream_columns({"properties": {"aB": {}, "a_b": {}, "a b": {}}}, NumericTypes.INT_FLOAT)
    assert [column.source for column in columns] == ["aB", "a_b", "a b"]
    assert len({column.name for column in columns}) == 3


def test_a_stream_without_properties_has_no_columns() -> None:
    assert stream_columns({}, NumericTypes.INT_FLOAT) == ()
    assert stream_columns({"type": "object", "properties": None}, NumericTypes.INT_FLOAT) == ()


def test_the_metadata_columns_have_the_metadata_names_in_order() -> None:
    assert tuple(column.name for column in METADATA_COLUMNS) == METADATA_NAMES
    meta = METADATA_COLUMNS[2].type
    assert isinstance(meta, Struct)
    assert isinstance(meta.fields[1].type, List)


NUMBER = {"type": "number"}


def object_of(*fields: str) -> Mapping[str, object]:
    return {"type": "object", "properties": dict.fromkeys(fields, NUMBER)}


@pytest.mark.parametrize(
    ("naming", "properties", "expected"),
    [
        (SNAKE_CASE, {"id": NUMBER, "createdAt": NUMBER}, []),
        (
            SNAKE_CASE,
            {"a_b": NUMBER, "id": NUMBER, "aB": NUMBER, "a b": NUMBER},
            ["'a_b' is a_b, 'aB' is a_b_#, 'a b' is a_b_#"],
        ),
        (PRESERVE, {"a_b": NUMBER, "aB": NUMBER, "a b": NUMBER}, ["'a_b' is a_b, 'a b' is a_b_#"]),
        (SNAKE_CASE, {"aB": NUMBER, "a-b": NUMBER}, ["'aB' is a_b_#, 'a-b' is a_b_#"]),
        (SNAKE_CASE, {"_airbyteMeta": NUMBER}, ["'_airbyteMeta' is _airbyte_meta_#"]),
        (SNAKE_CASE, {"_airbyte_meta": NUMBER}, []),
        (SNAKE_CASE, {"_file": NUMBER}, ["'_file' is _file_#"]),
        (
            SNAKE_CASE,
            {"The Customer": object_of("aB", "a_b"), "lines": {"type": "array", "items": object_of("x y", "xY")}},
            [
                "in 'The Customer' 'aB' is a_b_#, 'a_b' is a_b",
                "in 'lines' 'x y' is x_y_#, 'xY' is x_y_#",
            ],
        ),
        (PRESERVE, {"1a": NUMBER, "_1a": NUMBER, "o": object_of("1a", "_1a")}, ["in 'o' '1a' is _1a_#, '_1a' is _1a"]),
    ],
)
def test_a_collision_names_the_colliding_fields_and_their_columns(
    naming: Naming, properties: Mapping[str, object], expected: list[str]
) -> None:
    columns = stream_columns({"properties": properties}, NumericTypes.INT_FLOAT, naming)
    found = [str(collision) for collision in find_collisions(columns, naming)]

    assert [re.sub("_[0-9a-f]{8}", "_#", text) for text in found] == expected
