"""Dates and timestamps: days and moments from the year 1 to 9999."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.schema.types import (
    ColumnType,
    Date,
    Timestamp,
)
from unit_tests.records.values.coercion import CUT, OUT_OF_RANGE, WRONG_TYPE, assert_kept, coerce_value

ZONED, UNZONED = Timestamp(zoned=True), Timestamp(zoned=False)
MICROSECOND = timedelta(microseconds=1)


def micros(*moment: int) -> int:
    return (datetime(*moment, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // MICROSECOND  # type: ignore[misc,arg-type]


def days(year: int, month: int, day: int) -> int:
    return (date(year, month, day) - date(1970, 1, 1)).days


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
        (" 2021-01-23\t", days(2021, 1, 23)),
        ("2021-01-23T24:00:00Z", days(2021, 1, 24)),
    ],
)
def test_a_date_is_a_day_of_the_gregorian_calendar(text: str, expected: int) -> None:
    assert_kept(json.dumps(text), Date(), expected)


@pytest.mark.parametrize("text", ["2021-01-23T12:34:56Z", "2021-01-23 00:00:00.0000001"])
def test_a_date_with_a_time_of_day_loses_it_and_the_change_is_noted(text: str) -> None:
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
        '"2021-01/23"', '"21-01-23"', '"20210123"', '"2021-01"', '"yesterday"', '""', '" "', '"2021 -01-23"',
        '"٢٠٢١-01-23"',
        "20210123", "1700000000000", "true", "[]", "{}", '"\\ud800"',
    ],
)  # fmt: skip
@pytest.mark.parametrize("column_type", [Date(), ZONED, UNZONED])
def test_a_text_that_is_not_a_day_is_nulled_as_a_wrong_type(raw: str, column_type: ColumnType) -> None:
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
        ("\n 2022-11-22T01:23:45Z ", (2022, 11, 22, 1, 23, 45)),
        ("2022-11-22T01:23:45+01:00[Europe/Berlin]", (2022, 11, 22, 0, 23, 45)),
        ("2022-11-22T01:23Z[Etc/GMT+1]", (2022, 11, 22, 1, 23)),
        ("2022-11-22 01:23:45.5 +0000 UTC", (2022, 11, 22, 1, 23, 45, 500_000)),
        ("2022-11-22 01:23:45 -0330 NST m=+0.000012", (2022, 11, 22, 4, 53, 45)),
        ("2022-11-22 01:23:45 +0300 +03", (2022, 11, 21, 22, 23, 45)),
        ("20221122T012345Z", (2022, 11, 22, 1, 23, 45)),
        ("20221122T012345.789+0100", (2022, 11, 22, 0, 23, 45, 789_000)),
        ("20221122T0123", (2022, 11, 22, 1, 23)),
        ("2022-11-22T24:00:00", (2022, 11, 23)),
        ("2022-12-31T24:00+01:00", (2022, 12, 31, 23)),
        ("1880-01-01T00:00:00+00:53:28", (1879, 12, 31, 23, 6, 32)),
        ("1969-12-31T23:59:59.999999Z", (1969, 12, 31, 23, 59, 59, 999_999)),
        ("1504-02-29T01:23:45+05:00", (1504, 2, 28, 20, 23, 45)),
        ("0001-01-01T00:00:00Z", (1, 1, 1)),
        ("9999-12-21T01:23:45-05:00", (9999, 12, 21, 6, 23, 45)),
        ("9999-12-31T23:59:59.999999Z", (9999, 12, 31, 23, 59, 59, 999_999)),
    ],
)
def test_a_timestamp_with_a_zone_is_in_utc(text: str, moment: tuple[int, ...]) -> None:
    moment = (*moment, 0, 0, 0)[:6] if len(moment) < 6 else moment
    assert_kept(json.dumps(text), ZONED, micros(*moment))


@pytest.mark.parametrize("zone", ["", "Z", "+05:00", "-0800", " +00", " UTC"])
def test_a_timestamp_without_a_zone_is_the_wall_clocks(zone: str) -> None:
    assert_kept(json.dumps(f"2022-11-22T01:23:45{zone}"), UNZONED, micros(2022, 11, 22, 1, 23, 45))


def test_a_timestamp_that_leaves_the_calendar_in_utc_is_nulled_as_out_of_range() -> None:
    for text in (b'"9999-12-31T23:59:59-05:00"', b'"0001-01-01T00:00:00+05:00"'):
        assert coerce_value(text, ZONED) == (None, OUT_OF_RANGE)
    assert_kept('"9999-12-31T23:59:59-05:00"', UNZONED, micros(9999, 12, 31, 23, 59, 59))
    assert_kept('"0001-01-01T00:00:00+05:00"', UNZONED, micros(1, 1, 1))


@pytest.mark.parametrize("column_type", [ZONED, UNZONED])
def test_digits_beyond_microseconds_are_cut_and_the_change_noted(column_type: ColumnType) -> None:
    expected = micros(9999, 12, 31, 23, 59, 59, 999_999)
    assert coerce_value(b'"9999-12-31T23:59:59.999999999Z"', column_type) == (expected, CUT)


@pytest.mark.parametrize(
    "text",
    ["2022-11-22T24:00:01", "2022-11-22T24:00:00.1", "2022-11-22T25:00:00", "2022-11-22T01:60:00",
     "2022-11-22T01:23:45[Europe/Berlin]", "2022-11-22T01:23:45Z[]", "2022-11-22 01:23:45 UTC m", "20221122T0123.5",
     "20221122T01", "2022-11-22T01:23:45+05301", "2022-11-22T23:59:60+01:00",
     "2022-11-22T23:59:61", "2022-11-22T01:23:60", "2022-11-22T01:23:45 PST",
     "2022-11-22T01:23:45+24:00", "2022-11-22T01:23:45+05:60", "2022-11-22T", "2022-11-22Z"],
)  # fmt: skip
def test_a_text_that_is_not_a_time_is_nulled_as_a_wrong_type(text: str) -> None:
    assert coerce_value(json.dumps(text).encode(), ZONED) == (None, WRONG_TYPE)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2016-12-31T23:59:60Z", (2017, 1, 1)),
        ("2017-01-01T05:29:60.5+05:30", (2017, 1, 1)),
        ("2016-12-31T18:59:60-05:00", (2017, 1, 1)),
    ],
)
def test_leap_second_is_the_second_after_and_the_change_is_noted(text: str, moment: tuple[int, ...]) -> None:
    assert coerce_value(json.dumps(text).encode(), ZONED) == (micros(*moment), CUT)


@pytest.mark.parametrize("text", ["9999-12-31T24:00:00", "9999-12-31T23:59:60"])
@pytest.mark.parametrize("column_type", [Date(), ZONED, UNZONED])
def test_midnight_after_the_last_day_is_out_of_range(text: str, column_type: ColumnType) -> None:
    assert coerce_value(json.dumps(text).encode(), column_type) == (None, OUT_OF_RANGE)


@given(st.datetimes(), st.integers(-18 * 60, 18 * 60))
def test_every_datetime_of_python_is_exact(clock: datetime, offset: int) -> None:
    sign, minutes = "-" if offset < 0 else "+", abs(offset)
    text = f"{clock.isoformat()}{sign}{minutes // 60:02}:{minutes % 60:02}"
    wall = (clock - datetime(1970, 1, 1)) // MICROSECOND
    assert_kept(json.dumps(text), UNZONED, wall)
    value, changes = coerce_value(json.dumps(text).encode(), ZONED)
    instant = wall - offset * 60_000_000
    in_range = micros(1, 1, 1) <= instant <= micros(9999, 12, 31, 23, 59, 59, 999_999)
    assert (value, changes) == ((instant, ()) if in_range else (None, OUT_OF_RANGE))


@given(st.dates())
def test_every_date_of_python_is_exact(day: date) -> None:
    assert_kept(json.dumps(day.isoformat()), Date(), (day - date(1970, 1, 1)).days)
