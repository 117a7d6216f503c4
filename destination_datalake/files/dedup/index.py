"""The index of winners: Parquet files that contain the latest pending row of each key, on a shared disk or in S3.

A row is pending until a merge combines it with the stored rows of the table. If a part of the index is small, no file
is stored: the driver sends the part with the tasks. An index also contains the bounds of its keys. A task skips a row
group of a stored file if the row group's statistics show that it contains no key within these bounds.
"""

from __future__ import annotations

import datetime
import math
import secrets
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from destination_datalake.aws.objects import Upload, get, rollback_on_error
from destination_datalake.files.dedup.tasks import UNKNOWN, IndexPart, KeyBounds, local_path
from destination_datalake.files.reading import bounds_of, column_chunk
from destination_datalake.files.sorting import spark_directory

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from destination_datalake.aws.access import AwsAccess

_INLINE_BYTES = 8 * 1024
"""Maximum size, in bytes, of a part of the index that the driver sends with each task. The limit is low because there
may be 10,000 tasks, one for each stored file."""

_MAX_BOUND_LENGTH = 256
"""Maximum length of a bound, in characters of a string or bytes of a binary value. An index does not contain longer
bounds, because the driver sends the bounds with each task."""

_RANGE_BYTES = 16 * 1024 * 1024


def write_index(
    connection: DuckDBPyConnection, key: Sequence[pa.DataType], scratch: Path, folder: str, access: AwsAccess
) -> IndexPart:
    """Write DuckDB's table `winners`, which must not be empty, to a Parquet file. Return the location of the file.

    If the file is small, returns its content instead, and leaves no file. `key` contains the types of the key columns.
    `folder` is the URI of the file's folder (see `WinnersTask.index_folder`). Writes to `scratch` before an upload to
    S3. Raises AWS errors and DuckDB's errors.
    """
    winners = connection.table("winners")
    bounds = tuple(_bounds(connection, f"key{number}", type_) for number, type_ in enumerate(key))
    # Another attempt at the same task may still be running, so each attempt uses its own file name.
    uri = f"{folder}/index-{secrets.token_hex(8)}.parquet"
    path = local_path(uri) or scratch / "index.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    with rollback_on_error(lambda: path.unlink(missing_ok=True)):
        winners.write_parquet(str(path))
    size, rows = path.stat().st_size, len(winners)
    if size <= _INLINE_BYTES:
        content = path.read_bytes()
        path.unlink()
        return IndexPart(rows, bounds, content=content)
    if local_path(uri) is None:
        upload = Upload(access.client("s3"), uri, deferred=False)
        with rollback_on_error(upload.abort), path.open("rb") as file:
            # In pieces, so that the file is never in memory as a whole.
            while piece := file.read(_RANGE_BYTES):
                upload.write(piece)
            upload.close()
    return IndexPart(rows, bounds, uri, size)


def _bounds(connection: DuckDBPyConnection, key: str, type_: pa.DataType) -> KeyBounds:
    # DuckDB sorts NaN above all numbers, so `max` would return NaN, and the bounds would exclude nothing.
    value, is_nan = (f"nullif({key}, 'NaN')", f"isnan({key})") if pa.types.is_floating(type_) else (key, "false")
    query = f"SELECT min({value}), max({value}), bool_or({key} IS NULL), bool_or({is_nan}) FROM winners"
    lowest, highest, has_null, has_nan = (column[0] for column in connection.sql(query).to_arrow_table().columns)
    # `bool_or` ignores nulls, and is null itself if all keys are null. `bool` turns this into False.
    return key_bounds(lowest, highest, type_, has_null=has_null.as_py(), has_nan=bool(has_nan.as_py()))


def key_bounds(
    lowest: Any, highest: Any, type_: pa.DataType, *, has_null: bool = False, has_nan: bool = False
) -> KeyBounds:
    """Return the bounds of a key column of type `type_`. `lowest` and `highest` are Arrow scalars.

    Both bounds are UNKNOWN if Python cannot represent one of them, or if one of them is longer than _MAX_BOUND_LENGTH.
    """
    try:
        # DuckDB returns texts as binary values (see `comparable`), but statistics contain the column's type.
        low, high = lowest.cast(type_).as_py(), highest.cast(type_).as_py()
    except (ValueError, OverflowError):  # A time that Python does not support, or a text that is not UTF-8.
        return KeyBounds(UNKNOWN, UNKNOWN, has_null, has_nan)
    if any(isinstance(bound, str | bytes) and len(bound) > _MAX_BOUND_LENGTH for bound in (low, high)):
        return KeyBounds(UNKNOWN, UNKNOWN, has_null, has_nan)
    return KeyBounds(low, high, has_null, has_nan)


