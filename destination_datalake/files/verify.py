"""The verify job on executors: read data files in full with two readers, and compare them with the table's metadata.

The first reader is the connector's own. The second reader is DuckDB, which shares no code with the first. The task
copies one file at a time to the executor's disk. DuckDB reads the copy. The connector's reader reads Parquet from S3,
and JSON Lines from the copy. The reported problems contain column names and counts, but no values.
"""

from __future__ import annotations

import gzip
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from decimal import Decimal as DecimalValue
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from botocore.exceptions import ClientError

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import MAX_MEMBER_BYTES, S3Address, is_missing
from destination_datalake.files.block_tables import parse_ingest_order
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.parquet import field_id, has_field_ids
from destination_datalake.files.plan import (
    COUNTED_DIGITS,
    ExpectedColumnStats,
    ExpectedFileStats,
    ExpectedPartition,
    VerifiedFile,
)
from destination_datalake.files.reading import (
    OpenedFile,
    StoredFile,
    UnsupportedFile,
    field_ids,
    parquet_errors,
)
from destination_datalake.partitioning.spec import (
    CalendarPart,
    PartitionField,
    PartitionValue,
    Since1970,
    Transform,
    Truncate,
    Void,
)
from destination_datalake.partitioning.transforms import by_partition
from destination_datalake.schema.arrow import widest
from destination_datalake.schema.glue import glue_type
from destination_datalake.schema.names import RAW_ID
from destination_datalake.schema.types import ColumnType, Decimal, Float32, Float64, Timestamp

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """A task that verifies data files. `files` contains the expected statistics of each file from the metadata."""

    files: tuple[ExpectedFileStats, ...]
    access: AwsAccess


def verify(tasks: Iterable[VerifyTask]) -> Iterator[VerifiedFile | Failed]:
    """Verify the files of each task. Yield one result per file.

    If an error prevents the verification of a file, yields a Failed for this file and continues with the next one.
    """
    for task in tasks:
        for expected in task.files:
            problem = Problem(f"Cannot verify {expected.source.uri}", "read", expected.source.uri, task.access)
            yield attempt(partial(_verify, expected, task.access), problem)


def _verify(expected: ExpectedFileStats, access: AwsAccess) -> VerifiedFile:
    s3, source, units = access.client("s3"), expected.source, set[str]()
    result = VerifiedFile(source.uri, expected.group, 0, source.size)
    # A file that was found by listing may disappear meanwhile, which is no problem of the table.
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
            match expected.kind:
                case "parquet":
                    reading = _verify_parquet(expected, copy, s3, units)
                case "jsonl":
                    reading = _verify_lines(expected, copy, units)
                case _:
                    reading = _Reading(max(source.rows, 0))
    except UnsupportedFile as error:
        return replace(result, problems=(str(error),))
    except ClientError as error:
        if expected.listed and is_missing(error, s3, source.uri):
            return replace(result, was_deleted=True)
        raise
    started, foreign = _start_of_sync(source.uri, units)
    problems = (*reading.problems, *foreign)
    return replace(result, rows=reading.rows, problems=problems, by_duckdb=reading.by_duckdb, started=started)


class _Reading(NamedTuple):
    """The fields of a `VerifiedFile` that depend on the content of the file."""

    rows: int
    problems: tuple[str, ...] = ()
    by_duckdb: bool = False


def _size(s3: S3Client, uri: str) -> int | None:
    """Return the size of an object in bytes, or None if the object does not exist."""
    address = S3Address.parse(uri)
    try:
        return s3.head_object(Bucket=address.bucket, Key=address.key)["ContentLength"]
    except ClientError as error:
        if is_missing(error, s3, uri):
            return None
        raise


_NAME = re.compile(r"[0-9a-f]{12}-(?P<batch>[0-9]{6})-(?P<part>[0-9]{4})-[0-9a-f]{8}-[0-9]{4}[.].*")
"""The pattern of the names of files that a sync has written. A name contains the ID of the sync, the number of the
batch, the number of the unit in the batch, the token of the attempt, and the number of the file."""

