"""Write Parquet data files and position delete files.

Readers find the columns of a data file by the Iceberg field IDs in the file's schema (Iceberg spec: Column Projection).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from destination_datalake.aws.objects import Upload

FIELD_ID = b"PARQUET:field_id"
"""The metadata key of a field ID in an Arrow schema. Arrow's Parquet writer stores the ID in the schema of the file."""


def field_id(field: pa.Field[Any]) -> int | None:
    """Return the field ID of a column or nested field, or None if the field has no ID."""
    id_ = (field.metadata or {}).get(FIELD_ID)
    return None if id_ is None else int(id_)


def has_field_ids(schema: pa.Schema) -> bool:
    """Return whether any column has a field ID. If a file has none, another program wrote it."""
    return any(field_id(field) is not None for field in schema)


def columns_by_id(schema: pa.Schema, ids: Sequence[int]) -> pa.Schema:
    """Return a schema of the top-level columns with these field IDs, in the order of the IDs.

    Raises KeyError if the schema has no column with one of these IDs.
    """
    by_id = {field_id(field): field for field in schema}
    return pa.schema([by_id[id_] for id_ in ids])


def with_field_ids(schema: pa.Schema, ids: Mapping[str, int]) -> pa.Schema:
    """Return the schema with field IDs at every level. `ids` maps dotted paths ("items.element.price") to field IDs.

    Paths are unambiguous, because names do not contain dots (see `schema.names`). Raises KeyError if a field has no ID
    in `ids`.
    """
    return pa.schema([_numbered(field, field.name, ids) for field in schema])


def _numbered(field: pa.Field[Any], path: str, ids: Mapping[str, int]) -> pa.Field[Any]:
    type_ = field.type
    if pa.types.is_struct(type_):
        children = [type_.field(i) for i in range(type_.num_fields)]
        type_ = pa.struct([_numbered(child, f"{path}.{child.name}", ids) for child in children])
    elif pa.types.is_list(type_):
        type_ = pa.list_(_numbered(type_.value_field.with_name("element"), f"{path}.element", ids))
    return field.with_type(type_).with_metadata({FIELD_ID: str(ids[path])})


def promote_floats(schema: pa.Schema, ids: Collection[int]) -> pa.Schema:
    """Return the schema with doubles in place of the floats that have these field IDs, at any depth."""

    def promoted(leaf: pa.Field[Any]) -> pa.DataType:
        return pa.float64() if pa.types.is_float32(leaf.type) and field_id(leaf) in ids else leaf.type

    return with_leaf_types(schema, promoted)


def with_leaf_types(schema: pa.Schema, change: Callable[[pa.Field[Any]], pa.DataType]) -> pa.Schema:
    """Return the schema with the type that `change` returns for each leaf: a field that is neither struct nor list."""
    return pa.schema([_with_leaf_types(field, change) for field in schema])


