"""The verify job on executors: two readers scan data files in full, and the results are compared with the metadata.

The first reader is the connector's own and reads from S3. The second reader is DuckDB, which shares no code with the
first and reads a copy on the executor's disk, one file at a time. Messages contain column names and counts, but no
values.
"""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from botocore.exceptions import ClientError

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import MAX_MEMBER_BYTES, S3Address, is_missing
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.parquet import has_field_ids
from destination_datalake.files.plan import UNKNOWN, ExpectedColumnStats, ExpectedFileStats, VerifiedFile
from destination_datalake.files.reading import OpenedFile, StoredFile, UnsupportedFile, parquet_errors, parquet_file
from destination_datalake.partitioning.paths import PartitionKey
from destination_datalake.partitioning.transforms import transformed
from destination_datalake.schema.types import Boolean, Date, Int32, Int64, String, Timestamp

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """A task that verifies `files`, each of which has the statistics that the table's metadata contains for it."""

    files: tuple[ExpectedFileStats, ...]
    access: AwsAccess


def verify(tasks: Iterable[VerifyTask]) -> Iterator[VerifiedFile | Failed]:
    """Verify the files of each task. Yield one result per file. An error does not stop the job, but yields a Failed."""
    for task in tasks:
        for expected in task.files:
            problem = Problem(f"Cannot verify {expected.source.uri}", "read", expected.source.uri, task.access)
            yield attempt(partial(_verify, expected, task.access), problem)


def _verify(expected: ExpectedFileStats, access: AwsAccess) -> VerifiedFile:
    s3, source = access.client("s3"), expected.source
    result = VerifiedFile(source.uri, expected.group, 0, source.size)
    size = _size(s3, source.uri)
    if size is None:
        return replace(result, was_deleted=True) if expected.listed else replace(result, problems=("does not exist",))
    if size != source.size:
        return replace(result, problems=(f"contains {size} bytes, but the table's metadata records {source.size}",))
    try:
        with tempfile.TemporaryDirectory(prefix="verify-") as folder:
            copy = Path(folder, "copy")
            address = S3Address.parse(source.uri)
            s3.download_file(address.bucket, address.key, str(copy))
            if expected.kind == "parquet":
                _require_readable_footer(copy)
                rows, problems, values = _read_parquet(expected, s3)
                columns = [*values]
                by_duckdb = _read_parquet_by_duckdb(copy, columns)
                if by_duckdb is not None and by_duckdb != (rows, *values.values()):
                    problems = (*problems, _difference((rows, *values.values()), by_duckdb, columns))
            elif expected.kind == "jsonl":
                is_gzip = source.uri.endswith(".gz")
                rows, longest, problems = _read_lines(copy, is_gzip=is_gzip)
                by_duckdb = _read_lines_by_duckdb(copy, longest, is_gzip=is_gzip) if not problems else None
                if by_duckdb is not None and by_duckdb != (rows,):
                    problems = (
                        f"contains {rows} lines according to the connector, but {by_duckdb[0]} according to DuckDB",
                    )
            else:
                rows, problems, by_duckdb = max(source.rows, 0), (), None
    except UnsupportedFile as error:
        return replace(result, problems=(str(error),))
    except ClientError as error:
        if expected.listed and is_missing(error, s3, source.uri):
            return replace(result, was_deleted=True)
        raise
    return replace(result, rows=rows, problems=problems, by_duckdb=by_duckdb is not None)


def _size(s3: S3Client, uri: str) -> int | None:
    """Return the size of an object in bytes, or None if it does not exist."""
    address = S3Address.parse(uri)
    try:
        return s3.head_object(Bucket=address.bucket, Key=address.key)["ContentLength"]
    except ClientError as error:
        if is_missing(error, s3, uri):
            return None
        raise


# --- Parquet ----------------------------------------------------------------------------------------------------------


def _require_readable_footer(copy: Path) -> None:
    """Raise UnsupportedFile if the column metadata in the footer contradicts the schema.

    For such a file, `RowGroupMetaData.column` would abort the process.
    """
    with parquet_errors(), pq.ParquetFile(copy) as file:
        for group in range(file.num_row_groups):
            next(file.iter_batches(1, [group], use_threads=False), None)