_UNIT = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{4}")


def _start_of_sync(uri: str, units: Set[str]) -> tuple[int | None, tuple[str, ...]]:
    """Return the start of the sync that wrote the rows (see `VerifiedFile.started`), and the problems.

    `units` contains the IDs of the rows without the last digits, which contain the line number. A file that a sync has
    written contains the rows of only one unit (one task's part of a batch).
    """
    match = _NAME.fullmatch(uri.rpartition("/")[2])
    if match is None or not units:
        return None, ()
    order = parse_ingest_order(next(iter(units)))
    if len(units) > 1 or order.part != int(match["part"]):
        return None, ("contains row IDs of a different batch than its name, so the file was replaced",)
    return order.milliseconds - int(match["batch"]), ()


def _add_units(ids: Any, units: set[str]) -> None:
    if len(units) < 2:  # Two units already prove that the file is not the one that the sync wrote.
        prefixes: Any = pc.utf8_slice_codeunits(ids, 0, -COUNTED_DIGITS)
        units.update(unit for unit in prefixes.unique().drop_null().to_pylist() if _UNIT.fullmatch(unit))


# --- Parquet ----------------------------------------------------------------------------------------------------------


def _verify_parquet(expected: ExpectedFileStats, copy: Path, s3: S3Client, units: set[str]) -> _Reading:
    """Read a file in S3 and compare it with the metadata. Read its copy with DuckDB, and compare the counts.

    Adds the units of the rows to `units` (see `_start_of_sync`). Raises UnsupportedFile and AWS errors.
    """
    _require_readable_footer(copy)
    rows, problems, values = _read_parquet(expected, s3, units)
    counts, columns = (rows, *values.values()), [*values]
    by_duckdb = _read_parquet_by_duckdb(copy, columns)
    if by_duckdb is not None and by_duckdb != counts:
        problems = (*problems, _difference(counts, by_duckdb, columns))
    return _Reading(rows, problems, by_duckdb is not None)


def _require_readable_footer(copy: Path) -> None:
    """Raise UnsupportedFile if the column metadata in the footer contradicts the schema.

    For such a file, `RowGroupMetaData.column` would abort the process.
    """
    with parquet_errors(), pq.ParquetFile(copy) as file:
        for group in range(file.num_row_groups):
            next(file.iter_batches(1, [group], use_threads=False), None)


def _read_parquet(
    expected: ExpectedFileStats, s3: S3Client, units: set[str]
) -> tuple[int, tuple[str, ...], dict[str, int]]:
    """Read all values of a file. Return its row count, its problems, and the number of non-null values per column name.

    A problem is a difference from the metadata, as a clause about the file. Adds the units of the rows to `units` (see
    `_start_of_sync`). Raises UnsupportedFile and AWS errors.
    """
    with StoredFile(expected.source, s3) as stored, parquet_errors():
        file, schema = OpenedFile(stored), expected.schema
        names = file.schema.names
        if schema is not None and not has_field_ids(schema):
            _require_columns(file.schema, schema)
        is_projected = schema is not None and has_field_ids(schema) and has_field_ids(file.schema)
        if schema is not None and is_projected:
            # Read the file like the table's readers: columns by field ID, in the table's current types.
            sources = file.projection(schema).sources
            tables, file_names = file.rows(schema), dict(zip(schema.names, sources, strict=True))
        else:
            batches = file.parquet.iter_batches(use_threads=False)
            tables, file_names = (pa.Table.from_batches([batch]) for batch in batches), {name: name for name in names}
        checks: list[_ColumnCheck | _PartitionCheck] = [_ColumnCheck(column) for column in expected.columns]
        if expected.partition is not None:
            checks.append(_partition_check(expected.partition, file.schema, schema if is_projected else None))
        values = {name: 0 for name in file_names.values() if name is not None}
        read = 0
        for table in tables:
            read += table.num_rows
            for column, name in file_names.items():
                if name is not None:
                    values[name] += table.num_rows - table.column(column).null_count
            for check in checks:
                check.add(table)
            if RAW_ID in table.column_names and pa.types.is_string(table.schema.field(RAW_ID).type):
                _add_units(table.column(RAW_ID), units)
    if read != file.row_count:
        raise UnsupportedFile(f"contains {read} readable rows, but its footer records {file.row_count}")
    return read, tuple(problem for check in checks for problem in check.problems()), values


