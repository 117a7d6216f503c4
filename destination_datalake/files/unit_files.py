"""Write the data files of a unit, which is the part of a batch that one task encodes.

`RollingFileWriter` writes rows in the order of arrival. `PartitionedFileWriter` writes partitioned or sorted rows:

- It collects rows in memory, and groups all of them by partition once, at the end of the unit, not block by block.
- If rows would exceed the memory limit, it groups the collected rows early. It writes the rows of a large partition to
  the partition's file, unless too many files are open, and spills the rows of all other partitions to disk. At the end
  of the unit, it writes the rows that are still on disk.
- It uploads several files concurrently, because the upload of a small file mostly waits for S3's response.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, assert_never

import pyarrow as pa

from destination_datalake.aws.objects import Upload, delete_uncommitted
from destination_datalake.files.block_tables import BlockTables, FileSchema, Rows, WaitingRows
from destination_datalake.files.jsonl import JsonLinesEncoder, JsonLinesFileWriter
from destination_datalake.files.parquet import ROW_GROUP_BYTES, ParquetFileWriter, repetitive_columns
from destination_datalake.files.plan import DataFile, FileFormat, FilePlan
from destination_datalake.files.sorting import Spill, in_order
from destination_datalake.partitioning.spec import PartitionValue
from destination_datalake.partitioning.transforms import by_partition

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.records.decoded import Decoded


class FileWriter(Protocol):
    """The interface of a writer for one data file: append tables, then call `close` once."""

    metadata_bytes: int
    """The memory, in bytes, that the file's metadata occupies until the file is closed. 0 for JSON Lines files, which
    have no metadata."""

    def write(self, table: pa.Table) -> None:
        """Append the rows of `table`, which must have the file's schema."""

    def write_row_group(self, table: pa.Table, size: int) -> None:
        """Append the rows of `table` and encode them immediately. `size` is the table's size in bytes.

        Do not call both this method and `write` for the same file.
        """

    def close(self) -> bytes:
        """Encode the remaining rows. Return the footer of a Parquet file, or empty bytes for a JSON Lines file.

        Does not close the upload.
        """


Opener = Callable[[Upload], FileWriter]
"""A function that opens a new data file. It returns a writer, which sends the file's bytes to the given upload. All
files of one opener have the same schema. Several files may be open at the same time."""


def opener(format: FileFormat, codec: str, schema: pa.Schema, sample: pa.Table | None = None) -> Opener:
    """Return a function that opens files of `schema`. `codec` is a value of the option `format.compression_codec`.

    If `sample` is given, this function examines its rows once and chooses the encodings of all Parquet files. Choosing
    encodings takes as long as encoding a small file. If `sample` is None, the writer of each file chooses the encodings
    by the first row group.
    """
    match format:
        case "parquet":
            repetitive = None if sample is None else repetitive_columns(sample)
            return partial(ParquetFileWriter, codec, schema, repetitive=repetitive)
        case "jsonl":
            return partial(JsonLinesFileWriter, JsonLinesEncoder(schema), codec)
        case _:
            assert_never(format)


def extension(format: FileFormat, codec: str) -> str:
    """Return the extension of file names, with its dot: `.parquet`, `.jsonl`, or `.jsonl.gz` for gzipped JSON Lines."""
    if format == "jsonl":
        return ".jsonl.gz" if codec == "GZIP" else ".jsonl"
    return ".parquet"


MAX_METADATA_BYTES = 64 * 1024 * 1024
"""Maximum memory, in bytes, for the metadata of an open file. The unit's writer closes a file that reaches this limit.
Files with 1,000 columns never reach the limit. Files with 10,000 sparse columns reach the limit after 5,000 rows."""