def _with_leaf_types(field: pa.Field[Any], change: Callable[[pa.Field[Any]], pa.DataType]) -> pa.Field[Any]:
    type_ = field.type
    if pa.types.is_struct(type_):
        children = [type_.field(i) for i in range(type_.num_fields)]
        return field.with_type(pa.struct([_with_leaf_types(child, change) for child in children]))
    if pa.types.is_list(type_):
        return field.with_type(pa.list_(_with_leaf_types(type_.value_field, change)))
    return field.with_type(change(field))


ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Arrow bytes per row group. The writer buffers the rows of a row group in memory. Larger row groups would take too
much memory, and smaller ones would be slower to read."""

_SAMPLE_ROWS = 4096
_DICTIONARY_BELOW = 0.5
"""A column is dictionary-encoded if fewer than this share of the values in a sample are distinct."""

# The fixed seed makes the choice of encodings reproducible. Sorted positions let `take` read forwards.
_FIRST_SAMPLE = pa.array(np.sort(np.random.default_rng(0).choice(_SAMPLE_ROWS, 256, replace=False)), pa.int64())
"""The positions of random rows in the sample. For most columns, these rows are enough to choose the encoding. They are
random because the values of a column may repeat at regular intervals."""

_DISTINCT_ABOVE = 0.98
"""If more than this share of the values in the random rows are distinct, the column is not dictionary-encoded."""

_LARGE_BYTES = 16 * 1024 * 1024
"""Maximum size of a column's sample in bytes. A writer does not examine a larger sample, because it would have to copy
the sample to count distinct values."""

CHUNK_METADATA_BYTES = 1024
"""Memory that Arrow uses for the metadata and statistics of one column chunk (a column in one row group), until the
file is closed."""

_HUGE_VALUE_BYTES = 1024 * 1024
"""Maximum average size of a column's values in bytes. The writer computes no statistics for columns with larger values,
because Arrow would copy these values several times."""


class ParquetFileWriter:
    """Writes a Parquet file whose row groups contain about ROW_GROUP_BYTES of Arrow data.

    Call either `write` or `write_row_group` for all rows, but not both. Then call `close`.
    """

    def __init__(self, codec: str, schema: pa.Schema, upload: Upload, repetitive: list[str] | None = None) -> None:
        """Write to `upload`. `codec` is a value of the option `format.compression_codec`.

        `repetitive` contains the paths of the columns to dictionary-encode. If `repetitive` is None, the writer chooses
        these columns by the first row group.
        """
        self._compression = "none" if codec == "UNCOMPRESSED" else codec.lower()
        self._schema = schema
        self._upload = upload
        self._repetitive = repetitive
        self._writer: pq.ParquetWriter | None = None
        self._buffered: list[pa.Table] = []
        self._buffered_bytes = 0
        self.metadata_bytes = 0

    def write(self, table: pa.Table) -> None:
        """Buffer rows. When ROW_GROUP_BYTES are buffered, write them as a row group."""
        self._buffered.append(table)
        self._buffered_bytes += table.nbytes
        if self._buffered_bytes >= ROW_GROUP_BYTES:
            self._write_buffered()

    def write_row_group(self, table: pa.Table, size: int) -> None:
        """Write rows as one row group. `size` is the table's size in bytes.

        Do not call both this method and `write`.
        """
        assert not self._buffered
        self._write(table, size)

    def close(self) -> bytes:
        """Write the buffered rows and the footer. Return the footer (see `footer_of`). Does not close the upload."""
        if self._buffered or self._writer is None:
            self._write_buffered()
        assert self._writer is not None
        self._writer.close()
        return footer_of(self._writer)

    def _write_buffered(self) -> None:
        table = pa.concat_tables(self._buffered) if self._buffered else self._schema.empty_table()
        size = self._buffered_bytes
        self._buffered.clear()
        self._buffered_bytes = 0
        self._write(table, size)

    def _write(self, table: pa.Table, size: int) -> None:
        if self._writer is None:
            repetitive = repetitive_columns(table) if self._repetitive is None else self._repetitive
            self._writer = pq.ParquetWriter(
                cast("IO[Any]", self._upload),
                self._schema,
                compression=self._compression,  # type: ignore[arg-type]
                compression_level=1 if self._compression == "zstd" else None,
                # A small table contains no huge values, so its columns need not be measured.
                write_statistics=size <= _HUGE_VALUE_BYTES or _bounded_columns(table),
                use_dictionary=repetitive,  # type: ignore[arg-type]  # The stubs know no list.
                store_schema=False,
                write_page_checksum=True,
            )
        if table.num_rows:
            self._writer.write_table(table, row_group_size=table.num_rows)
            self.metadata_bytes += CHUNK_METADATA_BYTES * sum(len(_paths(field)) for field in self._schema)


def footer_of(closed: pq.ParquetWriter) -> bytes:
    """Return the footer of a closed file, as the bytes of a valid Parquet file without rows."""
    footer = io.BytesIO()
    closed.writer.metadata.write_metadata_file(footer)
    return footer.getvalue()


def repetitive_columns(table: pa.Table) -> list[str]:
    """Return the paths of the columns to dictionary-encode: nested columns, and columns with few distinct values.

    Examines only the first rows of the table.
    """
    sample = table.slice(0, _SAMPLE_ROWS)
    repetitive = []
    for name in table.column_names:
        column = sample.column(name)
        # Arrow cannot count the distinct values of a nested type.
        if pa.types.is_nested(column.type):
            repetitive += _paths(table.schema.field(name))
        elif column.nbytes > _LARGE_BYTES:
            continue  # Counting distinct values and building a dictionary would copy the values.
        elif _is_repetitive(column):
            repetitive.append(name)
    return repetitive


def _is_repetitive(column: pa.ChunkedArray[Any]) -> bool:
    """Return whether the sample of a column contains few distinct values."""
    if len(column) == _SAMPLE_ROWS:
        share = _distinct_share(column.take(_FIRST_SAMPLE))
        if not _DICTIONARY_BELOW <= share <= _DISTINCT_ABOVE:
            return share < _DICTIONARY_BELOW
    return _distinct_share(column) < _DICTIONARY_BELOW


def _distinct_share(column: pa.ChunkedArray[Any]) -> float:
    return pc.count_distinct(column).as_py() / len(column) if len(column) else 0.0


def _bounded_columns(table: pa.Table) -> bool | list[str]:
    """Return the paths of the columns to write with statistics: all except those with huge values.

    Returns True if no column has huge values.
    """
    huge = {name for name in table.column_names if table.column(name).nbytes > _HUGE_VALUE_BYTES * table.num_rows}
    if not huge:
        return True
    return [path for field in table.schema if field.name not in huge for path in _paths(field)]


def _paths(field: pa.Field[Any]) -> list[str]:
    """Return the paths of a column's leaves. A scalar column is its own leaf."""
    nested = pa.types.is_nested(field.type)
    return [f"{field.name}.{path}" for path in _leaves(field.type)] if nested else [field.name]