def index_files(parts: Sequence[IndexPart], scratch: Path, access: AwsAccess) -> list[Path]:
    """Return the paths of local Parquet files that contain these parts of an index, one file per part.

    Each Python process downloads a part from S3 only once. If a part came with the task, writes its content to a file
    in `scratch`. Raises OSError and AWS errors.
    """
    return [_file(part, scratch / f"{number}.parquet", access) for number, part in enumerate(parts)]


def _file(part: IndexPart, path: Path, access: AwsAccess) -> Path:
    if part.content:
        path.write_bytes(part.content)
        return path
    local = local_path(part.uri)
    return _downloads.path(part, access) if local is None else local.resolve(strict=True)


class _Downloads:
    """The files of one index that this Python worker has downloaded from S3.

    When the worker needs a file of another index, it deletes the files of the previous one.
    """

    def __init__(self) -> None:
        self._folder = ""
        self._kept: tempfile.TemporaryDirectory[str] | None = None

    def path(self, part: IndexPart, access: AwsAccess) -> Path:
        folder, _, name = part.uri.rpartition("/")
        # Spark reuses Python workers for later merges. Keep the files of one index only, to bound the space on the
        # disk.
        if self._kept is None or self._folder != folder:
            if self._kept is not None:
                self._kept.cleanup()
            self._folder, self._kept = folder, tempfile.TemporaryDirectory(prefix="index-", dir=spark_directory())
        path = Path(self._kept.name, name)
        # File names contain a random token, so a file that exists has the right content.
        if not path.exists():
            with rollback_on_error(lambda: path.unlink(missing_ok=True)), path.open("wb") as file:
                for start in range(0, part.size, _RANGE_BYTES):
                    end = min(start + _RANGE_BYTES, part.size)
                    file.write(get(access.client("s3"), part.uri, start, end))
        return path


_downloads = _Downloads()


# --- Bounds and statistics --------------------------------------------------------------------------------------------

_COMPARABLE = (bool, int, float, str, bytes, Decimal, datetime.date, datetime.datetime)
"""The types of bounds that this module can compare. Python orders strings by code point, and Parquet's statistics order
them by their UTF-8 bytes. Both orders are the same."""


def may_have_keys(
    group: pq.RowGroupMetaData, columns: Sequence[str | None], bounds: Sequence[Sequence[KeyBounds]]
) -> bool:
    """Return whether a row group may contain a key that is in the index, according to the row group's statistics.

    `columns` contains the names of the key columns in the file. A name is None if the file lacks the column. The values
    of a missing column are null. `bounds` contains, for each part of the index, the bounds of each key column.
    """
    chunks = [None if column is None else column_chunk(group, column) for column in columns]
    known = [None if chunk is None else _Values(chunk) for chunk in chunks]
    # Parts have their own bounds, and one part is enough. Within a part, all key columns must be able to match.
    return any(
        all(
            part.has_null if values is None else values.may_overlap(part)
            for values, part in zip(known, key, strict=True)
        )
        for key in bounds
    )


class _Values:
    """What the statistics of a column chunk (a column in one row group) state about the values of the chunk."""

    def __init__(self, chunk: pq.ColumnChunkMetaData) -> None:
        statistics = chunk.statistics
        nulls = None if statistics is None else statistics.null_count  # None if unknown.
        self._has_null = nulls != 0
        # Unlike the number of values in the statistics, that of the chunk includes nulls.
        self._is_null = nulls == chunk.num_values
        self._is_floating = chunk.physical_type in ("FLOAT", "DOUBLE")
        self._range = bounds_of(chunk)

    def may_overlap(self, part: KeyBounds) -> bool:
        """Return whether the chunk may contain a value within the bounds `part` of the same column in the index.

        Null is within the bounds if the column contains null in this part of the index. The same applies to NaN.
        """
        # Writers omit NaN from minimum and maximum (Parquet format: Statistics), so these cannot exclude NaN.
        if (part.has_null and self._has_null) or (part.has_nan and self._is_floating):
            return True
        if self._is_null or part.lowest is None:
            return False
        # A bound that is UNKNOWN or None is not comparable, so it excludes nothing.
        if not are_comparable(*self._range, part.lowest, part.highest):
            return True
        lowest, highest = self._range
        return bool(lowest <= part.highest and part.lowest <= highest)


def are_comparable(*values: Any) -> bool:
    """Return whether the values can be ordered: all have the same type, and none is NaN.

    Old writers store NaN in statistics.
    """
    type_ = type(values[0])
    if type_ not in _COMPARABLE or any(type(value) is not type_ for value in values):
        return False
    if type_ is datetime.datetime:
        return len({value.tzinfo is None for value in values}) == 1
    return not (type_ is float and any(math.isnan(value) for value in values))
