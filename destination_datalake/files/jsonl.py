"""JSON lines: DuckDB turns Arrow data into text, in C++; what it has no room for is written row by row."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.aws.upload import Upload

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY_MB = 256
"""What DuckDB may take. A value of 22 MB needs more, and so do 2,000 rows of 1,000 columns."""

ROWS_AT_ONCE = 1 << 20
"""The most rows that DuckDB is given: more than any table here has."""


class JsonLinesFile:
    """A file of JSON lines, plain or gzip."""

    def __init__(self, codec: str, schema: pa.Schema, upload: Upload) -> None:
        self._text = JsonText(schema)
        self._upload = upload
        self._gzip = zlib.compressobj(level=1, wbits=31) if codec == "GZIP" else None

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        for text in self._text.lines(table):
            self._upload.write(self._gzip.compress(text) if self._gzip else text)

    def close(self) -> bytes:
        """Finish the object."""
        self._text.close()
        if self._gzip:
            self._upload.write(self._gzip.flush())
        self._upload.close()
        return b""


class JsonText:
    """Rows of one schema as JSON text. Timestamps are said as Hive's JSON SerDes read them: in UTC, without a zone."""

    def __init__(self, schema: pa.Schema, memory_mb: int = MEMORY_MB) -> None:
        import duckdb

        self._no_room = duckdb.OutOfMemoryException
        self._hopeless_bytes = memory_mb * 1_000_000 // 8
        self._duckdb: DuckDBPyConnection = duckdb.connect(config={"threads": "1", "memory_limit": f"{memory_mb}MB"})
        # In SQL a column goes by its place: whatever it is called, it is never taken for another thing of that name.
        self._places = [f"c{place}" for place in range(len(schema))]
        members = (f"{_literal(name)}, {place}" for name, place in zip(schema.names, self._places, strict=True))
        self._query = f"SELECT json_object({', '.join(members)})::VARCHAR || chr(10) FROM records"
        self._zoneless = _with_times(schema, _without_zone)
        self._rows_at_once = ROWS_AT_ONCE

    def lines(self, table: pa.Table) -> Iterator[memoryview | bytes]:
        """The rows as lines, each ended by a newline, in pieces of any number of them."""
        # Rows are not alike: those to come may need less room than the widest there was.
        self._rows_at_once = min(2 * self._rows_at_once, ROWS_AT_ONCE)
        zoneless = table.cast(self._zoneless)
        start = 0
        while start < table.num_rows:
            piece = zoneless.slice(start, self._rows_at_once)
            start += piece.num_rows
            if piece.num_rows == 1 and piece.nbytes > self._hopeless_bytes:
                yield _row_by_row(piece)  # To try would only take all the memory there is.
                continue
            try:
                texts = self._in_bulk(piece)
            except self._no_room:
                if piece.num_rows > 1:
                    start -= piece.num_rows
                    self._rows_at_once = piece.num_rows // 2
                    continue
                yield _row_by_row(piece)
            else:
                yield from texts

    def close(self) -> None:
        """Give DuckDB's memory back."""
        self._duckdb.close()

    def _in_bulk(self, zoneless: pa.Table) -> list[memoryview]:
        self._duckdb.register("records", zoneless.rename_columns(self._places))
        try:
            lines = self._duckdb.sql(self._query).to_arrow_table().column(0)
        finally:
            self._duckdb.unregister("records")
        # One string after the other, without anything between them: the lines as they are.
        return [
            memoryview(chunk.buffers()[2])[: pc.sum(pc.binary_length(chunk)).as_py()]
            for chunk in lines.chunks
            if len(chunk)
        ]


_ENCODER = msgspec.json.Encoder(decimal_format="number")


def _row_by_row(zoneless: pa.Table) -> bytes:
    """The same in Python. Times come as text: Python's types do not hold all that Arrow's do."""
    return _ENCODER.encode_lines(zoneless.cast(_with_times(zoneless.schema, _as_text)).to_pylist())


def _literal(text: str) -> str:
    """A string in DuckDB's SQL."""
    return f"""'{text.replace("'", "''")}'"""


def _with_times(schema: pa.Schema, change: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    """The schema with its timestamps and dates changed, wherever they are."""
    return pa.schema([field.with_type(_changed(field.type, change)) for field in schema])


def _changed(type_: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_struct(type_):
        fields = (type_.field(i) for i in range(type_.num_fields))
        return pa.struct([field.with_type(_changed(field.type, change)) for field in fields])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_changed(type_.value_type, change)))
    return change(type_) if pa.types.is_temporal(type_) else type_


def _without_zone(type_: pa.DataType) -> pa.DataType:
    return pa.timestamp(type_.unit) if pa.types.is_timestamp(type_) else type_


def _as_text(_: pa.DataType) -> pa.DataType:
    return pa.string()