class _ColumnCheck:
    """Compares the values of a column with the bounds and the null count in the table's manifest."""

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
    """Compares the partition values of a file's rows with the partition of the file."""

    def __init__(self, expected: ExpectedPartition) -> None:
        self._expected = expected
        self._columns = sorted({field.source[0] for field in expected.fields if field.transform != Void()})
        self._differing: set[str] = set()

    def add(self, table: pa.Table) -> None:
        expected = self._expected
        if not self._columns:
            return
        try:
            # A table without columns has no rows, so select at least one column.
            names = [name for name in self._columns if name in table.column_names] or table.column_names[:1]
            partitions = [values for values, _ in by_partition(table.select(names), expected.fields)]
        except ValueError:
            return  # Another engine wrote the column in another type.
        for values in partitions:
            actual = values if expected.folders is None else expected.folders.texts(values)
            for position, field in enumerate(expected.fields):
                pair = actual[position], expected.values[position]
                if field.transform != Void() and not self._is_same(position, *pair):
                    self._differing.add(field.name)

    def _is_same(self, position: int, actual: PartitionValue, expected: PartitionValue) -> bool:
        field, folders = self._expected.fields[position], self._expected.folders
        if folders is None:
            return _is_same_value(field.transform, actual, expected)
        key = folders.keys[position]
        if key.null in (actual, expected):
            return actual == expected or (actual == key.null and field.name in self._expected.nullable)
        return _is_same_text(key.source, str(actual), str(expected))

    def problems(self) -> Iterator[str]:
        place = "manifest" if self._expected.folders is None else "folder"
        for name in sorted(self._differing):
            yield f"contains rows whose value of partition key {name} differs from its {place}"


def _partition_check(expected: ExpectedPartition, file: pa.Schema, projected: pa.Schema | None) -> _PartitionCheck:
    """Return a check of the partition keys whose values can be computed from the rows of a file.

    `file` is the schema of the file. `projected` is the schema of the rows if columns are read by field ID, or None if
    they are read by name.
    """
    present = None if projected is None else field_ids(file)
    is_own = expected.folders is not None and RAW_ID in file.names
    fields = tuple(
        field
        if _has_source(field, projected or file, present) or (is_own and _is_null_if_missing(field))
        else replace(field, transform=Void())
        for field in expected.fields
    )
    return _PartitionCheck(replace(expected, fields=fields))


def _is_same_value(transform: Transform, actual: PartitionValue, expected: PartitionValue) -> bool:
    """Return whether the partition value of a row equals the value in the manifest.

    Any engine may have written the manifest, so this function accepts known deviations of other engines.
    """
    if isinstance(actual, int) and isinstance(expected, int):
        if isinstance(transform, Truncate):  # Truncating a 32-bit integer can overflow (see `partition_record`).
            return (actual - expected) % 2**32 == 0
        if isinstance(transform, Since1970):  # Earlier versions of Iceberg rounded times before 1970 up.
            return actual == expected or actual + 1 == expected <= 0
    is_nan = isinstance(actual, float) and isinstance(expected, float) and actual != actual and expected != expected
    return actual == expected or is_nan


def _is_same_text(source: ColumnType, actual: str, expected: str) -> bool:
    """Return whether two strings represent the same value of type `source`.

    The string of a number changes when its column is widened.
    """
    if actual == expected:
        return True
    try:
        if isinstance(source, Float32 | Float64):
            with np.errstate(over="ignore"):
                return bool(np.float32(actual) == np.float32(expected))
        return isinstance(source, Decimal) and DecimalValue(actual) == DecimalValue(expected)
    except (ValueError, ArithmeticError):
        return False


