"""Days and moments, read with care. `plain` has the texts that need none."""

from __future__ import annotations

import re
from datetime import date
from typing import NamedTuple

from destination_datalake.records.changes import (
    FIELD_SIZE_LIMITATION,
    SERIALIZATION_ERROR,
    TRUNCATED,
    Coercer,
    Value,
    ValueChange,
    nulled,
)
from destination_datalake.records.raw_json import NULL, text_of_string
from destination_datalake.schema.types import Timestamp

_MOMENT = re.compile(
    r"(?P<year>[+-]?\d{4,})(?P<sep>[-/. ])(?P<month>\d\d?|[A-Za-z]{3})(?P=sep)(?P<day>\d\d?)"
    r"(?:[Tt ](?P<hour>\d\d?)(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?)?"
    r" ?(?P<zone>[Zz]|UTC|GMT|(?P<sign>[+-])(?P<hours>\d\d?)(?::?(?P<minutes>\d\d))?)?)?"
    r"(?: (?P<era>BC|AD))?",
    re.ASCII,
)
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_EPOCH = date(1970, 1, 1).toordinal()
_LEAP_CYCLE = 400  # years after which the Gregorian calendar repeats itself
_FIRST_YEAR, _LAST_YEAR = 1, 9999  # beyond them engines disagree
_LONGEST_YEAR, _FAR_YEAR = 8, 10**8
_MICROSECONDS = 1_000_000
_DAY = 86_400 * _MICROSECONDS
_EARLIEST, _LATEST = -62_135_596_800 * _MICROSECONDS, 253_402_300_800 * _MICROSECONDS - 1


class _Moment(NamedTuple):
    """A day and a time of day, as a text gives them."""

    day: int  # since 1970-01-01, in the Gregorian calendar, also before it was introduced
    time: int  # microseconds since midnight
    ahead: int  # microseconds that this clock is ahead of UTC; 0 where the text does not say
    finer: bool  # the text says more than microseconds


def _moment(raw: bytes) -> _Moment:
    """The moment that a JSON string names.

    Raises ValueError if it names none, OverflowError if that is before the year 1 or after 9999.
    """
    text = text_of_string(raw) if raw[:1] == b'"' else None
    found = _MOMENT.fullmatch(text) if text is not None else None
    if found is None:
        raise ValueError("not a date or time")
    year, _, month, day, hour, minute, second, fraction, _, sign, hours, minutes, era = found.groups()
    days = _day(_astronomical(year, era), int(month) if month.isdigit() else _MONTHS.get(month.lower(), 0), int(day))
    if hour is None:
        return _Moment(days, 0, 0, False)
    time = _clock(int(hour), int(minute or 0), int(second or 0))
    ahead = 0 if sign is None else _clock(int(hours), int(minutes or 0), 0)
    if fraction:
        time += int(fraction[:6].ljust(6, "0"))
    return _Moment(days, time, -ahead if sign == "-" else ahead, bool(fraction and fraction[6:].strip("0")))


def _astronomical(year: str, era: str | None) -> int:
    """The year as a number that has a year 0, which is 1 BC."""
    number = int(year) if len(year) <= _LONGEST_YEAR else _FAR_YEAR
    if era != "BC":
        return number
    if number < 1:
        raise ValueError("years before Christ begin with 1")
    return 1 - number


def _day(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01, Gregorian; raises ValueError for no day, OverflowError for one out of range."""
    if _FIRST_YEAR <= year <= _LAST_YEAR:
        return date(year, month, day).toordinal() - _EPOCH
    date(_LEAP_CYCLE + year % _LEAP_CYCLE, month, day)  # such days exist; MySQL's 0000-00-00 does not
    raise OverflowError("a year before 1 or after 9999")


def _clock(hour: int, minute: int, second: int) -> int:
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("no such time")
    return (hour * 3600 + minute * 60 + second) * _MICROSECONDS


def day(raw: bytes, changes: list[ValueChange]) -> Value:
    """A coercer for dates: days since 1970-01-01."""
    if raw == NULL:
        return None
    try:
        moment = _moment(raw)
    except ValueError:
        return nulled(raw, changes, SERIALIZATION_ERROR)
    except OverflowError:
        return nulled(raw, changes, FIELD_SIZE_LIMITATION)
    if moment.time or moment.finer:
        changes.append(ValueChange("", TRUNCATED, FIELD_SIZE_LIMITATION, raw))
    return moment.day


def timestamp_coercer(column_type: Timestamp) -> Coercer:
    """A coercer for timestamps: microseconds since 1970-01-01T00:00."""

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        if raw == NULL:
            return None
        try:
            moment = _moment(raw)
        except ValueError:
            return nulled(raw, changes, SERIALIZATION_ERROR)
        except OverflowError:
            return nulled(raw, changes, FIELD_SIZE_LIMITATION)
        instant = moment.day * _DAY + moment.time - (moment.ahead if column_type.zoned else 0)
        if not _EARLIEST <= instant <= _LATEST:
            return nulled(raw, changes, FIELD_SIZE_LIMITATION)
        if moment.finer:
            changes.append(ValueChange("", TRUNCATED, FIELD_SIZE_LIMITATION, raw))
        return instant

    return coerce
