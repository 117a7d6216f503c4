"""The careful path: one record or value at a time, for what Arrow's JSON parser refuses or cannot read.

Runs on executors, so it imports little. A value that fits its column comes out exactly as it was sent. One that does
not comes out as null (or cut, where the column keeps less than was sent) together with a `Change` that says so. The
source of the rules is the protocol's table of types; `docs/` has ours.

What a value comes out as is what `pyarrow.array(values, arrow_type(column.type))` takes: int (for `Int32` too any
64-bit one: widening is decided later), float, decimal.Decimal, str, bool, days since 1970-01-01 for `Date`,
microseconds since 1970-01-01T00:00 (UTC when zoned) for `Timestamp`, a dict by `Field.name` for `Struct`, a list for
`List`.
"""

from __future__ import annotations

import decimal
import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import date
from enum import Enum
from math import inf, isinf, nan
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import Raw

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

Value = None | bool | int | float | decimal.Decimal | str | dict[str, "Value"] | list["Value"]

NULLED = "NULLED"
TRUNCATED = "TRUNCATED"
SERIALIZATION_ERROR = "DESTINATION_SERIALIZATION_ERROR"
FIELD_SIZE_LIMITATION = "DESTINATION_FIELD_SIZE_LIMITATION"


RECORD_UNREADABLE = "DESTINATION_RECORD_UNREADABLE"
RECORD_TIME_OUT_OF_RANGE = "DESTINATION_RECORD_TIME_OUT_OF_RANGE"


@dataclass(frozen=True, slots=True)
class Change:
    """An entry of `_airbyte_meta.changes`: the place in the record (source keys joined by `.`), what happened, why.

    `original` is the JSON text that the value was received as; None for a change that the source itself reports. Two
    changes that say the same are equal whatever it is, and it is never shown.
    """

    field: str | None
    change: str | None
    reason: str | None
    original: bytes | None = dataclass_field(default=None, compare=False, repr=False)


class Coerced(NamedTuple):
    """A value as its column takes it, and what had to be done to it; `field` is the place inside the value."""

    value: Value
    changes: tuple[Change, ...]


class CoercedRecord(NamedTuple):
    """A record as its table takes it.

    `emitted_at` is in milliseconds since 1970-01-01 UTC, `values` has one value per column in the columns' order,
    the first `reported` of the `changes` are those that the source reported.
    """

    emitted_at: int
    values: list[Value]
    changes: list[Change]
    reported: int


class RecordRefused(Exception):
    """A line without a record that could be written: a word for it and a sentence, which holds none of its content."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class Floats(Enum):
    """Which numbers a float column keeps: files of JSON have no word for NaN and the infinities."""

    ANY = "any"
    FINITE = "finite"


Coercer = Callable[[bytes, list[Change]], Value]
"""From a value's JSON text to the value; what had to be done to it is appended to the list."""


def coerce_value(raw: bytes, column_type: ColumnType, floats: Floats = Floats.ANY) -> Coerced:
    """The value of one JSON text (valid, without white space around it) for a column of this type. Never raises."""
    changes: list[Change] = []
    value = _bounded(_coercer(column_type, floats))(raw, changes)
    return Coerced(value, tuple(changes))


def coercers(columns: Sequence[Field], floats: Floats = Floats.ANY) -> tuple[Coercer, ...]:
    """One coercer per column; the changes they report name the place in the record, the column's source first.

    The list that a coercer appends to is to hold what had to be done to the record's other values: it is never longer
    than MOST_CHANGES and one for each column. A value that would make it longer is nulled as a whole.
    """
    return tuple(_placed(place_name(column.source), _bounded(_coercer(column.type, floats))) for column in columns)


def place_name(key: str) -> str:
    """What a place calls a key: itself, with a `?` for whatever in it no text can hold."""
    return key.encode("utf-8", "replace").decode()


def coerce_record(line: bytes, columns: Sequence[Field]) -> CoercedRecord:
    """One RECORD line for these columns. For many lines, keep `record_coercer(columns)`.

    Keys of `data` that no column has as its source are left out; a column whose source is missing is null. Raises
    RecordRefused if the line has no data object or no usable emitted_at.
    """
    return record_coercer(columns)(line)