def _is_null_if_missing(field: PartitionField) -> bool:
    """Return whether a row that the connector wrote to a Hive table has a null key if the row lacks the source column.

    Returns False for a part of a date, because another column may provide the date (see
    `PartitionScheme.partitioning`).
    """
    return not isinstance(field.transform, CalendarPart)


def _has_source(field: PartitionField, schema: Any, present: Set[int] | None) -> bool:
    """Return whether a file contains the source column of a partition field.

    `schema` is the schema of the rows. If columns are read by field ID, `present` contains the field IDs in the file,
    because readers take the values of a missing column from elsewhere (Iceberg spec: Column Projection). If columns are
    read by name, `present` is None.
    """
    for name in field.source:
        index = schema.get_field_index(name) if isinstance(schema, pa.Schema | pa.StructType) else -1
        if index < 0:
            return False
        source = schema.field(index)
        schema = source.type
    return present is None or field_id(source) in present


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
    """Raise UnsupportedFile if the file contains none of the table's columns, or stores one of them in another type.

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
        return True  # The table's type is one that this connector never writes, so accept any type in the file.
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


# --- JSON Lines -------------------------------------------------------------------------------------------------------


_MAX_UNITS = 100
"""Maximum number of units to collect per file. In a file of another writer, each row may seem to have its own unit."""


def _verify_lines(expected: ExpectedFileStats, copy: Path, units: set[str]) -> _Reading:
    """Read the copy of a file with the connector's own reader and with DuckDB, and compare the numbers of lines.

    Also compares the partitions of the rows with the partition of the file. Adds the units of the rows to `units` (see
    `_start_of_sync`). Raises UnsupportedFile.
    """
    is_gzip = expected.source.uri.endswith(".gz")
    rows, longest, problems = _read_lines(copy, units, is_gzip=is_gzip)
    if problems:
        return _Reading(rows, problems)
    options = f"compression = '{'gzip' if is_gzip else 'none'}', maximum_object_size = {max(longest + 1, _LINE_LIMIT)}"
    lines = f"read_ndjson_objects($1, {options})"
    by_duckdb = _queried(copy, f"SELECT count(*) FROM {lines}", _first_row)
    if by_duckdb is None:
        return _Reading(rows)
    if by_duckdb != (rows,):
        problems = (f"contains {rows} lines according to the connector, but {by_duckdb[0]} according to DuckDB",)
    return _Reading(rows, (*problems, *_partition_problems(expected.partition, copy, lines)), by_duckdb=True)


def _read_lines(copy: Path, units: set[str], *, is_gzip: bool) -> tuple[int, int, tuple[str, ...]]:
    """Return the number of lines, the size of the longest line in bytes, and the problems as clauses about the file.

    Stops reading at the first problem. Adds the units of the rows to `units` (see `_start_of_sync`).
    """
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    number = longest = 0
    first_ids = dict[bytes, bytes]()
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
                id_ = bytes(decoder.decode(line).get(RAW_ID, b""))
                if len(first_ids) < _MAX_UNITS:
                    # A quote follows the ID's digits.
                    first_ids.setdefault(id_[: -COUNTED_DIGITS - 1], id_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return number, longest, (f"contains no valid JSON object in line {number}",)
    except (EOFError, OSError, zlib.error):
        return number, longest, (f"cannot be decompressed after line {number}",)
    _add_units(pa.array([id_.strip(b'"').decode(errors="replace") for id_ in first_ids.values()], pa.string()), units)
    return number, longest, ()


# --- The second reader ------------------------------------------------------------------------------------------------

_MEMORY = "1GB"
_LINES_PER_BATCH = 100_000
_Result = TypeVar("_Result")
_LINE_LIMIT = 16 * 1024 * 1024
"""DuckDB's default limit for the size of a line, in bytes (maximum_object_size). DuckDB allocates a multiple of the
limit, so the job raises the limit only for a file that contains a longer line."""


def _read_parquet_by_duckdb(copy: Path, columns: Sequence[str]) -> tuple[int, ...] | None:
    """Read a file with DuckDB. Return the row count, then the number of non-null values of each column.

    Returns None if DuckDB needs more memory than its limit. Raises UnsupportedFile.
    """
    quoted = ['"' + name.replace('"', '""') + '"' for name in columns]
    # To compute the hash, DuckDB must read every value. Without the hash, DuckDB could return counts from statistics.
    counts = "".join(f", count({name}), bit_xor(hash({name}))" for name in quoted)
    row = _queried(copy, f"SELECT count(*){counts} FROM read_parquet($1)", _first_row)
    return None if row is None else (row[0], *row[1::2])


def _partition_problems(expected: ExpectedPartition | None, copy: Path, lines: str) -> tuple[str, ...]:
    """Compare the partitions of the rows in a JSON Lines file with the partition of the file. Return the problems.

    `lines` is the SQL expression that reads the lines. Skips a line if it lacks the source column of a partition key,
    unless the key is then null (see `_is_null_if_missing`). Also skips a line if the value of a source column has a
    different type. Raises UnsupportedFile.
    """
    if expected is None or expected.folders is None:
        return ()
    fields, columns, conditions, zones = [], [], ["true"], dict[str, pa.DataType]()
    for position, (field, key) in enumerate(zip(expected.fields, expected.folders.keys, strict=True)):
        alias, type_ = f"k{position}", key.source
        transform = field.transform
        # A time without a zone may be in UTC or in local time.
        has_zone = isinstance(type_, Timestamp) and type_.zoned
        is_ambiguous = isinstance(transform, CalendarPart) and transform.zone != "UTC" and not has_zone
        if transform == Void() or is_ambiguous:
            fields.append(replace(field, transform=Void()))
            continue
        # JSON Pointer (RFC 6901) escapes `~` and `/`. SQL doubles quotes in literals.
        top, path = (
            "'" + "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names).replace("'", "''") + "'"
            for names in (field.source[:1], field.source)
        )
        text = f"json_extract_string(json, {path})"
        # TRY_CAST returns null for a text that is no value of the type. The conditions skip such rows.
        columns.append(f"TRY_CAST({text} AS {glue_type(widest(type_))}) AS {alias}")
        is_own = f"json_exists(json, '/{RAW_ID}')" if _is_null_if_missing(field) else "false"
        conditions.append(f"(json_exists(json, {top}) OR {is_own}) AND ({text} IS NULL OR {alias} IS NOT NULL)")
        if has_zone:
            zones[alias] = pa.timestamp("us", "UTC")
        fields.append(replace(field, source=(alias,)))
    if not columns:
        return ()
    check = _PartitionCheck(replace(expected, fields=tuple(fields)))

    def add(rows: DuckDBPyRelation) -> bool:
        for batch in rows.to_arrow_reader(_LINES_PER_BATCH):
            types = [pa.field(column.name, zones.get(column.name, column.type)) for column in batch.schema]
            check.add(pa.Table.from_batches([batch]).cast(pa.schema(types)))
        return True

    _queried(copy, f"SELECT {', '.join(columns)} FROM {lines} WHERE {' AND '.join(conditions)}", add)
    return tuple(check.problems())


def _first_row(rows: DuckDBPyRelation) -> tuple[int, ...]:
    [row] = rows.fetchall()
    return tuple(row)


def _queried(copy: Path, query: str, read: Callable[[DuckDBPyRelation], _Result]) -> _Result | None:
    """Run a query on a file. Return the result of `read` for the rows of the query.

    Returns None if DuckDB needs more memory than its limit. Raises UnsupportedFile if DuckDB cannot read the file.
    """
    import duckdb

    # Spilled data is deleted together with the copy.
    limits: dict[str, Any] = {"threads": 1, "memory_limit": _MEMORY, "temp_directory": str(copy.parent)}
    with duckdb.connect(config=limits) as engine:
        try:
            return read(engine.sql(query, params=[str(copy)]))
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
