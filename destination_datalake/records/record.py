"""The careful path: one record or value at a time, for what Arrow's JSON parser refuses or cannot read.

Runs on executors, so it imports little. A value that fits its column comes out exactly as it was sent. One that does
not comes out as null (or cut, where the column keeps less than was sent) together with a `ValueChange` that says so.
The source of the rules is the protocol's table of types; `docs/` has ours.

What a value comes out as is what `pyarrow.array(values, arrow_type(column.type))` takes: int (for `Int32` too any
64-bit one: widening is decided later), float, decimal.Decimal, str, bool, days since 1970-01-01 for `Date`,
microseconds since 1970-01-01T00:00 (UTC when zoned) for `Timestamp`, a dict by `Field.name` for `Struct`, a list for
`List`.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import Raw

from destination_datalake.records.changes import (
    SERIALIZATION_ERROR,
    Coercer,
    Floats,
    Value,
    ValueChange,
    nulled,
    path_step,
)
from destination_datalake.records.raw_json import NULL, elements_of, members_of, text_of_string
from destination_datalake.records.values.numbers import decimal_coercer, exact_number, float_coercer, integer
from destination_datalake.records.values.temporal import day, timestamp_coercer
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

RECORD_UNREADABLE = "DESTINATION_RECORD_UNREADABLE"
RECORD_TIME_OUT_OF_RANGE = "DESTINATION_RECORD_TIME_OUT_OF_RANGE"


class Coerced(NamedTuple):
    """A value as its column takes it, and what had to be done to it; `field` is the place inside the value."""

    value: Value
    changes: tuple[ValueChange, ...]


class CoercedRecord(NamedTuple):
    """A record as its table takes it.

    `emitted_at` is in milliseconds since 1970-01-01 UTC, `values` has one value per column in the columns' order,
    the first `reported` of the `changes` are those that the source reported.
    """

    emitted_at: int
    values: list[Value]
    changes: list[ValueChange]
    reported: int


class RecordRefused(Exception):
    """A line holds no record that could be written. `reason` is a code; the message quotes nothing of the line."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def coerce_value(raw: bytes, column_type: ColumnType, floats: Floats = Floats.ANY) -> Coerced:
    """The value of one JSON text (valid, without white space around it) for a column of this type. Never raises."""
    changes: list[ValueChange] = []
    value = _bounded(_coercer(column_type, floats))(raw, changes)
    return Coerced(value, tuple(changes))


def coercers(columns: Sequence[Field], floats: Floats = Floats.ANY) -> tuple[Coercer, ...]:
    """One coercer per column; the changes they report name the place in the record, the column's source first.

    The list that a coercer appends to is to hold what had to be done to the record's other values: it is never longer
    than MOST_CHANGES and one for each column. A value that would make it longer is nulled as a whole.
    """
    return tuple(_placed(path_step(column.source), _bounded(_coercer(column.type, floats))) for column in columns)


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
        ours: list[ValueChange] = []
        values = [coercer(bytes(data.get(source, NULL)), ours) for source, coercer in by_source]
        return CoercedRecord(emitted_at(bytes(record.emitted_at)), values, [*reported, *ours], len(reported))

    return coerce


# --- JSON text: taken apart without touching the values -----------------------------------------------------------


class _Record(msgspec.Struct, gc=False):
    data: dict[str, Raw]
    emitted_at: Raw = Raw(NULL)
    meta: Raw = Raw(NULL)


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
    envelope = members_of(line)
    record = members_of(envelope.get("record", NULL)) if envelope is not None else None
    if record is None:
        raise RecordRefused(RECORD_UNREADABLE, "the line is not a record")
    data = members_of(record.get("data", NULL))
    if data is None:
        raise RecordRefused(RECORD_UNREADABLE, "the record has no data object")
    return _Record(
        {key: Raw(value) for key, value in data.items()},
        Raw(record.get("emitted_at", NULL)),
        Raw(record.get("meta", NULL)),
    )


# --- The record around the values ---------------------------------------------------------------------------------

_SECONDS_BELOW = 100_000_000_000  # in milliseconds that is March 1973, in seconds the year 5138
_USUAL_DIGITS = 13  # milliseconds from 2001 to 2286
LATEST_EMITTED = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z


