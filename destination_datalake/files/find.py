"""The job that finds a table's rows by their ids: which lines of which archived units the table has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.address import S3Address
from destination_datalake.aws.backoff import retry_on
from destination_datalake.aws.objects import PIECE_BYTES, body_errors, inflated, whole_lines
from destination_datalake.files.dedup.tasks import RowSet, add_rows, row_sets
from destination_datalake.files.jobs import Failed, Problem, attempt, dealt
from destination_datalake.files.plan import COUNTED_DIGITS, SourceFile
from destination_datalake.files.reading import deleted_rows, opened, parquet_file

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

RAW_ID = "_airbyte_raw_id"

_ID_LENGTH = 36

_IN_JSON = re.compile(rb'"_airbyte_raw_id":"([0-9a-f-]{36})"')

_NIBBLES = np.full(256, 255, np.uint8)
"""The value of each hexadecimal digit, by its ASCII code; 255 for other characters."""
_NIBBLES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class FindTask:
    """The search for rows whose ids begin as one of `units` does: UUIDs without their last eight digits.

    `sources` are Parquet files or, by their names, of JSON lines. Rows that position deletes remove are not found.
    """

    sources: tuple[SourceFile, ...]
    units: tuple[str, ...]
    access: AwsAccess


@dataclass(frozen=True, slots=True)
class Found:
    """The lines whose rows were found, by the number of their unit in the task, and the number of all rows."""

    lines: Mapping[int, RowSet]
    rows: int = 0


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of a table: the numbers of the lines that they were made of, by unit, and the number of all rows."""

    lines: Mapping[str, BitMap]
    rows: int = 0

    @property
    def unknown(self) -> int:
        """The number of rows that were made of no line of the units, or of one that another row was made of."""
        return self.rows - sum(map(len, self.lines.values()))


FindResult = Found | Failed


def find(tasks: Iterable[FindTask]) -> Iterator[FindResult]:
    """Search each task's files."""
    for task in tasks:
        problem = Problem("Rows could not be looked for", "read files of", task.sources[0].uri, task.access)
        yield attempt(partial(_found, task), problem)


def find_tasks(
    sources: Sequence[SourceFile], units: Iterable[str], tasks: int, access: AwsAccess
) -> Sequence[FindTask]:
    """Return at most so many tasks that search all files."""
    in_order = tuple(sorted(units))
    return [FindTask(some, in_order, access) for some in dealt(sources, tasks)]


def total(results: Iterable[Found], units: Iterable[str]) -> TableRows:
    """Return the rows that all tasks have found of these units."""
    in_order, lines, rows = sorted(units), dict[str, BitMap](), 0
    for result in results:
        rows += result.rows
        for number, numbers in result.lines.items():
            unit = in_order[number]
            lines[unit] = lines.get(unit, BitMap()) | numbers.rows()
    return TableRows(lines, rows)


def _found(task: FindTask) -> Found:
    s3 = task.access.client("s3")
    units = pa.array(task.units, pa.string())
    lines: dict[int, BitMap] = {}
    rows = 0
    of_json = [source for source in task.sources if ".jsonl" in source.uri.rpartition("/")[2]]
    for source in of_json:
        in_file, count = retry_on(body_errors(), partial(_found_in_lines, source.uri, units, s3))
        rows += count
        for unit, numbers in in_file.items():
            lines[unit] = lines.get(unit, BitMap()) | numbers
    of_parquet = [source for source in task.sources if source not in of_json]
    for source, stored in zip(of_parquet, opened(of_parquet, s3), strict=True):
        file = parquet_file(stored)
        dead = deleted_rows(source, s3)
        rows += file.metadata.num_rows - (0 if dead is None else int(np.count_nonzero(dead)))
        first = 0
        if not task.units or RAW_ID not in file.schema_arrow.names:
            continue  # Another engine has written it, or rows are only counted.
        for batch in file.iter_batches(columns=[RAW_ID], use_threads=False):
            ids: Any = batch.column(0)
            if dead is not None:
                ids = ids.filter(pa.array(~dead[first : first + len(ids)]))
            first += batch.num_rows
            _add(ids, units, lines)
    return Found(row_sets(lines), rows)


def _found_in_lines(uri: str, units: pa.StringArray, s3: S3Client) -> tuple[Mapping[int, BitMap], int]:
    """Return what `Found` has of one file, read by one request: another file may take its place meanwhile."""
    address, lines, rows = S3Address.parse(uri), dict[int, BitMap](), 0
    with closing(s3.get_object(Bucket=address.bucket, Key=address.key)["Body"]) as body:
        pieces = body.iter_chunks(PIECE_BYTES)
        for some in whole_lines(inflated(pieces) if uri.endswith(".gz") else pieces):
            rows += some.count(b"\n")
            _add([match[1].decode() for match in _IN_JSON.finditer(some)], units, lines)
    return lines, rows


def _add(ids: Any, units: pa.StringArray, lines: dict[int, BitMap]) -> None:
    """Add the numbers of the lines that ids of the units have."""
    texts: Any = pa.array(ids, pa.string()) if isinstance(ids, list) else ids.cast(pa.string())
    unit_length = _ID_LENGTH - COUNTED_DIGITS
    texts = texts.filter(pc.equal(pc.binary_length(texts), pa.scalar(_ID_LENGTH)))
    numbers = pc.index_in(pc.utf8_slice_codeunits(texts, 0, unit_length), value_set=units)
    ours = texts.filter(numbers.is_valid())
    # All are of one length: the filter has put them one after the other.
    octets = np.frombuffer(ours.buffers()[2] or b"", np.uint8)[: len(ours) * _ID_LENGTH].reshape(-1, _ID_LENGTH)
    nibbles = _NIBBLES[octets[:, unit_length:]]
    of_unit = numbers.drop_null().to_numpy().astype(np.int32)
    canonical = (nibbles < 16).all(axis=1)
    places = np.arange(COUNTED_DIGITS - 1, -1, -1, dtype=np.int64) * 4
    positions = (nibbles[canonical].astype(np.int64) << places).sum(axis=1)
    add_rows(lines, of_unit[canonical], positions)
