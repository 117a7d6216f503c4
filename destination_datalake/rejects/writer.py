"""Write the rejects of one unit (the part of a batch that one Spark task encodes) as JSON Lines files to S3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from destination_datalake.aws.objects import GzipUpload, PendingUpload, Upload, delete_uncommitted, naming_object
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.records.decoded import (
    FIELD_SIZE_LIMITATION,
    NULLED,
    SERIALIZATION_ERROR,
    TRUNCATED,
    ValueChange,
)
from destination_datalake.records.values.rules import path_step
from destination_datalake.rejects.ledger import RejectCounts, RejectFile, RejectLocation
from destination_datalake.schema.arrow import widest
from destination_datalake.schema.columns import RecordFields
from destination_datalake.schema.glue import glue_type
from destination_datalake.schema.types import ColumnType, Field, List, Struct

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.records.decoded import Decoded


# --- Lines ------------------------------------------------------------------------------------------------------------
# Format a reject as a line of JSON. The line has the fields of Firehose's error objects and of RudderStack's discards
# table.
#
# docs/rejects.md describes the fields. `tables/glue/catalog.py` defines the columns for them.

_EPOCH = datetime(1970, 1, 1)
_CACHED_PATHS = 4096

MAX_VALUES = 100
"""The maximum number of rejected values per record that get a line of their own. The counts include further values, and
`rawData` contains their originals."""

MAX_VALUE_BYTES = 64 * 1024
"""The maximum length of `column_value` in bytes. Only `rawData` contains longer values."""


class _Table(msgspec.Struct, frozen=True, rename="camel", gc=False):
    database_name: str
    table_name: str


class RejectLine(msgspec.Struct, frozen=True, gc=False):
    """A line about one reject. Numeric times are in milliseconds since 1970-01-01 UTC.

    If a record has several rejected values, there is a line for each of them. Only the first of these lines contains
    the original record (`raw_data`) and the number of rejected values without a line of their own
    (`values_not_listed`).
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
    """Identifies the row that contains a rejected value.

    `id` is the row's `_airbyte_raw_id`. `extracted_at` is its `_airbyte_extracted_at`, in microseconds since 1970-01-01
    UTC.
    """

    id: str
    extracted_at: int


class RejectFormatter:
    """Creates the lines for the rejects of one unit, which is the part of a batch that one task encodes.

    `columns` contains the columns of the stream. `unit` identifies the unit in the lines. `now` is the current time in
    milliseconds since 1970-01-01 UTC.
    """

    def __init__(
        self, location: RejectLocation, stream: StreamId, columns: Sequence[Field], unit: str, now: int
    ) -> None:
        self._location = location
        self._table = _Table(location.database, location.table)
        self._stream = stream
        # Most rejects of a unit concern a few fields. The cache belongs to this formatter, because it depends on its
        # columns.
        self._describe = lru_cache(maxsize=_CACHED_PATHS)(
            partial(_describe, columns=RecordFields.for_columns(columns).fields)
        )
        self._unit = unit
        self._now = now
        self._loaded_at = _hive_timestamp(now * 1000) or ""
        self._records = 0

    def value_lines(self, line: bytes, changes: Sequence[ValueChange], row: RowKey) -> Iterator[RejectLine]:
        """Yield a line for each rejected value of a record that the task wrote as `row`, up to MAX_VALUES lines.

        `line` is the original record. `changes` contains the values that the task changed because it rejected them.
        """
        self._records += 1
        for number, change in enumerate(changes[:MAX_VALUES]):
            _, type_ = self._describe(change.field or "")
            # The record is stored only once, with its first line.
            raw_data, unlisted = (None, 0) if number else (line, max(0, len(changes) - MAX_VALUES))
            yield self._line(raw_data, change.reason or "", _message(change, type_), number, row, change, unlisted)

    def record_line(self, line: bytes, reason: str, message: str) -> RejectLine:
        """Return the line for a record that the task did not write as a row. `message` explains the reason."""
        self._records += 1
        return self._line(line, reason, message, 0, None, None, 0)

    def column_of(self, change: ValueChange) -> str:
        """Return the source's name for the column that contains a changed value."""
        return self._describe(change.field or "")[0]

    def _line(
        self,
        raw_data: bytes | None,
        reason: str,
        message: str,
        number: int,
        row: RowKey | None,
        change: ValueChange | None,
        values_not_listed: int,
    ) -> RejectLine:
        return RejectLine(
            attempts_made=1,
            arrival_timestamp=None if row is None else row.extracted_at // 1000,
            error_code=reason,
            error_message=message,
            attempt_ending_timestamp=self._now,
            raw_data=raw_data,
            sequence_number=f"{self._unit}-{self._records}",
            sub_sequence_number=number,
            data_catalog_table=self._table,
            table_name=self._location.table,
            row_id=None if row is None else row.id,
            column_name=None if change is None else change.field,
            column_value=None if change is None else _text(change.original),
            values_not_listed=values_not_listed,
            change=None if change is None else change.change,
            reason=reason,
            received_at=None if row is None else _hive_timestamp(row.extracted_at),
            loaded_at=self._loaded_at,
            run_id=self._location.run,
            stream_namespace=self._stream.namespace,
            stream_name=self._stream.name,
        )


