"""The job that reads data files to their last value, by two readers, and compares them with what their table says.

One is the connector's own, which reads from S3. The other is DuckDB's, which shares no code with it, on a copy on the
executor's disk, one file at a time. Texts name columns and numbers, no values.
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
from destination_datalake.aws.address import S3Address
from destination_datalake.aws.objects import is_missing
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.parquet import has_field_ids
from destination_datalake.files.plan import UNKNOWN, Claim, ColumnClaim, FileVerified
from destination_datalake.files.projection import Unsuitable, readable
from destination_datalake.files.reading import OpenedFile, StoredFile, parquet_file
from destination_datalake.partitioning.paths import PartitionKey
from destination_datalake.partitioning.transforms import transformed
from destination_datalake.schema.types import Boolean, Date, Int32, Int64, String, Timestamp

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """Files to read."""

    claims: tuple[Claim, ...]
    access: AwsAccess


def verify(tasks: Iterable[VerifyTask]) -> Iterator[FileVerified | Failed]:
    """Read each task's files."""
    for task in tasks:
        for claim in task.claims:
            problem = Problem("A file could not be verified", "read files of", claim.source.uri, task.access)
            yield attempt(partial(_verified, claim, task.access), problem)


def _verified(claim: Claim, access: AwsAccess) -> FileVerified:
    s3, source = access.client("s3"), claim.source
    found = FileVerified(source.uri, claim.group, 0, source.size)
    size = _size(s3, source.uri)
    if size is None:
        return replace(found, gone=True) if claim.listed else replace(found, problems=("does not exist",))
    if size != source.size:
        return replace(found, problems=(f"has {size} bytes, and {source.size} by the table's metadata",))
    try:
        with tempfile.TemporaryDirectory(prefix="verify-") as folder:
            copy = Path(folder, "copy")
            address = S3Address.parse(source.uri)
            s3.download_file(address.bucket, address.key, str(copy))
            if claim.kind == "parquet":
                _require_readable_footer(copy)
                rows, problems, values = _read_parquet(claim, s3)
                columns = [*values]
                other = _by_duckdb(copy, columns)
                if other is not None and other != (rows, *values.values()):
                    problems = (*problems, _difference((rows, *values.values()), other, columns))
            elif claim.kind == "jsonl":
                is_gzip = source.uri.endswith(".gz")
                rows, longest, problems = _read_lines(copy, is_gzip=is_gzip)
                other = _lines_by_duckdb(copy, longest, is_gzip=is_gzip) if not problems else None
                if other is not None and other != (rows,):
                    problems = (f"has {rows} lines as the connector reads it, and {other[0]} as DuckDB does",)
            else:
                rows, problems, other = max(source.rows, 0), (), None
    except Unsuitable as error:
        return replace(found, problems=(str(error),))
    except ClientError as error:
        if claim.listed and is_missing(error, s3, source.uri):
            return replace(found, gone=True)
        raise
    return replace(found, rows=rows, problems=problems, by_duckdb=other is not None)


def _size(s3: S3Client, uri: str) -> int | None:
    """Return an object's bytes; None if there is none."""
    address = S3Address.parse(uri)
    try:
        return s3.head_object(Bucket=address.bucket, Key=address.key)["ContentLength"]
    except ClientError as error:
        if is_missing(error, s3, uri):
            return None
        raise


# --- Parquet ----------------------------------------------------------------------------------------------------------


def _require_readable_footer(copy: Path) -> None:
    """Raise Unsuitable if Arrow cannot read the metadata of a column; `RowGroupMetaData.column` aborts the process."""
    with readable(), pq.ParquetFile(copy) as file:
        for group in range(file.num_row_groups):
            next(file.iter_batches(1, [group], use_threads=False), None)


