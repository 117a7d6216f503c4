from __future__ import annotations

import decimal
import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from destination_datalake.records.changes import Floats, ValueChange
from destination_datalake.records.envelope import RecordRefused
from destination_datalake.records.record import CoercedRecord, record_coercer
from destination_datalake.records.values.registry import coerce_value, coercers
from destination_datalake.schema.arrow import arrow_type
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
from unit_tests.strategies import ONE_OF_EACH, column_types, json_values

WRONG_TYPE = (ValueChange("", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),)
OUT_OF_RANGE = (ValueChange("", "NULLED", "DESTINATION_FIELD_SIZE_LIMITATION"),)
CUT = (ValueChange("", "TRUNCATED", "DESTINATION_FIELD_SIZE_LIMITATION"),)

ZONED, UNZONED = Timestamp(zoned=True), Timestamp(zoned=False)
MICROSECOND = timedelta(microseconds=1)
HUGE = "1" + "0" * 399


def micros(*moment: int) -> int:
    return (datetime(*moment, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // MICROSECOND  # type: ignore[misc,arg-type]


def days(year: int, month: int, day: int) -> int:
    return (date(year, month, day) - date(1970, 1, 1)).days


def kept(raw: str, column_type: ColumnType, expected: object) -> None:
    value, changes = coerce_value(raw.encode(), column_type)
    assert (value, type(value), changes) == (expected, type(expected), ())


@pytest.mark.parametrize("column_type", ONE_OF_EACH)
def test_null_is_null_in_every_column(column_type: ColumnType) -> None:
    assert coerce_value(b"null", column_type) == (None, ())


# --- Numbers


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
def test_an_integer_is_kept_exactly_however_it_is_written(raw: str, expected: int, column_type: ColumnType) -> None:
    kept(raw, column_type, expected)


MILLIONS = 3_000_000


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
def test_millions_of_characters_that_are_no_number_and_no_moment_are_looked_at_once(
    text: str, column_type: ColumnType
) -> None:
    """Looked at once for each of them, they would never be through."""
    assert coerce_value(f'"{text}"'.encode(), column_type) == (None, WRONG_TYPE)


@pytest.mark.parametrize("text", ["1" * MILLIONS, "0." + "0" * MILLIONS + "1", "1e" + "0" * MILLIONS + "1"])
@pytest.mark.parametrize("column_type", [Int64(), Float64(), Decimal(38, 18)])
def test_a_number_of_millions_of_digits_is_judged(text: str, column_type: ColumnType) -> None:
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
        "1.5", '"1.5"', "1e-400", "1e-99999999999999999999", '"two"', '""', '" 42"', '"4 2"', '"1_000"', '"٤٢"',
        '"NaN"', '"Infinity"', '"0x10"', "true", "[1]", '{"a":1}', '"\\ud800"',
    ],
)  # fmt: skip
def test_what_is_no_integer_is_nulled_as_a_wrong_type(raw: str) -> None:
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
        ('"1e3"', 1000.0),
        ('".5"', 0.5),
        ('"Infinity"', math.inf),
        ('"-Infinity"', -math.inf),
    ],
)
def test_a_number_is_the_nearest_64_bit_float(raw: str, expected: float, column_type: ColumnType) -> None:
    kept(raw, column_type, expected)


def test_not_a_number_is_a_float() -> None:
    value, changes = coerce_value(b'"NaN"', Float64())
    assert isinstance(value, float)
    assert math.isnan(value)
    assert changes == ()


@pytest.mark.parametrize("raw", ["NaN", "Infinity", "-Infinity"])
def test_the_numbers_that_json_has_no_word_for_are_floats_even_without_quotes(raw: str) -> None:
    assert repr(coerce_value(raw.encode(), Float64()).value) == repr(float(raw))
    for column_type in (Int64(), Decimal(38, 18), String(), Json(), Boolean(), Date(), List(Float64())):
        assert coerce_value(raw.encode(), column_type) == (None, WRONG_TYPE)
        assert coerce_value(f'{{"a": {raw}}}'.encode(), column_type) == (None, WRONG_TYPE)


