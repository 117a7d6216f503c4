"""Parts of the calendar date in a zone are those that Python's zoneinfo shows."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal
from zoneinfo import ZoneInfo, available_timezones

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from destination_datalake.partitioning.spec import CalendarPart, is_timezone
from destination_datalake.partitioning.transforms import permits, transformed
from destination_datalake.schema.types import Date, Int64, String, Timestamp
from unit_tests.partitioning.values import dates, moments

PARTS: tuple[Literal["year", "month", "day", "hour", "date"], ...] = ("year", "month", "day", "hour", "date")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "Australia/Lord_Howe")
UTC = pa.timestamp("us", "UTC")


def parts(array: pa.Array[Any], zone: str) -> list[tuple[Any, ...]]:
    """Return year, month, day, hour and date of each row."""
    columns = [transformed(array, CalendarPart(part, zone)).to_pylist() for part in PARTS]
    return list(zip(*columns, strict=True))


def shown(moment: dt.datetime) -> tuple[int, ...]:
    return (moment.year, moment.month, moment.day, moment.hour, (moment.date() - dt.date(1970, 1, 1)).days)


@given(moments, st.sampled_from(ZONES))
def test_a_timestamp_is_in_the_part_that_clocks_in_the_zone_show(moment: dt.datetime, zone: str) -> None:
    in_utc = moment.replace(tzinfo=dt.UTC)
    try:
        local = in_utc.astimezone(ZoneInfo(zone))
    except OverflowError:  # before the year 1 or after 9999, for Python
        assume(False)

    assert parts(pa.array([in_utc, None], UTC), zone) == [shown(local), (None,) * 5]


@given(moments, st.sampled_from(ZONES))
def test_a_timestamp_without_a_zone_is_taken_as_it_is(moment: dt.datetime, zone: str) -> None:
    assert parts(pa.array([None, moment], pa.timestamp("us")), zone) == [(None,) * 5, shown(moment)]


@given(dates, st.sampled_from(ZONES))
def test_a_date_is_taken_as_it_is_and_its_hour_is_0(date: dt.date, zone: str) -> None:
    assert parts(pa.array([date], pa.date32()), zone) == [shown(dt.datetime(date.year, date.month, date.day))]


@pytest.mark.parametrize(
    ("in_utc", "zone", "year", "month", "day", "hour"),
    [
        ("2019-12-29T23:59:59.999999", "UTC", 2019, 12, 29, 23),  # the last ISO week of 2019 begins on the 30th
        ("2019-12-30T00:00:00", "UTC", 2019, 12, 30, 0),
        ("2019-12-31T23:30:00", "UTC", 2019, 12, 31, 23),
        ("2019-12-31T23:30:00", "Europe/Berlin", 2020, 1, 1, 0),
        ("2020-02-28T23:30:00", "Europe/Berlin", 2020, 2, 29, 0),
        ("2021-02-28T23:30:00", "Europe/Berlin", 2021, 3, 1, 0),
        ("1900-02-28T23:59:59", "UTC", 1900, 2, 28, 23),
        ("1900-03-01T00:00:00", "UTC", 1900, 3, 1, 0),
        ("2024-03-31T00:59:59", "Europe/Berlin", 2024, 3, 31, 1),  # clocks go from 2 to 3
        ("2024-03-31T01:00:00", "Europe/Berlin", 2024, 3, 31, 3),
        ("2024-10-27T00:30:00", "Europe/Berlin", 2024, 10, 27, 2),  # two in the night comes twice
        ("2024-10-27T01:30:00", "Europe/Berlin", 2024, 10, 27, 2),
        ("2024-03-10T06:59:59", "America/New_York", 2024, 3, 10, 1),
        ("2024-03-10T07:00:00", "America/New_York", 2024, 3, 10, 3),
        ("2024-11-03T05:30:00", "America/New_York", 2024, 11, 3, 1),
        ("2024-11-03T06:30:00", "America/New_York", 2024, 11, 3, 1),
        ("2024-01-31T18:29:59", "Asia/Kolkata", 2024, 1, 31, 23),
        ("2024-01-31T18:30:00", "Asia/Kolkata", 2024, 2, 1, 0),
        ("2011-12-30T09:59:59", "Pacific/Apia", 2011, 12, 29, 23),  # there was no 30 December 2011 in Samoa
        ("2011-12-30T10:00:00", "Pacific/Apia", 2011, 12, 31, 0),
        ("2024-04-06T15:15:00", "Australia/Lord_Howe", 2024, 4, 7, 1),  # clocks go back by half an hour
        ("2044-07-01T22:30:00", "Europe/Berlin", 2044, 7, 2, 0),  # by the rule: tables of changes end in 2037
        ("1969-12-31T23:59:59.999999", "UTC", 1969, 12, 31, 23),
        ("1880-06-01T00:00:00", "Europe/Berlin", 1880, 6, 1, 0),  # local mean time: 53 minutes and 28 seconds ahead
        ("0001-01-01T00:00:00", "UTC", 1, 1, 1, 0),
        ("0001-01-01T00:00:00", "America/New_York", 0, 12, 31, 19),
        ("9999-12-31T23:59:59.999999", "UTC", 9999, 12, 31, 23),
        ("9999-12-31T23:59:59.999999", "Europe/Berlin", 10000, 1, 1, 0),
    ],
)
def test_boundaries(in_utc: str, zone: str, year: int, month: int, day: int, hour: int) -> None:
    local_parts = parts(pa.array([in_utc]).cast(pa.timestamp("us")).cast(UTC), zone)

    assert local_parts[0][:4] == (year, month, day, hour)


@pytest.mark.parametrize("part", PARTS)
def test_only_dates_and_timestamps_have_calendar_parts(part: Any) -> None:
    calendar = CalendarPart(part)

    for permitted in (Date(), Timestamp(zoned=True), Timestamp(zoned=False)):
        assert permits(calendar, permitted)
    for refused in (String(), Int64()):
        assert not permits(calendar, refused)
    with pytest.raises(ValueError, match="of string is not defined"):
        transformed(pa.array(["2019-12-29"]), calendar)


@given(st.lists(moments, min_size=2, max_size=20), st.sampled_from(sorted(available_timezones())))
def test_rows_of_many_days_have_each_their_own_local_time(times: list[dt.datetime], zone: str) -> None:
    together = parts(pa.array(times, UTC), zone)

    assert together == [parts(pa.array([time], UTC), zone)[0] for time in times]


@pytest.mark.parametrize("zone", [*ZONES, "Etc/GMT+5", "America/Argentina/Buenos_Aires"])
def test_names_of_the_iana_database_are_time_zones(zone: str) -> None:
    assert is_timezone(zone)


@pytest.mark.parametrize("zone", ["Europe/Bielefeld", "europe/berlin", "../Europe/Berlin", "CEST", "zone.tab", ""])
def test_other_names_are_no_time_zones(zone: str) -> None:
    assert not is_timezone(zone)
