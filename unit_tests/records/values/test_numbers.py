"""Integers, doubles and decimals: exact, the nearest, or on record."""

from __future__ import annotations

import decimal
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.records.values.rules import Floats
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Float32,
    Float64,
    Int32,
    Int64,
    Json,
    List,
    String,
    Timestamp,
)
from unit_tests.records.values.coercion import CUT, OUT_OF_RANGE, WRONG_TYPE, assert_kept, coerce_value

HUGE = "1" + "0" * 399
ZONED = Timestamp(zoned=True)


@pytest.mark.parametrize("column_type", [Int32(), Int64()])
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("0", 0),
        ("-0", 0),
        ("42", 42),
        ("-42", -42),
        ("2147483648", 2**31),
        ("9007199254740993", 2**53 + 1),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1.0", 1),
        ("-3.000", -3),
        ("1e3", 1000),
        ("1200e-2", 12),
        ("0e999999999999999999999", 0),
        ('"42"', 42),
        ('"-42"', -42),
        ('"+42"', 42),
        ('"007"', 7),
        ('"42.0"', 42),
        ('"9223372036854775807"', 2**63 - 1),
        ('"\\u0034\\u0032"', 42),
    ],
)
def test_an_integer_is_kept_exactly_in_every_notation(raw: str, expected: int, column_type: ColumnType) -> None:
    assert_kept(raw, column_type, expected)


MILLIONS = 3_000_000


@pytest.mark.share(8)
@pytest.mark.parametrize("column_type", [Int64(), Float64(), Decimal(38, 18), Date(), ZONED])
@pytest.mark.parametrize(
    "text",
    [
        "1" * MILLIONS + "x",
        "." + "1" * MILLIONS + "x",
        "1." + "1" * MILLIONS + "x",
        "1e" + "0" * MILLIONS + "x",
        "1e" + "1" * MILLIONS + "x",
        "2024-02-29T12:00:00." + "0" * MILLIONS + "x",
        " " * MILLIONS + "x",
        "+" * MILLIONS + "x",
    ],
    ids=["digits", "point first", "fraction", "zeros", "exponent", "moment", "blanks", "signs"],
)
def test_millions_of_wrong_characters_are_judged_in_linear_time(text: str, column_type: ColumnType) -> None:
    """Looked at once for each of them, they would never be through."""
    assert coerce_value(f'"{text}"'.encode(), column_type) == (None, WRONG_TYPE)


@pytest.mark.parametrize("text", ["1" * MILLIONS, "0." + "0" * MILLIONS + "1", "1e" + "0" * MILLIONS + "1"])
@pytest.mark.parametrize("column_type", [Int64(), Float64(), Decimal(38, 18)])
def test_a_number_of_millions_of_digits_is_judged_in_linear_time(text: str, column_type: ColumnType) -> None:
    value, changes = coerce_value(f'"{text}"'.encode(), column_type)

    assert value in (None, 0, 10)
    assert bool(changes) == (value is None or (value == 0 and isinstance(column_type, Decimal)))


@pytest.mark.parametrize(
    "raw",
    [
        "9223372036854775808",
        "-9223372036854775809",
        "1e400",
        "1e99999999999999999999",
        "9" * 32,
        "9" * 5000,
        f'"{HUGE}"',
    ],
)
def test_an_integer_beyond_64_bits_is_nulled_as_out_of_range(raw: str) -> None:
    assert coerce_value(raw.encode(), Int64()) == (None, OUT_OF_RANGE)


@pytest.mark.parametrize(
    "raw",
    [
        "1.5", '"1.5"', "1e-400", "1e-99999999999999999999", '"two"', '""', '" "', '"4 2"', '"1_000"', '"٤٢"',
        '"NaN"', '"Infinity"', '"0x10"', "true", "[1]", '{"a":1}', '"\\ud800"',
    ],
)  # fmt: skip
def test_a_text_that_is_not_an_integer_is_nulled_as_a_wrong_type(raw: str) -> None:
    assert coerce_value(raw.encode(), Int64()) == (None, WRONG_TYPE)


@pytest.mark.parametrize("column_type", [Float32(), Float64()])
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("0", 0.0),
        ("56.78", 56.78),
        ("-12345.678", -12345.678),
        ("10000000000000000000000.1234", 1e22),
        ("1.7976931348623157e308", 1.7976931348623157e308),
        ("5e-324", 5e-324),
        ("1e-400", 0.0),
        ('"56.78"', 56.78),
        ('" 56.78\\n"', 56.78),
        ('"1e3"', 1000.0),
        ('".5"', 0.5),
        ('"Infinity"', math.inf),
        ('"-Infinity"', -math.inf),
    ],
)
def test_a_number_is_the_nearest_64_bit_float(raw: str, expected: float, column_type: ColumnType) -> None:
    assert_kept(raw, column_type, expected)