def _text(original: bytes | None) -> str | None:
    """Return the JSON text of a value, or None if the text exceeds MAX_VALUE_BYTES.

    Replaces bytes that are not valid UTF-8. Only `rawData` contains these bytes.
    """
    if original is None or len(original) > MAX_VALUE_BYTES:
        return None
    return original.decode("utf-8", "replace")


def column_at(path: str, columns: Sequence[Field]) -> tuple[str, ColumnType] | None:
    """Return the source's name for the column at a path, and the type of the value at the path, or None.

    The path consists of source keys and list indexes, joined by dots. Keys can contain dots, so several columns can
    match the path. Uses the first column that matches, and returns None if no column matches.
    """
    for column in columns:
        name = path_step(column.source)
        if path == name:
            return column.source, column.type
        if path.startswith(f"{name}."):
            nested_type = _nested_type(path[len(name) + 1 :], column.type)
            if nested_type is not None:
                return column.source, nested_type
    return None


def _nested_type(path: str, type_: ColumnType) -> ColumnType | None:
    """Return the type of the value at a path inside a value of `type_`, or None if nothing matches the path."""
    match type_:
        case Struct(fields):
            match_ = column_at(path, fields)
            return None if match_ is None else match_[1]
        # The next step is a list index, which the type does not contain.
        case List(element):
            _, _, nested_path = path.partition(".")
            return _nested_type(nested_path, element) if nested_path else element
        case _:
            return None


_KINDS = {ord('"'): "string", ord("{"): "object", ord("["): "array", ord("t"): "boolean", ord("f"): "boolean"}

_MESSAGES = {
    (NULLED, SERIALIZATION_ERROR): "incompatible schema conversion from {kind} to {type}",
    (NULLED, FIELD_SIZE_LIMITATION): "{kind} out of the range of {type}",
    (TRUNCATED, FIELD_SIZE_LIMITATION): "{kind} truncated to fit {type}",
}


def _describe(path: str, columns: Sequence[Field]) -> tuple[str, str]:
    """Return the source's name for the column at a path, and the name of the expected type of the value."""
    column = column_at(path, columns)
    assert column is not None, "the path of a change is in a column"
    return column[0], glue_type(widest(column[1])).partition("<")[0]


# The first character of a JSON text determines its kind. Numbers may begin with a digit or a minus sign.
def _message(change: ValueChange, type_: str) -> str:
    kind = _KINDS.get((change.original or b" ")[0], "number")
    return _MESSAGES[change.change or "", change.reason or ""].format(kind=kind, type=type_)


def _hive_timestamp(microseconds: int) -> str | None:
    """Return a UTC timestamp in the format of Hive's JSON SerDes, or None if Python does not support the year."""
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(" ", "milliseconds")
    except OverflowError:
        return None


# --- Writer -----------------------------------------------------------------------------------------------------------
# The executor writes the rejects of a unit to S3 before the task returns its result.
#
# Spark may run a task several times. The driver publishes only the uploads of the attempt whose result it commits.


BUFFER_BYTES = 1024 * 1024
"""The number of bytes of JSON that a writer buffers before it compresses them. This limit bounds the memory."""


