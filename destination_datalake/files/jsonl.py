"""Write JSON Lines files. DuckDB, a C++ library, converts Arrow data to text.

Python converts rows for which DuckDB would exceed its memory limit. It also converts decimals that DuckDB would write
as invalid JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.aws.objects import GzipUpload, Upload
from destination_datalake.files.parquet import with_leaf_types

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


MEMORY_LIMIT_MB = 256
"""DuckDB's memory limit in MB. A single value of 22 MB exceeds this limit. A query of 2,000 rows with 1,000 columns
exceeds it, too."""

MAX_ROWS = 1 << 20
"""Maximum number of rows per query. Blocks of decoded records never contain more rows."""

_MAX_DIGITS = 38

_ENCODER = msgspec.json.Encoder(decimal_format="number")


class JsonLinesFileWriter:
    """Writes a JSON Lines file, optionally gzipped. Each row becomes one line."""

    metadata_bytes = 0

    def __init__(self, encoder: JsonLinesEncoder, codec: str, upload: Upload) -> None:
        """Write to `upload`. `codec` is GZIP or UNCOMPRESSED. Several files of one schema may share an encoder."""
        self._encoder = encoder
        self._output = GzipUpload(upload) if codec == "GZIP" else upload

    def write(self, table: pa.Table) -> None:
        """Encode rows and append their lines to the file."""
        for text in self._encoder.encode(table):
            self._output.write(text)

    def write_row_group(self, table: pa.Table, size: int) -> None:  # noqa: ARG002
        """Encode rows and append their lines to the file, like `write`. JSON Lines files have no row groups."""
        self.write(table)

    def close(self) -> bytes:
        """Write the remaining bytes. Return empty bytes, because JSON Lines files have no footer."""
        if isinstance(self._output, GzipUpload):
            self._output.finish()
        return b""


class JsonLinesEncoder:
    """Encodes rows of one schema as lines of JSON.

    Writes timestamps in UTC, without a time zone, because Hive's JSON SerDes expect this form.
    """

    def __init__(self, schema: pa.Schema, memory_limit_mb: int = MEMORY_LIMIT_MB) -> None:
        import duckdb

        self._out_of_memory = duckdb.OutOfMemoryException
        # Values that exceed this size would exceed DuckDB's memory limit, too.
        self._row_by_row_bytes = memory_limit_mb * 1_000_000 // 8
        limits: dict[str, str | bool | int | float | list[str]] = {
            "threads": "1",
            "memory_limit": f"{memory_limit_mb}MB",
        }
        self._duckdb: DuckDBPyConnection = duckdb.connect(config=limits)
        # Columns get aliases, because SQL ignores the case of names, and a column's name may also be that of a table or
        # function.
        self._aliases = [f"c{position}" for position in range(len(schema))]
        members = (f"{_literal(name)}, {alias}" for name, alias in zip(schema.names, self._aliases, strict=True))
        # The query appends the newlines, so that the result's buffer already is the text of the file.
        self._query = f"SELECT json_object({', '.join(members)})::VARCHAR || chr(10) FROM records"
        self._schema = with_leaf_types(schema, _for_duckdb)
        self._is_for_duckdb = not any(map(_holds_widest_fraction, schema.types))
        self._max_rows = MAX_ROWS

    def encode(self, table: pa.Table) -> Iterator[memoryview | bytes]:
        """Yield the rows as lines of JSON, each of which ends with a newline.

        A yielded piece contains any number of lines.
        """
        # Rows differ in size. Later rows may need less memory than those for which this method halved the maximum.
        self._max_rows = min(2 * self._max_rows, MAX_ROWS)
        zoneless = table.cast(self._schema)
        start = 0
        while start < table.num_rows:
            piece = zoneless.slice(start, self._max_rows)
            start += piece.num_rows
            if not self._is_for_duckdb or (piece.num_rows == 1 and piece.nbytes > self._row_by_row_bytes):
                yield _encode_row_by_row(piece)  # DuckDB would only fail after exhausting its memory limit.
                continue
            try:
                texts = self._encode_vectorised(piece)
            except self._out_of_memory:
                if piece.num_rows > 1:
                    start -= piece.num_rows
                    self._max_rows = piece.num_rows // 2
                    continue
                yield _encode_row_by_row(piece)
            else:
                yield from texts

    def _encode_vectorised(self, zoneless: pa.Table) -> list[memoryview]:
        self._duckdb.register("records", _without_offsets(zoneless).rename_columns(self._aliases))
        try:
            lines = self._duckdb.sql(self._query).to_arrow_table().column(0)
        finally:
            self._duckdb.unregister("records")
        # The data buffer of an Arrow string array is the concatenation of its strings, which here are the lines.
        return [
            # Arrow pads its buffers, so cut off the bytes after the last line.
            memoryview(chunk.buffers()[2])[: pc.sum(pc.binary_length(chunk)).as_py()]
            for chunk in lines.chunks
            if len(chunk)
        ]


def _without_offsets(table: pa.Table) -> pa.Table:
    """Copy nested columns that are slices of longer arrays, because DuckDB 2.0 rejects nested structs with an offset.

    Returns the table with these copies. Does not copy other columns.
    """
    columns: list[Any] = table.columns
    for position, column in enumerate(columns):
        if pa.types.is_nested(column.type) and any(_has_offset(chunk) for chunk in column.chunks):
            # `concat_arrays` returns a single array without copying it. An empty second array forces a copy.
            copied: list[Any] = [pa.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in column.chunks]
            table = table.set_column(position, table.schema.field(position), pa.chunked_array(copied))
    return table


def _has_offset(array: pa.Array[Any]) -> bool:
    if array.offset:
        return True
    if isinstance(array, pa.StructArray):
        return any(_has_offset(array.field(i)) for i in range(array.type.num_fields))
    return isinstance(array, pa.ListArray) and _has_offset(array.values)


def _encode_row_by_row(zoneless: pa.Table) -> bytes:
    """Encode rows in Python, which needs less memory than DuckDB but is slower.

    Casts dates and times to strings first, because Python's types have smaller ranges than Arrow's.
    """
    return _ENCODER.encode_lines(zoneless.cast(with_leaf_types(zoneless.schema, _as_text)).to_pylist())


def _literal(text: str) -> str:
    """Return the text as a quoted SQL string literal."""
    return f"""'{text.replace("'", "''")}'"""


def _for_duckdb(leaf: pa.Field[Any]) -> pa.DataType:
    """Return the type to which the encoder casts values, so that DuckDB writes them as valid JSON.

    Drops time zones. A decimal type without digits before the point gets one more digit, because DuckDB would write
    such values as `.5`.
    """
    type_: pa.DataType = leaf.type
    if isinstance(type_, pa.TimestampType):
        return pa.timestamp(type_.unit)
    if isinstance(type_, pa.Decimal128Type) and type_.precision == type_.scale < _MAX_DIGITS:
        return pa.decimal128(type_.precision + 1, type_.scale)
    return type_


def _holds_widest_fraction(type_: pa.DataType) -> bool:
    """Return whether the type is or contains a decimal with 38 digits, all of which are after the point."""
    if pa.types.is_nested(type_):
        return any(_holds_widest_fraction(type_.field(i).type) for i in range(type_.num_fields))
    return isinstance(type_, pa.Decimal128Type) and type_.scale == _MAX_DIGITS


def _as_text(leaf: pa.Field[Any]) -> pa.DataType:
    return pa.string() if pa.types.is_temporal(leaf.type) else leaf.type