def test_nan_is_a_float() -> None:
    value, changes = coerce_value(b'"NaN"', Float64())
    assert isinstance(value, float)
    assert math.isnan(value)
    assert changes == ()


@pytest.mark.parametrize("raw", ["NaN", "Infinity", "-Infinity"])
def test_nan_and_infinity_without_quotes_are_floats_only(raw: str) -> None:
    assert repr(coerce_value(raw.encode(), Float64()).value) == repr(float(raw))
    for column_type in (Int64(), Decimal(38, 18), String(), Json(), Boolean(), Date(), List(Float64())):
        assert coerce_value(raw.encode(), column_type) == (None, WRONG_TYPE)
        assert coerce_value(f'{{"a": {raw}}}'.encode(), column_type) == (None, WRONG_TYPE)


@pytest.mark.parametrize("raw", ["NaN", "Infinity", "-Infinity", '"NaN"', '"Infinity"', '"-Infinity"'])
def test_nan_and_infinity_are_nulled_where_floats_are_finite(raw: str) -> None:
    assert coerce_value(raw.encode(), Float64(), Floats.FINITE) == (None, WRONG_TYPE)
    (noted,) = coerce_value(f"[{raw}]".encode(), List(Float32()), Floats.FINITE).changes
    assert noted.field == "0"


def test_text_with_nan_and_infinity_in_it_is_text() -> None:
    assert_kept('"NaN"', String(), "NaN")
    assert_kept('{"note": "NaN, not Infinity"}', Json(), '{"note": "NaN, not Infinity"}')


@pytest.mark.parametrize("raw", ["1e400", "-1e400", f'"{HUGE}"', HUGE])
def test_a_number_beyond_64_bit_floats_is_nulled_as_out_of_range(raw: str) -> None:
    assert coerce_value(raw.encode(), Float64()) == (None, OUT_OF_RANGE)


@pytest.mark.parametrize(
    "raw", ['"two"', '""', '" "', '"1 0"', '"1_0"', '"inf"', '"nan"', "true", "[]", "{}", '"\\udc00"']
)
def test_a_text_that_is_not_a_number_is_nulled_as_a_wrong_type(raw: str) -> None:
    assert coerce_value(raw.encode(), Float64()) == (None, WRONG_TYPE)


@pytest.mark.parametrize(
    ("raw", "precision", "scale", "expected"),
    [
        ("1234567890.123456789012345678", 38, 18, "1234567890.123456789012345678"),
        ("99999999999999999999.999999999999999999", 38, 18, "99999999999999999999.999999999999999999"),
        ('"-0.5"', 38, 18, "-0.5"),
        ("1e3", 38, 18, "1000"),
        ("0.50", 3, 1, "0.5"),
        ("0", 1, 1, "0"),
        ("0.0000000000000000000", 38, 18, "0"),
    ],
)
def test_a_decimal_is_kept_to_its_last_digit(raw: str, precision: int, scale: int, expected: str) -> None:
    value, changes = coerce_value(raw.encode(), Decimal(precision, scale))
    assert value == decimal.Decimal(expected)
    assert changes == ()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [("0.125", "0.12"), ("0.135", "0.14"), ("1e-999999999", "0.00"), ("1e-99999999999999999999", "0.00")],
)
def test_a_decimal_finer_than_the_scale_is_rounded_and_the_change_noted(raw: str, expected: str) -> None:
    assert coerce_value(raw.encode(), Decimal(10, 2)) == (decimal.Decimal(expected), CUT)


@pytest.mark.parametrize("raw", ["1000", "999.999", "-1000", "1e400", "1e99999999999999999999"])
def test_a_decimal_with_too_many_digits_before_the_point_is_nulled_as_out_of_range(raw: str) -> None:
    assert coerce_value(raw.encode(), Decimal(5, 2)) == (None, OUT_OF_RANGE)


@pytest.mark.parametrize("raw", ['"NaN"', '"Infinity"', '"x"', "true", "[1]"])
def test_a_text_that_is_not_a_decimal_is_nulled_as_a_wrong_type(raw: str) -> None:
    assert coerce_value(raw.encode(), Decimal(10, 2)) == (None, WRONG_TYPE)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_64_bit_integer_is_exact(number: int) -> None:
    for raw in (str(number), f'"{number}"', f"{number}.0"):
        assert_kept(raw, Int64(), number)


@given(st.floats(allow_nan=False))
def test_every_float_is_exact(number: float) -> None:
    raw = repr(number) if math.isfinite(number) else f'"{str(number).replace("inf", "Infinity")}"'
    assert_kept(raw, Float64(), number)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=18, min_value=-(10**19), max_value=10**19))
def test_every_decimal_that_fits_is_exact(number: decimal.Decimal) -> None:
    value, changes = coerce_value(str(number).encode(), Decimal(38, 18))
    assert (value, changes) == (number, ())