def record_coercer(columns: Sequence[Field], floats: Floats = Floats.ANY) -> Callable[[bytes], CoercedRecord]:
    """`coerce_record` for these columns, made ready once."""
    by_source = [(column.source, coercer) for column, coercer in zip(columns, coercers(columns, floats), strict=True)]

    def coerce(line: bytes) -> CoercedRecord:
        record = _record(line)
        data, reported = record.data, source_changes(bytes(record.meta))
        ours: list[Change] = []
        values = [coercer(bytes(data.get(source, _NULL)), ours) for source, coercer in by_source]
        return CoercedRecord(emitted_at(bytes(record.emitted_at)), values, [*reported, *ours], len(reported))

    return coerce


# --- JSON text: taken apart without touching the values -----------------------------------------------------------

_NULL = b"null"
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])
_TEXT = msgspec.json.Decoder(str)


class _Record(msgspec.Struct, gc=False):
    data: dict[str, Raw]
    emitted_at: Raw = Raw(_NULL)
    meta: Raw = Raw(_NULL)


class _Envelope(msgspec.Struct, gc=False):
    record: _Record


_ENVELOPE = msgspec.json.Decoder(_Envelope)


def _record(line: bytes) -> _Record:
    """The record of a line, its data an object of JSON texts. A byte order mark before it is none of it."""
    line = line.removeprefix(BOM_UTF8)
    try:
        return _ENVELOPE.decode(line).record
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _record_with_surrogates(line) or _odd_record(line)
    except RecursionError:
        raise RecordRefused(RECORD_UNREADABLE, "the record is nested too deeply") from None


def _record_with_surrogates(line: bytes) -> _Record | None:
    """The record of a line that msgspec takes but for lone surrogates; None if that is not all, or hard to tell.

    U+D800 to U+DFFF are escaped as `\\ud…`. With an `e` for the `d` they are private characters, which anything takes;
    where there were none of those before, putting the `d` back gives every text as it was received.
    """
    if any(private in line for private in (b"\\ue", b"\\uE")):
        return None
    try:
        record = _ENVELOPE.decode(line.replace(b"\\ud", b"\\ue").replace(b"\\uD", b"\\uE")).record
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if any(_PRIVATE.search(key) for key in record.data):
        return None
    return _Record(
        {key: _as_received(text) for key, text in record.data.items()},
        _as_received(record.emitted_at),
        _as_received(record.meta),
    )


def _as_received(text: Raw) -> Raw:
    sent = bytes(text)
    return Raw(sent.replace(b"\\ue", b"\\ud").replace(b"\\uE", b"\\uD")) if b"\\u" in sent else text


_PRIVATE = re.compile("[\ue000-\uefff]")


def _odd_record(line: bytes) -> _Record:
    """The record of a line in which msgspec does not find what it looks for, if it is there all the same."""
    envelope = _members(line)
    record = _members(envelope.get("record", _NULL)) if envelope is not None else None
    if record is None:
        raise RecordRefused(RECORD_UNREADABLE, "the line is not a record")
    data = _members(record.get("data", _NULL))
    if data is None:
        raise RecordRefused(RECORD_UNREADABLE, "the record has no data object")
    return _Record(
        {key: Raw(value) for key, value in data.items()},
        Raw(record.get("emitted_at", _NULL)),
        Raw(record.get("meta", _NULL)),
    )


def _members(raw: bytes) -> dict[str, bytes] | None:
    """Key to JSON text of an object, the last of equal keys; None if it is not an object (or not JSON)."""
    try:
        return {key: bytes(value) for key, value in _OBJECT.decode(raw).items()}
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        members = _lenient(raw, "{}")
        return None if members is None else dict(members)
    except RecursionError:
        return None


def _elements(raw: bytes) -> list[bytes] | None:
    """The JSON texts of an array's elements; None if it is not an array (or not JSON)."""
    try:
        return [bytes(value) for value in _ARRAY.decode(raw)]
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        elements = _lenient(raw, "[]")
        return None if elements is None else [element for _, element in elements]
    except RecursionError:
        return None


def _lenient(raw: bytes, brackets: str) -> list[tuple[str, bytes]] | None:
    """The members of an object (`{}`) or the elements of an array (`[]`), in JSON that msgspec refuses.

    That is JSON with lone surrogates, with bytes in a key that are not UTF-8, or with the NaN and Infinity that Python
    writes. None if it is not such JSON.
    """
    try:
        return _scan(raw.decode("utf-8", "surrogateescape"), brackets)
    except (ValueError, StopIteration, RecursionError):
        return None