@pytest.mark.parametrize("raw", ["NaN", "Infinity", "-Infinity", '"NaN"', '"Infinity"', '"-Infinity"'])
def test_where_files_are_json_such_a_number_is_nulled_as_a_wrong_type(raw: str) -> None:
    assert coerce_value(raw.encode(), Float64(), Floats.FINITE) == (None, WRONG_TYPE)
    (noted,) = coerce_value(f"[{raw}]".encode(), List(Float32()), Floats.FINITE).changes
    assert noted.field == "0"


def test_text_that_speaks_of_such_numbers_is_text() -> None:
    kept('"NaN"', String(), "NaN")
    kept('{"note": "NaN, not Infinity"}', Json(), '{"note": "NaN, not Infinity"}')


@pytest.mark.parametrize("raw", ["1e400", "-1e400", f'"{HUGE}"', HUGE])
def test_a_number_beyond_64_bit_floats_is_nulled_as_out_of_range(raw: str) -> None:
    assert coerce_value(raw.encode(), Float64()) == (None, OUT_OF_RANGE)


@pytest.mark.parametrize("raw", ['"two"', '""', '" 1"', '"1_0"', '"inf"', '"nan"', "true", "[]", "{}", '"\\udc00"'])
def test_what_is_no_number_is_nulled_as_a_wrong_type(raw: str) -> None:
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
def test_a_decimal_with_more_digits_than_the_scale_is_rounded_and_says_so(raw: str, expected: str) -> None:
    assert coerce_value(raw.encode(), Decimal(10, 2)) == (decimal.Decimal(expected), CUT)


@pytest.mark.parametrize("raw", ["1000", "999.999", "-1000", "1e400", "1e99999999999999999999"])
def test_a_decimal_with_too_many_digits_before_the_point_is_nulled_as_out_of_range(raw: str) -> None:
    assert coerce_value(raw.encode(), Decimal(5, 2)) == (None, OUT_OF_RANGE)


@pytest.mark.parametrize("raw", ['"NaN"', '"Infinity"', '"x"', "true", "[1]"])
def test_what_is_no_decimal_is_nulled_as_a_wrong_type(raw: str) -> None:
    assert coerce_value(raw.encode(), Decimal(10, 2)) == (None, WRONG_TYPE)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_64_bit_integer_is_exact(number: int) -> None:
    for raw in (str(number), f'"{number}"', f"{number}.0"):
        kept(raw, Int64(), number)


@given(st.floats(allow_nan=False))
def test_every_float_is_exact(number: float) -> None:
    raw = repr(number) if math.isfinite(number) else f'"{str(number).replace("inf", "Infinity")}"'
    kept(raw, Float64(), number)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=18, min_value=-(10**19), max_value=10**19))
def test_every_decimal_that_fits_is_exact(number: decimal.Decimal) -> None:
    value, changes = coerce_value(str(number).encode(), Decimal(38, 18))
    assert (value, changes) == (number, ())


# --- Booleans, text and JSON text


def test_a_boolean_is_a_boolean_only() -> None:
    kept("true", Boolean(), True)
    kept("false", Boolean(), False)
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
def test_text_takes_everything_and_changes_nothing(raw: str, expected: str) -> None:
    kept(raw, String(), expected)


@pytest.mark.parametrize("raw", [b'"\\ud800"', b'"a\\udc00b"', b'"\xff"', b'{"a":"\xff"}'])
def test_text_that_utf8_cannot_hold_is_nulled_as_a_wrong_type(raw: bytes) -> None:
    assert coerce_value(raw, String()) == (None, WRONG_TYPE)


def test_a_string_of_16_megabytes_is_kept_whole() -> None:
    kept(json.dumps("x" * 16_777_217), String(), "x" * 16_777_217)


@pytest.mark.parametrize(
    "raw", ['"x"', "1.50", "true", '{ "b":1,"a" : [ ] }', '{"a":1,"a":2}', '"\\ud800"', "1e400", '"\\u0000"']
)
def test_json_text_is_exactly_as_received(raw: str) -> None:
    kept(raw, Json(), raw)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_string_is_ever_changed(text: str) -> None:
    kept(json.dumps(text), String(), text)
    kept(json.dumps(text, ensure_ascii=False), String(), text)


@given(json_values, st.sampled_from([None, 1]))
def test_json_text_is_never_changed(value: object, indent: int | None) -> None:
    try:
        raw = json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        reject()  # NaN and the infinities are no JSON.
    if raw != "null":
        kept(raw, Json(), raw)