def _read_parquet(claim: Claim, s3: S3Client) -> tuple[int, tuple[str, ...], dict[str, int]]:
    """Return the rows, what does not agree, and how many values columns have that are not null, by their names.

    Raises Unsuitable, and errors of AWS.
    """
    with StoredFile(claim.source, s3) as stored, readable():
        file = parquet_file(stored)
        names = file.schema_arrow.names
        rows, own = file.metadata.num_rows, file.schema_arrow
        if claim.source.rows not in (UNKNOWN, rows):
            raise Unsuitable(f"has {rows} rows, and {claim.source.rows} by the table's metadata")
        if claim.schema is not None and not has_field_ids(claim.schema):
            _require_columns(own, claim.schema)
        if claim.schema is not None and has_field_ids(claim.schema) and has_field_ids(own):
            # As the table's readers do: columns by field id, of the types that the table has now.
            opened = OpenedFile(StoredFile(claim.source, s3))
            sources = opened.projection(claim.schema).sources
            tables, of_file = opened.rows(claim.schema), dict(zip(claim.schema.names, sources, strict=True))
        else:
            batches = file.iter_batches(use_threads=False)
            tables, of_file = (pa.Table.from_batches([batch]) for batch in batches), {name: name for name in names}
        checks: list[_ColumnCheck | _PartitionCheck] = [_ColumnCheck(each) for each in claim.columns]
        checks += [_PartitionCheck(*each) for each in claim.partition if _PartitionCheck.is_possible(each[0], own)]
        values = {name: 0 for name in of_file.values() if name is not None}
        read = 0
        for table in tables:
            read += table.num_rows
            for column, name in of_file.items():
                if name is not None:
                    values[name] += table.num_rows - table.column(column).null_count
            for check in checks:
                check.add(table)
    if read != rows:
        raise Unsuitable(f"has {rows} rows by its footer, of which {read} can be read")
    return rows, tuple(problem for check in checks for problem in check.problems()), values


class _ColumnCheck:
    """Compares a column's values with what the table says of them."""

    def __init__(self, claim: ColumnClaim) -> None:
        self._claim = claim
        self._nulls = 0
        self._outside = False

    def add(self, table: pa.Table) -> None:
        values: Any = table.column(self._claim.column)
        self._nulls += values.null_count
        values = _comparable(values)
        bounds: Any = pc.min_max(values).as_py()
        lower, upper = self._claim.lower, self._claim.upper
        if bounds["min"] is not None:
            self._outside |= (lower is not None and bounds["min"] < lower) or (
                upper is not None and bounds["max"] > upper
            )

    def problems(self) -> Iterator[str]:
        if self._outside:
            yield f"has values in column {self._claim.column} beyond the bounds in its manifest"
        if self._claim.nulls not in (None, self._nulls):
            yield f"has {self._nulls} nulls in column {self._claim.column}, and {self._claim.nulls} by its manifest"


class _PartitionCheck:
    """Compares a column's values with the partition that the file is in. Nulls may be in any, of a retyped column."""

    def __init__(self, key: PartitionKey, text: str) -> None:
        self._key = key
        self._text = text
        self._differs = False

    @staticmethod
    def is_possible(key: PartitionKey, own: pa.Schema) -> bool:
        """Whether a file has the column, of a type whose values have one text whether or not they were promoted."""
        exact = isinstance(key.source, Int32 | Int64 | String | Boolean | Date | Timestamp)
        return exact and len(key.field.source) == 1 and key.field.source[0] in own.names

    def add(self, table: pa.Table) -> None:
        if self._text == self._key.null:
            return  # Also of values that no folder can have.
        values = table.column(self._key.field.source[0]).drop_null().combine_chunks()
        try:
            found = transformed(values, self._key.field.transform).unique().to_pylist()
        except ValueError:
            return  # Another engine has written the column as another type.
        self._differs |= any(self._key.text(value) != self._text for value in found)

    def problems(self) -> Iterator[str]:
        if self._differs:
            yield f"has rows of another partition than {self._key.name} of its folder"


def _comparable(values: Any) -> Any:
    """Return values as their bounds are: see `ColumnClaim`."""
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


