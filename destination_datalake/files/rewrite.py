"""Two jobs on executors that rewrite Parquet files: `rewrite` widens column types, and `compact` merges small files.

`rewrite` copies a file with wider column types. Another program, such as Spark, Hive or pandas, may have written the
file. The copy keeps columns, their order, rows, row groups, field IDs, compression and key-value metadata, with these
exceptions:

- Rows removed by position deletes are omitted.
- INT96 timestamps become microseconds in UTC, as engines read them. Nanoseconds, Arrow's default, overflow in the year
  2262, and Spark cannot read them.
- Copies of the schema in the key-value metadata are omitted, because they contain the former column types.

`compact` reads files one after the other, in small batches. While it encodes the new file, it uploads the finished
parts. A task needs memory for at most one row group, plus one byte per row of a file with position deletes. A sort that
exceeds its memory spills rows to the local disk.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from destination_datalake.aws.objects import (
    PendingUpload,
    Upload,
    abort_all,
    get,
    pending_uploads,
    publish_all,
    rollback_on_error,
)
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.parquet import ParquetFileWriter, footer_of, promote_floats
from destination_datalake.files.plan import (
    UNKNOWN,
    Compacted,
    CompactResult,
    CompactTask,
    NotCompacted,
    RewriteFailed,
    RewriteTask,
    Rewritten,
    SkippedFile,
    SourceFile,
)
from destination_datalake.files.reading import OpenedFile, StoredFile, UnsupportedFile, deleted_rows, open_files
from destination_datalake.files.sorting import MergeSort
from destination_datalake.partitioning.spec import SortOrder
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.types import ColumnType, List, Struct
from destination_datalake.unforeseen import exhaustion

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from numpy.typing import NDArray

    from destination_datalake.aws.access import AwsAccess

_ARROW_SCHEMA = b"ARROW:schema"
_PANDAS = b"pandas"
_COPIES_OF_THE_SCHEMA = frozenset(
    (b"org.apache.spark.sql.parquet.row.metadata", b"iceberg.schema", b"parquet.avro.schema", b"avro.schema")
)
_MICROSECONDS = pa.timestamp("us", tz="UTC")


def rewrite(tasks: Iterable[RewriteTask]) -> Iterator[Rewritten | Failed]:
    """Copy the file of each task with wider column types. Yield one result per task.

    If a task fails, yields a Failed for this task and continues with the next one. The copies are invisible until the
    driver calls `publish_rewritten`.
    """
    for task in tasks:
        yield attempt(partial(_rewrite, task), partial(_problem, task))


def publish_rewritten(results: Sequence[Rewritten | Failed], access: AwsAccess) -> list[Rewritten]:
    """Make all rewritten files visible, and return them. Runs on the driver.

    If one of `results` is a Failed, raises RewriteFailed, and no file becomes visible. If a request to S3 fails, raises
    the error of the request. Some files may then be visible already. In both cases, no pending upload remains.
    """
    s3 = access.client("s3")
    rewritten = [result for result in results if isinstance(result, Rewritten)]
    uploads = pending_uploads(rewritten)
    failed = [result for result in results if isinstance(result, Failed)]
    # Abort the uploads, but never delete visible files, because another sync may have written a file with the same
    # name.
    with rollback_on_error(partial(abort_all, uploads, s3)):
        if failed:
            raise RewriteFailed(failed[0].failure)
        publish_all(uploads, s3)
    return rewritten


def _problem(task: RewriteTask, error: Exception) -> Problem:
    remedy = None
    if exhaustion(error) is None and isinstance(error, pa.ArrowException | OSError | UnsupportedFile):
        remedy = (
            f"Cannot widen the columns of the table: its object {task.source} cannot be read as Parquet with these "
            "columns. Remove or repair the object, or set numeric_types so that no column must be widened."
        )
    return Problem(f"Cannot rewrite {task.source}", "rewrite", task.source, task.access, remedy)


def _rewrite(task: RewriteTask) -> Rewritten:
    s3 = task.access.client("s3")
    body = get(s3, task.source)
    source = SourceFile(task.source, len(body), UNKNOWN, position_deletes=task.position_deletes)
    file = OpenedFile(StoredFile(source, s3, body))
    schema = _widened(file.parquet, task)
    # A file without floats need not change, so the table keeps it.
    if task.to_double and schema.equals(file.schema):
        return Rewritten(task.source, len(body), file.row_count, source=task.source)
    deleted = deleted_rows(replace(source, rows=file.row_count), s3)
    upload = Upload(s3, task.target, deferred=True)
    with rollback_on_error(upload.abort):
        writer = copy_rows(file, schema, deleted, upload)
        upload.close()
    pending = upload.pending_upload
    assert isinstance(pending, PendingUpload)
    rows = writer.writer.metadata.num_rows
    return Rewritten(upload.uri, upload.written, rows, footer_of(writer), pending, task.source)


def copy_rows(
    file: OpenedFile, schema: pa.Schema, deleted: NDArray[np.bool_] | None, upload: Upload
) -> pq.ParquetWriter:
    """Copy the rows that the mask `deleted` does not select to `upload`, with the column types of `schema`.

    Returns the closed writer. Omits row groups without remaining rows. Needs memory for at most one row group.
    """
    with writer_like(file.parquet, schema, upload) as writer:
        for group in file.all_groups:
            live = None if deleted is None else ~deleted[group.first : group.first + group.rows]
            if live is not None and not live.any():
                continue
            table = file.read_group(group)
            if live is not None and not live.all():
                table = table.filter(pa.array(live))
            # By default, Arrow would split larger tables at a fixed number of rows. Keep the row groups of the file.
            writer.write_table(table.cast(schema), row_group_size=max(table.num_rows, 1))
    return writer


def writer_like(old: pq.ParquetFile, schema: pa.Schema, upload: Upload) -> pq.ParquetWriter:
    """Open a writer with the compression, encodings and sort order of an existing file.

    Parquet stores these properties for each column chunk (a column in one row group). The writer uses the properties of
    the first row group for the whole file.
    """
    first = old.metadata.row_group(0) if old.num_row_groups else None
    chunks = [first.column(index) for index in range(first.num_columns)] if first is not None else []
    codec = chunks[0].compression.lower() if chunks else "snappy"
    return pq.ParquetWriter(
        cast("IO[Any]", upload),
        schema,
        compression=cast("Any", "none" if codec == "uncompressed" else codec),
        # The columns that the old writer stored with a dictionary repeat their values.
        use_dictionary=cast("Any", [chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page]),
        # Arrow's own schema restores types that Parquet lacks, such as dictionaries.
        store_schema=_ARROW_SCHEMA in (old.metadata.metadata or {}),
        sorting_columns=first.sorting_columns or None if first is not None else None,
        write_page_checksum=True,
    )


def _widened(old: pq.ParquetFile, task: RewriteTask) -> pa.Schema:
    """Return the schema of the file with the task's new column types. Ignores the case of names, as catalogs do."""
    # Arrow's schema has the same type for all timestamps. Only Parquet's schema marks INT96.
    int96 = iter([old.schema.column(index).physical_type == "INT96" for index in range(len(old.schema))])
    wanted = {name.lower(): type_ for name, type_ in task.columns.items()}
    widened = [_wider_field(field, wanted.get(field.name.lower()), int96) for field in old.schema_arrow]
    fields = list(promote_floats(pa.schema(widened), task.to_double))
    changed = {new.name: new.type for before, new in zip(old.schema_arrow, fields, strict=True) if new != before}
    return pa.schema(fields).with_metadata(_metadata(old.schema_arrow.metadata or {}, changed))