# --- Days and moments


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01", 0),
        ("2021-01-23", days(2021, 1, 23)),
        ("2024-02-29", days(2024, 2, 29)),
        ("1504-02-29", days(1504, 2, 29)),
        ("0001-01-01", days(1, 1, 1)),
        ("9999-12-31", days(9999, 12, 31)),
        ("2021-01-23 AD", days(2021, 1, 23)),
        ("2021/1/3", days(2021, 1, 3)),
        ("2021.01.23", days(2021, 1, 23)),
        ("2021-Jan-23", days(2021, 1, 23)),
        ("2021 JAN 23", days(2021, 1, 23)),
        ("2021-01-23T00:00:00Z", days(2021, 1, 23)),
        ("2021-01-23 00:00:00.000", days(2021, 1, 23)),
    ],
)
def test_a_date_is_a_day_of_the_gregorian_calendar(text: str, expected: int) -> None:
    kept(json.dumps(text), Date(), expected)


@pytest.mark.parametrize("text", ["2021-01-23T12:34:56Z", "2021-01-23 00:00:00.0000001"])
def test_a_date_with_a_time_of_day_loses_it_and_says_so(text: str) -> None:
    assert coerce_value(json.dumps(text).encode(), Date()) == (days(2021, 1, 23), CUT)


@pytest.mark.parametrize(
    "text",
    [
        "10000-01-01",
        "+12345-01-01",
        "99999999999999999999-01-01",
        "10001-01-01 BC",
        "0000-12-31",
        "0001-12-31 BC",
        "0044-03-15 BC",
        "0001-02-29 BC",
        "-0043-03-15",
    ],
)
@pytest.mark.parametrize("column_type", [Date(), ZONED, UNZONED])
def test_a_day_outside_the_years_1_to_9999_is_nulled_as_out_of_range(text: str, column_type: ColumnType) -> None:
    assert coerce_value(json.dumps(text).encode(), column_type) == (None, OUT_OF_RANGE)


@pytest.mark.parametrize(
    "raw",
    [
        '"2021-13-01"', '"2021-02-29"', '"2021-00-10"', '"0000-00-00"', '"0000-01-01 BC"', '"2021-Foo-01"',
        '"2021-01/23"', '"21-01-23"', '"20210123"', '"2021-01"', '"yesterday"', '""', '" 2021-01-23"', '"٢٠٢١-01-23"',
        "20210123", "1700000000000", "true", "[]", "{}", '"\\ud800"',
    ],
)  # fmt: skip
@pytest.mark.parametrize("column_type", [Date(), ZONED, UNZONED])
def test_what_is_no_day_is_nulled_as_a_wrong_type(raw: str, column_type: ColumnType) -> None:
    assert coerce_value(raw.encode(), column_type) == (None, WRONG_TYPE)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2022-11-22T01:23:45Z", (2022, 11, 22, 1, 23, 45)),
        ("2022-11-22t01:23:45z", (2022, 11, 22, 1, 23, 45)),
        ("2022-11-22T01:23:45+00:00", (2022, 11, 22, 1, 23, 45)),
        ("2022-11-22T01:23:45+05:00", (2022, 11, 21, 20, 23, 45)),
        ("2022-11-22T01:23:45-0800", (2022, 11, 22, 9, 23, 45)),
        ("2022-11-22T01:23:45-08", (2022, 11, 22, 9, 23, 45)),
        ("2022-11-22T01:23:45+5:30", (2022, 11, 21, 19, 53, 45)),
        ("2022-11-22T01:23:45 +05:00", (2022, 11, 21, 20, 23, 45)),
        ("2022-11-22 01:23:45 UTC", (2022, 11, 22, 1, 23, 45)),
        ("2022-11-22 01:23:45", (2022, 11, 22, 1, 23, 45)),
        ("2022-11-22T01:23", (2022, 11, 22, 1, 23)),
        ("2022-11-22T01", (2022, 11, 22, 1)),
        ("2022-11-22", (2022, 11, 22)),
        ("2022/11/22 01:23:45", (2022, 11, 22, 1, 23, 45)),
        ("2022-11-22T01:23:45.7Z", (2022, 11, 22, 1, 23, 45, 700_000)),
        ("2022-11-22T01:23:45.789-08:00", (2022, 11, 22, 9, 23, 45, 789_000)),
        ("2022-11-22T01:23:45,789Z", (2022, 11, 22, 1, 23, 45, 789_000)),
        ("2022-11-22T01:23:45.123456", (2022, 11, 22, 1, 23, 45, 123_456)),
        ("2022-11-22T01:23:45.123456000Z", (2022, 11, 22, 1, 23, 45, 123_456)),
        ("1969-12-31T23:59:59.999999Z", (1969, 12, 31, 23, 59, 59, 999_999)),
        ("1504-02-29T01:23:45+05:00", (1504, 2, 28, 20, 23, 45)),
        ("0001-01-01T00:00:00Z", (1, 1, 1)),
        ("9999-12-21T01:23:45-05:00", (9999, 12, 21, 6, 23, 45)),
        ("9999-12-31T23:59:59.999999Z", (9999, 12, 31, 23, 59, 59, 999_999)),
    ],
)
def test_a_timestamp_with_a_zone_is_in_utc(text: str, moment: tuple[int, ...]) -> None:
    moment = (*moment, 0, 0, 0)[:6] if len(moment) < 6 else moment
    kept(json.dumps(text), ZONED, micros(*moment))