class OpenFile:
    """An open data file. All of its rows have the same schema and, in a partitioned table, the same partition.

    Call `write` or `write_row_group` for all rows, then `end`, then `upload`. To discard the file, call `abort` at any
    time before `upload` returns.
    """

    def __init__(
        self,
        uri: str,
        schema: FileSchema,
        opener: Opener,
        plan: FilePlan,
        s3: S3Client,
        partition: tuple[PartitionValue, ...] = (),
    ) -> None:
        """Open a file for the object at `uri`. Uploads nothing yet.

        `opener` must open files of `schema`. `partition` contains the partition values that all rows of the file have.
        """
        self.schema = schema
        self._upload = Upload(s3, uri, deferred=plan.deferred, spool_folder=plan.spool_folder)
        self._writer = opener(self._upload)
        self._partition = partition
        self._spec_id = plan.partitioning.spec_id if plan.partitioning is not None else 0
        self._rows = 0
        # A file that is written in several sorted runs loses this mark (see `write_row_group`).
        self._is_sorted = plan.sort_order is not None
        self._with_nulls: set[str] = set()
        self._footer = b""

    def is_complete(self, target_bytes: int) -> bool:
        """Return whether the file has reached `target_bytes`, or its metadata has reached MAX_METADATA_BYTES.

        The caller should then close the file.
        """
        return self.size >= target_bytes or self._writer.metadata_bytes >= MAX_METADATA_BYTES

    @property
    def size(self) -> int:
        """The number of encoded bytes so far."""
        return self._upload.written

    @property
    def buffered_bytes(self) -> int:
        """The number of encoded bytes that are in memory and not uploaded yet."""
        return self._upload.buffered_bytes

    def write(self, table: pa.Table) -> None:
        """Append the rows of `table`, which must have the file's schema."""
        self._writer.write(table)
        self._count(table)

    def write_row_group(self, rows: Rows, *, begins_run: bool) -> None:
        """Append rows of the file's schema and encode them immediately, which releases their memory.

        `begins_run` states whether the rows start a new sorted run. If they do, they may sort before rows that the file
        already contains. A file that contains several runs is not marked as sorted.
        """
        self._writer.write_row_group(*rows)
        self._is_sorted = self._is_sorted and not (begins_run and self._rows)
        self._count(rows.table)

    def end(self) -> None:
        """Encode the remaining rows, and release the writer's memory. Afterwards, call only `upload` or `abort`."""
        self._footer = self._writer.close()
        del self._writer

    def upload(self) -> DataFile:
        """Upload the remaining bytes. Return a description of the file, which the driver needs to commit the file."""
        self._upload.close()
        return DataFile(
            uri=self._upload.uri,
            size=self._upload.written,
            rows=self._rows,
            columns=self.schema.columns,
            footer=self._footer,
            pending_upload=self._upload.pending_upload,
            with_nulls=frozenset(self._with_nulls),
            partition=self._partition,
            spec_id=self._spec_id,
            is_sorted=self._is_sorted,
        )

    def _count(self, table: pa.Table) -> None:
        self._rows += table.num_rows
        self._with_nulls.update(name for name in table.column_names if table.column(name).null_count)

    def abort(self) -> None:
        """Discard the buffered bytes, and abort the upload."""
        self._upload.abort()


THREADS = 16
"""Maximum number of encoded files to upload concurrently: half of the S3 client's connections. Open files use the other
half to upload parts of a multipart upload."""

UPLOADING_BYTES = 32 * 1024 * 1024
"""Maximum total size, in bytes, of the encoded files that are queued for upload. The file that was queued last does not
count."""


class Uploads:
    """Uploads encoded files on background threads.

    Call `add` for each file, then `finish`. To delete all files instead, call `abort`.
    """

    def __init__(self, s3: S3Client) -> None:
        """Prepare the uploads. The first call of `add` starts the first thread."""
        self._s3 = s3
        self._pool = ThreadPoolExecutor(THREADS, "files")
        self._running: deque[tuple[OpenFile, Future[DataFile], int]] = deque()
        self._running_bytes = 0
        self._finished: list[DataFile] = []

    def add(self, file: OpenFile) -> None:
        """Queue the upload of an encoded file. Raises the errors of earlier uploads.

        Blocks while more than UPLOADING_BYTES of earlier files, or more than 32 files, are queued.
        """
        # The upload empties the buffer on its own thread, so read the size first.
        waiting = file.buffered_bytes
        # Append before waiting: if an earlier upload fails, `abort` must find this file too.
        self._running.append((file, self._pool.submit(file.upload), waiting))
        self._running_bytes += waiting
        while self._running_bytes - waiting > UPLOADING_BYTES or len(self._running) > 2 * THREADS:
            self._collect()

    def finish(self) -> list[DataFile]:
        """Wait for all uploads. Return the files in the order in which they were added.

        If an upload failed, raises its error.
        """
        while self._running:
            self._collect()
        self._pool.shutdown()
        return self._finished

    def abort(self) -> None:
        """Cancel queued uploads, wait for running uploads, and delete all files, including published ones."""
        # Wait first: an upload that ends after its object was deleted would create the object again.
        self._pool.shutdown(cancel_futures=True)
        # The stack runs every step, even if one of them fails.
        with ExitStack() as steps:
            for file, upload, _ in self._running:
                # `exception` would raise an error for a cancelled upload.
                if upload.cancelled() or upload.exception() is not None:
                    steps.callback(file.abort)
                else:
                    self._finished.append(upload.result())
            steps.callback(delete_uncommitted, self._finished, self._s3)

    def _collect(self) -> None:
        """Wait for the oldest queued upload. If the upload fails, its file stays queued, so that `abort` deletes it."""
        _, upload, waiting = self._running[0]
        self._finished.append(upload.result())
        self._running.popleft()
        self._running_bytes -= waiting