def _read_parquet(expected: ExpectedFileStats, s3: S3Client) -> tuple[int, tuple[str, ...], dict[str, int]]:
    """Read all values of a file. Return its row count, its problems, and the number of non-null values per column name.

    A problem is a difference from the metadata, as a clause about the file. Raises UnsupportedFile and AWS errors.
    """
    with StoredFile(expected.source, s3) as stored, parquet_errors():
        file = parquet_file(stored)
        names = file.schema_arrow.names
        rows, file_schema = file.metadata.num_rows, file.schema_arrow
        if expected.source.rows not in (UNKNOWN, rows):
            raise UnsupportedFile(f"contains {rows} rows, but the table's metadata records {expected.source.rows}")
        if expected.schema is not None and not has_field_ids(expected.schema):
            _require_columns(file_schema, expected.schema)
        if expected.schema is not None and has_field_ids(expected.schema) and has_field_ids(file_schema):
            # Read the file like the table's readers: columns by field ID, in the table's current types.
            opened = OpenedFile(StoredFile(expected.source, s3))
            sources = opened.projection(expected.schema).sources
            tables, file_names = opened.rows(expected.schema), dict(zip(expected.schema.names, sources, strict=True))
        else:
            batches = file.iter_batches(use_threads=False)
            tables, file_names = (pa.Table.from_batches([batch]) for batch in batches), {name: name for name in names}
        checks: list[_ColumnCheck | _PartitionCheck] = [_ColumnCheck(column) for column in expected.columns]
        checks += [
            _PartitionCheck(key, text)
            for key, text in expected.partition
            if _PartitionCheck.is_possible(key, file_schema)
        ]
        values = {name: 0 for name in file_names.values() if name is not None}
        read = 0
        for table in tables:
            read += table.num_rows
            for column, name in file_names.items():
                if name is not None:
                    values[name] += table.num_rows - table.column(column).null_count
            for check in checks:
                check.add(table)
    if read != rows:
        raise UnsupportedFile(f"contains {read} readable rows, but its footer records {rows}")
    return rows, tuple(problem for check in checks for problem in check.problems()), values


class _ColumnCheck:
    """Compares a column's values with the bounds and the null count that the table's manifest contains for them."""

    def __init__(self, expected: ExpectedColumnStats) -> None:
        self._expected = expected
        self._nulls = 0
        self._outside = False

    def add(self, table: pa.Table) -> None:
        values: Any = table.column(self._expected.column)
        self._nulls += values.null_count
        values = _comparable(values)
        bounds: Any = pc.min_max(values).as_py()
        lower, upper = self._expected.lower, self._expected.upper
        if bounds["min"] is not None:
            self._outside |= (lower is not None and bounds["min"] < lower) or (
                upper is not None and bounds["max"] > upper
            )

    def problems(self) -> Iterator[str]:
        if self._outside:
            yield f"contains values in column {self._expected.column} outside the bounds in its manifest"
        nulls = self._expected.nulls
        if nulls not in (None, self._nulls):
            yield f"contains {self._nulls} nulls in column {self._expected.column}, but its manifest records {nulls}"


class _PartitionCheck:
    """Checks that all values of a column belong to the partition of the file.

    Nulls are ignored: they may be in any partition if the type of the column was changed.
    """

    def __init__(self, key: PartitionKey, text: str) -> None:
        self._key = key
        self._text = text
        self._differs = False

    @staticmethod
    def is_possible(key: PartitionKey, schema: pa.Schema) -> bool:
        """Return whether the values can be checked against the partition's folder name.

        The file must contain the key's column as a top-level column, and the text of a value must not change when its
        type is promoted.
        """
        exact = isinstance(key.source, Int32 | Int64 | String | Boolean | Date | Timestamp)
        return exact and len(key.field.source) == 1 and key.field.source[0] in schema.names

    def add(self, table: pa.Table) -> None:
        if self._text == self._key.null:
            return  # The folder for null also has values that cannot be folder names.
        values = table.column(self._key.field.source[0]).drop_null().combine_chunks()
        try:
            partition_values = transformed(values, self._key.field.transform).unique().to_pylist()
        except ValueError:
            return  # Another engine wrote the column in another type.
        self._differs |= any(self._key.text(value) != self._text for value in partition_values)

    def problems(self) -> Iterator[str]:
        if self._differs:
            yield f"contains rows whose value of partition key {self._key.name} differs from its folder"


def _comparable(values: Any) -> Any:
    """Convert values to the types of their bounds, which `ExpectedColumnStats` describes. Omit NaN."""
    types = pa.types
    if types.is_string(values.type):
        return values.cast(pa.binary())
    if types.is_date32(values.type):
        return values.cast(pa.int32())
    if types.is_timestamp(values.type) or types.is_time64(values.type):
        return values.cast(pa.int64())
    if types.is_floating(values.type):
        return values.filter(pc.invert(pc.is_nan(values)))
    return values


def _require_columns(file_schema: pa.Schema, table_schema: pa.Schema) -> None:
    """Raise UnsupportedFile if the file lacks all columns of the table, or has one of them in a different type.

    Names are case-insensitive.
    """
    fields = {field.name.lower(): field for field in file_schema}
    shared = [(fields[field.name.lower()], field) for field in table_schema if field.name.lower() in fields]
    if not shared:
        raise UnsupportedFile("contains none of the table's columns")
    for in_file, in_table in shared:
        if not _is_same_type(in_file.type, in_table.type):
            raise UnsupportedFile(
                f"stores column {in_file.name} as {in_file.type}, but the table's type is {in_table.type}"
            )