def _wider_field(field: pa.Field[Any], wanted: ColumnType | None, int96: Iterator[bool]) -> pa.Field[Any]:
    return field.with_type(_wider(field.type, wanted, int96))


def _wider(type_: pa.DataType, wanted: ColumnType | None, int96: Iterator[bool]) -> pa.DataType:
    """Return the new type of a column or nested field. INT96 timestamps become microseconds.

    `int96` yields, for each leaf in the order of the schema, whether the file stores the leaf as INT96.
    """
    if isinstance(type_, pa.StructType):
        inner = {field.name.lower(): field.type for field in wanted.fields} if isinstance(wanted, Struct) else {}
        children = [type_.field(index) for index in range(type_.num_fields)]
        return pa.struct([_wider_field(child, inner.get(child.name.lower()), int96) for child in children])
    if isinstance(type_, pa.MapType):
        key, item = _wider_field(type_.key_field, None, int96), _wider_field(type_.item_field, None, int96)
        map_of = cast("Any", pa.map_)  # The stubs accept only types, not fields, which have names and IDs.
        return cast("pa.DataType", map_of(key, item, type_.keys_sorted))
    if isinstance(type_, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        element = _wider_field(type_.value_field, wanted.element if isinstance(wanted, List) else None, int96)
        if isinstance(type_, pa.FixedSizeListType):
            return pa.list_(element, type_.list_size)
        return pa.large_list(element) if isinstance(type_, pa.LargeListType) else pa.list_(element)
    if next(int96):
        return _MICROSECONDS
    return arrow_type(wanted) if wanted is not None and not isinstance(wanted, Struct | List) else type_


def _metadata(old: Mapping[bytes, bytes], changed: Mapping[str, pa.DataType]) -> dict[bytes, bytes]:
    """Return the key-value metadata for the new file.

    If column types change, omits copies of the former schema, and corrects the types in the entry that pandas reads.
    """
    kept = {key: value for key, value in old.items() if not changed or key not in _COPIES_OF_THE_SCHEMA}
    if _PANDAS in kept:
        # Another program may have written the entry. pandas cannot read a malformed one either, so it stays as it is.
        with suppress(ValueError, TypeError, AttributeError, RecursionError):
            kept[_PANDAS] = _with_types(kept[_PANDAS], changed)
    return kept


def _with_types(entry: bytes, changed: Mapping[str, pa.DataType]) -> bytes:
    """Return the entry that pandas reads, with the new column types.

    For a malformed entry, raises ValueError, TypeError, AttributeError or RecursionError.
    """
    pandas = json.loads(entry)
    for column in pandas.get("columns", []):
        type_ = changed.get(column.get("field_name") or column.get("name"))
        if type_ is not None and pa.types.is_primitive(type_) and not pa.types.is_temporal(type_):
            # Names of pandas' nullable types begin with a capital letter.
            capital = str(column.get("numpy_type", ""))[:1].isupper()
            name = "float64" if pa.types.is_floating(type_) else str(type_)
            column["pandas_type"], column["numpy_type"] = name, name.capitalize() if capital else name
    return json.dumps(pandas).encode()


# --- Compaction -------------------------------------------------------------------------------------------------------

_MIN_SOURCES = 2


def compact(tasks: Iterable[CompactTask]) -> Iterator[CompactResult]:
    """For each task, write the rows of its source files to one new file. Yield one result per task.

    If a task fails, yields a Failed for this task and continues with the next one.
    """
    for task in tasks:
        headline = f"Cannot compact files under {task.folder}"
        problem = Problem(headline, "compact files under", task.folder, task.access)
        yield attempt(partial(_compact, task), problem)


def _compact(task: CompactTask) -> Compacted | NotCompacted:
    """Write the rows of all supported source files to one new file.

    If an error shows that a file is unsupported after some of its rows were written, starts again without this file.
    """
    s3 = task.access.client("s3")
    skipped: dict[str, SkippedFile] = {}
    while True:
        try:
            return _write_compacted(task, skipped, s3)
        except _FailedMidway as failure:
            skipped[failure.file.uri] = failure.file


def _write_compacted(task: CompactTask, skipped: dict[str, SkippedFile], s3: S3Client) -> Compacted | NotCompacted:
    # Spark may retry a task while the first attempt is still running, so each attempt uses its own file name.
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
        # A copy of a single file without deletes would not improve anything.
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
    """Yield the live rows of a file. If the file is unsupported, add it to `skipped`.

    Raises _FailedMidway if rows of the file were already yielded.
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
    """Raised if an error shows that a file is unsupported after some of its rows were written to the new file."""

    def __init__(self, file: SkippedFile) -> None:
        super().__init__(file.reason)
        self.file = file