class RollingFileWriter:
    """Writes the rows of a unit to data files in the order of arrival.

    Starts a new file when the open file reaches the target size, or when a value requires a wider type of its column.
    """

    def __init__(self, name: str, plan: FilePlan, s3: S3Client, first_id: bytes) -> None:
        """Write nothing yet. File names start with `name`. `first_id` is the row ID of line 0."""
        self._name = name
        self._plan = plan
        self._s3 = s3
        self._tables = BlockTables(plan, first_id)
        self._open: OpenFile | None = None
        self._finished: list[DataFile] = []

    def write(self, decoded: Decoded) -> pa.Array[Any]:
        """Append records. Return the IDs of their rows (`_airbyte_raw_id`)."""
        ids, table = self._tables.table(decoded)
        # `BlockTables` creates a new schema only if a column was widened, and a file has one schema.
        if self._open is not None and self._open.schema is not self._tables.schema:
            self._finish()
        if not decoded.rows:
            return ids
        if self._open is None:
            self._open = self._new_file()
        self._open.write(table)
        if self._open.is_complete(self._plan.target_bytes):
            self._finish()
        return ids

    def close(self) -> list[DataFile]:
        """Finish the open file and upload it. Return all files of the unit."""
        self._finish()
        return self._finished

    def abort(self) -> None:
        """Delete all files of the unit, including published ones."""
        with ExitStack() as steps:
            if self._open is not None:
                steps.callback(self._open.abort)
            steps.callback(delete_uncommitted, self._finished, self._s3)

    def _new_file(self) -> OpenFile:
        plan, schema = self._plan, self._tables.schema
        uri = f"{plan.folder}/{self._name}-{len(self._finished):04d}{extension(plan.format, plan.codec)}"
        return OpenFile(uri, schema, opener(plan.format, plan.codec, schema.arrow), plan, self._s3)

    def _finish(self) -> None:
        if self._open is None:
            return
        # `end` may fail, and `upload` too. Until both are done, `abort` finds the file in `_open`.
        self._open.end()
        self._finished.append(self._open.upload())
        self._open = None


SORTED_ROW_GROUP_BYTES = 16 * 1024 * 1024
"""The size of a row group in a sorted file, in Arrow bytes. The minimum and maximum values of a small row group are
close together, so readers can skip more row groups."""


