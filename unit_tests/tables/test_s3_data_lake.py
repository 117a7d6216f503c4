"""Streams that continue tables of Airbyte's S3 Data Lake destination: names and types."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.schema.columns import METADATA_COLUMNS, assign_names, stream_columns
from destination_datalake.schema.evolution import evolve
from destination_datalake.schema.names import PRESERVE, SNAKE_CASE, STYLES, Naming
from destination_datalake.schema.types import (
    ColumnType,
    Decimal,
    Float64,
    Int64,
    Json,
    List,
    NumericTypes,
    String,
)
from destination_datalake.tables.s3_data_lake import (
    EPOCH_METADATA_COLUMNS,
    column_naming,
    has_epoch_metadata_columns,
    inherit_types,
    table_identifier,
)

INTEGER, NUMBER, STRING = {"type": "integer"}, {"type": "number"}, {"type": "string"}
AN_OBJECT = {"type": "object", "properties": {"a": INTEGER}}


@pytest.mark.parametrize(
    ("schema", "existing", "written"),
    [
        (INTEGER, Int64(), Int64()),
        ({**INTEGER, "airbyte_type": "big_integer"}, Int64(), Int64()),
        (NUMBER, Float64(), Float64()),
        (NUMBER, Decimal(38, 18), Decimal(38, 18)),
        (AN_OBJECT, String(), Json()),
        ({"type": "object"}, String(), Json()),
        ({"type": ["string", "integer"]}, String(), Json()),
        ({"type": "array"}, String(), Json()),
        ({"type": "array", "items": STRING}, String(), Json()),
        ({"type": "array", "items": STRING}, List(String()), List(String())),
        ({"type": "array", "items": NUMBER}, List(Float64()), List(Float64())),
        ({"type": "array", "items": AN_OBJECT}, List(String()), List(Json())),
        ({"type": "array", "items": {"type": "array", "items": AN_OBJECT}}, List(List(String())), List(List(Json()))),
    ],
)
@pytest.mark.parametrize("numeric", NumericTypes)
def test_a_column_is_continued_in_its_type(
    schema: dict[str, Any], existing: ColumnType, written: ColumnType, numeric: NumericTypes
) -> None:
    """Whatever `numeric_types` is, no second one is added."""
    json_schema = {"properties": {"unitPrice": schema}}
    [column] = stream_columns(json_schema, numeric, PRESERVE)
    table: dict[str, ColumnType | None] = {"unitPrice": existing}

    evolution = evolve(table, inherit_types([column], json_schema, table))

    assert evolution.changes == ()
    assert [(evolved.name, evolved.type) for evolved in evolution.columns] == [("unitPrice", written)]


@pytest.mark.parametrize(
    ("schema", "existing"),
    [
        (STRING, Int64()),
        (INTEGER, String()),
        # A number with more digits than a double is redirected to a string column.
        ({**NUMBER, "airbyte_type": "big_number"}, Float64()),
        (AN_OBJECT, Int64()),
        (AN_OBJECT, None),
    ],
)
def test_a_column_of_another_origin_is_like_any_other(schema: dict[str, Any], existing: ColumnType | None) -> None:
    json_schema = {"properties": {"x": schema}}
    columns = stream_columns(json_schema, NumericTypes.INT_FLOAT, PRESERVE)

    assert inherit_types(columns, json_schema, {"x": existing}) == columns


@pytest.mark.parametrize("naming", STYLES.values(), ids=[*STYLES])
@pytest.mark.parametrize(
    ("source", "column"),
    [
        ("orderNo", "orderNo"),
        ("unit-price", "unit-price"),
        ("Größe", "Größe"),
        ("Größe", "gro_e"),
        ("a b", "a_b"),
        ("京都", "京都"),
        ("9mega", "9mega"),
    ],
)
def test_a_field_goes_on_in_the_column_that_it_has(naming: Naming, source: str, column: str) -> None:
    """Spelled like its key, or by `normalize_column_names`."""
    columns = stream_columns({"properties": {source: STRING, "other": STRING}}, NumericTypes.INT_FLOAT, naming)
    table: dict[str, ColumnType | None] = {column: String(), "more": String()}
    sources = {name.lower(): name for name in table}

    named = assign_names(columns, column_naming(naming, table), sources)

    assert [evolved.name for evolved in evolve(table, named).columns] == [column, "other"]


@pytest.mark.parametrize(
    ("stream", "table"),
    [
        ("orders", "orders"),
        ("orderItems", "orderitems"),
        ("Order-Items", "order_items"),
        ("a  b", "a_b"),
        ("a--b", "a__b"),
        ("größe", "gro_e"),
        ("É", "e"),
        ("京都", "__"),
    ],
)
def test_tables_have_its_names(stream: str, table: str) -> None:
    assert table_identifier(stream) == table


@given(st.from_regex(r"[A-Za-z_][A-Za-z0-9_ .-]{0,20}", fullmatch=True).filter(lambda name: "  " not in name))
def test_of_ascii_names_preserve_has_the_same_tables(stream: str) -> None:
    """The style that docs/operating/migrating.md asks for."""
    assert not stream.strip("_ .-") or PRESERVE.identifier(stream) == table_identifier(stream)


def test_its_metadata_columns_tell_its_tables_from_others() -> None:
    its = {column.name: column.type for column in EPOCH_METADATA_COLUMNS}
    own_types = {column.name: column.type for column in METADATA_COLUMNS}

    assert has_epoch_metadata_columns({**its, "id": Int64()})
    assert not has_epoch_metadata_columns(own_types)
    assert not has_epoch_metadata_columns({"id": Int64()})
    assert SNAKE_CASE.identifier("orderItems") != table_identifier("orderItems")