class RejectWriter:
    """Writes the rejects of one unit (the part of a batch that one task encodes) to S3, in one object per reason.

    Call `write` for each group of decoded records, and finally `close` or, after an error, `abort`.
    """

    def __init__(self, formatter: RejectFormatter, location: RejectLocation, attempt: str, s3: S3Client) -> None:
        """Create a writer without sending requests.

        `attempt` is a unique name for this attempt to encode the unit. The names of the objects contain it.
        """
        self._formatter = formatter
        self._location = location
        self._attempt = attempt
        self._s3 = s3
        self._open: dict[str, _File] = {}
        self._closed: list[RejectFile] = []
        self._rows = 0
        self._refused = 0
        self._affected = 0
        self._reasons: Counter[tuple[str | None, str]] = Counter()

    def write(self, decoded: Decoded, row_ids: Any) -> None:
        """Write the rejects among the decoded records. `row_ids` contains each row's raw ID. Raises ObjectFailed."""
        self._rows += decoded.rows
        self._refused += len(decoded.rejected)
        self._affected += len(decoded.rejected)
        for refused in decoded.rejected:
            self._reasons[None, refused.reason] += 1
            self._append(self._formatter.record_line(refused.line, refused.reason, refused.message))
        for number, row_changes in decoded.changed.items():
            changes = [change for change in row_changes if change.loses_value]
            if not changes:
                continue
            self._affected += 1
            self._reasons.update((self._formatter.column_of(change), change.reason or "") for change in changes)
            row = RowKey(row_ids[number].as_py(), decoded.extracted_at[number].value)
            for line in self._formatter.value_lines(decoded.lines[number], changes, row):
                self._append(line)

    def close(self) -> list[RejectFile]:
        """Upload the remaining rejects, and return the files, which readers do not see yet. Raises ObjectFailed."""
        # A closed file moves to `_closed` at once, so that `abort` finds each file in exactly one of the two.
        for reason in [*self._open]:
            upload = self._open[reason].close()
            del self._open[reason]
            uri = self._location.uri(reason, self._attempt)
            self._closed.append(RejectFile(self._location.partition(reason), uri, upload))
        return self._closed

    def abort(self) -> None:
        """Abort the uploads, and delete the objects of this attempt from S3."""
        # The stack runs every step, even if one fails: first the aborts, then the deletion.
        with ExitStack() as steps:
            steps.callback(delete_uncommitted, self._closed, self._s3)
            for file in self._open.values():
                steps.callback(file.abort)

    def counts(self) -> RejectCounts:
        """Return the counts of the records and rejects that the caller has passed to `write` so far."""
        return RejectCounts(self._rows + self._refused, self._refused, self._affected, dict(self._reasons))

    def _append(self, line: RejectLine) -> None:
        file = self._open.get(line.reason)
        if file is None:
            file = self._open[line.reason] = _File(self._s3, self._location.uri(line.reason, self._attempt))
        file.append(line)


class _File:
    """A gzipped JSON Lines object, which readers do not see until the driver publishes its upload."""

    def __init__(self, s3: S3Client, uri: str) -> None:
        self._upload = Upload(s3, uri, deferred=True)
        self._gzip = GzipUpload(self._upload)
        self._buffer = bytearray()
        self._encoder = msgspec.json.Encoder()

    def append(self, line: RejectLine) -> None:
        """Append a line to the object."""
        # -1 appends at the end of the buffer.
        self._encoder.encode_into(line, self._buffer, -1)
        self._buffer += b"\n"
        if len(self._buffer) >= BUFFER_BYTES:
            self._compress()

    def close(self) -> PendingUpload:
        """Send the rest of the object. Return its upload, which the driver can publish. Raises ObjectFailed."""
        self._compress()
        with self._naming_object():
            self._gzip.close()
        pending_upload = self._upload.pending_upload
        assert isinstance(pending_upload, PendingUpload)
        return pending_upload

    def abort(self) -> None:
        """Abort the upload of the object."""
        self._upload.abort()

    def _compress(self) -> None:
        with self._naming_object():
            self._gzip.write(self._buffer)
        self._buffer.clear()

    def _naming_object(self) -> AbstractContextManager[None]:
        return naming_object("write rejects to", self._upload.uri)
