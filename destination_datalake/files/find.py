"""The job that finds rows of units by their ids, to tell which of them a table has."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from destination_datalake.archive.objects import COUNTED_DIGITS
from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import get, gunzipped
from destination_datalake.files.jobs import Failed, Problem, attempt, dealt
from destination_datalake.files.plan import SourceFile
from destination_datalake.files.reading import opened, parquet_file

RAW_ID = "_airbyte_raw_id"

_IN_JSON = re.compile(rb'"_airbyte_raw_id":"([0-9a-f-]{36})"')


@dataclass(frozen=True, slots=True)
class FindTask:
    """The search for rows whose ids begin as one of `units` does: UUIDs without their last eight digits.

    `sources` are Parquet files or, by their names, of JSON lines. Deleted rows are found as well.
    """

    sources: tuple[SourceFile, ...]
    units: frozenset[str]
    access: AwsAccess


@dataclass(frozen=True, slots=True)
class Found:
    """The numbers of the lines whose rows were found, ascending, by unit, and the number of all rows of the files."""

    lines: Mapping[str, tuple[int, ...]]
    rows: int = 0


FindResult = Found | Failed


def find(tasks: Iterable[FindTask]) -> Iterator[FindResult]:
    """Search each task's files."""
    for task in tasks:
        problem = Problem("Rows could not be looked for", "read files of", task.sources[0].uri, task.access)
        yield attempt(partial(_found, task), problem)


def find_tasks(
    sources: Sequence[SourceFile], units: frozenset[str], tasks: int, access: AwsAccess
) -> Sequence[FindTask]:
    """Return at most so many tasks that search all files."""
    return [FindTask(some, units, access) for some in dealt(sources, tasks)]


def total(results: Iterable[Found]) -> Mapping[str, Sequence[int]]:
    """Return what all tasks have found."""
    lines: dict[str, set[int]] = defaultdict(set)
    for result in results:
        for unit, found in result.lines.items():
            lines[unit].update(found)
    return {unit: sorted(found) for unit, found in lines.items()}


def _found(task: FindTask) -> Found:
    s3 = task.access.client("s3")
    lines: dict[str, set[int]] = defaultdict(set)
    rows = 0
    of_json = [source for source in task.sources if ".jsonl" in source.uri.rpartition("/")[2]]
    for source in of_json:
        content = get(s3, source.uri)
        members = gunzipped([content]) if source.uri.endswith(".gz") else iter((content,))
        for member in members:
            rows += member.count(b"\n")
            for match in _IN_JSON.finditer(member):
                _note(match[1].decode(), task.units, lines)
    for stored in opened([source for source in task.sources if source not in of_json], s3):
        file = parquet_file(stored)
        rows += file.metadata.num_rows
        for ids in _ids_in_parquet(file, task.units):
            for id_ in ids:
                _note(id_, task.units, lines)
    return Found({unit: tuple(sorted(found)) for unit, found in lines.items()}, rows)


def _ids_in_parquet(file: pq.ParquetFile, units: frozenset[str]) -> Iterator[list[str]]:
    if not units or RAW_ID not in file.schema_arrow.names:
        return  # Another engine has written it, or rows are only counted.
    for batch in file.iter_batches(columns=[RAW_ID], use_threads=False):
        ids: Any = batch.column(0)
        kept = pc.is_in(pc.utf8_slice_codeunits(ids, 0, 36 - COUNTED_DIGITS), pa.array([*units], ids.type))
        yield ids.filter(kept).to_pylist()


def _note(id_: str, units: frozenset[str], lines: dict[str, set[int]]) -> None:
    unit = id_[:-COUNTED_DIGITS]
    if unit in units:
        lines[unit].add(int(id_[-COUNTED_DIGITS:], 16))
