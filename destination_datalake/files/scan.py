"""Two jobs on executors that search data files for rows: by row ID (for replays) or by a column's value (for erasures).

The jobs read only the searched column. They return line numbers or row positions, but never the rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from gzip import BadGzipFile
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import (
    PIECE_BYTES,
    S3Address,
    body_errors,
    inflated,
    is_missing,
    retry_on,
    whole_lines,
)
from destination_datalake.errors import ConfigError
from destination_datalake.files.dedup.tasks import RowSet, add_rows, row_sets
from destination_datalake.files.ids import NO_IDS, Ids
from destination_datalake.files.jobs import Failed, Problem, attempt, distribute
from destination_datalake.files.parquet import deleted_row, field_id, has_field_ids
from destination_datalake.files.plan import COUNTED_DIGITS, SourceFile
from destination_datalake.files.reading import (
    OpenedFile,
    Projection,
    StoredFile,
    UnsupportedFile,
    deleted_rows,
    field_ids,
    naming_file,
    open_files,
    parquet_errors,
    parquet_file,
)
from destination_datalake.records.search import ValueSet, matches_of
from destination_datalake.schema.names import RAW_ID

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from numpy.typing import NDArray

# --- Rows by ID -------------------------------------------------------------------------------------------------------

_ID_LENGTH = 36

_ID_IN_JSON = re.compile(b'"%b":"([0-9a-f-]{36})"' % RAW_ID.encode())

_NIBBLES = np.full(256, 255, np.uint8)
"""The value of each hexadecimal digit, indexed by the digit's ASCII code. Other characters have the value 255."""
_NIBBLES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class RowIdTask:
    """A task that searches Parquet and JSON Lines files for the rows of some units.

    A unit is the part of a batch that one task encodes. `units` contains the row IDs of the units, without the last
    eight digits, which are the number of a line in the unit. The extension of a file determines its format. The task
    skips rows that position deletes remove.
    """

    sources: tuple[SourceFile, ...]
    units: tuple[str, ...]
    access: AwsAccess


