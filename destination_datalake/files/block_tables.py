"""Blocks of decoded records as Arrow tables with the columns of their files, those of metadata included."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from destination_datalake.files.parquet import with_field_ids
from destination_datalake.files.plan import COUNTED_DIGITS, FilePlan, IngestOrder
from destination_datalake.records.decoded import CHANGES_TYPE, Decoded, LineNumbers, changes_array
from destination_datalake.schema.arrow import arrow_field, arrow_type, narrowest
from destination_datalake.schema.columns import CHANGE, METADATA_COLUMNS
from destination_datalake.schema.types import Field, Int64

_NO_CHANGES = pa.array([], arrow_type(CHANGE))
_META_TYPE = cast("pa.StructType", arrow_type(METADATA_COLUMNS[2].type))

_UUID_LENGTH = 36
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
"""The two hexadecimal digits of every byte, as one 16-bit number each."""


def metadata_columns(ids: pa.StringArray, decoded: Decoded, plan: FilePlan) -> list[pa.Array[Any]]:
    """Return the four columns of `plan.metadata` in order: raw id, extracted at, meta, generation id."""
    rows = decoded.rows
    extracted_at: pa.Array[Any] = decoded.extracted_at
    changes = decoded.changes
    if changes is None:
        offsets = pa.array(np.zeros(rows + 1, np.int32), pa.int32())
        changes = pa.ListArray.from_arrays(offsets, _NO_CHANGES, type=CHANGES_TYPE)
    if plan.metadata[1].type == Int64():
        # Tables of S3 Data Lake: times are milliseconds, and what is inside the columns is required.
        extracted_at = extracted_at.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        changes = _without_nulls(changes)
    meta = pa.StructArray.from_arrays([_constant(plan.sync_id, rows), changes], fields=list(_META_TYPE))
    return [ids, extracted_at, meta, _constant(plan.generation, rows)]


def _without_nulls(changes: Any) -> pa.ListArray[Any]:
    """Return the changes with empty texts for members that a source has left out."""
    entries: Any = changes.values
    members = [member.fill_null("") for member in entries.flatten()]
    whole: Any = pa.StructArray.from_arrays(members, fields=list(entries.type))
    return cast("pa.ListArray[Any]", changes_array(changes.offsets, whole))


class OrderedIds:
    """Ids of the rows of one unit: UUIDs of version 7 that are ascending in the order of arrival.

    They are monotonic (RFC 9562, 6.2, method 2), and neighbours differ in their last digits only, so they compress to
    almost nothing; random ones would be a sixth of a file. Whatever units, blocks and files the rows of a table lie in:
    their order is that of the batches, whose number is added to the time of the sync's start; then that of the parts of
    a batch, in the 12 bits after the version; then that of the lines of a part, which the counter is. The 30 bits
    between tell attempts and syncs apart.
    """

    def __init__(self, first: bytes) -> None:
        """`first` is the id of a line 0: 16 octets, see `first_id`."""
        self.first = first

    def of(self, lines: LineNumbers) -> pa.StringArray:
        """Return the ids of the rows whose lines have these numbers in the unit."""
        return _ids(self.first, lines)


def first_id(ingest_order: IngestOrder) -> bytes:
    """Return a UUID of version 7 for a unit: its last 32 bits are 0, and those before them random."""
    milliseconds, part = ingest_order
    octets = bytearray(milliseconds.to_bytes(6, "big") + part.to_bytes(2, "big") + os.urandom(4) + bytes(4))
    octets[6] = (octets[6] & 0x0F) | 0x70
    octets[8] = (octets[8] & 0x3F) | 0x80
    return bytes(octets)


def _ids(octets: bytes, counters: LineNumbers) -> pa.StringArray:
    rows = len(counters)
    text = np.tile(np.frombuffer(str(uuid.UUID(bytes=octets)).encode(), np.uint8), (rows, 1))
    counted = counters.astype(">u4").view(np.uint8).reshape(rows, COUNTED_DIGITS // 2)
    text[:, -COUNTED_DIGITS:] = _HEX[counted].view(np.uint8)
    offsets = np.arange(0, (rows + 1) * _UUID_LENGTH, _UUID_LENGTH, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets.data), pa.py_buffer(text.data))


def _constant(value: int | None, rows: int) -> pa.Array[Any]:
    return pa.nulls(rows, pa.int64()) if value is None else pa.array(np.full(rows, value, np.int64))


class Rows(NamedTuple):
    """A table and its bytes, which take as long to count as a small file takes to encode."""

    table: pa.Table
    bytes: int


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The stream's columns with the types that a file stores, and the file's schema in Arrow's terms."""

    columns: tuple[Field, ...]
    arrow: pa.Schema


class BlockTables:
    """Makes tables of decoded blocks. A column that a value does not fit is wider from that block on."""

    def __init__(self, plan: FilePlan, ids: OrderedIds) -> None:
        self._plan = plan
        self._ids = ids
        self.schema = _file_schema(plan.columns, plan)

    def table(self, decoded: Decoded) -> tuple[pa.Array[Any], pa.Table]:
        """Return the ids of the rows (`_airbyte_raw_id`), and a table of `schema`, which is wider if need be."""
        fitted = tuple(
            replace(column, type=narrowest(array, column.type))
            for column, array in zip(self.schema.columns, decoded.columns, strict=True)
        )
        if fitted != self.schema.columns:
            self.schema = _file_schema(fitted, self._plan)
        ids = self._ids.of(decoded.line_numbers)
        metadata = metadata_columns(ids, decoded, self._plan)
        own = [
            array.cast(field.type, safe=False)
            for array, field in zip(decoded.columns, list(self.schema.arrow)[len(metadata) :], strict=True)
        ]
        return ids, pa.Table.from_arrays([*metadata, *own], schema=self.schema.arrow)


class WaitingRows:
    """Rows in memory that are not encoded yet. Each block's schema is as wide as that of the one before, or wider."""

    def __init__(self, schema: FileSchema) -> None:
        self.schema = schema
        self.bytes = 0
        self._blocks: list[pa.Table] = []

    def add(self, table: pa.Table, schema: FileSchema) -> None:
        """Append a block's rows."""
        self.schema = schema
        self.bytes += table.nbytes
        self._blocks.append(table)

    def take(self) -> pa.Table:
        """Return all rows as one table of `schema`, each column in one piece; none wait then.

        The blocks are released column by column: one column is all that is in memory twice.
        """
        blocks = [list(table.itercolumns()) for table in self._blocks]
        self._blocks.clear()
        self.bytes = 0
        columns = []
        for position, field in enumerate(self.schema.arrow):
            chunks: list[Any] = []
            for block in blocks:
                chunks += block[position].cast(field.type).chunks
                block[position] = None  # type: ignore[call-overload]
            columns.append(pa.concat_arrays(chunks) if chunks else pa.array([], field.type))
        return pa.Table.from_arrays(columns, schema=self.schema.arrow)


def _file_schema(columns: Sequence[Field], plan: FilePlan) -> FileSchema:
    schema = pa.schema([arrow_field(column) for column in (*plan.metadata, *columns)])
    return FileSchema(tuple(columns), with_field_ids(schema, plan.field_ids) if plan.field_ids else schema)
