"""Decode single RECORD lines, including lines that the library msgspec rejects.

The native decoder (`records.native`) is faster, but rejects irregular lines. This module decodes these lines.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec
from msgspec import Raw

from destination_datalake.protocol.json_text import NULL, members_or_none
from destination_datalake.records.decoded import ValueChange
from destination_datalake.records.values.numbers import exact_number
from destination_datalake.records.values.registry import rules_for
from destination_datalake.records.values.rules import Floats, Value, bounded
from destination_datalake.schema.columns import CHANGE, has_whole_record
from destination_datalake.schema.types import Field, List, Struct

RECORD_UNREADABLE = "DESTINATION_RECORD_UNREADABLE"
RECORD_TIME_OUT_OF_RANGE = "DESTINATION_RECORD_TIME_OUT_OF_RANGE"

LATEST_EMITTED = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z in milliseconds since 1970."""

EARLIEST_EMITTED = -62_135_596_800_000
"""0001-01-01T00:00:00Z in milliseconds since 1970."""

SECONDS_BELOW = 100_000_000_000
"""The limit between seconds and milliseconds in `emitted_at`.

If the absolute value of `emitted_at` is smaller, its unit is seconds, as in the records of PyAirbyte. Otherwise, its
unit is milliseconds. In milliseconds, the limit is a time in March 1973. In seconds, the limit is a time in the year
5138.
"""

_USUAL_DIGITS = 13  # milliseconds from 2001 to 2286