def _scan(text: str, brackets: str) -> list[tuple[str, bytes]]:
    """Raises ValueError or StopIteration, as Python's own scanner does, where the text is not such JSON."""
    opening, closing = brackets[0], brackets[1]
    found: list[tuple[str, bytes]] = []
    at = _token(text, _past_space(text, 0), opening)
    if text[at : at + 1] == closing:
        at += 1
    else:
        while True:
            key = ""
            if opening == "{":
                key, at = _value_at(text, at)
                if not isinstance(key, str):
                    raise ValueError("a key is not a string")
                at = _token(text, _past_space(text, at), ":")
            start = at
            _, at = _value_at(text, at)
            found.append((key, text[start:at].encode("utf-8", "surrogateescape")))
            at = _past_space(text, at)
            if text[at : at + 1] == closing:
                at += 1
                break
            at = _token(text, at, ",")
    if _past_space(text, at) != len(text):
        raise ValueError("there is something after the end")
    return found


def _token(text: str, at: int, token: str) -> int:
    """The place of what follows the token and white space."""
    if text[at : at + 1] != token:
        raise ValueError(f"{token} is missing")
    return _past_space(text, at + 1)


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


_SPACE = " \t\n\r"
# Only where a value ends is of interest, so numbers of any length cost nothing.
_value_at: Callable[[str, int], tuple[Any, int]] = cast(Any, json.JSONDecoder(parse_int=len, parse_float=len)).scan_once


# --- The record around the values ---------------------------------------------------------------------------------

_SECONDS_BELOW = 100_000_000_000  # in milliseconds that is March 1973, in seconds the year 5138
_USUAL_DIGITS = 13  # milliseconds from 2001 to 2286
LATEST_EMITTED = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z


def emitted_at(raw: bytes) -> int:
    """A record's `emitted_at` in milliseconds; a number too small for those is in seconds. Raises RecordRefused."""
    if len(raw) == _USUAL_DIGITS and raw.isdigit():
        return int(raw)
    number = _exact(raw.decode("ascii", "replace"))
    if number is None:
        raise RecordRefused(RECORD_UNREADABLE, "the record has no emitted_at")
    milliseconds = number * 1000 if -_SECONDS_BELOW < number < _SECONDS_BELOW else number
    if not -LATEST_EMITTED <= milliseconds <= LATEST_EMITTED:
        raise RecordRefused(RECORD_TIME_OUT_OF_RANGE, "the record's emitted_at is out of range")
    return int(milliseconds)


def source_changes(raw: bytes) -> list[Change]:
    """What the source itself reports in `meta.changes`; whatever is not an entry of that list is not a report."""
    if raw == _NULL:
        return []
    meta = cast(dict[str, Any], _META(raw, []) or {})
    entries = cast(list[dict[str, Any] | None], meta.get("changes") or [])
    return [Change(**entry) for entry in entries if entry is not None]


# --- Values -------------------------------------------------------------------------------------------------------


def _nulled(raw: bytes, changes: list[Change], reason: str) -> Value:
    changes.append(Change("", NULLED, reason, raw))
    return None


def _boolean(raw: bytes, changes: list[Change]) -> Value:
    if raw == b"true":
        return True
    if raw == b"false":
        return False
    return None if raw == _NULL else _nulled(raw, changes, SERIALIZATION_ERROR)


