"""The compaction job, as it runs on executors: the rows of several Parquet files are written as one.

Files are read one after the other, a few rows at a time, and the new one is sent in parts while it is encoded: memory
depends neither on their number nor on their sizes, but on one row group, and has a byte for each row of a file with
position deletes. Rows that must be sorted and are more than memory should hold wait on the local disk.
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
from destination_datalake.files.projection import Unsuitable
from destination_datalake.files.reading import OpenedFile, StoredFile, deleted_rows, opened
from destination_datalake.files.sorting import MergeSort
from destination_datalake.partitioning.spec import SortOrder

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_MIN_SOURCES = 2


def compact(tasks: Iterable[CompactTask]) -> Iterator[CompactResult]:
    """Write the file of every task; yield a result for each. A failure does not stop the others."""
    for task in tasks:
        headline = f"Files under {task.folder} could not be compacted"
        problem = Problem(headline, "compact files under", task.folder, task.access)
        yield attempt(partial(_compacted, task), problem)


def _compacted(task: CompactTask) -> Compacted | NotCompacted:
    """Leave unsuitable sources out. One may show to be that when rows of it are written: then begin again."""
    s3 = task.access.client("s3")
    skipped: dict[str, SkippedFile] = {}
    while True:
        try:
            return _written(task, skipped, s3)
        except _Begun as found:
            skipped[found.file.uri] = found.file


def _written(task: CompactTask, skipped: dict[str, SkippedFile], s3: S3Client) -> Compacted | NotCompacted:
    # An attempt that Spark has given up may still run: its file has a name of its own.
    upload = Upload(s3, f"{task.folder}/{task.name}-{secrets.token_hex(4)}.parquet", deferred=False)
    sources = [source for source in task.sources if source.uri not in skipped]
    with rollback_on_error(upload.abort):
        writer = ParquetFileWriter(task.codec, task.schema, upload)
        rows = 0
        read = (table for stored in opened(sources, s3) for table in _rows(stored, task.schema, skipped, s3))
        for table in read if task.sort_order is None else _sorted(read, task.sort_order):
            writer.write(table)
            rows += table.num_rows
        suitable = [source for source in sources if source.uri not in skipped]
        if len(suitable) < _MIN_SOURCES and not any(source.position_deletes for source in suitable):
            upload.abort()
            return NotCompacted(tuple(skipped.values()))
        footer = writer.close()
        upload.close()
    uris = tuple(source.uri for source in suitable)
    deleted = sum(source.rows for source in suitable) - rows
    is_sorted = task.sort_order is not None
    return Compacted(
        upload.uri, upload.written, rows, footer, None, task.name, uris, tuple(skipped.values()), is_sorted, deleted
    )


def _rows(stored: StoredFile, schema: pa.Schema, skipped: dict[str, SkippedFile], s3: S3Client) -> Iterator[pa.Table]:
    """Yield the rows of a file that are not deleted; none if it is unsuitable, which is added to `skipped`.

    Raises _Begun.
    """
    begun = False
    try:
        for table in OpenedFile(stored).rows(schema, deleted_rows(stored.source, s3)):
            yield table
            begun = True
    except Unsuitable as error:
        file = SkippedFile(stored.source.uri, str(error))
        if begun:
            raise _Begun(file) from error
        skipped[file.uri] = file


def _sorted(tables: Iterable[pa.Table], order: SortOrder) -> Iterator[pa.Table]:
    sort = MergeSort(order)
    try:
        for table in tables:
            sort.add(table)
        yield from sort.rows()
    finally:
        sort.close()


class _Begun(Exception):
    """Some rows of an unsuitable file are written."""

    def __init__(self, file: SkippedFile) -> None:
        super().__init__(file.reason)
        self.file = file
