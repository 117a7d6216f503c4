"""Data files that are being written, in the format of their plan, and their uploads.

Files whose encoding has ended are uploaded several at a time: small ones mostly wait for S3's answers.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol, assert_never

import pyarrow as pa

from destination_datalake.aws.objects import Upload, delete_uncommitted
from destination_datalake.files.block_tables import FileSchema, Rows
from destination_datalake.files.jsonl import JsonLinesFiles
from destination_datalake.files.parquet import ParquetFiles
from destination_datalake.files.plan import DataFile, FileFormat, FilePlan
from destination_datalake.partitioning.spec import PartitionValue

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class FileWriter(Protocol):
    """Writes one data file."""

    metadata_bytes: int
    """The memory for what the end of the file will say about the rest of it."""

    def write(self, table: pa.Table) -> None:
        """Append rows; every table has the schema that the file was opened with."""

    def write_row_group(self, table: pa.Table, size: int) -> None:
        """Append rows, encoded at once; `size` is the table's bytes. Not to be mixed with `write` in one file."""

    def close(self) -> bytes:
        """Write the rest. Return the Parquet footer; empty for formats that have none. The upload stays open."""


class FileOpener(Protocol):
    """Opens data files of one schema, several at a time if need be."""

    def open(self, upload: Upload) -> FileWriter:
        """Open a file."""

    def close(self) -> None:
        """Release what the files share."""


def opener(format: FileFormat, codec: str, schema: pa.Schema, sample: pa.Table | None = None) -> FileOpener:
    """Return what opens files of this schema. `codec` is a value of the option `format.compression_codec`.

    With a `sample` of their rows, what is chosen by the values is chosen for all files at once.
    """
    match format:
        case "parquet":
            return ParquetFiles(codec, schema, sample)
        case "jsonl":
            return JsonLinesFiles(codec, schema)
        case _:
            assert_never(format)


def extension(format: FileFormat, codec: str) -> str:
    """Return the extension of file names, with its dot."""
    if format == "jsonl":
        return ".jsonl.gz" if codec == "GZIP" else ".jsonl"
    return ".parquet"


MAX_METADATA_BYTES = 64 * 1024 * 1024
"""The most memory for a file's metadata. With 1,000 columns no file reaches it; with 10,000, sparse, 5,000 rows do."""


class OpenFile:
    """A data file of one schema, and of one partition if there are any: rows are written, then it is uploaded."""

    def __init__(
        self,
        uri: str,
        schema: FileSchema,
        opener: FileOpener,
        plan: FilePlan,
        s3: S3Client,
        partition: tuple[PartitionValue, ...] = (),
    ) -> None:
        """Send nothing yet. `opener` is of `schema`; `partition` has the values of the plan's partitioning, if any."""
        self.schema = schema
        self._upload = Upload(s3, uri, deferred=plan.deferred, held_in=plan.held_in)
        self._writer = opener.open(self._upload)
        self._partition = partition
        self._spec_id = plan.partitioning.spec_id if plan.partitioning is not None else 0
        self._rows = 0
        self._is_sorted = plan.sort_order is not None
        self._with_nulls: set[str] = set()
        self._footer = b""

    def is_complete(self, target_bytes: int) -> bool:
        """Return whether the file has its target size, or row groups and columns enough to take much memory."""
        return self.size >= target_bytes or self._writer.metadata_bytes >= MAX_METADATA_BYTES

    @property
    def size(self) -> int:
        """The bytes encoded so far."""
        return self._upload.written

    @property
    def buffered_bytes(self) -> int:
        """The bytes encoded so far that are not sent."""
        return self._upload.buffered_bytes

    def write(self, table: pa.Table) -> None:
        """Append rows of the file's schema."""
        self._writer.write(table)
        self._count(table)

    def write_row_group(self, rows: Rows, *, begins_run: bool) -> None:
        """Append rows of the file's schema, encoded at once, which releases their memory.

        `begins_run` says that they need not come after those before them in the plan's order.
        """
        self._writer.write_row_group(*rows)
        self._is_sorted = self._is_sorted and not (begins_run and self._rows)
        self._count(rows.table)

    def end(self) -> None:
        """Encode the rest. Only `upload` may follow."""
        self._footer = self._writer.close()

    def upload(self) -> DataFile:
        """Upload the rest, and return the file."""
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
        """Discard what was not sent, and abort the upload."""
        self._upload.abort()


THREADS = 16
"""Half of the connections that a client keeps: parts of open files are sent beside them."""

WAITING_BYTES = 32 * 1024 * 1024
"""The most bytes of encoded files that wait, besides those of the last file."""


class Uploads:
    """Uploads files in the background, and keeps what became of them in the order in which they were added."""

    def __init__(self, s3: S3Client) -> None:
        """Start no thread yet."""
        self._s3 = s3
        self._pool = ThreadPoolExecutor(THREADS, "files")
        self._running: deque[tuple[OpenFile, Future[DataFile], int]] = deque()
        self._running_bytes = 0
        self._finished: list[DataFile] = []

    def add(self, file: OpenFile) -> None:
        """Upload the rest of a file that has ended. Waits while too much is under way; raises what has failed."""
        waiting = file.buffered_bytes
        self._running.append((file, self._pool.submit(file.upload), waiting))
        self._running_bytes += waiting
        while self._running_bytes - waiting > WAITING_BYTES or len(self._running) > 2 * THREADS:
            self._collect()

    def finish(self) -> list[DataFile]:
        """Return all files when they are uploaded. Raises what one of them failed with."""
        while self._running:
            self._collect()
        self._pool.shutdown()
        return self._finished

    def abort(self) -> None:
        """Delete all files, published or not."""
        self._pool.shutdown(cancel_futures=True)
        with ExitStack() as steps:
            for file, upload, _ in self._running:
                if upload.cancelled() or upload.exception() is not None:
                    steps.callback(file.abort)
                else:
                    self._finished.append(upload.result())
            steps.callback(delete_uncommitted, self._finished, self._s3)

    def _collect(self) -> None:
        """Wait for the first file; one that failed stays, to be aborted."""
        _, upload, waiting = self._running[0]
        self._finished.append(upload.result())
        self._running.popleft()
        self._running_bytes -= waiting