def emitted_at(raw: bytes) -> int:
    """A record's `emitted_at` in milliseconds; a number too small for those is in seconds. Raises RecordRefused."""
    if len(raw) == _USUAL_DIGITS and raw.isdigit():
        return int(raw)
    number = exact_number(raw.decode("ascii", "replace"))
    if number is None:
        raise RecordRefused(RECORD_UNREADABLE, "the record has no emitted_at")
    milliseconds = number * 1000 if -_SECONDS_BELOW < number < _SECONDS_BELOW else number
    if not -LATEST_EMITTED <= milliseconds <= LATEST_EMITTED:
        raise RecordRefused(RECORD_TIME_OUT_OF_RANGE, "the record's emitted_at is out of range")
    return int(milliseconds)


def source_changes(raw: bytes) -> list[ValueChange]:
    """What the source itself reports in `meta.changes`; whatever is not an entry of that list is not a report."""
    if raw == NULL:
        return []
    meta = cast(dict[str, Any], _META(raw, []) or {})
    entries = cast(list[dict[str, Any] | None], meta.get("changes") or [])
    return [ValueChange(**entry) for entry in entries if entry is not None]


# --- Values -------------------------------------------------------------------------------------------------------


def _boolean(raw: bytes, changes: list[ValueChange]) -> Value:
    if raw == b"true":
        return True
    if raw == b"false":
        return False
    return None if raw == NULL else nulled(raw, changes, SERIALIZATION_ERROR)


def _json(raw: bytes, changes: list[ValueChange]) -> Value:
    if raw == NULL:
        return None
    try:
        text = raw.decode()
        if b"NaN" in raw or b"Infinity" in raw:
            json.loads(text, parse_int=len, parse_float=len, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return nulled(raw, changes, SERIALIZATION_ERROR)
    return text


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _string(raw: bytes, changes: list[ValueChange]) -> Value:
    if raw[:1] != b'"':
        return _json(raw, changes)
    text = text_of_string(raw)
    return nulled(raw, changes, SERIALIZATION_ERROR) if text is None else text


# --- Nested values ------------------------------------------------------------------------------------------------

MOST_CHANGES = 10_000
"""So many changed values of one record are noted one by one: more of them say the same, and memory has an end."""


class _TooManyChanges(Exception):
    """A record has so many changed values that its column is nulled as a whole."""


def _bounded(coercer: Coercer) -> Coercer:
    """The coercer, nulling a value of which more would have to be noted than MOST_CHANGES allows."""

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        before = len(changes)
        try:
            return coercer(raw, changes)
        except _TooManyChanges:
            del changes[before:]
            return nulled(raw, changes, SERIALIZATION_ERROR)

    return coerce


def _placed(place: str, coercer: Coercer) -> Coercer:
    """The coercer, with the place put before those that its changes name."""

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        before = len(changes)
        value = coercer(raw, changes)
        if len(changes) != before:
            _put_before(place, changes, before)
        return value

    return coerce


def _put_before(place: str, changes: list[ValueChange], start: int) -> None:
    for i in range(start, len(changes)):
        inner = changes[i]
        full = f"{place}.{inner.field}" if inner.field else place
        changes[i] = ValueChange(full, inner.change, inner.reason, inner.original)


def _struct(column_type: Struct, floats: Floats) -> Coercer:
    inner = [
        (field.source, field.name, _placed(path_step(field.source), _coercer(field.type, floats)))
        for field in column_type.fields
    ]

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        if raw == NULL:
            return None
        members = members_of(raw)
        if members is None:
            return nulled(raw, changes, SERIALIZATION_ERROR)
        return {name: coercer(members.get(source, NULL), changes) for source, name, coercer in inner}

    return coerce


def _list(column_type: List, floats: Floats) -> Coercer:
    coercer = _coercer(column_type.element, floats)

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        if raw == NULL:
            return None
        elements = elements_of(raw)
        if elements is None:
            return nulled(raw, changes, SERIALIZATION_ERROR)
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
    Int32: lambda _, __: integer,
    Int64: lambda _, __: integer,
    Float32: lambda _, floats: float_coercer(floats),
    Float64: lambda _, floats: float_coercer(floats),
    Decimal: lambda t, _: decimal_coercer(t),
    String: lambda _, __: _string,
    Json: lambda _, __: _json,
    Date: lambda _, __: day,
    Timestamp: lambda t, _: timestamp_coercer(t),
    Struct: _struct,
    List: _list,
}


def _coercer(column_type: ColumnType, floats: Floats) -> Coercer:
    return COERCERS[type(column_type)](column_type, floats)


_META = _bounded(
    _coercer(
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
)