class PartitionFiles:
    """Writes rows to data files, each of which contains rows of one partition.

    At most one file per partition is open. When a file reaches the target size, this class finishes the file and
    uploads it in the background. Further rows of the partition go to a new file.
    """

    def __init__(self, name: str, plan: FilePlan, s3: S3Client, run_bytes: int) -> None:
        """Write nothing yet. File names start with `name`.

        `run_bytes` is the maximum size, in Arrow bytes, of the rows of one partition that are sorted together.
        """
        self._name = name
        self._plan = plan
        self._s3 = s3
        self._run_bytes = run_bytes
        self._row_group_bytes = ROW_GROUP_BYTES if plan.sort_order is None else SORTED_ROW_GROUP_BYTES
        self._schema: FileSchema | None = None
        self._opener: Opener | None = None
        # By `repr` of the values, because 0.0 equals -0.0, and NaN does not equal itself.
        self._open: dict[str, OpenFile] = {}
        self._opened = 0
        self._uploads = Uploads(s3)

    def __len__(self) -> int:
        """Return the number of open files."""
        return len(self._open)

    def __contains__(self, values: tuple[PartitionValue, ...]) -> bool:
        """Return whether a file is open for the partition with these values."""
        return repr(values) in self._open

    def use_schema(self, schema: FileSchema, sample: pa.Table) -> None:
        """Use `schema` for all rows that are written from now on. Do nothing if `schema` is already in use.

        Finishes all open files, because they have the previous schema, whose types are narrower. Chooses the encodings
        of new Parquet files by the rows in `sample`.
        """
        if schema is self._schema:
            return
        for key in [*self._open]:
            self._finish(key)
        self._schema = schema
        self._opener = opener(self._plan.format, self._plan.codec, schema.arrow, sample)

    def write(self, values: tuple[PartitionValue, ...], tables: Sequence[Rows]) -> None:
        """Append rows to the file of a partition and encode them.

        `values` are the partition values. If the plan has a sort order, each of the tables must have this order.
        """
        key = repr(values)
        for run in self._runs(tables):
            begins_run = True
            for piece in _pieces(run, self._row_group_bytes):
                if key not in self._open:
                    self._open[key] = self._new_file(values)
                file = self._open[key]
                file.write_row_group(piece, begins_run=begins_run)
                begins_run = False
                if file.is_complete(self._plan.target_bytes):
                    self._finish(key)

    def finish(self, values: tuple[PartitionValue, ...]) -> None:
        """Finish the open file of a partition. Do nothing if no file is open for the partition."""
        if (key := repr(values)) in self._open:
            self._finish(key)

    def close(self) -> list[DataFile]:
        """Finish all open files and wait for all uploads. Return the files."""
        for key in [*self._open]:
            self._finish(key)
        return self._uploads.finish()

    def abort(self) -> None:
        """Delete all files, including published ones."""
        with ExitStack() as steps:
            for file in self._open.values():
                steps.callback(file.abort)
            steps.callback(self._uploads.abort)

    def _runs(self, tables: Sequence[Rows]) -> Iterator[Sequence[Rows]]:
        """Yield the rows as runs, each of which is sorted by the plan's order.

        Yields all rows as one run if the plan has no order, or if there is only one table.
        """
        order = self._plan.sort_order
        if order is None or len(tables) == 1:
            yield [self._cast(table) for table in tables]
            return
        for piece in _pieces(map(self._cast, tables), self._run_bytes):
            yield [Rows(in_order(piece.table.combine_chunks(), order), piece.bytes)]

    def _cast(self, rows: Rows) -> Rows:
        assert self._schema is not None
        table, size = rows
        return rows if table.schema.equals(self._schema.arrow) else Rows(table.cast(self._schema.arrow), size)

    def _new_file(self, values: tuple[PartitionValue, ...]) -> OpenFile:
        assert self._schema is not None
        assert self._opener is not None
        plan = self._plan
        folder = plan.folder
        if plan.partitioning is not None and (below := plan.partitioning.path.folder(values)):
            folder = f"{folder}/{below}"
        uri = f"{folder}/{self._name}-{self._opened:04d}{extension(plan.format, plan.codec)}"
        self._opened += 1
        return OpenFile(uri, self._schema, self._opener, plan, self._s3, values)

    def _finish(self, key: str) -> None:
        # `end` may fail, so the file leaves `_open` only afterwards.
        self._open[key].end()
        self._uploads.add(self._open.pop(key))


