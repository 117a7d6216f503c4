"""Convert blocks of decoded records to Arrow tables with the columns of a data file, including metadata columns."""

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
"""The two hexadecimal digits of each byte value, stored as one 16-bit number."""


def metadata_columns(ids: pa.StringArray, decoded: Decoded, plan: FilePlan) -> list[pa.Array[Any]]:
    """Return the metadata columns of decoded records: row ID, extraction time, meta and generation ID.

    The columns have the order and types of `plan.metadata`. `ids` contains the row IDs.
    """
    rows = decoded.rows
    extracted_at: pa.Array[Any] = decoded.extracted_at
    changes = decoded.changes
    if changes is None:
        offsets = pa.array(np.zeros(rows + 1, np.int32), pa.int32())
        changes = pa.ListArray.from_arrays(offsets, _NO_CHANGES, type=CHANGES_TYPE)
    if plan.metadata[1].type == Int64():
        # Tables of Airbyte's S3 Data Lake connector store times as milliseconds, and require all nested fields.
        # Microseconds are cut off.
        extracted_at = extracted_at.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        changes = _without_nulls(changes)
    meta = pa.StructArray.from_arrays([_constant(plan.sync_id, rows), changes], fields=list(_META_TYPE))
    return [ids, extracted_at, meta, _constant(plan.generation, rows)]


def _without_nulls(changes: Any) -> pa.ListArray[Any]:
    """Return the changes with an empty string for each member that the source omitted. All members are required."""
    entries: Any = changes.values
    members = [member.fill_null("") for member in entries.flatten()]
    whole: Any = pa.StructArray.from_arrays(members, fields=list(entries.type))
    return cast("pa.ListArray[Any]", changes_array(changes.offsets, whole))


def row_ids(first_id: bytes, lines: LineNumbers) -> pa.StringArray:
    """Return the row IDs of lines as strings. `lines` contains the line numbers in a unit (one task's part of a batch).

    Row IDs are UUIDs of version 7 that ascend in the order of arrival. `first_id` is the row ID of line 0, as 16 bytes
    (see `new_first_id`).

    The IDs are monotonic (RFC 9562, 6.2, method 2). Neighbouring IDs differ only in their last digits, so a file's IDs
    compress to almost nothing. Random IDs would take up a sixth of the file. An ID consists of, from the most
    significant bits:

    - the start of the sync in milliseconds, plus the number of the batch;
    - the number of the unit in the batch, in the 12 bits after the version;
    - 30 random bits, which differ between attempts at the same unit and between syncs;
    - the number of the line in the unit.

    All rows of a table therefore have IDs in the order of arrival, regardless of the files that contain the rows.
    """
    # Repeat the text of the first ID, and overwrite its last eight digits with the digits of the line numbers.
    rows = len(lines)
    text = np.tile(np.frombuffer(str(uuid.UUID(bytes=first_id)).encode(), np.uint8), (rows, 1))
    # Shape: one row per line with four bytes, the highest first. Each byte selects two digits in `_HEX`.
    counted = lines.astype(">u4").view(np.uint8).reshape(rows, COUNTED_DIGITS // 2)
    text[:, -COUNTED_DIGITS:] = _HEX[counted].view(np.uint8)
    # Each ID has the same length, so offsets are multiples of it.
    offsets = np.arange(0, (rows + 1) * _UUID_LENGTH, _UUID_LENGTH, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets.data), pa.py_buffer(text.data))


def new_first_id(ingest_order: IngestOrder) -> bytes:
    """Return the row ID of line 0 of a unit: a UUID of version 7, as 16 bytes.

    The last 32 bits are 0, for line numbers. The 30 bits before them are random.
    """
    # The part has 12 bits: the version replaces the upper four of its 16 bits.
    milliseconds, part = ingest_order
    octets = bytearray(milliseconds.to_bytes(6, "big") + part.to_bytes(2, "big") + os.urandom(4) + bytes(4))
    octets[6] = (octets[6] & 0x0F) | 0x70  # The version, 7.
    octets[8] = (octets[8] & 0x3F) | 0x80  # The variant of RFC 9562.
    return bytes(octets)


def parse_ingest_order(row_id: str) -> IngestOrder:
    """Return the unit's position in the order of arrival from a row ID or its first digits (see `new_first_id`)."""
    return IngestOrder(int(row_id[:8] + row_id[9:13], 16), int(row_id[15:18], 16))


def _constant(value: int | None, rows: int) -> pa.Array[Any]:
    return pa.nulls(rows, pa.int64()) if value is None else pa.array(np.full(rows, value, np.int64))


class Rows(NamedTuple):
    """A table and its size in bytes.

    This class stores the size, because computing the size takes as long as encoding a small file.
    """

    table: pa.Table
    bytes: int


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The schema of a data file in two forms: the stream's columns with their types in the file, and an Arrow schema.

    Only the Arrow schema includes the metadata columns.
    """

    columns: tuple[Field, ...]
    arrow: pa.Schema


class BlockTables:
    """Converts blocks of decoded records to Arrow tables with the schema of the data file.

    If a block contains a value that does not fit its column, the column is widened for this block and all later blocks.
    """

    def __init__(self, plan: FilePlan, first_id: bytes) -> None:
        self._plan = plan
        self._first_id = first_id
        self.schema = _file_schema(plan.columns, plan)

    def table(self, decoded: Decoded) -> tuple[pa.Array[Any], pa.Table]:
        """Return the row IDs (`_airbyte_raw_id`) and the table of a block.

        If values of the block do not fit the current `schema`, first widens `schema`. The table has the resulting
        schema.
        """
        fitting = tuple(
            # `narrowest` never returns a narrower type than the current one, so later blocks fit the schema too.
            replace(column, type=narrowest(array, column.type))
            for column, array in zip(self.schema.columns, decoded.columns, strict=True)
        )
        if fitting != self.schema.columns:
            self.schema = _file_schema(fitting, self._plan)
        ids = row_ids(self._first_id, decoded.lines.numbers)
        metadata = metadata_columns(ids, decoded, self._plan)
        data = [
            # All values fit, because `narrowest` has compared them. A second check would cost time.
            array.cast(field.type, safe=False)
            for array, field in zip(decoded.columns, list(self.schema.arrow)[len(metadata) :], strict=True)
        ]
        return ids, pa.Table.from_arrays([*metadata, *data], schema=self.schema.arrow)


class WaitingRows:
    """Rows that wait in memory until they are encoded as a file or row group.

    Each added block must have the same schema as the previous one, or a wider one.
    """

    def __init__(self, schema: FileSchema) -> None:
        self.schema = schema
        self.bytes = 0
        self._blocks: list[pa.Table] = []

    def add(self, table: pa.Table, schema: FileSchema) -> None:
        """Append a block of rows. `schema` is the schema of `table`."""
        self.schema = schema
        self.bytes += table.nbytes
        self._blocks.append(table)

    def take(self) -> pa.Table:
        """Remove all rows. Return them as one table of the current `schema`, with one chunk per column.

        Releases the blocks column by column. At any time, only one column is in memory twice.
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