def _text(raw: bytes) -> str | None:
    """The content of a JSON string; None if it is none, or one that UTF-8 cannot hold."""
    try:
        return _TEXT.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _json(raw: bytes, changes: list[Change]) -> Value:
    if raw == _NULL:
        return None
    try:
        text = raw.decode()
        if b"NaN" in raw or b"Infinity" in raw:
            json.loads(text, parse_int=len, parse_float=len, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return _nulled(raw, changes, SERIALIZATION_ERROR)
    return text


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _string(raw: bytes, changes: list[Change]) -> Value:
    if raw[:1] != b'"':
        return _json(raw, changes)
    text = _text(raw)
    return _nulled(raw, changes, SERIALIZATION_ERROR) if text is None else text


# No two repeats stand side by side that take the same characters: a text of any length is judged in linear time.
_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:[eE]([+-]?)(\d+))?", re.ASCII)
_NOT_FINITE = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
_FARTHEST_EXPONENT = 9  # digits of an exponent; whatever has more of them is beyond every type as well
_INT64_DIGITS = 19
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def _exact(text: str | None) -> decimal.Decimal | None:
    """The number that a text is, with all its digits; None if it is none (`NaN` and `Infinity` are none)."""
    found = _NUMBER.fullmatch(text) if text is not None else None
    if found is None:
        return None
    digits, sign, exponent = found.groups()
    if exponent is None:
        return decimal.Decimal(digits)
    power = exponent.lstrip("0") or "0"
    return decimal.Decimal(f"{digits}e{sign}{power if len(power) <= _FARTHEST_EXPONENT else '9' * 9}")


def _number_text(raw: bytes) -> str | None:
    """The text of a number, or of a string that may hold one; None for everything else."""
    return _text(raw) if raw[:1] == b'"' else raw.decode("ascii", "replace")


def _integer(raw: bytes, changes: list[Change]) -> Value:
    if len(raw) < _INT64_DIGITS and (raw.isdigit() or (raw[:1] == b"-" and raw[1:].isdigit())):
        return int(raw)
    if raw == _NULL:
        return None
    number = _exact(_number_text(raw))
    if number is None:
        return _nulled(raw, changes, SERIALIZATION_ERROR)
    if not number:
        return 0
    if number.adjusted() >= _INT64_DIGITS:
        return _nulled(raw, changes, FIELD_SIZE_LIMITATION)
    whole = int(number)
    if whole != number:
        return _nulled(raw, changes, SERIALIZATION_ERROR)
    return whole if _SMALLEST <= whole <= _LARGEST else _nulled(raw, changes, FIELD_SIZE_LIMITATION)


def _float(floats: Floats) -> Coercer:
    def coerce(raw: bytes, changes: list[Change]) -> Value:
        if raw == _NULL:
            return None
        if raw[0] in b"-0123456789" and raw != b"-Infinity":
            number = float(raw)
        else:
            text = _number_text(raw)
            if text in _NOT_FINITE and floats is Floats.ANY:
                return _NOT_FINITE[text]
            if text is None or not _NUMBER.fullmatch(text):
                return _nulled(raw, changes, SERIALIZATION_ERROR)
            number = float(text)
        return _nulled(raw, changes, FIELD_SIZE_LIMITATION) if isinf(number) else number

    return coerce


def _decimal(column_type: Decimal) -> Coercer:
    whole_digits = column_type.precision - column_type.scale
    unit = decimal.Decimal(1).scaleb(-column_type.scale)
    exact = decimal.Context(
        prec=column_type.precision,
        rounding=decimal.ROUND_HALF_EVEN,
        Emin=decimal.MIN_EMIN,
        Emax=decimal.MAX_EMAX,
        traps=[decimal.InvalidOperation],
    )

    def coerce(raw: bytes, changes: list[Change]) -> Value:
        if raw == _NULL:
            return None
        number = _exact(_number_text(raw))
        if number is None:
            return _nulled(raw, changes, SERIALIZATION_ERROR)
        if not number:
            return decimal.Decimal(0)
        if number.adjusted() >= whole_digits:
            return _nulled(raw, changes, FIELD_SIZE_LIMITATION)
        try:
            kept = number.quantize(unit, context=exact)
        except decimal.InvalidOperation:  # rounded up to one digit too many
            return _nulled(raw, changes, FIELD_SIZE_LIMITATION)
        if kept != number:
            changes.append(Change("", TRUNCATED, FIELD_SIZE_LIMITATION, raw))
        return kept

    return coerce


# --- Days and moments ---------------------------------------------------------------------------------------------

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
    text = _text(raw) if raw[:1] == b'"' else None
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


def _date(raw: bytes, changes: list[Change]) -> Value:
    if raw == _NULL:
        return None
    try:
        moment = _moment(raw)
    except ValueError:
        return _nulled(raw, changes, SERIALIZATION_ERROR)
    except OverflowError:
        return _nulled(raw, changes, FIELD_SIZE_LIMITATION)
    if moment.time or moment.finer:
        changes.append(Change("", TRUNCATED, FIELD_SIZE_LIMITATION, raw))
    return moment.day