def _pieces(tables: Iterable[Rows], size: int) -> Iterator[Rows]:
    """Yield the rows as tables of about `size` bytes, without copying them."""
    gathered: list[pa.Table] = []
    gathered_bytes = 0
    for table, table_bytes in tables:
        rows = max(1, table.num_rows * size // max(table_bytes, 1))
        for start in range(0, table.num_rows, rows):
            piece = table.slice(start, rows)
            gathered.append(piece)
            gathered_bytes += table_bytes * piece.num_rows // table.num_rows
            if gathered_bytes >= size:
                yield Rows(pa.concat_tables(gathered), gathered_bytes)
                gathered, gathered_bytes = [], 0
    if gathered:
        yield Rows(pa.concat_tables(gathered), gathered_bytes)


WAITING_BYTES = 128 * 1024 * 1024
"""Maximum size, in Arrow bytes, of the rows that a writer collects in memory. A single block of rows may be larger.
While the writer groups the rows by partition, they occupy up to twice this memory."""

MAX_OPEN_FILES = 4
"""Maximum number of files that stay open while a writer collects rows. Each open file may buffer two parts of a
multipart upload in memory."""


class PartitionedFileWriter:
    """Writes the rows of a unit to data files, each of which contains rows of one partition.

    Collects rows in memory, up to `waiting_bytes`. Before this limit is exceeded, appends the collected rows to the
    files of their partitions, or spills them to disk. If the plan has a sort order, sorts as many rows as fit in memory
    together; these rows form a run. A file that contains several runs is not marked as sorted.
    """

    def __init__(
        self, name: str, plan: FilePlan, s3: S3Client, first_id: bytes, waiting_bytes: int = WAITING_BYTES
    ) -> None:
        """Write nothing yet. File names start with `name`. `first_id` is the row ID of line 0.

        `waiting_bytes` is the maximum size of the rows in memory, in Arrow bytes.
        """
        self._plan = plan
        self._fields = plan.partitioning.fields if plan.partitioning is not None else ()
        self._waiting_bytes = waiting_bytes
        self._max_open = min(MAX_OPEN_FILES, plan.partitioning.max_open if plan.partitioning is not None else 1)
        self._tables = BlockTables(plan, first_id)
        self._waiting = WaitingRows(self._tables.schema)
        self._files = PartitionFiles(name, plan, s3, run_bytes=waiting_bytes)
        self._spill = Spill()

    def write(self, decoded: Decoded) -> pa.Array[Any]:
        """Collect records in memory. Return the IDs of their rows (`_airbyte_raw_id`).

        If the records would exceed the memory limit, first writes or spills all rows collected earlier.
        """
        ids, table = self._tables.table(decoded)
        if not decoded.rows:
            return ids
        if self._waiting.bytes and self._waiting.bytes + table.nbytes > self._waiting_bytes:
            self._free_memory()
        self._waiting.add(table, self._tables.schema)
        return ids

    def close(self) -> list[DataFile]:
        """Write all collected and spilled rows, and wait for all uploads. Return all files of the unit."""
        for values, rows in self._groups():
            self._files.write(values, [*self._spill.take(values), rows])
            self._files.finish(values)
        # The remaining partitions have no rows in memory: all of them were spilled earlier.
        for values, tables in self._spill.take_all():
            self._files.write(values, tables)
            self._files.finish(values)
        self._spill.close()
        return self._files.close()

    def abort(self) -> None:
        """Delete all files of the unit, including published ones, and discard the collected and spilled rows."""
        # The files must be deleted even if the disk fails.
        with ExitStack() as steps:
            steps.callback(self._files.abort)
            self._spill.close()

    def _free_memory(self) -> None:
        """Append the rows of large partitions to their files, and spill all other collected rows to disk.

        If too many files are open, opens no file for another large partition, and spills its rows too.
        """
        for values, rows in self._groups():
            enough = self._spill.bytes_of(values) + rows.bytes >= self._waiting_bytes // 4
            if enough and (values in self._files or len(self._files) < self._max_open):
                self._files.write(values, [*self._spill.take(values), rows])
            else:
                self._spill.add(values, rows)
        self._spill.end_run()

    def _groups(self) -> Iterator[tuple[tuple[PartitionValue, ...], Rows]]:
        """Remove all collected rows from memory. Yield the values of each partition with the partition's rows."""
        if not self._waiting.bytes:
            return
        schema = self._waiting.schema
        table = self._waiting.take()
        self._files.use_schema(schema, table)
        if self._plan.sort_order is not None:
            table = in_order(table, self._plan.sort_order)
        groups = by_partition(table, self._fields)
        del table  # Its memory is released as soon as the groups are copied.
        for values, rows in groups:
            yield values, Rows(rows, rows.nbytes)