@pytest.mark.parametrize("zone", ["", "Z", "+05:00", "-0800", " +00", " UTC"])
def test_a_timestamp_without_a_zone_is_what_the_clock_said(zone: str) -> None:
    kept(json.dumps(f"2022-11-22T01:23:45{zone}"), UNZONED, micros(2022, 11, 22, 1, 23, 45))


def test_a_timestamp_that_leaves_the_calendar_in_utc_is_nulled_as_out_of_range() -> None:
    for text in (b'"9999-12-31T23:59:59-05:00"', b'"0001-01-01T00:00:00+05:00"'):
        assert coerce_value(text, ZONED) == (None, OUT_OF_RANGE)
    kept('"9999-12-31T23:59:59-05:00"', UNZONED, micros(9999, 12, 31, 23, 59, 59))
    kept('"0001-01-01T00:00:00+05:00"', UNZONED, micros(1, 1, 1))


@pytest.mark.parametrize("column_type", [ZONED, UNZONED])
def test_digits_beyond_microseconds_are_cut_and_said(column_type: ColumnType) -> None:
    expected = micros(9999, 12, 31, 23, 59, 59, 999_999)
    assert coerce_value(b'"9999-12-31T23:59:59.999999999Z"', column_type) == (expected, CUT)


@pytest.mark.parametrize(
    "text",
    ["2022-11-22T24:00:00", "2022-11-22T01:60:00", "2022-11-22T01:23:60", "2022-11-22T01:23:45 PST",
     "2022-11-22T01:23:45+24:00", "2022-11-22T01:23:45+05:60", "2022-11-22T", "2022-11-22Z"],
)  # fmt: skip
def test_what_is_no_time_is_nulled_as_a_wrong_type(text: str) -> None:
    assert coerce_value(json.dumps(text).encode(), ZONED) == (None, WRONG_TYPE)


@given(st.datetimes(), st.integers(-18 * 60, 18 * 60))
def test_every_moment_that_python_can_name_is_exact(clock: datetime, offset: int) -> None:
    sign, minutes = "-" if offset < 0 else "+", abs(offset)
    text = f"{clock.isoformat()}{sign}{minutes // 60:02}:{minutes % 60:02}"
    wall = (clock - datetime(1970, 1, 1)) // MICROSECOND
    kept(json.dumps(text), UNZONED, wall)
    value, changes = coerce_value(json.dumps(text).encode(), ZONED)
    instant = wall - offset * 60_000_000
    in_range = micros(1, 1, 1) <= instant <= micros(9999, 12, 31, 23, 59, 59, 999_999)
    assert (value, changes) == ((instant, ()) if in_range else (None, OUT_OF_RANGE))


@given(st.dates())
def test_every_day_that_python_can_name_is_exact(day: date) -> None:
    kept(json.dumps(day.isoformat()), Date(), (day - date(1970, 1, 1)).days)


# --- Nested values

ORDER = Struct((Field("order_id", "orderId", Int64()), Field("sums", "sums", List(Float64())), Field("x", "x", Json())))


