"""Column types as Iceberg types, and back."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from destination_datalake.schema.iceberg import from_iceberg, iceberg_field, iceberg_type
from destination_datalake.schema.types import ColumnType, Field, Int64, Struct
from unit_tests.strategies import column_types, stored


@given(column_types)
def test_reading_inverts_writing(column_type: ColumnType) -> None:
    ids = count(1)
    assert from_iceberg(iceberg_type(column_type, lambda: next(ids))) == stored(column_type)


@given(column_types)
def test_field_ids_are_unique(column_type: ColumnType) -> None:
    ids = count(1)
    schema = Schema(iceberg_field(Field("a", "a", column_type), lambda: next(ids)))
    assert sorted(schema._lazy_id_to_name) == list(range(1, next(ids)))


def test_a_field_s_doc_is_its_source_if_that_is_not_its_name() -> None:
    assert iceberg_field(Field("order_id", "orderId", Int64()), lambda: 1).doc == "orderId"
    assert iceberg_field(Field("id", "id", Int64()), lambda: 1).doc is None
    struct = Struct((Field("order_id", "orderId", Int64()),))
    ids = count(1)
    assert from_iceberg(iceberg_type(struct, lambda: next(ids))) == struct


@pytest.mark.parametrize(
    "iceberg",
    [
        UUIDType(),
        BinaryType(),
        MapType(1, StringType(), 2, LongType()),
        ListType(1, BinaryType()),
        StructType(NestedField(1, "a", IntegerType()), NestedField(2, "b", UUIDType())),
    ],
)
def test_a_type_that_the_connector_never_writes_is_none(iceberg: IcebergType) -> None:
    assert from_iceberg(iceberg) is None