def _require_columns(own: pa.Schema, wanted: pa.Schema) -> None:
    """Raise Unsuitable if a file has a column of another type, or none of the columns; names have no case."""
    fields = {field.name.lower(): field for field in own}
    shared = [(fields[field.name.lower()], field) for field in wanted if field.name.lower() in fields]
    if not shared:
        raise Unsuitable("has none of the table's columns")
    for mine, theirs in shared:
        if not _is_same(mine.type, theirs.type):
            raise Unsuitable(f"has column {mine.name} as {mine.type}, which is {theirs.type} in the table")


def _is_same(one: Any, two: Any) -> bool:
    """Whether engines read values of two types alike: whatever the names and nullability of what is inside."""
    types = pa.types
    if types.is_null(two):
        return True  # Of a type that this connector never writes: anything.
    if types.is_struct(one) and types.is_struct(two):
        inside = {field.name.lower(): field.type for field in two}
        return all(_is_same(field.type, inside.get(field.name.lower(), field.type)) for field in one)
    if types.is_list(one) and types.is_list(two):
        return _is_same(one.value_type, two.value_type)
    if types.is_timestamp(one) and types.is_timestamp(two):
        return True
    if types.is_dictionary(one):
        return _is_same(one.value_type, two)
    return bool(one.equals(two))


# --- JSON lines -------------------------------------------------------------------------------------------------------


def _read_lines(copy: Path, *, is_gzip: bool) -> tuple[int, int, tuple[str, ...]]:
    """Return the lines, the bytes of the longest, and what is wrong."""
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    number = longest = 0
    try:
        with gzip.open(copy) if is_gzip else copy.open("rb") as lines:
            for line in lines:
                number, longest = number + 1, max(longest, len(line))
                decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return number, longest, (f"has no JSON object in line {number}",)
    except (EOFError, OSError, zlib.error):
        return number, longest, (f"cannot be decompressed after line {number}",)
    return number, longest, ()


# --- the second reader ------------------------------------------------------------------------------------------------

_MEMORY = "1GB"
_LONGEST_LINE = 16 * 1024 * 1024
"""Of longer ones DuckDB is told beforehand, for it allocates several times as much."""


def _by_duckdb(copy: Path, columns: Sequence[str]) -> tuple[int, ...] | None:
    """Return the rows and how many values of each column are not null; see `_first_row`."""
    quoted = ['"' + name.replace('"', '""') + '"' for name in columns]
    # The hash makes it read each value, not only the statistics.
    counts = "".join(f", count({name}), bit_xor(hash({name}))" for name in quoted)
    row = _first_row(copy, f"SELECT count(*){counts} FROM read_parquet(?)")
    return None if row is None else (row[0], *row[1::2])


def _lines_by_duckdb(copy: Path, longest: int, *, is_gzip: bool) -> tuple[int, ...] | None:
    """Return the number of lines, which are objects in JSON; see `_first_row`."""
    options = (
        f"compression = '{'gzip' if is_gzip else 'none'}', maximum_object_size = {max(longest + 1, _LONGEST_LINE)}"
    )
    return _first_row(copy, f"SELECT count(*) FROM read_ndjson_objects(?, {options})")


def _first_row(copy: Path, query: str) -> tuple[int, ...] | None:
    """Return the first row of a query on a file; None if it needs more memory. Raises Unsuitable where it fails."""
    import duckdb

    limits: dict[str, Any] = {"threads": 1, "memory_limit": _MEMORY, "temp_directory": str(copy.parent)}
    with duckdb.connect(config=limits) as engine:
        try:
            return engine.execute(query, [str(copy)]).fetchone()
        except duckdb.OutOfMemoryException:
            return None
        except duckdb.Error as error:
            raise Unsuitable(f"cannot be read by DuckDB ({type(error).__name__})") from error


def _difference(own: Sequence[int], other: Sequence[int], columns: Sequence[str]) -> str:
    name, one, two = next(
        (name, one, two) for name, one, two in zip(["", *columns], own, other, strict=True) if one != two
    )
    what = f"values in column {name}" if name else "rows"
    return f"has {one} {what} as the connector reads it, and {two} as DuckDB does"
