"""The careful rule for one RECORD line: what Arrow's JSON parser and msgspec refuse is read here all the same."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw

from destination_datalake.protocol.json_text import NULL, members_or_none
from destination_datalake.records.changes import Floats, Value, ValueChange
from destination_datalake.records.envelope import (
    RECORD_UNREADABLE,
    RawRecord,
    RecordLine,
    RecordRefused,
    emitted_at,
    source_changes,
)
from destination_datalake.records.values.registry import coercers
from destination_datalake.schema.types import Field


class CoercedRecord(NamedTuple):
    """A record as its table takes it.

    `emitted_at` is in milliseconds since 1970-01-01 UTC, `values` has one value per column in the columns' order,
    the first `reported` of the `changes` are those that the source reported.
    """

    emitted_at: int
    values: list[Value]
    changes: list[ValueChange]
    reported: int


def record_coercer(columns: Sequence[Field], floats: Floats = Floats.ANY) -> Callable[[bytes], CoercedRecord]:
    """Return a function from one RECORD line to its record for these columns.

    Keys of `data` that are no column's source are left out; a column whose source is missing is null. The function
    raises RecordRefused if the line has no data object or no usable emitted_at.
    """
    by_source = [(column.source, coercer) for column, coercer in zip(columns, coercers(columns, floats), strict=True)]

    def coerce(line: bytes) -> CoercedRecord:
        record = _record(line)
        data, reported = record.data, source_changes(bytes(record.meta))
        own: list[ValueChange] = []
        values = [coercer(bytes(data.get(source, NULL)), own) for source, coercer in by_source]
        return CoercedRecord(emitted_at(bytes(record.emitted_at)), values, [*reported, *own], len(reported))

    return coerce


_Members = RawRecord[dict[str, Raw]]
_LINE = msgspec.json.Decoder(RecordLine[_Members])


def _record(line: bytes) -> _Members:
    """Return the record of a line, its data as JSON texts by key. A byte order mark before the line is skipped."""
    line = line.removeprefix(BOM_UTF8)
    try:
        return _LINE.decode(line).record
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _record_with_surrogates(line) or _irregular_record(line)
    except RecursionError:
        raise RecordRefused(RECORD_UNREADABLE, "the record is nested too deeply") from None


def _record_with_surrogates(line: bytes) -> _Members | None:
    """Return the record of a line that msgspec refuses for its lone surrogates only; None if that is unknown.

    U+D800 to U+DFFF are escaped as `\\ud…`. With an `e` for the `d` they are private characters, which msgspec takes;
    where there were none of those before, putting the `d` back gives every text as it was received.
    """
    if any(private in line for private in (b"\\ue", b"\\uE")):
        return None
    try:
        record = _LINE.decode(line.replace(b"\\ud", b"\\ue").replace(b"\\uD", b"\\uE")).record
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
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


_PRIVATE = re.compile("[\ue000-\uefff]")


def _irregular_record(line: bytes) -> _Members:
    """Return the record of a line that msgspec refuses, by the lenient scanner. Raises RecordRefused."""
    envelope = members_or_none(line)
    record = members_or_none(envelope.get("record", NULL)) if envelope is not None else None
    if record is None:
        raise RecordRefused(RECORD_UNREADABLE, "the line is not a record")
    data = members_or_none(record.get("data", NULL))
    if data is None:
        raise RecordRefused(RECORD_UNREADABLE, "the record has no data object")
    return RawRecord(
        {key: Raw(value) for key, value in data.items()},
        Raw(record.get("emitted_at", NULL)),
        Raw(record.get("meta", NULL)),
    )