def _is_same_type(in_file: Any, in_table: Any) -> bool:
    """Return whether engines read values of both types as equal. Names and nullability of nested fields may differ."""
    types = pa.types
    if types.is_null(in_table):
        return True  # The table has a type that this connector never writes: accept any type.
    if types.is_struct(in_file) and types.is_struct(in_table):
        nested = {field.name.lower(): field.type for field in in_table}
        return all(_is_same_type(field.type, nested.get(field.name.lower(), field.type)) for field in in_file)
    if types.is_list(in_file) and types.is_list(in_table):
        return _is_same_type(in_file.value_type, in_table.value_type)
    if types.is_timestamp(in_file) and types.is_timestamp(in_table):
        return True
    if types.is_dictionary(in_file):
        return _is_same_type(in_file.value_type, in_table)
    return bool(in_file.equals(in_table))


# --- JSON lines -------------------------------------------------------------------------------------------------------


def _read_lines(copy: Path, *, is_gzip: bool) -> tuple[int, int, tuple[str, ...]]:
    """Return the number of lines, the size of the longest line in bytes, and the problems as clauses about the file."""
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    number = longest = 0
    try:
        with gzip.open(copy) if is_gzip else copy.open("rb") as lines:
            while line := lines.readline(MAX_MEMBER_BYTES + 1):
                number, longest = number + 1, max(longest, len(line))
                if longest > MAX_MEMBER_BYTES:
                    return (
                        number,
                        longest,
                        (f"exceeds the limit of {MAX_MEMBER_BYTES:,} bytes per line in line {number}",),
                    )
                decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return number, longest, (f"contains no valid JSON object in line {number}",)
    except (EOFError, OSError, zlib.error):
        return number, longest, (f"cannot be decompressed after line {number}",)
    return number, longest, ()


# --- The second reader ------------------------------------------------------------------------------------------------

_MEMORY = "1GB"
_LINE_LIMIT = 16 * 1024 * 1024
"""DuckDB's default limit for the size of a line (maximum_object_size). The limit is raised only for longer lines,
because DuckDB allocates a multiple of it."""


def _read_parquet_by_duckdb(copy: Path, columns: Sequence[str]) -> tuple[int, ...] | None:
    """Return the row count, then the number of non-null values of each column, as DuckDB reads the file.

    Returns None if DuckDB needs more memory than its limit. Raises UnsupportedFile.
    """
    quoted = ['"' + name.replace('"', '""') + '"' for name in columns]
    # The hash makes DuckDB read every value. It could otherwise return counts from statistics.
    counts = "".join(f", count({name}), bit_xor(hash({name}))" for name in quoted)
    row = _first_row(copy, f"SELECT count(*){counts} FROM read_parquet(?)")
    return None if row is None else (row[0], *row[1::2])


def _read_lines_by_duckdb(copy: Path, longest: int, *, is_gzip: bool) -> tuple[int, ...] | None:
    """Return the number of JSON lines as DuckDB reads the file, or None if DuckDB needs more memory than its limit.

    `longest` is the size of the longest line in bytes. Raises UnsupportedFile.
    """
    options = f"compression = '{'gzip' if is_gzip else 'none'}', maximum_object_size = {max(longest + 1, _LINE_LIMIT)}"
    return _first_row(copy, f"SELECT count(*) FROM read_ndjson_objects(?, {options})")


def _first_row(copy: Path, query: str) -> tuple[int, ...] | None:
    """Return the first row of a query on a file, or None if DuckDB needs more memory than its limit.

    Raises UnsupportedFile if DuckDB cannot read the file.
    """
    import duckdb

    limits: dict[str, Any] = {"threads": 1, "memory_limit": _MEMORY, "temp_directory": str(copy.parent)}
    with duckdb.connect(config=limits) as engine:
        try:
            return engine.execute(query, [str(copy)]).fetchone()
        except duckdb.OutOfMemoryException:
            return None
        except duckdb.Error as error:
            raise UnsupportedFile(f"cannot be read by DuckDB ({type(error).__name__})") from error


def _difference(own: Sequence[int], by_duckdb: Sequence[int], columns: Sequence[str]) -> str:
    name, own_count, duckdb_count = next(
        counts for counts in zip(["", *columns], own, by_duckdb, strict=True) if counts[1] != counts[2]
    )
    noun = f"values in column {name}" if name else "rows"
    return f"contains {own_count} {noun} according to the connector, but {duckdb_count} according to DuckDB"