def test_a_struct_is_read_by_its_keys_and_written_by_its_names() -> None:
    kept(
        '{"x" : { "open": 1 }, "undeclared": [1], "orderId": "7", "sums": [1, null]}',
        ORDER,
        {"order_id": 7, "sums": [1.0, None], "x": '{ "open": 1 }'},
    )


def test_what_a_struct_lacks_is_null() -> None:
    kept("{}", ORDER, {"order_id": None, "sums": None, "x": None})


def test_of_equal_keys_the_last_one_counts() -> None:
    kept('{"orderId": 1, "orderId": 2}', ORDER, {"order_id": 2, "sums": None, "x": None})


@pytest.mark.parametrize("raw", [b'"{}"', b"[]", b"1", b"true"])
def test_what_is_no_object_is_nulled_as_a_wrong_type(raw: bytes) -> None:
    assert coerce_value(raw, ORDER) == (None, WRONG_TYPE)


@pytest.mark.parametrize("raw", [b'"[]"', b"{}", b"1", b"true"])
def test_what_is_no_array_is_nulled_as_a_wrong_type(raw: bytes) -> None:
    assert coerce_value(raw, List(String())) == (None, WRONG_TYPE)


def test_a_bad_value_inside_costs_only_itself_and_is_named_by_its_place() -> None:
    value, changes = coerce_value(b'{"orderId": "two", "sums": [1, "x", 1e400]}', ORDER)
    assert value == {"order_id": None, "sums": [1.0, None, None], "x": None}
    assert changes == (
        ValueChange("orderId", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),
        ValueChange("sums.1", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),
        ValueChange("sums.2", "NULLED", "DESTINATION_FIELD_SIZE_LIMITATION"),
    )


def test_a_lone_surrogate_inside_costs_only_its_own_value() -> None:
    pair = Struct((Field("a", "a", List(String())), Field("b", "b", Json())))
    value, changes = coerce_value(b'{ "a" : [ "x" , "\\ud800", 5 ] , "b" : [ "\\udc00" ] }', pair)
    assert value == {"a": ["x", None, "5"], "b": '[ "\\udc00" ]'}
    assert changes == (ValueChange("a.1", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),)


def test_what_is_nested_too_deeply_to_be_read_is_nulled() -> None:
    assert coerce_value(b"[" * 100_000 + b"]" * 100_000, List(Json())) == (None, WRONG_TYPE)


# --- Records


def coerce_record(line: bytes, columns: Sequence[Field]) -> CoercedRecord:
    return record_coercer(columns)(line)


COLUMNS = [
    Field("id", "id", Int64()),
    Field("full_name", "fullName", String()),
    Field("order", "order", Struct((Field("lines", "Lines", List(Int32())),))),
]


def a_line(data: str = "{}", emitted_at: str = "1602637589100", rest: str = "") -> bytes:
    record = f'"stream":"s","emitted_at":{emitted_at},"data":{data}{rest}'
    return f'{{"type":"RECORD","record":{{{record}}}}}'.encode()


def test_a_record_has_one_value_per_column_in_their_order() -> None:
    line = a_line('{"fullName": "Ada", "order": {"Lines": [1, 2]}, "undeclared": 1, "id": "7"}')
    assert coerce_record(line, COLUMNS) == CoercedRecord(1602637589100, [7, "Ada", {"lines": [1, 2]}], [], 0)


def test_an_empty_record_is_a_row_of_nulls() -> None:
    assert coerce_record(a_line(), COLUMNS).values == [None, None, None]
    assert coerce_record(a_line('{"id": 1}'), []).values == []


def test_a_source_that_reports_too_much_that_is_no_change_is_not_listened_to() -> None:
    reports = ",".join(["1"] * 20_000)
    line = a_line('{"id": 1}', rest=f',"meta":{{"changes":[{reports}]}}')

    assert coerce_record(line, COLUMNS) == CoercedRecord(1602637589100, [1, None, None], [], 0)