def _timestamp(column_type: Timestamp) -> Coercer:
    def coerce(raw: bytes, changes: list[Change]) -> Value:
        if raw == _NULL:
            return None
        try:
            moment = _moment(raw)
        except ValueError:
            return _nulled(raw, changes, SERIALIZATION_ERROR)
        except OverflowError:
            return _nulled(raw, changes, FIELD_SIZE_LIMITATION)
        instant = moment.day * _DAY + moment.time - (moment.ahead if column_type.zoned else 0)
        if not _EARLIEST <= instant <= _LATEST:
            return _nulled(raw, changes, FIELD_SIZE_LIMITATION)
        if moment.finer:
            changes.append(Change("", TRUNCATED, FIELD_SIZE_LIMITATION, raw))
        return instant

    return coerce


# --- Nested values ------------------------------------------------------------------------------------------------

MOST_CHANGES = 10_000
"""So many changed values of one record are noted one by one: more of them say the same, and memory has an end."""


class _TooManyChanges(Exception):
    """A record has so many changed values that its column is nulled as a whole."""


def _bounded(coercer: Coercer) -> Coercer:
    """The coercer, nulling a value of which more would have to be noted than MOST_CHANGES allows."""

    def coerce(raw: bytes, changes: list[Change]) -> Value:
        before = len(changes)
        try:
            return coercer(raw, changes)
        except _TooManyChanges:
            del changes[before:]
            return _nulled(raw, changes, SERIALIZATION_ERROR)

    return coerce


def _placed(place: str, coercer: Coercer) -> Coercer:
    """The coercer, with the place put before those that its changes name."""

    def coerce(raw: bytes, changes: list[Change]) -> Value:
        before = len(changes)
        value = coercer(raw, changes)
        if len(changes) != before:
            _put_before(place, changes, before)
        return value

    return coerce


def _put_before(place: str, changes: list[Change], start: int) -> None:
    for i in range(start, len(changes)):
        inner = changes[i]
        full = f"{place}.{inner.field}" if inner.field else place
        changes[i] = Change(full, inner.change, inner.reason, inner.original)


def _struct(column_type: Struct, floats: Floats) -> Coercer:
    inner = [
        (field.source, field.name, _placed(place_name(field.source), _coercer(field.type, floats)))
        for field in column_type.fields
    ]

    def coerce(raw: bytes, changes: list[Change]) -> Value:
        if raw == _NULL:
            return None
        members = _members(raw)
        if members is None:
            return _nulled(raw, changes, SERIALIZATION_ERROR)
        return {name: coercer(members.get(source, _NULL), changes) for source, name, coercer in inner}

    return coerce


def _list(column_type: List, floats: Floats) -> Coercer:
    coercer = _coercer(column_type.element, floats)

    def coerce(raw: bytes, changes: list[Change]) -> Value:
        if raw == _NULL:
            return None
        elements = _elements(raw)
        if elements is None:
            return _nulled(raw, changes, SERIALIZATION_ERROR)
        values: list[Value] = []
        for i, element in enumerate(elements):
            before = len(changes)
            values.append(coercer(element, changes))
            if len(changes) != before:
                if len(changes) > MOST_CHANGES:
                    raise _TooManyChanges
                _put_before(str(i), changes, before)
        return values

    return coerce


COERCERS: Mapping[type[ColumnType], Callable[[Any, Floats], Coercer]] = {
    Boolean: lambda _, __: _boolean,
    Int32: lambda _, __: _integer,
    Int64: lambda _, __: _integer,
    Float32: lambda _, floats: _float(floats),
    Float64: lambda _, floats: _float(floats),
    Decimal: lambda t, _: _decimal(t),
    String: lambda _, __: _string,
    Json: lambda _, __: _json,
    Date: lambda _, __: _date,
    Timestamp: lambda t, _: _timestamp(t),
    Struct: _struct,
    List: _list,
}


def _coercer(column_type: ColumnType, floats: Floats) -> Coercer:
    return COERCERS[type(column_type)](column_type, floats)


_META = _coercer(
    Struct(
        (
            Field(
                "changes",
                "changes",
                List(Struct(tuple(Field(name, name, String()) for name in ("field", "change", "reason")))),
            ),
        )
    ),
    Floats.ANY,
)
