"""Read Parquet files in S3 by byte ranges, one row group at a time, and read the files' position deletes.

A Parquet file ends with its footer, which contains the schema and, for each row group, the byte range and statistics of
each column. This module therefore reads the end of a file first, and then requests only the columns and row groups that
the caller needs. Position deletes are the positions of deleted rows of a data file (Iceberg spec: Position Delete
Files).
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from destination_datalake.aws.objects import S3Address, get
from destination_datalake.files.parquet import PATH_ID, POSITION_ID, field_id
from destination_datalake.files.plan import UNKNOWN
from destination_datalake.unforeseen import exhaustion

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from numpy.typing import NDArray

    from destination_datalake.files.plan import SourceFile

_Batch = TypeVar("_Batch")


class UnsupportedFile(Exception):
    """Raised if the connector cannot read the table's columns from a file.

    The message is a predicate whose subject is the file, such as "has …".
    """

    uri = ""
    """The URI of the file, which `naming_file` sets. Empty if the URI is unknown."""


@contextmanager
def naming_file(uri: str) -> Iterator[None]:
    """Set the `uri` of an UnsupportedFile that the body raises."""
    try:
        yield
    except UnsupportedFile as error:
        error.uri = uri
        raise


@contextmanager
def parquet_errors(message: str = "cannot be read as Parquet") -> Iterator[None]:
    """Convert Arrow's errors from the body to UnsupportedFile with this message.

    Does not convert errors from exhausted memory or a full disk.
    """
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if exhaustion(error) is not None:
            raise
        raise UnsupportedFile(message) from error


_MAX_WHOLE_BYTES = 8 * 1024 * 1024
"""Maximum size of a file that is read as a whole with one request."""

_FOOTER_BYTES = 256 * 1024
"""Number of bytes to read first from the end of a file that exceeds _MAX_WHOLE_BYTES. Footers are rarely larger."""

_MAX_GROUP_BYTES = 48 * 1024 * 1024
"""Maximum stored size, in bytes, of the requested columns of a row group that is read into memory at once. Larger row
groups are read in pieces."""

_PIECE_BYTES = 1024 * 1024

_MAX_GAP_BYTES = 512 * 1024
"""Maximum number of unneeded bytes between two columns that one request reads. Reading these bytes is faster than
sending a second request."""

_BATCH_BYTES = 8 * 1024 * 1024
_BATCH_ROWS = 8192
_BATCH_VALUES = 2**22
"""Limits of a decoded batch. The size in bytes is estimated from the stored size. The estimate is too low for
dictionaries and for the nulls of wide tables. In these cases, the other two limits apply."""


_MAX_AHEAD_BYTES = 16 * 1024 * 1024
_MAX_AHEAD_FILES = 8
"""Limits of the files that are opened ahead. Opening files ahead saves time, because waiting for a response from S3
takes longer than decoding a small file."""


def open_files(sources: Iterable[SourceFile], s3: S3Client) -> Iterator[StoredFile]:
    """Yield the opened files in order, while up to eight further files are opened in the background.

    Opening a small file reads the whole file. Opening a larger file reads only its end. Raises AWS errors.
    """
    waiting: deque[tuple[int, Future[StoredFile]]] = deque()
    with ThreadPoolExecutor(_MAX_AHEAD_FILES, "ahead") as pool:
        for source in sources:
            waiting.append((_initial_bytes(source), pool.submit(StoredFile, source, s3)))
            while len(waiting) > _MAX_AHEAD_FILES or sum(size for size, _ in waiting) > _MAX_AHEAD_BYTES:
                yield waiting.popleft()[1].result()
        while waiting:
            yield waiting.popleft()[1].result()


def parquet_file(stored: StoredFile, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a Parquet file. Arrow decodes the columns in `dictionaries` as dictionaries. Raises Arrow's errors."""
    whole = stored.whole()
    return pq.ParquetFile(
        pa.PythonFile(stored, mode="r") if whole is None else pa.BufferReader(whole),
        read_dictionary=list(dictionaries),
        # `StoredFile.load` requests the bytes ahead of the decoder, so Arrow need not buffer them too.
        pre_buffer=False,
        buffer_size=_PIECE_BYTES if whole is None else 0,
        # The default, nanoseconds, overflows in the year 2262.
        coerce_int96_timestamp_unit="us",
        # Verify checksums, because a job must not copy a corrupted value to a new file with a valid checksum.
        page_checksum_verification=True,
    )


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a Parquet file. `first` is the position of its first row in the file, from 0."""

    number: int
    first: int
    rows: int
    metadata: pq.RowGroupMetaData


class OpenedFile:
    """A Parquet file whose footer has been read.

    The methods read rows one row group at a time, and request only the columns that they need from S3.
    """

    def __init__(self, stored: StoredFile) -> None:
        """Read the footer.

        Raises UnsupportedFile if the file is not Parquet, or if its row count differs from the row count in the table's
        metadata. Raises AWS errors.
        """
        self._stored = stored
        with parquet_errors():
            self.parquet = parquet_file(stored)
        metadata = self.parquet.metadata
        self.row_count = metadata.num_rows
        self.schema = self.parquet.schema_arrow
        if stored.source.rows not in (UNKNOWN, self.row_count):
            raise UnsupportedFile(
                f"contains {self.row_count} rows, but the table's metadata records {stored.source.rows}"
            )
        self.all_groups: list[RowGroup] = []
        first = 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            self.all_groups.append(RowGroup(number, first, group.num_rows, group))
            first += group.num_rows
        self.groups = [group for group in self.all_groups if group.rows]
        """The row groups that contain rows."""

    def projection(self, target: pa.Schema) -> Projection:
        """Return the conversion of this file's rows to the schema `target`, which has field IDs at every level.

        Raises UnsupportedFile if the file lacks field IDs or a required column.
        """
        return Projection(self.schema, target, self._stored.source.required_ids)

    def rows(self, target: pa.Schema, deleted: NDArray[np.bool_] | None = None) -> Iterator[pa.Table]:
        """Yield the rows that the mask `deleted` does not select, in order, with the columns of `target`.

        `target` has field IDs at every level. Raises AWS errors. Raises UnsupportedFile before the first table if the
        file's schema does not match `target`. Also raises UnsupportedFile, possibly after some tables, if rows are
        corrupt or contain a value that its column in `target` cannot represent.
        """
        project, groups = self.projection(target), self.groups
        if deleted is not None:
            groups = [group for group in groups if not deleted[group.first : group.first + group.rows].all()]
        for first, table in self.read(groups, project):
            live = None if deleted is None else ~deleted[first : first + table.num_rows]
            if live is None or live.all():
                yield table
            elif live.any():
                yield table.filter(pa.array(live))

    def read(self, groups: Sequence[RowGroup], project: Projection) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of these row groups in small batches, each preceded by the position of its first row.

        Raises AWS errors and UnsupportedFile.
        """
        return self._batches(groups, project.columns, project)

    def values(self, path: Sequence[str], groups: Sequence[RowGroup]) -> Iterator[tuple[int, pa.Array[Any]]]:
        """Yield the values of one column in these row groups, in batches. `read` describes the pairs and the errors.

        `path` is the column's name, preceded by the names of enclosing structs.
        """

        def values_of(batch: pa.RecordBatch) -> Any:
            values: Any = batch.column(path[0])
            # `struct_field` returns null for a null struct.
            return pc.struct_field(values, [*path[1:]]) if len(path) > 1 else values

        # Arrow selects nested columns by their dotted paths.
        return self._batches(groups, [".".join(path)], values_of)

    def _batches(
        self, groups: Sequence[RowGroup], columns: Sequence[str], convert: Callable[[pa.RecordBatch], _Batch]
    ) -> Iterator[tuple[int, _Batch]]:
        """Yield the position of the first row of each batch, and the result of `convert` for the batch.

        While the batches of a row group are processed, the columns of the next row group are requested from S3.
        """
        for group, following in zip_longest(groups, groups[1:]):
            ahead = [] if following is None else byte_ranges(following.metadata, columns)
            self._stored.load(byte_ranges(group.metadata, columns), ahead)
            # A row group in small batches, because decoded values may need many times the memory of the stored ones.
            first, rows = group.first, _batch_rows(group.metadata)
            with parquet_errors():
                for batch in self.parquet.iter_batches(rows, [group.number], [*columns], use_threads=False):
                    yield first, convert(batch)
                    first += batch.num_rows

    def read_group(self, group: RowGroup) -> pa.Table:
        """Return all columns of a row group, with the types in the file. Raises UnsupportedFile and AWS errors."""
        self._stored.load(byte_ranges(group.metadata, self.schema.names))
        with parquet_errors():
            return self.parquet.read_row_group(group.number, use_threads=False)


