"""The maps of the whole set of types."""

from __future__ import annotations

from itertools import count
from typing import get_args

import pyarrow as pa
import pytest

from destination_datalake.records.values.registry import RULES
from destination_datalake.schema.arrow import ARROW, arrow_type
from destination_datalake.schema.glue import GLUE, glue_type
from destination_datalake.schema.iceberg import ICEBERG, iceberg_type
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
from unit_tests.strategies import EXAMPLE_TYPES

ORDER = Struct((Field("id", "Id", Int64()), Field("tags", "tags", List(String()))))


@pytest.mark.parametrize("rules", [ARROW, GLUE, ICEBERG, RULES])
def test_every_map_covers_the_whole_set_of_types(rules: dict[type, object]) -> None:
    assert set(rules) == set(get_args(ColumnType)) == {type(type_) for type_ in EXAMPLE_TYPES}


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
