"""The coercers for dates and timestamps. A coercer converts a JSON value to a column type (see `Coercer`).

A date is the number of days since 1970-01-01. A timestamp is the number of microseconds since 1970-01-01T00:00.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import NamedTuple

from destination_datalake.protocol.json_text import NULL, string_or_none
from destination_datalake.records.decoded import FIELD_SIZE_LIMITATION, SERIALIZATION_ERROR, TRUNCATED, ValueChange
from destination_datalake.records.values.rules import BLANKS, Coercer, Value, nulled
from destination_datalake.schema.types import Timestamp

_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_YEAR, _LAST_YEAR = 1, 9999  # Engines disagree on other years.
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_EARLIEST, _LATEST = _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1


def coerce_date(raw: bytes, changes: list[ValueChange]) -> Value:
    """Convert the date or timestamp in a JSON string to the number of days since 1970-01-01.

    Drops a time of day. If this time is not midnight, reports the value as truncated.
    """
    return _coerce(raw, changes, _day_of)


def timestamp_coercer(type_: Timestamp) -> Coercer:
    """Return the coercer that converts the timestamp in a JSON string to microseconds since 1970-01-01T00:00.

    If the type is zoned, the coercer converts timestamps to UTC. Otherwise, it reads timestamps as local times, and
    ignores their offsets from UTC.
    """
    return partial(_coerce, value_of=partial(_instant_of, zoned=bool(type_.zoned)))


def _coerce(raw: bytes, changes: list[ValueChange], value_of: Callable[[_Moment], tuple[int, bool]]) -> Value:
    """Convert the date or timestamp in a JSON string to a value of a column.

    `value_of` returns the column's value for a parsed date or timestamp, and whether this value is truncated because
    the text is more precise than the column's type. It raises OverflowError if the value is out of range. Reports a
    truncated value, and a leap second, as a change. For any other JSON value, and for a value out of range, returns
    null.
    """
    if raw == NULL:
        return None
    try:
        moment = _moment(raw)
        value, is_cut = value_of(moment)
    except ValueError:
        return nulled(raw, changes, SERIALIZATION_ERROR)
    except OverflowError:
        return nulled(raw, changes, FIELD_SIZE_LIMITATION)
    if is_cut or moment.is_leap:
        changes.append(ValueChange("", TRUNCATED, FIELD_SIZE_LIMITATION, raw, not is_cut))
    return value


def _day_of(moment: _Moment) -> tuple[int, bool]:
    if moment.day > _LAST_DAY:
        raise OverflowError("a year after 9999")
    return moment.day, bool(moment.time or moment.is_finer)


def _instant_of(moment: _Moment, *, zoned: bool) -> tuple[int, bool]:
    instant = moment.day * _DAY + moment.time - (moment.ahead if zoned else 0)
    if not _EARLIEST <= instant <= _LATEST:
        raise OverflowError("a year before 1 or after 9999")
    return instant, moment.is_finer


# --- Parsing dates and timestamps -----------------------------------------------------------------------------------

_MOMENT = re.compile(
    r"(?P<year>[+-]?\d{4,})(?P<sep>[-/. ])(?P<month>\d\d?|[A-Za-z]{3})(?P=sep)(?P<day>\d\d?)"
    r"(?:[Tt ](?P<hour>\d\d?)(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?)?"
    r"(?: ?(?:[Zz]|UTC|GMT|(?P<sign>[+-])(?P<hours>\d\d?)(?::?(?P<minutes>\d\d)(?::(?P<seconds>\d\d))?)?)"
    # After the offset, Java's ZonedDateTime appends the zone's name, and Go's Time appends a monotonic clock.
    r"(?:\[[\w/+:-]+\]| (?:[A-Z]{3,5}|[+-]\d\d(?:\d\d)?)(?: m=[+-]\d+\.\d+)?)?)?)?"
    r"(?: (?P<era>BC|AD))?",
    re.ASCII,
)
_BASIC = re.compile(r"(\d{4})(\d\d)(\d\d)[Tt](\d\d)(\d\d)(?:(\d\d)|(?![.,\d]))", re.ASCII)
"""Matches a date and time in the basic format of ISO 8601. Does not match a date alone, which could be a number."""
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_LEAP_CYCLE = 400  # The Gregorian calendar repeats itself after 400 years.
_LONGEST_YEAR, _FAR_YEAR = 8, 10**8


class _Moment(NamedTuple):
    """A date and time of day, parsed from a text."""

    day: int  # days since 1970-01-01, in the proleptic Gregorian calendar
    time: int  # microseconds since midnight
    ahead: int  # the offset from UTC in microseconds, or 0 if the text has no offset
    is_finer: bool  # whether the text has a fraction below microseconds, or any fraction of a leap second
    is_leap: bool = False  # whether the time is a leap second


def _moment(raw: bytes) -> _Moment:
    """Parse the date or timestamp in a JSON string.

    Raises ValueError for any other value, and OverflowError for years before 1 or after 9999.
    """
    text = (string_or_none(raw) or "" if raw[:1] == b'"' else "").strip(BLANKS)
    if (basic := _BASIC.match(text)) is not None:
        # Rewrite the text in the extended format, so that one pattern and one function are enough.
        text = "{}-{}-{}T{}:{}:{}".format(*basic.groups("00")) + text[basic.end() :]
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError("not a date or time")
    year, _, month, day, hour, minute, second, fraction, sign, hours, minutes, seconds, era = match.groups()
    days = _day(_astronomical(year, era), int(month) if month.isdigit() else _MONTHS.get(month.lower(), 0), int(day))
    if hour is None:
        return _Moment(days, 0, 0, False)
    ahead = 0 if sign is None else _clock(int(hours), int(minutes or 0), int(seconds or 0))
    ahead = -ahead if sign == "-" else ahead
    micros, is_finer = int((fraction or "")[:6].ljust(6, "0")), bool(fraction and fraction[6:].strip("0"))
    # In ISO 8601, 24:00 is the end of a day.
    if (int(hour), int(minute or 0), int(second or 0)) == (24, 0, 0) and not (fraction or "").strip("0"):
        return _Moment(days + 1, 0, ahead, False)
    if second == "60":
        # Columns cannot store a leap second. As in POSIX, the next second replaces it. A leap second ends a day in UTC.
        time = _clock(int(hour), int(minute), 59) + _SECOND
        if (time - ahead) % _DAY:
            raise ValueError("no such time")
        return _Moment(days + time // _DAY, time % _DAY, ahead, is_finer or micros > 0, is_leap=True)
    time = _clock(int(hour), int(minute or 0), int(second or 0))
    return _Moment(days, time + micros, ahead, is_finer)


def _astronomical(year: str, era: str | None) -> int:
    """Return the astronomical number of a year: 0 for the year 1 BC, and negative numbers for earlier years."""
    # `int` rejects texts with more than 4,300 digits, and a year this long is out of range anyway.
    number = int(year) if len(year) <= _LONGEST_YEAR else _FAR_YEAR
    if era != "BC":
        return number
    if number < 1:
        raise ValueError("years before Christ begin with 1")
    return 1 - number


def _day(year: int, month: int, day: int) -> int:
    """Return the number of days from 1970-01-01 to a date.

    Raises ValueError for an invalid date, and OverflowError for years before 1 or after 9999.
    """
    if _FIRST_YEAR <= year <= _LAST_YEAR:
        return date(year, month, day).toordinal() - _EPOCH
    date(_LEAP_CYCLE + year % _LEAP_CYCLE, month, day)  # Raises ValueError for days such as MySQL's 0000-00-00.
    raise OverflowError("a year before 1 or after 9999")


def _clock(hour: int, minute: int, second: int) -> int:
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("no such time")
    return (hour * 3600 + minute * 60 + second) * _SECOND