def _leaves(type_: pa.DataType) -> list[str]:
    """Return the paths of a nested type's leaves in Parquet's notation, such as "list.element"."""
    children = (
        [("list.element", type_.value_type)]
        if pa.types.is_list(type_)
        else [(type_.field(i).name, type_.field(i).type) for i in range(type_.num_fields)]
    )
    paths = []
    for name, child in children:
        paths += [f"{name}.{path}" for path in _leaves(child)] if pa.types.is_nested(child) else [name]
    return paths


PATH_ID = 2147483546
POSITION_ID = 2147483545
_ROW_ID = 2147483544
"""The field IDs of `file_path` and `pos` in position delete files (Iceberg spec: Reserved Field IDs)."""

_PATHS = pa.dictionary(pa.int32(), pa.string())  # Stored as strings. In memory, the path is not repeated.
_DELETES_SCHEMA = pa.schema(
    [
        pa.field("file_path", _PATHS, nullable=False, metadata={FIELD_ID: str(PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID: str(POSITION_ID)}),
    ]
)
_DELETES_GROUP_ROWS = 1024 * 1024


def write_position_deletes(path: str, positions: NDArray[np.int64], upload: Upload) -> bytes:
    """Write a position delete file that deletes rows of one data file. Return the footer of the new file.

    `path` must equal the data file's path in the table's metadata. `positions` are the positions of the rows in the
    data file, in ascending order.
    """
    writer = pq.ParquetWriter(
        cast("IO[Any]", upload),
        _DELETES_SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=["file_path"],  # type: ignore[arg-type]  # The stubs know no list.
        store_schema=False,
        write_page_checksum=True,
    )
    for start in range(0, len(positions), _DELETES_GROUP_ROWS):
        part = pa.array(positions[start : start + _DELETES_GROUP_ROWS])
        paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(part), np.int32), pa.int32()), pa.array([path]))
        writer.write_table(pa.Table.from_arrays([paths, part], schema=_DELETES_SCHEMA))
    writer.close()
    return footer_of(writer)


def deleted_row(schema: pa.Schema) -> pa.Field[Any] | None:
    """Return the column of a position delete file that contains copies of the deleted rows, as structs.

    Return None if the file has no such column, or is no position delete file. This connector does not write the column,
    but other engines may (Iceberg spec: Position Delete Files).
    """
    row = next((field for field in schema if field_id(field) == _ROW_ID), None)
    # Some writers omit field IDs.
    if row is None and not has_field_ids(schema) and schema.names == ["file_path", "pos", "row"]:
        row = schema.field("row")
    return row if row is not None and isinstance(row.type, pa.StructType) else None
