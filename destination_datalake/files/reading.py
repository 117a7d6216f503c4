"""Parquet files in S3, read by ranges: a row group at a time, of it a few rows at a time, and which rows are deleted.

Position deletes name the rows of a data file that are deleted (Iceberg spec: Position Delete Files).
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.objects import get
from destination_datalake.files.parquet import PATH_ID, POSITION_ID, field_id
from destination_datalake.files.plan import UNKNOWN
from destination_datalake.files.projection import Projection, Unsuitable, readable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from numpy.typing import NDArray

    from destination_datalake.files.plan import SourceFile


_WHOLE_BYTES = 8 * 1024 * 1024
"""A file up to this size is read by one request."""

_FOOTER_BYTES = 256 * 1024
"""Read at the end of larger files: a footer is rarely larger."""

_GROUP_BYTES = 48 * 1024 * 1024
"""A row group up to this size, as it is stored, is read by one request; of a larger one, columns are read in pieces."""

_PIECE_BYTES = 1024 * 1024

_GAP_BYTES = 512 * 1024
"""Bytes between two columns that are read for nothing, rather than by another request."""

_BATCH_BYTES = 8 * 1024 * 1024
_BATCH_ROWS = 8192
_BATCH_VALUES = 2**22
"""Limits of a batch that is decoded. Bytes are estimated: dictionaries hide some, and nulls of wide tables most."""


_AHEAD_BYTES = 16 * 1024 * 1024
_AHEAD_FILES = 8
"""Limits of reading ahead: S3 takes longer to answer than decoding a small file."""


def opened(sources: Iterable[SourceFile], s3: S3Client) -> Iterator[StoredFile]:
    """Yield the files in their order, small ones as a whole in memory. Raises errors of AWS."""
    waiting: deque[tuple[int, Future[StoredFile]]] = deque()
    with ThreadPoolExecutor(_AHEAD_FILES, "ahead") as pool:
        for source in sources:
            waiting.append((_at_first(source), pool.submit(StoredFile, source, s3)))
            while len(waiting) > _AHEAD_FILES or sum(size for size, _ in waiting) > _AHEAD_BYTES:
                yield waiting.popleft()[1].result()
        while waiting:
            yield waiting.popleft()[1].result()


def parquet_file(stored: StoredFile, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a Parquet file; `dictionaries` are columns to read as such. Raises Arrow's errors if it is none."""
    whole = stored.whole()
    return pq.ParquetFile(
        pa.PythonFile(stored, mode="r") if whole is None else pa.BufferReader(whole),
        read_dictionary=list(dictionaries),
        pre_buffer=False,
        buffer_size=_PIECE_BYTES if whole is None else 0,
        coerce_int96_timestamp_unit="us",
        # A damaged value must not get into a new file with a valid checksum.
        page_checksum_verification=True,
    )


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a Parquet file. Its first row is the file's row `first`, counted from 0."""

    number: int
    first: int
    rows: int
    metadata: pq.RowGroupMetaData


class OpenedFile:
    """A Parquet file whose footer is read. Its rows can be read by row group, in the columns that are needed."""

    def __init__(self, stored: StoredFile) -> None:
        """Raise Unsuitable, also if it is no Parquet file, and errors of AWS."""
        self._stored = stored
        with readable():
            self.parquet = parquet_file(stored)
        metadata = self.parquet.metadata
        self.row_count = metadata.num_rows
        self.schema = self.parquet.schema_arrow
        if stored.source.rows not in (UNKNOWN, self.row_count):
            raise Unsuitable(f"has {self.row_count} rows, and {stored.source.rows} by the table's metadata")
        self.all_groups: list[RowGroup] = []
        first = 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            self.all_groups.append(RowGroup(number, first, group.num_rows, group))
            first += group.num_rows
        self.groups = [group for group in self.all_groups if group.rows]
        """The row groups that are not empty."""

    def projection(self, target: pa.Schema) -> Projection:
        """Return how the columns of `target`, which has field ids at every level, are read. Raises Unsuitable."""
        return Projection(self.schema, target, self._stored.source.required_ids)

    def rows(self, target: pa.Schema, deleted: NDArray[np.bool_] | None = None) -> Iterator[pa.Table]:
        """Yield the rows that are not deleted, in order, in the columns of `target`, which has field ids throughout.

        Raises Unsuitable before the first rows, or at values that do not fit, and errors of AWS.
        """
        project = self.projection(target)
        if deleted is None:
            for group, following in with_following(self.groups):
                yield from self.read(group, project, following)
            return
        groups = [group for group in self.groups if not deleted[group.first : group.first + group.rows].all()]
        for group, following in with_following(groups):
            first = group.first
            for table in self.read(group, project, following):
                live = ~deleted[first : first + table.num_rows]
                first += table.num_rows
                if live.any():
                    yield table if live.all() else table.filter(pa.array(live))

    def read(self, group: RowGroup, project: Projection, following: RowGroup | None = None) -> Iterator[pa.Table]:
        """Yield the rows of a row group, a few at a time. Raises as `rows` does.

        The row group `following`, whose same columns are read next, is requested in the meantime.
        """
        ahead = [] if following is None else extents(following.metadata, project.columns)
        self._stored.hold(extents(group.metadata, project.columns), ahead)
        rows = _batch_rows(group.metadata)
        with readable():
            for batch in self.parquet.iter_batches(rows, [group.number], project.columns, use_threads=False):
                yield project(batch)

    def values(self, path: Sequence[str], groups: Sequence[RowGroup]) -> Iterator[tuple[int, pa.Array[Any]]]:
        """Yield the values of a column in some row groups, a few at a time, each with the number of its first row.

        `path` has the names of the column and of structs around it. Raises as `rows` does.
        """
        name = ".".join(path)
        for group, following in with_following(groups):
            self._stored.hold(
                extents(group.metadata, [name]), [] if following is None else extents(following.metadata, [name])
            )
            first = group.first
            with readable():
                for batch in self.parquet.iter_batches(row_groups=[group.number], columns=[name], use_threads=False):
                    values: Any = batch.column(path[0])
                    # Values are null where a struct around them is.
                    yield first, pc.struct_field(values, [*path[1:]]) if len(path) > 1 else values
                    first += batch.num_rows

    def read_group(self, group: RowGroup) -> pa.Table:
        """Return all columns of a row group, as the file has them. Raises as `rows` does."""
        self._stored.hold(extents(group.metadata, self.schema.names))
        with readable():
            return self.parquet.read_row_group(group.number, use_threads=False)


