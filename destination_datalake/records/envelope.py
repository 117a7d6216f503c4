"""The envelope of a RECORD line: the structs by which msgspec reads it, and its members beside the data.

`emitted_at` and `meta` are read twice: for one record from their JSON texts, and for a block from what Arrow read.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta, Raw

from destination_datalake.protocol.json_text import NULL
from destination_datalake.records.changes import CHANGES_TYPE, Floats, ValueChange, bounded
from destination_datalake.records.values.numbers import exact_number
from destination_datalake.records.values.registry import rules_for
from destination_datalake.records.values.rules import require
from destination_datalake.schema.columns import CHANGE
from destination_datalake.schema.types import Field, List, Struct

RECORD_UNREADABLE = "DESTINATION_RECORD_UNREADABLE"
RECORD_TIME_OUT_OF_RANGE = "DESTINATION_RECORD_TIME_OUT_OF_RANGE"

LATEST_EMITTED = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z in milliseconds."""

EARLIEST_EMITTED = -62_135_596_800_000
"""0001-01-01T00:00:00Z in milliseconds."""

_SECONDS_BELOW = 100_000_000_000
"""An `emitted_at` below this many "milliseconds" (March 1973) is in seconds (year 5138), as PyAirbyte sends it."""

_USUAL_DIGITS = 13  # milliseconds from 2001 to 2286


class RecordRefused(Exception):
    """A line holds no record that could be written. `reason` is a code; the message quotes nothing of the line."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


# --- Structs --------------------------------------------------------------------------------------------------------

Data = TypeVar("Data")
Record = TypeVar("Record")


class RecordLine(msgspec.Struct, Generic[Record], gc=False):
    """A RECORD line, of which only `record` is read."""

    record: Record


class RawRecord(msgspec.Struct, Generic[Data], gc=False):
    """A record with the members beside its data as JSON texts. `Data` says what is read of the data."""

    data: Data
    emitted_at: Raw = Raw(NULL)
    meta: Raw = Raw(NULL)


class AnyObject(msgspec.Struct, gc=False):
    """An object whose members are skipped."""


_Milliseconds = Meta(ge=EARLIEST_EMITTED, le=LATEST_EMITTED)


class RegularRecord(msgspec.Struct, gc=False):
    """A record as it has to be for a block of such records to be read by Arrow or by RAW_JSON."""

    data: AnyObject
    emitted_at: Annotated[int, _Milliseconds] | Annotated[float, _Milliseconds]


# --- emitted_at -----------------------------------------------------------------------------------------------------


def emitted_at(raw: bytes) -> int:
    """Return a record's `emitted_at` in milliseconds; a number too small for those is in seconds.

    Raises RecordRefused if it is not a number, or beyond the years 1 to 9999.
    """
    if len(raw) == _USUAL_DIGITS and raw.isdigit():
        return int(raw)
    number = exact_number(raw.decode("ascii", "replace"))
    if number is None:
        raise RecordRefused(RECORD_UNREADABLE, "the record has no emitted_at")
    milliseconds = number * 1000 if -_SECONDS_BELOW < number < _SECONDS_BELOW else number
    if not EARLIEST_EMITTED <= milliseconds <= LATEST_EMITTED:
        raise RecordRefused(RECORD_TIME_OUT_OF_RANGE, "the record's emitted_at is out of range")
    return int(milliseconds)


def extracted_at(emitted: Any) -> pa.Array[Any]:
    """Return an array of `emitted_at` (int64) as timestamp[us, UTC]. Raises BlockRefused if one is irregular."""
    if not len(emitted):
        return timestamps(emitted)
    bounds = pc.min_max(emitted)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    require(emitted.null_count == 0 and low >= EARLIEST_EMITTED // 1000 and high <= LATEST_EMITTED)
    if low < _SECONDS_BELOW:
        in_seconds = pc.less(emitted, pa.scalar(_SECONDS_BELOW))
        emitted = pc.if_else(in_seconds, pc.multiply(emitted, pa.scalar(1000)), emitted)
    return timestamps(emitted)


def timestamps(milliseconds: pa.Array[Any]) -> pa.Array[Any]:
    """Return milliseconds since 1970 (int64) as timestamp[us, UTC]."""
    return milliseconds.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


# --- meta.changes ---------------------------------------------------------------------------------------------------


def source_changes(raw: bytes) -> list[ValueChange]:
    """Return what the source itself reports in a record's `meta.changes`, without what is not an entry of that list."""
    if raw == NULL:
        return []
    meta = cast(dict[str, Any], _meta(raw, []) or {})
    entries = cast(list[dict[str, Any] | None], meta.get("changes") or [])
    return [ValueChange(**entry) for entry in entries if entry is not None]


_meta = bounded(rules_for(Struct((Field("changes", "changes", List(CHANGE)),)), Floats.ANY).coerce)


# --- What Arrow's JSON parser is asked for ------------------------------------------------------------------------


def record_type(data: pa.StructType, with_envelope: bool) -> pa.StructType:
    """Return the type of `record`: its data, and the members beside it if Arrow is to read them."""
    fields: list[pa.Field[Any]] = [pa.field("data", data)]
    if with_envelope:
        meta = pa.struct([pa.field("changes", CHANGES_TYPE)])
        fields += [pa.field("emitted_at", pa.int64()), pa.field("meta", meta)]
    return pa.struct(fields)
