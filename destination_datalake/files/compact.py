"""The compaction job on executors: write the rows of several Parquet files as one file.

Files are read one after the other, in small batches, and the new file is uploaded in parts while it is encoded. Memory
is bounded by one row group, plus one byte per row of a file with position deletes. Sorting spills to the local disk.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from destination_datalake.aws.objects import Upload, rollback_on_error
from destination_datalake.files.jobs import Problem, attempt
from destination_datalake.files.parquet import ParquetFileWriter
from destination_datalake.files.plan import Compacted, CompactResult, CompactTask, NotCompacted, SkippedFile
from destination_datalake.files.projection import UnsupportedFile
from destination_datalake.files.reading import OpenedFile, StoredFile, deleted_rows, open_files
from destination_datalake.files.sorting import MergeSort
from destination_datalake.partitioning.spec import SortOrder

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_MIN_SOURCES = 2


def compact(tasks: Iterable[CompactTask]) -> Iterator[CompactResult]:
    """Write the file of each task; yield one result per task. A failed task does not stop the job."""
    for task in tasks:
        headline = f"Files under {task.folder} could not be compacted"
        problem = Problem(headline, "compact files under", task.folder, task.access)
        yield attempt(partial(_compacted, task), problem)


def _compacted(task: CompactTask) -> Compacted | NotCompacted:
    """Write the rows of all supported sources. Start again if a source fails after some of its rows are written."""
    s3 = task.access.client("s3")
    skipped: dict[str, SkippedFile] = {}
    while True:
        try:
            return _written(task, skipped, s3)
        except _FailedMidway as failure:
            skipped[failure.file.uri] = failure.file


def _written(task: CompactTask, skipped: dict[str, SkippedFile], s3: S3Client) -> Compacted | NotCompacted:
    # Spark may retry a task whose first attempt still runs, so each attempt has its own file name.
    upload = Upload(s3, f"{task.folder}/{task.name}-{secrets.token_hex(4)}.parquet", deferred=False)
    sources = [source for source in task.sources if source.uri not in skipped]
    with rollback_on_error(upload.abort):
        writer = ParquetFileWriter(task.codec, task.schema, upload)
        rows = 0
        read = (table for stored in open_files(sources, s3) for table in _rows(stored, task.schema, skipped, s3))
        for table in read if task.sort_order is None else _sorted(read, task.sort_order):
            writer.write(table)
            rows += table.num_rows
        # Reading may have added to `skipped`.
        merged = [source for source in sources if source.uri not in skipped]
        if len(merged) < _MIN_SOURCES and not any(source.position_deletes for source in merged):
            upload.abort()
            return NotCompacted(tuple(skipped.values()))
        footer = writer.close()
        upload.close()
    uris = tuple(source.uri for source in merged)
    deleted = sum(source.rows for source in merged) - rows
    is_sorted = task.sort_order is not None
    return Compacted(
        upload.uri, upload.written, rows, footer, None, task.name, uris, tuple(skipped.values()), is_sorted, deleted
    )


def _rows(stored: StoredFile, schema: pa.Schema, skipped: dict[str, SkippedFile], s3: S3Client) -> Iterator[pa.Table]:
    """Yield the live rows of a file. Add an unsupported file to `skipped` instead.

    Raises _FailedMidway.
    """
    has_yielded = False
    try:
        for table in OpenedFile(stored).rows(schema, deleted_rows(stored.source, s3)):
            yield table
            has_yielded = True
    except UnsupportedFile as error:
        file = SkippedFile(stored.source.uri, str(error))
        if has_yielded:
            raise _FailedMidway(file) from error
        skipped[file.uri] = file


def _sorted(tables: Iterable[pa.Table], order: SortOrder) -> Iterator[pa.Table]:
    sort = MergeSort(order)
    try:
        for table in tables:
            sort.add(table)
        yield from sort.rows()
    finally:
        sort.close()


class _FailedMidway(Exception):
    """A file turned out to be unsupported after some of its rows were written."""

    def __init__(self, file: SkippedFile) -> None:
        super().__init__(file.reason)
        self.file = file