class RejectedRecord(Exception):
    """A line contains no usable record. `reason` is a code. The message never quotes the line."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


# --- Structs --------------------------------------------------------------------------------------------------------

Data = TypeVar("Data")
Record = TypeVar("Record")


class RecordLine(msgspec.Struct, Generic[Record], gc=False):
    """A RECORD line. Decoding skips all members except `record`."""

    record: Record


class RawRecord(msgspec.Struct, Generic[Data], gc=False):
    """A record whose `data` has the type `Data`. `emitted_at` and `meta` contain undecoded JSON text."""

    data: Data
    emitted_at: Raw = Raw(NULL)
    meta: Raw = Raw(NULL)


# --- emitted_at -----------------------------------------------------------------------------------------------------


def emitted_at(raw: bytes) -> int:
    """Return a record's `emitted_at` in milliseconds since 1970. `raw` is the JSON text of `emitted_at`.

    If the number is between -SECONDS_BELOW and SECONDS_BELOW, its unit is seconds. Raises RejectedRecord if `raw` is
    not a number, or if the time is outside the years 1 to 9999.
    """
    # Nearly all records take this path, which is faster than the exact one.
    if len(raw) == _USUAL_DIGITS and raw.isdigit():
        return int(raw)
    number = exact_number(raw.decode("ascii", "replace"))
    if number is None:
        raise RejectedRecord(RECORD_UNREADABLE, "emitted_at is missing or not a number")
    milliseconds = number * 1000 if -SECONDS_BELOW < number < SECONDS_BELOW else number
    if not EARLIEST_EMITTED <= milliseconds <= LATEST_EMITTED:
        raise RejectedRecord(RECORD_TIME_OUT_OF_RANGE, "the record's emitted_at is out of range")
    return int(milliseconds)


# --- meta.changes ---------------------------------------------------------------------------------------------------


def source_changes(raw: bytes) -> list[ValueChange]:
    """Return the changes to values that the source reports in `meta.changes`. Skip invalid entries.

    `raw` is the JSON text of the record's `meta`.
    """
    if raw == NULL:
        return []
    meta = cast(dict[str, Any], _meta(raw, []) or {})
    entries = cast(list[dict[str, Any] | None], meta.get("changes") or [])
    return [ValueChange(**entry) for entry in entries if entry is not None]


_meta = bounded(rules_for(Struct((Field("changes", "changes", List(CHANGE)),)), Floats.ANY).coerce)


# --- One line -------------------------------------------------------------------------------------------------------


class CoercedRecord(NamedTuple):
    """A record after conversion to the types of the table's columns.

    `emitted_at` is the number of milliseconds since 1970-01-01T00:00 UTC. `values` contains one value per column, in
    order. `changes` contains the changes to values: first the `reported` changes that the source reported, then the
    changes that the connector made.
    """

    emitted_at: int
    values: list[Value]
    changes: list[ValueChange]
    reported: int


def record_coercer(columns: Sequence[Field], floats: Floats = Floats.ANY) -> Callable[[bytes], CoercedRecord]:
    """Return a function that decodes one RECORD line to values for these columns.

    The function ignores keys without a column, and returns null for columns without a key. It raises RejectedRecord if
    the line contains no data object or no valid `emitted_at`.
    """
    by_source = [(column.source, rules_for(column.type, floats).coercer(column.source)) for column in columns]
    is_whole = has_whole_record(columns)

    def coerce(line: bytes) -> CoercedRecord:
        record = _record(line)
        data, reported = record.data, source_changes(bytes(record.meta))
        changes: list[ValueChange] = []
        if is_whole:
            # The whole record must stay exactly as received, so take its text from the line and not from decoded
            # members.
            data = {source: Raw(_data_text(line)) for source, _ in by_source}
        values = [coercer(bytes(data.get(source, NULL)), changes) for source, coercer in by_source]
        return CoercedRecord(emitted_at(bytes(record.emitted_at)), values, [*reported, *changes], len(reported))

    return coerce


_Members = RawRecord[dict[str, Raw]]
_LINE = msgspec.json.Decoder(RecordLine[_Members])


def _record(line: bytes) -> _Members:
    """Return the record of a line, whose `data` maps keys to JSON text. Skip a byte order mark at the line's start.

    Raises RejectedRecord if the line contains no record, or if the record is nested too deeply.
    """
    line = line.removeprefix(BOM_UTF8)
    try:
        return _LINE.decode(line).record
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # The first function still uses msgspec, which is much faster than the lenient scanner.
        return _record_with_surrogates(line) or _irregular_record(line)
    except RecursionError:
        raise RejectedRecord(RECORD_UNREADABLE, "the record is nested too deeply") from None


def _record_with_surrogates(line: bytes) -> _Members | None:
    """Return the record of a line that msgspec rejects only because of lone surrogates, or None for other lines.

    JSON contains surrogates (U+D800 to U+DFFF) as escapes of the form `\\ud…`. With `e` instead of `d`, these escapes
    denote private-use characters, which msgspec accepts. This function replaces each `d` by `e`, decodes the line, and
    restores each `d`. If the line already contains private-use characters, this is impossible, and the function returns
    None.
    """
    if any(private in line for private in (b"\\ue", b"\\uE")):
        return None
    try:
        record = _LINE.decode(line.replace(b"\\ud", b"\\ue").replace(b"\\uD", b"\\uE")).record
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    # A surrogate inside a key is decoded already and cannot be restored.
    if any(_PRIVATE.search(key) for key in record.data):
        return None
    return RawRecord(
        {key: _as_received(text) for key, text in record.data.items()},
        _as_received(record.emitted_at),
        _as_received(record.meta),
    )


def _as_received(text: Raw) -> Raw:
    sent = bytes(text)
    return Raw(sent.replace(b"\\ue", b"\\ud").replace(b"\\uE", b"\\uD")) if b"\\u" in sent else text


def _data_text(line: bytes) -> bytes:
    """Return the JSON text of a record's `data`, exactly as received, or `null` if the line contains no `data`."""
    envelope = members_or_none(line.removeprefix(BOM_UTF8)) or {}
    return (members_or_none(envelope.get("record", NULL)) or {}).get("data", NULL)


_PRIVATE = re.compile("[\ue000-\uefff]")


def _irregular_record(line: bytes) -> _Members:
    """Return the record of a line that msgspec rejects, read by the lenient scanner in `protocol.json_text`.

    Raises RejectedRecord if the scanner finds no record with a data object.
    """
    envelope = members_or_none(line)
    record = members_or_none(envelope.get("record", NULL)) if envelope is not None else None
    if record is None:
        raise RejectedRecord(RECORD_UNREADABLE, "the line is not a record")
    data = members_or_none(record.get("data", NULL))
    if data is None:
        raise RejectedRecord(RECORD_UNREADABLE, "the record contains no data object")
    return RawRecord(
        {key: Raw(value) for key, value in data.items()},
        Raw(record.get("emitted_at", NULL)),
        Raw(record.get("meta", NULL)),
    )