def test_the_sources_changes_come_first_and_ours_name_keys_of_the_record() -> None:
    line = a_line(
        '{"id": "two", "order": {"Lines": [1, "x"]}, "fullName": "\\ud800"}',
        rest=',"meta":{"changes":[{"field":"fullName","change":"TRUNCATED","reason":"SOURCE_FIELD_SIZE_LIMITATION"}]}',
    )
    record = coerce_record(line, COLUMNS)
    assert record.reported == 1
    assert record.changes == [
        ValueChange("fullName", "TRUNCATED", "SOURCE_FIELD_SIZE_LIMITATION"),
        ValueChange("id", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),
        ValueChange("fullName", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),
        ValueChange("order.Lines.1", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),
    ]


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ("null", []),
        ("{}", []),
        ('{"changes":null}', []),
        ('{"changes":[]}', []),
        ('{"changes":[null]}', []),
        ('{"changes":"none"}', []),
        ("[]", []),
        ('{"changes":[{"field":"a","change":"NULLED","reason":null,"more":1}]}', [ValueChange("a", "NULLED", None)]),
        ('{"changes":[{"field":"\\ud800","change":"X","reason":"Y"}]}', [ValueChange(None, "X", "Y")]),
    ],
)
def test_odd_reports_of_the_source_are_passed_on_as_far_as_they_go(meta: str, expected: list[ValueChange]) -> None:
    assert coerce_record(a_line(rest=f',"meta":{meta}'), []).changes == expected


@pytest.mark.parametrize(
    ("emitted_at", "milliseconds"),
    [
        ("1602637589100", 1602637589100),
        ("1602637589100.9", 1602637589100),
        ("1.6026375891e12", 1602637589100),
        ("1602637589", 1602637589000),
        ("1602637589.1239", 1602637589123),
        ("99999999999", 99999999999000),
        ("100000000000", 100000000000),
        ("0", 0),
        ("-1", -1000),
    ],
)
def test_emitted_at_is_in_milliseconds_or_else_in_seconds(emitted_at: str, milliseconds: int) -> None:
    assert coerce_record(a_line(emitted_at=emitted_at), []).emitted_at == milliseconds


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "the line is not a record"),
        (b"hello secret", "the line is not a record"),
        (b'{"type":"RECORD"', "the line is not a record"),
        (b'{"type":"STATE","state":{}}', "the line is not a record"),
        (b'{"type":"RECORD","record":null}', "the line is not a record"),
        (b'["secret"]', "the line is not a record"),
        (b'{"record":{"emitted_at":1}}', "the record has no data object"),
        (a_line("null"), "the record has no data object"),
        (a_line('"secret"'), "the record has no data object"),
        (a_line("[1]"), "the record has no data object"),
        (a_line('{"secret": 01}'), "the line is not a record"),
        (a_line('{"secret": 1}') + b" x", "the line is not a record"),
        (a_line('{"secret": "\t"}'), "the line is not a record"),
        (a_line('{"s": "\\ud800",}'), "the line is not a record"),
        (a_line('{1: "\\ud800"}'), "the line is not a record"),
        (a_line('{"s" "\\ud800"}'), "the line is not a record"),
        (a_line('{"secret": ' + "[" * 100_000 + "]" * 100_000 + "}"), "the record is nested too deeply"),
        (b'{"record":{"data":{}}}', "the record has no emitted_at"),
        (a_line(emitted_at="null"), "the record has no emitted_at"),
        (a_line(emitted_at='"secret"'), "the record has no emitted_at"),
        (a_line(emitted_at="true"), "the record has no emitted_at"),
        (a_line(emitted_at="253402300800000"), "the record's emitted_at is out of range"),
        (a_line(emitted_at="1e99999999999"), "the record's emitted_at is out of range"),
    ],
)
def test_a_line_without_a_usable_record_is_refused_without_its_content(line: bytes, reason: str) -> None:
    with pytest.raises(RecordRefused) as refused:
        coerce_record(line, COLUMNS)
    assert str(refused.value) == reason


def test_a_record_that_msgspec_refuses_is_read_all_the_same() -> None:
    line = a_line('{ "id" : 12345678901234567890 , "fullName" : "x" , "\\udc00" : [ ] , "empty" : {} }')
    assert coerce_record(line, COLUMNS) == CoercedRecord(
        1602637589100, [None, "x", None], [ValueChange("id", "NULLED", "DESTINATION_FIELD_SIZE_LIMITATION")], 0
    )


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        ('{"id":1,"fullName":"\\uDC00"}', [1, None, None]),
        ('{"id":1,"fullName":"\\ud83d\\ude00","x":"\\ud800"}', [1, "😀", None]),
        ('{"id":1,"fullName":"\\ud55c \\\\ud800","x":"\\ud800"}', [1, "한 \\ud800", None]),
        ('{"id":1,"fullName":"\\ue000","x":"\\ud800"}', [1, "\ue000", None]),
        ('{"id":1,"fullName":"\ue000","x":"\\ud800"}', [1, "\ue000", None]),
        ('{"id":1,"\ue000":2,"\\ud83d\\ude00":3,"fullName":"\\udfff"}', [1, None, None]),
    ],
)
def test_lone_surrogates_cost_only_their_value(data: str, kept: list[Any]) -> None:
    record = coerce_record(a_line(data), COLUMNS)

    assert record.values == kept
    assert [change.original for change in record.changes] == [
        original for original in (b'"\\uDC00"', b'"\\udfff"') if original in data.encode()
    ]