@dataclass(frozen=True, slots=True)
class RowIdMatches:
    """The rows that a `RowIdTask` found.

    `lines` maps each unit to the line numbers of its rows. `rows` is the number of all rows in the task's files,
    without deleted rows. `unknown` is the number of these rows that belong to none of the units.
    """

    lines: Mapping[str, RowSet]
    rows: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of a table that were found by row ID.

    `lines` maps each unit (one task's part of a batch) to the line numbers of its rows. `rows` is the number of all
    rows of the table, without deleted rows. `unknown` is the number of these rows that belong to none of the units.
    """

    lines: Mapping[str, BitMap]
    rows: int = 0
    unknown: int = 0

    @property
    def duplicates(self) -> int:
        """The number of rows of the units that have the same row ID as another row."""
        return self.rows - self.unknown - sum(map(len, self.lines.values()))


def find_by_row_id(tasks: Iterable[RowIdTask]) -> Iterator[RowIdMatches | Failed]:
    """Search the files of each task for the rows of its units. Yield one result per task.

    If a task fails, yields a Failed for this task and continues with the next one.
    """
    for task in tasks:
        yield attempt(partial(_rows_of_units, task), partial(_row_id_problem, task))


def _row_id_problem(task: RowIdTask, error: Exception) -> Problem:
    uri = task.sources[0].uri
    remedy = None
    if isinstance(error, UnsupportedFile):
        remedy = (
            f"Cannot search rows in {error.uri}: the file {error}. Restore the file from a copy, or remove it from the "
            "table."
        )
    return Problem(f"Cannot search rows in {uri} and the next files", "read", uri, task.access, remedy)


def row_id_tasks(
    sources: Sequence[SourceFile], units: Iterable[str], tasks: int, access: AwsAccess
) -> Sequence[RowIdTask]:
    """Return at most `tasks` tasks that together search all files of `sources` for rows of `units`."""
    sorted_units = tuple(sorted(units))
    return [RowIdTask(share, sorted_units, access) for share in distribute(sources, tasks)]


def merge_row_ids(results: Iterable[RowIdMatches]) -> TableRows:
    """Merge the results of all tasks."""
    lines, rows, unknown = dict[str, BitMap](), 0, 0
    for result in results:
        rows += result.rows
        unknown += result.unknown
        for unit, matches in result.lines.items():
            lines[unit] = lines.get(unit, BitMap()) | matches.rows()
    return TableRows(lines, rows, unknown)


def _rows_of_units(task: RowIdTask) -> RowIdMatches:
    s3 = task.access.client("s3")
    units = pa.array(task.units, pa.string())
    lines: dict[int, BitMap] = {}
    rows = found = 0
    json_files = [source for source in task.sources if ".jsonl" in source.uri.rpartition("/")[2]]
    for source in json_files:
        # A retry starts at the beginning of the file, so the function returns its result instead of changing `lines`.
        lines_of_file, count, matching = retry_on(body_errors(), partial(_json_rows_of_units, source.uri, units, s3))
        rows += count
        found += matching
        for unit, numbers in lines_of_file.items():
            lines[unit] = lines.get(unit, BitMap()) | numbers
    parquet_files = [source for source in task.sources if source not in json_files]
    for source, stored in zip(parquet_files, open_files(parquet_files, s3), strict=True):
        with naming_file(source.uri), parquet_errors():
            file = parquet_file(stored)
            dead = deleted_rows(source, s3)
            rows += file.metadata.num_rows - (0 if dead is None else int(np.count_nonzero(dead)))
            first = 0
            if not task.units or RAW_ID not in file.schema_arrow.names:
                continue  # Another engine wrote the file, or rows are only counted.
            for batch in file.iter_batches(columns=[RAW_ID], use_threads=False):
                ids: Any = batch.column(0)
                if dead is not None:
                    ids = ids.filter(pa.array(~dead[first : first + len(ids)]))
                first += batch.num_rows
                found += _add_lines(ids, units, lines)
    matches = {task.units[index]: matches for index, matches in row_sets(lines).items()}
    return RowIdMatches(matches, rows, rows - found)


def _json_rows_of_units(uri: str, units: pa.StringArray, s3: S3Client) -> tuple[Mapping[int, BitMap], int, int]:
    """Search a JSON Lines file.

    Return the line numbers of the matching rows by unit, the number of all rows, and the number of matching rows.

    Reads the file with a single request, because another object could replace the file between two requests. Raises
    ConfigError if the file cannot be read.
    """
    address, lines, rows, found = S3Address.parse(uri), dict[int, BitMap](), 0, 0
    with closing(s3.get_object(Bucket=address.bucket, Key=address.key)["Body"]) as body:
        pieces = body.iter_chunks(PIECE_BYTES)
        try:
            for text in whole_lines(inflated(pieces) if uri.endswith(".gz") else pieces):
                rows += text.count(b"\n")
                found += _add_lines([match[1].decode() for match in _ID_IN_JSON.finditer(text)], units, lines)
        except (EOFError, BadGzipFile) as error:
            raise ConfigError(f"Cannot read {uri}: {error}. Restore the file from a copy, or delete it.") from error
    return lines, rows, found


def _add_lines(ids: Any, units: pa.StringArray, lines: dict[int, BitMap]) -> int:
    """Find the row IDs that belong to one of the units, and add their line numbers to `lines`. Return their number.

    A row ID ends with its line number.
    """
    texts: Any = pa.array(ids, pa.string()) if isinstance(ids, list) else ids.cast(pa.string())
    unit_length = _ID_LENGTH - COUNTED_DIGITS
    # Other writers use other IDs. Below, all IDs must have the same length.
    texts = texts.filter(pc.equal(pc.binary_length(texts), pa.scalar(_ID_LENGTH)))
    # Without the line number, which differs in every row, an ID equals the ID of its unit.
    unit_indexes = pc.index_in(pc.utf8_slice_codeunits(texts, 0, unit_length), value_set=units)
    matching = texts.filter(unit_indexes.is_valid())
    # `filter` has created a contiguous array. Its data buffer is a matrix with a row of 36 characters per ID.
    characters = np.frombuffer(matching.buffers()[2] or b"", np.uint8)[: len(matching) * _ID_LENGTH]
    nibbles = _NIBBLES[characters.reshape(-1, _ID_LENGTH)[:, unit_length:]]
    is_canonical = (nibbles < 16).all(axis=1)
    shifts = np.arange(COUNTED_DIGITS - 1, -1, -1, dtype=np.int64) * 4
    numbers = (nibbles[is_canonical].astype(np.int64) << shifts).sum(axis=1)
    # `drop_null` leaves one entry for each row of `matching`.
    add_rows(lines, unit_indexes.drop_null().to_numpy().astype(np.int32)[is_canonical], numbers)
    return len(numbers)


# --- Rows by the value of a column ------------------------------------------------------------------------------------

_MAX_RAW_IDS = 10_000
"""Maximum number of row IDs per file that a task returns to the driver. This many IDs take 160 kB."""

_NO_FIELD_IDS = (
    "contains columns without field IDs. Another program wrote this file. Rewrite the table's files with that program "
    "(Spark: CALL system.rewrite_data_files with the option rewrite-all)"
)


@dataclass(frozen=True, slots=True)
class ColumnValueTask:
    """A task that searches Parquet files of one Iceberg table for rows that have one of the `ids` in a column.

    `column` is a top-level column of the table, with field IDs at every level. Each struct in it has a single field.
    `path` lists the names from this column to the innermost field, whose values are searched.
    """

    sources: tuple[SourceFile, ...]
    column: pa.Field[Any]
    path: tuple[str, ...]
    access: AwsAccess
    ids: Ids = NO_IDS


@dataclass(frozen=True, slots=True)
class FileMatches:
    """The matching rows of one file, including rows that position deletes have already removed.

    If no rewrite of the file without these rows is possible, `unsuitable` is the reason, as a clause about the file.
    Otherwise, it is None. `raw_ids` contains the row IDs of the matching rows, 16 bytes each. It is None if one of
    these rows has no valid ID, or if too many rows match.
    """

    rows: RowSet
    count: int
    unsuitable: str | None = None
    raw_ids: bytes | None = None


@dataclass(frozen=True, slots=True)
class ColumnMatches:
    """The files that contain matching rows, by URI.

    `missing` contains the files that do not exist, and `unreadable` those that are not valid Parquet. `searched` is the
    number of files whose values the tasks read. Statistics excluded the other files.
    """

    files: Mapping[str, FileMatches]
    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    searched: int = 0


def find_by_column_value(tasks: Iterable[ColumnValueTask]) -> Iterator[ColumnMatches | Failed]:
    """Search the files of each task for rows that contain one of the task's IDs. Yield one result per task.

    If a task fails, yields a Failed for this task and continues with the next one.
    """
    for task in tasks:
        uri = task.sources[0].uri
        problem = Problem(f"Cannot search rows to erase in {uri} and the next files", "read", uri, task.access)
        yield attempt(partial(_column_matches, task), problem)


def column_value_tasks(
    sources: Sequence[SourceFile], column: pa.Field[Any], path: tuple[str, ...], access: AwsAccess, tasks: int
) -> list[ColumnValueTask]:
    """Return at most `tasks` tasks that together search all files of `sources` for values of a column.

    The tasks contain no IDs yet: `ids.search` adds them.
    """
    # `distribute` deals the files out in turn, so files in the order of their sizes result in tasks of similar sizes.
    by_size = sorted(sources, key=lambda source: source.size, reverse=True)
    return [ColumnValueTask(share, column, path, access) for share in distribute(by_size, tasks)]


def merge_column_matches(results: Iterable[ColumnMatches]) -> ColumnMatches:
    """Merge the results of all tasks, which searched different files."""
    all_results = [*results]
    return ColumnMatches(
        {uri: rows for result in all_results for uri, rows in result.files.items()},
        tuple(uri for result in all_results for uri in result.missing),
        tuple(uri for result in all_results for uri in result.unreadable),
        sum(result.searched for result in all_results),
    )


def distinct_rows(raw_ids: Iterable[bytes | None]) -> int | None:
    """Return the number of distinct row IDs in several files, or None if the row IDs of a file are unknown.

    `raw_ids` contains, for each file, the value of `FileMatches.raw_ids`.
    """
    distinct = set[bytes]()
    for ids in raw_ids:
        if ids is None:
            return None
        distinct |= {ids[start : start + 16] for start in range(0, len(ids), 16)}
    return len(distinct)


def _column_matches(task: ColumnValueTask) -> ColumnMatches:
    s3, files, missing, unreadable, searched = task.access.client("s3"), dict[str, FileMatches](), [], [], 0
    for source in task.sources:
        try:
            file = OpenedFile(StoredFile(source, s3))
            path = _path_in_file(file, source, task)
            if path is None:
                continue
            matches, was_read = matching_rows(file, path, task.ids.type, task.ids)
        except s3.exceptions.ClientError as error:
            if not is_missing(error, s3, source.uri):
                raise
            missing.append(source.uri)
        except UnsupportedFile:
            unreadable.append(source.uri)
        else:
            searched += was_read
            if matches.any():
                # A file that contains only matching rows is deleted, not rewritten.
                is_suitable = has_field_ids(file.schema) or matches.all()
                rows = BitMap(np.flatnonzero(matches).astype(np.uint32))
                reason = None if is_suitable else _NO_FIELD_IDS
                files[source.uri] = FileMatches(RowSet.from_bitmap(rows), len(rows), reason, _raw_ids(file, rows))
    return ColumnMatches(files, tuple(missing), tuple(unreadable), searched)


def _path_in_file(file: OpenedFile, source: SourceFile, task: ColumnValueTask) -> Sequence[str] | None:
    """Return the path of the task's column as the file spells it, or None if the file lacks the column.

    In a position delete file, returns the path in the copies of deleted rows. In a file without field IDs, finds the
    column by its current name in the table (Iceberg spec: Name Mapping). Raises UnsupportedFile.
    """
    if (row := deleted_row(file.schema)) is None:
        return _path_in_schema(file.schema, source, task)
    path = _path_in_schema(pa.schema([*row.type]), source, task)
    return None if path is None else [row.name, *path]


def _path_in_schema(schema: pa.Schema, source: SourceFile, task: ColumnValueTask) -> Sequence[str] | None:
    if not has_field_ids(schema):
        if task.path[0] in schema.names:
            return task.path
        if field_ids([task.column]) & source.required_ids:
            raise UnsupportedFile("lacks the column of its partition")
        return None
    field, wanted = Projection(schema, pa.schema([task.column]), source.required_ids).fields[0], task.column
    if field is None:
        return None
    path = [field.name]
    while isinstance(wanted.type, pa.StructType):
        wanted = wanted.type.field(0)
        children = [*field.type] if isinstance(field.type, pa.StructType) else []
        field = next((child for child in children if field_id(child) == field_id(wanted)), None)
        if field is None:
            return None
        path.append(field.name)
    return path


def matching_rows(
    file: OpenedFile, path: Sequence[str], type_: pa.DataType, wanted: ValueSet
) -> tuple[NDArray[np.bool_], bool]:
    """Search a column of a file for the values in `wanted`.

    Return a mask of the matching rows, and whether any values were read.

    `path` is the path of the column as the file spells it. Values are cast to `type_`, the type of the column in the
    table. Row groups whose statistics exclude all wanted values are skipped. Raises UnsupportedFile and AWS errors.
    """
    matches, name = np.zeros(file.row_count, np.bool_), ".".join(path)
    groups = file.groups
    # Hashed IDs have no order, so statistics cannot exclude them.
    may_be_in: Callable[[Any, str], bool] | None = getattr(wanted, "may_be_in", None)
    columns = [file.parquet.schema.column(index).path for index in range(len(file.parquet.schema))]
    # Use statistics only if a single column has this dotted path. A field of a struct and a column with a dot in its
    # name can have the same one. (Bounds whose type differs from that of the IDs exclude nothing.)
    if may_be_in is not None and columns.count(name) == 1:
        groups = [group for group in groups if may_be_in(group.metadata, name)]
    for first, values in file.values(path, groups):
        try:
            # Files of other writers may have nanoseconds. A safe cast would fail on them.
            cast = values.cast(type_, safe=not pa.types.is_timestamp(values.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UnsupportedFile(f"stores column {name} as {values.type}, but the table's type is {type_}") from error
        matches[first : first + len(values)] = matches_of(cast, wanted)
    return matches, bool(groups)


def _raw_ids(file: OpenedFile, rows: BitMap) -> bytes | None:
    """Return the row IDs of these rows, 16 bytes each, or None if there are too many rows or a row has no valid ID."""
    if len(rows) > _MAX_RAW_IDS or RAW_ID not in file.schema.names:
        return None
    ids = bytearray()
    groups = [group for group in file.groups if rows.range_cardinality(group.first, group.first + group.rows)]
    try:
        for first, values in file.values([RAW_ID], groups):
            positions = [row - first for row in rows & BitMap(range(first, first + len(values)))]
            texts: Any = values.take(pa.array(positions, pa.int64())).to_pylist()
            ids += b"".join(UUID(text).bytes for text in texts)
    except (UnsupportedFile, ValueError, TypeError, AttributeError):
        return None  # The raw ID was written by another writer, or is null.
    return bytes(ids)
