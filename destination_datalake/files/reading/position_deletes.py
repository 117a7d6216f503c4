"""Files of position deletes: which rows of a data file are dead (Iceberg spec: Position Delete Files)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from destination_datalake.files.formats.position_deletes import PATH_ID, POSITION_ID
from destination_datalake.files.plan import SourceFile
from destination_datalake.files.reading.parquet import StoredFile, extents, opened, parquet_file
from destination_datalake.files.reading.projection import Unsuitable, readable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from numpy.typing import NDArray

_BATCH_ROWS = 65_536


def deleted_rows(source: SourceFile, s3: S3Client) -> NDArray[np.bool_] | None:
    """Return a mask of a file's rows, true for those that its position deletes remove; None if they remove none.

    Raises Unsuitable if a file of position deletes cannot be read, and errors of AWS.
    """
    if not source.position_deletes:
        return None
    dead = np.zeros(source.rows, np.bool_)
    for stored in opened(source.position_deletes, s3):
        with readable("has position deletes that cannot be read as Parquet"):
            for positions in _positions(stored, source.uri):
                # Others may have written positions that the file does not have: they delete nothing.
                dead[positions[(positions >= 0) & (positions < source.rows)]] = True
    return dead if dead.any() else None


def _positions(stored: StoredFile, path: str) -> Iterator[NDArray[np.int64]]:
    """Yield the positions that a file of position deletes has for the data file of this path, in any order."""
    schema = parquet_file(stored).schema_arrow
    path_column, position_column = _column(schema, PATH_ID, "file_path"), _column(schema, POSITION_ID, "pos")
    file = parquet_file(stored, [path_column])
    for index in range(file.num_row_groups):
        group = file.metadata.row_group(index)
        if group.num_rows and _may_have(group, path_column, path):
            columns = [path_column, position_column]
            stored.hold(extents(group, columns))
            for batch in file.iter_batches(_BATCH_ROWS, [index], columns, use_threads=False):
                of_file = _is_path(batch.column(path_column), path)
                positions = batch.column(position_column).filter(of_file).drop_null()
                yield positions.cast(pa.int64()).to_numpy(zero_copy_only=False)


def _column(schema: pa.Schema, id_: int, name: str) -> str:
    """Return the name of the column with this field id, or `name`: not every writer gives ids. Raises Unsuitable."""
    for field in schema:
        if (field.metadata or {}).get(b"PARQUET:field_id") == str(id_).encode():
            return field.name
    if name not in schema.names:
        raise Unsuitable(f"has position deletes without the column {name}")
    return name


def _may_have(group: pq.RowGroupMetaData, column: str, path: str) -> bool:
    """Whether rows of a row group may be for the data file of this path, by statistics."""
    [chunk] = [each for each in map(group.column, range(group.num_columns)) if each.path_in_schema == column]
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return True
    encoded = path.encode()
    return _bytes(statistics.min) <= encoded <= _bytes(statistics.max)


def _bytes(bound: Any) -> bytes:
    return bound.encode() if isinstance(bound, str) else bytes(bound)


def _is_path(paths: pa.Array[Any], path: str) -> pa.BooleanArray:
    """Return for each value whether it is this path: exactly, as the table's metadata has it."""
    encoded = cast(
        "pa.DictionaryArray[Any, Any]", paths if pa.types.is_dictionary(paths.type) else paths.dictionary_encode()
    )
    is_path = pc.equal(encoded.dictionary.cast(pa.binary()), pa.scalar(path.encode(), pa.binary()))
    return is_path.take(encoded.indices)