def test_a_column_whose_key_is_an_emoji_is_found_beside_a_lone_surrogate() -> None:
    line = a_line('{"\\ud83d\\ude00": "a", "x": "\\ud800"}')
    assert coerce_record(line, [Field("smile", "😀", String())]).values == ["a"]


def test_bytes_that_are_not_utf8_cost_only_their_value() -> None:
    line = a_line('{"id": 1, "fullName": "?", "!": 2}').replace(b"?", b"\xff").replace(b"!", b"\xfe")
    assert coerce_record(line, COLUMNS).values == [1, None, None]


def test_a_record_with_numbers_that_are_not_json_is_read_all_the_same() -> None:
    columns = [
        Field("x", "x", Float64()),
        Field("o", "o", Struct((Field("y", "y", Float64()), Field("j", "j", Json())))),
    ]
    record = coerce_record(a_line('{"x": Infinity, "o": {"y": -Infinity, "j": [NaN]}}'), columns)
    assert record.values == [math.inf, {"y": -math.inf, "j": None}]
    assert record.changes == [ValueChange("o.j", "NULLED", "DESTINATION_SERIALIZATION_ERROR")]


def test_one_coercer_serves_many_lines() -> None:
    coerce = record_coercer(COLUMNS)
    assert [coerce(a_line(f'{{"id": {n}}}')).values[0] for n in range(3)] == [0, 1, 2]


def test_a_coercer_of_a_column_names_the_columns_key() -> None:
    changes: list[ValueChange] = []
    coerce = coercers(COLUMNS)[2]
    assert coerce(b'{"Lines": [true]}', changes) == {"lines": [None]}
    assert [change.field for change in changes] == ["order.Lines.0"]


# --- Laws


@given(json_values, column_types)
def test_any_json_value_fits_any_column_or_is_on_record(value: Any, column_type: ColumnType) -> None:
    raw = json.dumps(value).replace("NaN", "null").replace("Infinity", "1e400")
    kept_value, changes = coerce_value(raw.encode(), column_type)
    pa.array([kept_value], _widest(arrow_type(column_type)))
    if kept_value is None:
        assert raw == "null" or changes
    assert all(change.change in ("NULLED", "TRUNCATED") for change in changes)


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=5), st.lists(column_types, max_size=5))
def test_any_record_becomes_a_row(data: dict[str, Any], types: list[ColumnType]) -> None:
    keys = [*data, *(f"absent {i}" for i in range(5))]
    columns = [Field(f"c{i}", keys[i], type_) for i, type_ in enumerate(types)]
    raw = json.dumps(data).replace("NaN", "null").replace("Infinity", "1e400")
    record = coerce_record(a_line(raw), columns)
    assert len(record.values) == len(columns)


@given(st.binary(max_size=40) | st.text('[]{}",:0123456789.eE-\\u \nd8truefalsn', max_size=40).map(str.encode))
def test_any_bytes_are_a_record_or_refused(line: bytes) -> None:
    with pytest.raises(RecordRefused):
        coerce_record(line, COLUMNS)
    with pytest.raises(RecordRefused):
        coerce_record(b'{"record":' + line, COLUMNS)


def _widest(type_: pa.DataType) -> pa.DataType:
    """The type with 64-bit integers: a value may need more than 32 before its column is widened."""
    if isinstance(type_, pa.StructType):
        return pa.struct([field.with_type(_widest(field.type)) for field in type_])
    if isinstance(type_, pa.ListType):
        return pa.list_(_widest(type_.value_type))
    return pa.int64() if type_ == pa.int32() else type_
