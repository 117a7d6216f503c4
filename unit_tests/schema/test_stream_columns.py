from __future__ import annotations

from destination_datalake.schema.columns import METADATA_COLUMNS, stream_columns
from destination_datalake.schema.names import METADATA_NAMES
from destination_datalake.schema.types import Field, Int32, List, NumericTypes, String, Struct


def test_columns_come_in_the_order_of_the_schema_with_their_sources() -> None:
    schema = {"type": "object", "properties": {"zip": {"type": "string"}, "orderId": {"type": "integer"}}}
    assert stream_columns(schema, NumericTypes.INT_FLOAT) == (
        Field("zip", "zip", String()),
        Field("order_id", "orderId", Int32()),
    )


def test_references_are_looked_up_in_the_streams_schema() -> None:
    schema = {
        "properties": {"parent": {"$ref": "#/definitions/Node"}},
        "definitions": {"Node": {"type": "object", "properties": {"id": {"type": "integer"}}}},
    }
    (parent,) = stream_columns(schema, NumericTypes.INT_FLOAT)
    assert parent.type == Struct((Field("id", "id", Int32()),))


def test_metadata_names_in_a_schema_are_no_columns_of_the_stream() -> None:
    schema = {"properties": {**{name: {"type": "string"} for name in METADATA_NAMES}, "id": {"type": "integer"}}}
    assert [column.name for column in stream_columns(schema, NumericTypes.INT_FLOAT)] == ["id"]


def test_a_spelling_that_would_become_a_metadata_name_gets_another() -> None:
    (column,) = stream_columns({"properties": {"_airbyte_rawId": {"type": "string"}}}, NumericTypes.INT_FLOAT)
    assert column.source == "_airbyte_rawId"
    assert column.name.startswith("_airbyte_raw_id_")


def test_colliding_columns_all_stay() -> None:
    columns = stream_columns({"properties": {"aB": {}, "a_b": {}, "a b": {}}}, NumericTypes.INT_FLOAT)
    assert [column.source for column in columns] == ["aB", "a_b", "a b"]
    assert len({column.name for column in columns}) == 3


def test_a_stream_without_properties_has_no_columns() -> None:
    assert stream_columns({}, NumericTypes.INT_FLOAT) == ()
    assert stream_columns({"type": "object", "properties": None}, NumericTypes.INT_FLOAT) == ()


def test_the_metadata_columns_bear_the_reserved_names_in_order() -> None:
    assert tuple(column.name for column in METADATA_COLUMNS) == METADATA_NAMES
    meta = METADATA_COLUMNS[2].type
    assert isinstance(meta, Struct)
    assert isinstance(meta.fields[1].type, List)
