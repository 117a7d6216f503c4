"""A reject as a line of JSON: the fields of Firehose's error objects and the columns of RudderStack's discards table.

docs/rejects.md says what each holds; `catalog.py` has them as the columns of a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import NamedTuple

import msgspec

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.records.changes import (
    FIELD_SIZE_LIMITATION,
    NULLED,
    SERIALIZATION_ERROR,
    TRUNCATED,
    ValueChange,
    path_step,
)
from destination_datalake.rejects.location import RejectLocation
from destination_datalake.schema.glue import glue_type
from destination_datalake.schema.narrowest import widest
from destination_datalake.schema.types import ColumnType, Field, List, Struct

_EPOCH = datetime(1970, 1, 1)
_PLACES_KEPT = 4096

MAX_VALUES = 100
"""So many values of one record have a line; the rest is counted, and is in its `rawData`."""

MAX_VALUE_BYTES = 64 * 1024
"""Bytes: the text of a longer value is in `rawData` alone."""


class _Table(msgspec.Struct, frozen=True, rename="camel", gc=False):
    database_name: str
    table_name: str


class RejectLine(msgspec.Struct, frozen=True, gc=False):
    """One reject. Times that are numbers are milliseconds since 1970 in UTC.

    Of a record's lines the first has `raw_data`, and in `values_not_listed` how many of its values have no line.
    """

    attempts_made: int = msgspec.field(name="attemptsMade")
    arrival_timestamp: int | None = msgspec.field(name="arrivalTimestamp")
    error_code: str = msgspec.field(name="errorCode")
    error_message: str = msgspec.field(name="errorMessage")
    attempt_ending_timestamp: int = msgspec.field(name="attemptEndingTimestamp")
    raw_data: bytes | None = msgspec.field(name="rawData")
    sequence_number: str = msgspec.field(name="sequenceNumber")
    sub_sequence_number: int = msgspec.field(name="subSequenceNumber")
    data_catalog_table: _Table = msgspec.field(name="dataCatalogTable")
    table_name: str
    row_id: str | None
    column_name: str | None
    column_value: str | None
    values_not_listed: int
    change: str | None
    reason: str
    received_at: str | None
    loaded_at: str
    run_id: str
    stream_namespace: str | None
    stream_name: str


class RowKey(NamedTuple):
    """What a rejected value's row is known by: its `_airbyte_raw_id`, and when it was extracted (µs since 1970)."""

    id: str
    extracted_at: int


class RejectFormatter:
    """Makes the lines of one unit's rejects. `now` is when, in milliseconds since 1970."""

    def __init__(self, place: RejectLocation, stream: StreamId, columns: Sequence[Field], unit: str, now: int) -> None:
        self._place = place
        self._table = _Table(place.database, place.table)
        self._stream = stream
        self._described = lru_cache(maxsize=_PLACES_KEPT)(partial(_described, columns=tuple(columns)))
        self._unit = unit
        self._now = now
        self._loaded_at = _moment(now * 1000) or ""
        self._records = 0

    def value_lines(self, line: bytes, changes: Sequence[ValueChange], row: RowKey) -> Iterator[RejectLine]:
        """A line for each value of a record that was changed, up to MOST_VALUES."""
        self._records += 1
        for number, change in enumerate(changes[:MAX_VALUES]):
            _, type_ = self._described(change.field or "")
            raw_data, rest = (None, 0) if number else (line, max(0, len(changes) - MAX_VALUES))
            yield self._line(raw_data, change.reason or "", _sentence(change, type_), number, row, change, rest)

    def record_line(self, line: bytes, reason: str, sentence: str) -> RejectLine:
        """The line for a record that was not written."""
        self._records += 1
        return self._line(line, reason, sentence, 0, None, None, 0)

    def column_of(self, change: ValueChange) -> str:
        """The column that a changed value is in, as the source calls it."""
        return self._described(change.field or "")[0]

    def _line(
        self,
        raw_data: bytes | None,
        reason: str,
        sentence: str,
        number: int,
        row: RowKey | None,
        change: ValueChange | None,
        values_not_listed: int,
    ) -> RejectLine:
        return RejectLine(
            attempts_made=1,
            arrival_timestamp=None if row is None else row.extracted_at // 1000,
            error_code=reason,
            error_message=sentence,
            attempt_ending_timestamp=self._now,
            raw_data=raw_data,
            sequence_number=f"{self._unit}-{self._records}",
            sub_sequence_number=number,
            data_catalog_table=self._table,
            table_name=self._place.table,
            row_id=None if row is None else row.id,
            column_name=None if change is None else change.field,
            column_value=None if change is None else _text(change.original),
            values_not_listed=values_not_listed,
            change=None if change is None else change.change,
            reason=reason,
            received_at=None if row is None else _moment(row.extracted_at),
            loaded_at=self._loaded_at,
            run_id=self._place.run,
            stream_namespace=self._stream.namespace,
            stream_name=self._stream.name,
        )


def _text(original: bytes | None) -> str | None:
    """The JSON text of a value, if it is not too long. Bytes that are no text can be had from `rawData`."""
    if original is None or len(original) > MAX_VALUE_BYTES:
        return None
    return original.decode("utf-8", "replace")


def column_at(place: str, columns: Sequence[Field]) -> tuple[str, ColumnType] | None:
    """The column (by its source's name) and the type of the value at a place that a change names, if there is one.

    A place is source keys and indexes joined by `.`, and keys may hold dots themselves: the first that fits is taken.
    """
    for column in columns:
        name = path_step(column.source)
        if place == name:
            return column.source, column.type
        if place.startswith(f"{name}."):
            inner = _inside(place[len(name) + 1 :], column.type)
            if inner is not None:
                return column.source, inner
    return None


def _inside(place: str, type_: ColumnType) -> ColumnType | None:
    match type_:
        case Struct(fields):
            found = column_at(place, fields)
            return None if found is None else found[1]
        case List(element):
            _, _, rest = place.partition(".")
            return _inside(rest, element) if rest else element
        case _:
            return None


_KINDS = {ord('"'): "string", ord("{"): "object", ord("["): "array", ord("t"): "boolean", ord("f"): "boolean"}

_SENTENCES = {
    (NULLED, SERIALIZATION_ERROR): "incompatible schema conversion from {kind} to {type}",
    (NULLED, FIELD_SIZE_LIMITATION): "{kind} out of the range of {type}",
    (TRUNCATED, FIELD_SIZE_LIMITATION): "{kind} cut to what {type} holds",
}


def _described(place: str, columns: Sequence[Field]) -> tuple[str, str]:
    """The column of a place, and the name of the type that its value should have had."""
    found = column_at(place, columns)
    assert found is not None, "changes name places in columns"
    return found[0], glue_type(widest(found[1])).partition("<")[0]


def _sentence(change: ValueChange, type_: str) -> str:
    kind = _KINDS.get((change.original or b" ")[0], "number")
    return _SENTENCES[change.change or "", change.reason or ""].format(kind=kind, type=type_)


def _moment(microseconds: int) -> str | None:
    """A moment as Hive's JSON SerDes read it, in UTC; None before the year 1, which they cannot."""
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(" ", "milliseconds")
    except OverflowError:
        return None
