"""Objects and lists: a value that does not fit costs only itself."""

from __future__ import annotations

import pytest

from destination_datalake.records.decoded import ValueChange
from destination_datalake.schema.types import (
    Field,
    Float64,
    Int64,
    Json,
    List,
    String,
    Struct,
)
from unit_tests.records.values.coercion import WRONG_TYPE, assert_kept, coerce_value

ORDER = Struct((Field("order_id", "orderId", Int64()), Field("sums", "sums", List(Float64())), Field("x", "x", Json())))


def test_a_struct_is_read_by_its_keys_and_written_by_its_names() -> None:
    assert_kept(
        '{"x" : { "open": 1 }, "undeclared": [1], "orderId": "7", "sums": [1, null]}',
        ORDER,
        {"order_id": 7, "sums": [1.0, None], "x": '{ "open": 1 }'},
    )


def test_a_missing_member_is_null() -> None:
    assert_kept("{}", ORDER, {"order_id": None, "sums": None, "x": None})


def test_the_last_of_equal_keys_counts() -> None:
    assert_kept('{"orderId": 1, "orderId": 2}', ORDER, {"order_id": 2, "sums": None, "x": None})


@pytest.mark.parametrize("raw", [b'"{}"', b"[]", b"1", b"true"])
def test_a_struct_of_another_type_is_nulled(raw: bytes) -> None:
    assert coerce_value(raw, ORDER) == (None, WRONG_TYPE)


@pytest.mark.parametrize("raw", [b'"[]"', b"{}", b"1", b"true"])
def test_a_list_of_another_type_is_nulled(raw: bytes) -> None:
    assert coerce_value(raw, List(String())) == (None, WRONG_TYPE)


def test_only_the_wrong_nested_value_is_nulled_and_its_path_reported() -> None:
    value, changes = coerce_value(b'{"orderId": "two", "sums": [1, "x", 1e400]}', ORDER)
    assert value == {"order_id": None, "sums": [1.0, None, None], "x": None}
    assert changes == (
        ValueChange("orderId", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),
        ValueChange("sums.1", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),
        ValueChange("sums.2", "NULLED", "DESTINATION_FIELD_SIZE_LIMITATION"),
    )


def test_a_lone_surrogate_inside_nulls_only_its_value() -> None:
    pair = Struct((Field("a", "a", List(String())), Field("b", "b", Json())))
    value, changes = coerce_value(b'{ "a" : [ "x" , "\\ud800", 5 ] , "b" : [ "\\udc00" ] }', pair)
    assert value == {"a": ["x", None, "5"], "b": '[ "\\udc00" ]'}
    assert changes == (ValueChange("a.1", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),)


def test_a_value_nested_too_deeply_is_nulled() -> None:
    assert coerce_value(b"[" * 100_000 + b"]" * 100_000, List(Json())) == (None, WRONG_TYPE)
