"""Column types as Arrow types."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.schema.arrow import arrow_field, arrow_type, narrowest, widest
from destination_datalake.schema.types import (
    ColumnType,
    Date,
    Decimal,
    Field,
    Float32,
    Float64,
    Int32,
    Int64,
    List,
    String,
    Struct,
    Timestamp,
)


def test_a_field_has_the_column_s_name_and_is_nullable_at_every_level() -> None:
    order = Struct((Field("id", "Id", Int64()), Field("tags", "tags", List(String()))))

    field = arrow_field(Field("order", "Order", order))

    assert field.name == "order"
    assert field.nullable
    assert isinstance(field.type, pa.StructType)
    assert field.type.field(0).nullable


# --- How wide numbers are -------------------------------------------------------------------------------------------


INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**31) - 1, -(2**31), 2**31 - 1, 2**31])
FLOATS = st.floats() | st.floats(width=32)


def fitted(values: list[Any], column_type: ColumnType) -> ColumnType:
    return narrowest(pa.array(values, arrow_type(widest(column_type))), column_type)


def is_single(value: float) -> bool:
    """Whether a 32-bit float holds the value exactly."""
    try:
        [narrow] = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        return False
    return value != value or bool(narrow == value)


@given(values=st.lists(st.none() | INTEGERS))
def test_integers_are_32_bit_if_and_only_if_all_fit(values: list[int | None]) -> None:
    all_fit = all(value is None or -(2**31) <= value < 2**31 for value in values)

    assert fitted(values, Int32()) == (Int32() if all_fit else Int64())


@given(values=st.lists(st.none() | FLOATS))
def test_floats_are_32_bit_if_and_only_if_none_would_change(values: list[float | None]) -> None:
    all_fit = all(value is None or is_single(value) for value in values)

    assert fitted(values, Float32()) == (Float32() if all_fit else Float64())


@pytest.mark.parametrize(
    ("values", "narrow"),
    [
        ([], True),
        ([None, None], True),
        ([0.1], False),
        ([0.5, -0.0, 2.0**40], True),
        ([float(2**24 + 1)], False),
        ([float("nan"), float("inf"), float("-inf")], True),
        ([float("nan"), 0.1], False),
        ([1e39], False),
        ([1e-46], False),
    ],
)
def test_a_float_is_narrow_if_it_is_equal_in_32_bits(values: list[float | None], narrow: bool) -> None:
    assert fitted(values, Float32()) == (Float32() if narrow else Float64())


def nested(integer: ColumnType, number: ColumnType) -> Struct:
    line = Struct((Field("count", "count", integer), Field("price", "price", number)))
    return Struct((Field("id", "id", integer), Field("lines", "lines", List(line))))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, nested(Int32(), Float32())),
        ({"id": 1, "lines": None}, nested(Int32(), Float32())),
        ({"id": 1, "lines": [{"count": 1, "price": 0.5}, None]}, nested(Int32(), Float32())),
    ],
)
def test_numbers_inside_structs_and_lists_stay_narrow(value: object, expected: ColumnType) -> None:
    assert fitted([value], nested(Int32(), Float32())) == expected


def test_numbers_inside_structs_and_lists_widen_independently() -> None:
    before = nested(Int32(), Float32())
    values = [{"id": 2**31, "lines": []}, {"id": 1, "lines": [{"count": 1, "price": 0.5}, {"count": 1, "price": 0.1}]}]

    line = Struct((Field("count", "count", Int32()), Field("price", "price", Float64())))
    assert fitted(values, before) == Struct((Field("id", "id", Int64()), Field("lines", "lines", List(line))))


def test_only_the_rows_of_a_slice_count() -> None:
    values = pa.array([2**40, 1, 2**40], pa.int64()).slice(1, 1)

    assert narrowest(values, Int32()) == Int32()


@pytest.mark.parametrize(
    "column_type",
    [Int64(), Float64(), Decimal(38, 18), String(), Date(), Timestamp(zoned=True), List(String())],
)
def test_other_types_are_unchanged(column_type: ColumnType) -> None:
    assert fitted([None], column_type) == column_type
