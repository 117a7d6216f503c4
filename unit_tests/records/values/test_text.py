"""Booleans, strings and JSON text: kept as received."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from destination_datalake.schema.types import (
    Boolean,
    Json,
    String,
)
from unit_tests.records.values.coercion import WRONG_TYPE, assert_kept, coerce_value
from unit_tests.strategies import json_values


def test_only_true_and_false_are_booleans() -> None:
    assert_kept("true", Boolean(), True)
    assert_kept("false", Boolean(), False)
    for raw in (b'"true"', b"1", b"0", b"[]", b'""'):
        assert coerce_value(raw, Boolean()) == (None, WRONG_TYPE)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('""', ""),
        ('" foo bar "', " foo bar "),
        ('"fo\\u0000o"', "fo\0o"),
        ('"line\\nbreak \\ud83d\\ude00 ࠈൡሗ"', "line\nbreak 😀 ࠈൡሗ"),
        ("1.50", "1.50"),
        ("1e400", "1e400"),
        ("12345678901234567890123456789012", "12345678901234567890123456789012"),
        ("true", "true"),
        ('{"a" : [1,  2]}', '{"a" : [1,  2]}'),
        ("[]", "[]"),
    ],
)
def test_a_string_column_keeps_every_value_as_text(raw: str, expected: str) -> None:
    assert_kept(raw, String(), expected)


@pytest.mark.parametrize("raw", [b'"\\ud800"', b'"a\\udc00b"', b'"\xff"', b'{"a":"\xff"}'])
def test_text_that_utf8_cannot_encode_is_nulled_as_a_wrong_type(raw: bytes) -> None:
    assert coerce_value(raw, String()) == (None, WRONG_TYPE)


def test_a_string_of_16_megabytes_is_kept_whole() -> None:
    assert_kept(json.dumps("x" * 16_777_217), String(), "x" * 16_777_217)


@pytest.mark.parametrize(
    "raw", ['"x"', "1.50", "true", '{ "b":1,"a" : [ ] }', '{"a":1,"a":2}', '"\\ud800"', "1e400", '"\\u0000"']
)
def test_json_text_is_kept_exactly_as_received(raw: str) -> None:
    assert_kept(raw, Json(), raw)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_string_is_ever_changed(text: str) -> None:
    assert_kept(json.dumps(text), String(), text)
    assert_kept(json.dumps(text, ensure_ascii=False), String(), text)


@given(json_values, st.sampled_from([None, 1]))
def test_json_text_is_never_changed(value: object, indent: int | None) -> None:
    try:
        raw = json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        reject()  # NaN and the infinities are no JSON.
    if raw != "null":
        assert_kept(raw, Json(), raw)