def with_following(groups: Sequence[RowGroup]) -> Iterator[tuple[RowGroup, RowGroup | None]]:
    """Yield each of the row groups, and the one that follows it; None for the last."""
    return zip_longest(groups, groups[1:])


def _batch_rows(group: pq.RowGroupMetaData) -> int:
    by_bytes = _BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)
    return max(1, min(_BATCH_ROWS, by_bytes, _BATCH_VALUES // max(group.num_columns, 1)))


def extents(group: pq.RowGroupMetaData, columns: Collection[str]) -> list[tuple[int, int]]:
    """Return where columns of a row group begin and end in its file; neighbours are joined, with small gaps between.

    Some writers give 0 for a dictionary that is not there.
    """
    found = []
    names = set(columns)
    for chunk in (group.column(index) for index in range(group.num_columns)):
        # The path of a nested column begins with its name. Both may have dots.
        if not names.isdisjoint(accumulate(chunk.path_in_schema.split("."), "{}.{}".format)):
            start = min(filter(None, [chunk.dictionary_page_offset or 0, chunk.data_page_offset]), default=0)
            found.append((start, start + chunk.total_compressed_size))
    joined: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if joined and start - joined[-1][1] <= _GAP_BYTES:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _at_first(source: SourceFile) -> int:
    """Return how many bytes of a file are read when it is opened: all, or those at its end."""
    return source.size if source.size <= _WHOLE_BYTES else min(source.size, _FOOTER_BYTES)


class StoredFile(io.RawIOBase):
    """A read-only file object over an object in S3, which holds a part of it in memory."""

    def __init__(self, source: SourceFile, s3: S3Client, content: bytes | None = None) -> None:
        """Read the end of the file, or all of it, unless its content is given. Raises errors of AWS."""
        super().__init__()
        self._pool: ThreadPoolExecutor | None = None
        self.source = source
        self._address = S3Address.parse(source.uri)
        self._s3 = s3
        self._size = source.size
        self._position = 0
        start = source.size - _at_first(source)
        self._tail = (start, self._fetch(start, source.size)) if content is None else (0, content)
        self._held: list[tuple[int, bytes]] = []
        self._ahead: tuple[list[tuple[int, int]], Future[list[tuple[int, bytes]]]] | None = None

    def whole(self) -> bytes | None:
        """Return the file's content if it is in memory as a whole."""
        start, content = self._tail
        return None if start else content

    def hold(self, parts: Sequence[tuple[int, int]], ahead: Sequence[tuple[int, int]] = ()) -> None:
        """Read parts of the object, unless they are large or there already; forget those before.

        Parts `ahead` are requested in the background, for another call. Raises errors of AWS.
        """
        self._held = []  # Before others are in memory.
        missing, following = self._missing(parts), self._missing(ahead)
        if self._ahead is not None and self._ahead[0] == missing:
            self._held = self._ahead[1].result()
            self._ahead = None
        else:
            self._held = self._fetch_all(missing)
        if following:
            self._pool = self._pool or ThreadPoolExecutor(1, "row group")
            self._ahead = (following, self._pool.submit(self._fetch_all, following))

    def close(self) -> None:
        """Forget what waits to be requested."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        super().close()

    def _missing(self, parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the parts that are not in memory with the file's end; none if they are large."""
        missing = [(start, end) for start, end in parts if start < self._tail[0]]
        return missing if sum(end - start for start, end in missing) <= _GROUP_BYTES else []

    def _fetch_all(self, parts: Sequence[tuple[int, int]]) -> list[tuple[int, bytes]]:
        return [(start, self._fetch(start, end)) for start, end in parts]

    def readable(self) -> bool:
        """Return True (Arrow asks)."""
        return True

    def seekable(self) -> bool:
        """Return True (Arrow asks)."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset; return it from the beginning."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the offset of what is read next."""
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, from memory if they are there. Raises errors of AWS."""
        start = self._position
        end = self._size if size < 0 else min(start + size, self._size)
        self._position = max(start, end)
        for first, content in (self._tail, *self._held):
            if first <= start and end <= first + len(content):
                return content[start - first : end - first]
        return self._fetch(start, end) if start < end else b""

    def _fetch(self, start: int, end: int) -> bytes:
        return get(self._s3, self.source.uri, start, end, self.source.etag, self.source.version)


_POSITIONS_AT_A_TIME = 65_536


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
            for batch in file.iter_batches(_POSITIONS_AT_A_TIME, [index], columns, use_threads=False):
                of_file = _is_path(batch.column(path_column), path)
                positions = batch.column(position_column).filter(of_file).drop_null()
                yield positions.cast(pa.int64()).to_numpy(zero_copy_only=False)


def _column(schema: pa.Schema, id_: int, name: str) -> str:
    """Return the name of the column with this field id, or `name`: not every writer gives ids. Raises Unsuitable."""
    for field in schema:
        if field_id(field) == id_:
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