def _batch_rows(group: pq.RowGroupMetaData) -> int:
    by_bytes = _BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)
    return max(1, min(_BATCH_ROWS, by_bytes, _BATCH_VALUES // max(group.num_columns, 1)))


def byte_ranges(group: pq.RowGroupMetaData, columns: Collection[str]) -> list[tuple[int, int]]:
    """Return the byte ranges of these columns in a row group, as pairs of start and end.

    Merges two ranges if the gap between them is small.
    """
    ranges = []
    names = set(columns)
    for chunk in (group.column(index) for index in range(group.num_columns)):
        # A column chunk has the dotted path of a leaf. Names may contain dots too, so every prefix can be the path of a
        # column.
        if not names.isdisjoint(accumulate(chunk.path_in_schema.split("."), "{}.{}".format)):
            # Some writers store 0 as the offset of a missing dictionary page.
            start = min(filter(None, [chunk.dictionary_page_offset or 0, chunk.data_page_offset]), default=0)
            ranges.append((start, start + chunk.total_compressed_size))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start - merged[-1][1] <= _MAX_GAP_BYTES:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def column_chunk(group: pq.RowGroupMetaData, column: str) -> pq.ColumnChunkMetaData:
    """Return the column chunk (a column in one row group) with this dotted path. Exactly one chunk must have it."""
    [chunk] = [chunk for chunk in map(group.column, range(group.num_columns)) if chunk.path_in_schema == column]
    return chunk


def bounds_of(chunk: pq.ColumnChunkMetaData) -> tuple[Any, Any]:
    """Return the minimum and the maximum from the statistics of a column chunk, or twice None if they are unknown."""
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return None, None
    try:
        return statistics.min, statistics.max
    except (ValueError, OverflowError, NotImplementedError, pa.ArrowException):  # A truncated text may not be UTF-8.
        return None, None


def _initial_bytes(source: SourceFile) -> int:
    """Return the number of bytes to read when a file is opened: all bytes of a small file, otherwise only its end."""
    return source.size if source.size <= _MAX_WHOLE_BYTES else min(source.size, _FOOTER_BYTES)


class StoredFile(io.RawIOBase):
    """A read-only file object for an object in S3.

    Keeps some byte ranges of the object in memory, and reads all other bytes from S3 on demand.
    """

    def __init__(self, source: SourceFile, s3: S3Client, content: bytes | None = None) -> None:
        """Read the end of the object, or a small object as a whole. Raises AWS errors.

        If `content` is given, it must be the content of the whole object. In this case, sends no request.
        """
        super().__init__()
        self._pool: ThreadPoolExecutor | None = None
        self.source = source
        self._address = S3Address.parse(source.uri)
        self._s3 = s3
        self._size = source.size
        self._position = 0
        start = source.size - _initial_bytes(source)
        self._tail = (start, self._fetch(start, source.size)) if content is None else (0, content)
        self._loaded: list[tuple[int, bytes]] = []
        self._ahead: tuple[list[tuple[int, int]], Future[list[tuple[int, bytes]]]] | None = None

    def whole(self) -> bytes | None:
        """Return the content of the object, or None if only a part of the content is in memory."""
        start, content = self._tail
        return None if start else content

    def load(self, parts: Sequence[tuple[int, int]], ahead: Sequence[tuple[int, int]] = ()) -> None:
        """Read byte ranges of the object into memory, in place of the ranges from the previous call.

        If the ranges are too large in total, reads their bytes later, on demand. Requests the ranges in `ahead` in the
        background, for the next call. Raises AWS errors.
        """
        self._loaded = []  # Free memory before the next ranges are read.
        missing, following = self._missing(parts), self._missing(ahead)
        # If the caller continues with another row group, the ranges that were requested ahead are of no use.
        if self._ahead is not None and self._ahead[0] == missing:
            self._loaded = self._ahead[1].result()
            self._ahead = None
        else:
            self._loaded = self._fetch_all(missing)
        if following:
            # A single thread: at most one row group is read ahead, which bounds the memory.
            self._pool = self._pool or ThreadPoolExecutor(1, "row group")
            self._ahead = (following, self._pool.submit(self._fetch_all, following))

    def close(self) -> None:
        """Cancel the requests that were queued in the background."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        super().close()

    def _missing(self, parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return those of the ranges that are not in memory, or no ranges if they are too large in total to load."""
        # The end of the file is in memory already.
        missing = [(start, end) for start, end in parts if start < self._tail[0]]
        return missing if sum(end - start for start, end in missing) <= _MAX_GROUP_BYTES else []

    def _fetch_all(self, parts: Sequence[tuple[int, int]]) -> list[tuple[int, bytes]]:
        return [(start, self._fetch(start, end)) for start, end in parts]

    def readable(self) -> bool:
        """Return True, as Arrow requires."""
        return True

    def seekable(self) -> bool:
        """Return True, as Arrow requires."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset. Return the new offset from the beginning of the object."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the current offset from the beginning of the object."""
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, or all remaining bytes if `size` is negative. Raises AWS errors.

        Reads bytes that are not in memory from S3.
        """
        start = self._position
        end = self._size if size < 0 else min(start + size, self._size)
        self._position = max(start, end)
        # A range that is only partly in memory is requested as a whole.
        for first, content in (self._tail, *self._loaded):
            if first <= start and end <= first + len(content):
                return content[start - first : end - first]
        return self._fetch(start, end) if start < end else b""

    def _fetch(self, start: int, end: int) -> bytes:
        return get(self._s3, self.source.uri, start, end, self.source.etag, self.source.version)


_POSITIONS_AT_A_TIME = 65_536


def deleted_rows(source: SourceFile, s3: S3Client) -> NDArray[np.bool_] | None:
    """Return a mask of the rows that a file's position deletes remove, or None if no row is removed.

    Raises AWS errors, and UnsupportedFile if a position delete file cannot be read.
    """
    if not source.position_deletes:
        return None
    dead = np.zeros(source.rows, np.bool_)
    for stored in open_files(source.position_deletes, s3):
        with parquet_errors("has position delete files that cannot be read as Parquet"):
            for positions in _positions(stored, source.uri):
                # Other writers may write positions beyond the last row of the file. These have no effect.
                dead[positions[(positions >= 0) & (positions < source.rows)]] = True
    return dead if dead.any() else None


def _positions(stored: StoredFile, path: str) -> Iterator[NDArray[np.int64]]:
    """Yield the positions that a position delete file deletes from the data file at `path`, in batches in any order."""
    # The schema tells which column to decode as a dictionary. The second time, the footer is in memory.
    schema = parquet_file(stored).schema_arrow
    path_column, position_column = _column(schema, PATH_ID, "file_path"), _column(schema, POSITION_ID, "pos")
    file = parquet_file(stored, [path_column])
    for index in range(file.num_row_groups):
        group = file.metadata.row_group(index)
        # Rows are sorted by path (Iceberg spec: Position Delete Files), so statistics exclude most deletes of other
        # files.
        if group.num_rows and _may_have(group, path_column, path):
            columns = [path_column, position_column]
            stored.load(byte_ranges(group, columns))
            for batch in file.iter_batches(_POSITIONS_AT_A_TIME, [index], columns, use_threads=False):
                of_file = _is_path(batch.column(path_column), path)
                positions = batch.column(position_column).filter(of_file).drop_null()
                yield positions.cast(pa.int64()).to_numpy(zero_copy_only=False)


def _column(schema: pa.Schema, id_: int, name: str) -> str:
    """Return the name of the column with the field ID `id_`. If no column has this ID, return `name`.

    Some writers omit field IDs. Raises UnsupportedFile if the schema has no column with this ID or this name.
    """
    for field in schema:
        if field_id(field) == id_:
            return field.name
    if name not in schema.names:
        raise UnsupportedFile(f"has a position delete file without the column {name}")
    return name


def _may_have(group: pq.RowGroupMetaData, column: str, path: str) -> bool:
    """Return whether a row group may contain deletes of the data file at `path`, according to its statistics."""
    lowest, highest = (
        bound.encode() if isinstance(bound, str) else bound for bound in bounds_of(column_chunk(group, column))
    )
    # Bounds of a column that does not contain text exclude nothing.
    if not isinstance(lowest, bytes) or not isinstance(highest, bytes):
        return True
    return lowest <= path.encode() <= highest


def _is_path(paths: pa.Array[Any], path: str) -> pa.BooleanArray:
    """Return a mask of the values that equal `path` byte for byte."""
    # Compare the few distinct paths instead of all rows. As bytes, because other writers' texts may not be UTF-8.
    encoded = cast(
        "pa.DictionaryArray[Any, Any]", paths if pa.types.is_dictionary(paths.type) else paths.dictionary_encode()
    )
    is_path = pc.equal(encoded.dictionary.cast(pa.binary()), pa.scalar(path.encode(), pa.binary()))
    return is_path.take(encoded.indices)


# --- Projection to the table's columns --------------------------------------------------------------------------------
#
# Readers find columns and nested fields by field ID (Iceberg spec: Column Projection), because the table's schema may
# have changed after the file was written: columns may have been renamed, moved, promoted, dropped or added. A
# conversion never changes values. A file that would require changed values is unsupported.


class Projection:
    """Converts rows of one file to the columns of `target`, an Arrow schema with field IDs at every level.

    If the file lacks a column, its values become null. If the file has a narrower type for a column, the values are
    promoted.
    """

    def __init__(self, source: pa.Schema, target: pa.Schema, required_ids: Collection[int] = ()) -> None:
        """Prepare the conversion from the file's schema `source`.

        Raises UnsupportedFile if `source` lacks field IDs, or lacks a column of `target` that is in `required_ids`.
        """
        self._source = source
        self._target = target
        positions = _by_id(list(source))
        # Readers take a missing partition column from the manifest. In a rewritten file, it would be null instead.
        if missing := field_ids(target) & set(required_ids) - field_ids(source):
            raise UnsupportedFile(f"lacks the columns of its partition (field IDs {sorted(missing)})")
        self._positions = [positions.get(_id(field)) for field in target]
        self.fields = [None if position is None else source.field(position) for position in self._positions]
        """For each column of `target`, the corresponding column of the file, or None if the file lacks the column."""
        self.sources = [None if field is None else field.name for field in self.fields]
        """For each column of `target`, the name of the column in the file, or None if the file lacks the column."""
        self.columns = list(dict.fromkeys(name for name in self.sources if name is not None))
        """The names of the columns to read from the file."""
        if len(set(source.names)) < len(source.names):
            raise UnsupportedFile("contains two columns with the same name")

    def __call__(self, rows: pa.RecordBatch) -> pa.Table:
        """Return the rows with the columns of `target`.

        Raises UnsupportedFile if a value or type cannot be converted.
        """
        columns = [
            pa.nulls(rows.num_rows, field.type)
            if position is None
            else _projected(rows.column(self._source.field(position).name), self._source.field(position), field)
            for position, field in zip(self._positions, self._target, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self._target)


def _projected(array: pa.Array[Any], source: pa.Field[Any], target: pa.Field[Any]) -> pa.Array[Any]:
    old, new = source.type, target.type
    if old.equals(new, check_metadata=True):  # The metadata has the field IDs of nested fields.
        return array
    if isinstance(new, pa.StructType) and isinstance(old, pa.StructType):
        return _struct(cast("pa.StructArray", array), old, new)
    if isinstance(new, pa.ListType) and isinstance(old, pa.LargeListType | pa.FixedSizeListType):
        # PyIceberg stores Arrow's own types in its files, such as large_list.
        plain = source.with_type(pa.list_(old.value_field))
        return _projected(array.cast(plain.type), plain, target)
    if isinstance(new, pa.ListType) and isinstance(old, pa.ListType):
        of_list = cast("pa.ListArray[Any]", _without_offset(array))
        values = _projected(of_list.values, old.value_field, new.value_field)
        mask = of_list.is_null() if of_list.null_count else None
        return pa.ListArray.from_arrays(of_list.offsets, values, type=new, mask=mask)
    if isinstance(new, pa.MapType) and isinstance(old, pa.MapType):
        of_map = cast("Any", _without_offset(array))
        keys = _projected(of_map.keys, old.key_field, new.key_field)
        items = _projected(of_map.items, old.item_field, new.item_field)
        mask = of_map.is_null() if of_map.null_count else None
        from_arrays = cast("Any", pa.MapArray.from_arrays)
        return cast("pa.Array[Any]", from_arrays(of_map.offsets, keys, items, type=new, mask=mask))
    if not _is_promotion(old, new):
        raise UnsupportedFile(f"stores column {source.name} as {old}, but the table's type is {new}")
    try:
        return array.cast(new)
    except pa.ArrowInvalid as error:
        raise UnsupportedFile(f"contains values in column {source.name} that type {new} cannot represent") from error


def _struct(array: pa.StructArray, old: pa.StructType, new: pa.StructType) -> pa.Array[Any]:
    positions = _by_id([old.field(index) for index in range(old.num_fields)])
    children = []
    for field in (new.field(index) for index in range(new.num_fields)):
        position = positions.get(_id(field))
        if position is None:
            children.append(pa.nulls(len(array), field.type))
        else:
            children.append(_projected(array.field(position), old.field(position), field))
    if not children:
        raise UnsupportedFile("contains a struct without fields")
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(new), mask=mask)


def _without_offset(array: pa.Array[Any]) -> pa.Array[Any]:
    """Return an equal array with offset 0, because `from_arrays` rejects a mask for arrays with another offset."""
    return array if not array.offset else array.take(pa.array(range(len(array)), pa.int64()))


def _is_promotion(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether Arrow's cast from `old` to `new`, if it succeeds, keeps all values unchanged."""
    types = pa.types
    if types.is_dictionary(old):
        return _is_promotion(old.value_type, new) or old.value_type.equals(new)
    if types.is_string(new) or types.is_binary(new):
        return _is_text(old) if types.is_string(new) else _is_text(old) or types.is_fixed_size_binary(old)
    if types.is_timestamp(new):
        return types.is_timestamp(old)
    if types.is_time(new):
        return types.is_time(old)
    # Arrow's cast checks the range, so it also rejects values that do not fit a narrower type.
    if types.is_integer(new):
        return types.is_integer(old)
    if types.is_float64(new):
        return types.is_float32(old)
    return types.is_decimal(new) and types.is_decimal(old)


def _is_text(type_: pa.DataType) -> bool:
    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    return any(is_(type_) for is_ in (*texts, types.is_binary, types.is_large_binary, types.is_binary_view))


def _by_id(fields: Sequence[pa.Field[Any]]) -> dict[int, int]:
    """Return the positions of fields by field ID. Raises UnsupportedFile for a missing or duplicate ID."""
    positions = {}
    for position, field in enumerate(fields):
        id_ = _id(field)
        if id_ in positions:
            raise UnsupportedFile("contains two columns with the same field ID")
        positions[id_] = position
    return positions


def field_ids(fields: Any) -> set[int]:
    """Return the field IDs of all fields of an Arrow schema or struct type, including fields of nested structs."""
    nested = (field_ids(field.type) for field in fields if isinstance(field.type, pa.StructType))
    return {_id(field) for field in fields}.union(*nested)


def _id(field: pa.Field[Any]) -> int:
    id_ = field_id(field)
    if id_ is None:
        raise UnsupportedFile("contains columns without field IDs")
    return id_
