"""The job that finds the rows of a table's Parquet files that have one of a set of ids in a column.

Only that column is read, and of it only the row groups that may have an id by their statistics. Rows that position
deletes hide are found too: they are in the file all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import is_missing
from destination_datalake.files.dedup.tasks import RowSet
from destination_datalake.files.find import RAW_ID
from destination_datalake.files.ids import NO_IDS, Ids, one_array
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.parquet import field_id, has_field_ids
from destination_datalake.files.plan import SourceFile
from destination_datalake.files.projection import Unsuitable, readable
from destination_datalake.files.reading import OpenedFile, StoredFile, extents, opened, parquet_file, with_following

UNKNOWN_ROWS = -1
"""The number of rows of a file that no table's metadata names."""

_MOST_RAW_IDS = 10_000
"""Raw ids of so many rows of a file are sent to the driver: 160 kB."""

_FOREIGN = (
    "has columns without field ids. Another program has written it: let that program write the table's files again "
    "(Spark: CALL system.rewrite_data_files with the option rewrite-all)"
)


@dataclass(frozen=True, slots=True)
class LocateTask:
    """The search in some files of one table.

    `column` is the table's top-level column, with field ids at every level and, within structs, of one field each:
    `path` are the names down to the one that has ids.
    """

    sources: tuple[SourceFile, ...]
    column: pa.Field[Any]
    path: tuple[str, ...]
    access: AwsAccess
    ids: Ids = NO_IDS


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """The rows of one file that have an id. `rows` counts all of the file.

    `unsuitable` says, as a clause about it, why the file could not be written again without these rows. `raw_ids` are
    the rows' raw ids, 16 bytes each; None if a row has none, or there are too many rows.
    """

    found: RowSet
    count: int
    rows: int
    unsuitable: str | None = None
    raw_ids: bytes | None = None


@dataclass(frozen=True, slots=True)
class Located:
    """The files that have rows of the ids, by URI; `missing` are gone; `unreadable` are no Parquet files.

    `searched` is how many files had to be read beyond their footer.
    """

    rows: Mapping[str, LocatedRows]
    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    searched: int = 0


def locate(tasks: Iterable[LocateTask]) -> Iterator[Located | Failed]:
    """Search each task's files."""
    for task in tasks:
        problem = Problem("Rows to erase could not be looked for", "read files of", task.sources[0].uri, task.access)
        yield attempt(partial(_located, task), problem)


def locate_tasks(
    sources: Sequence[SourceFile],
    column: pa.Field[Any],
    path: tuple[str, ...],
    access: AwsAccess,
    tasks: int,
) -> list[LocateTask]:
    """Return at most so many tasks that search all files, of about the same size each, without ids (`with_ids`)."""
    dealt: list[list[SourceFile]] = [[] for _ in range(max(1, tasks))]
    sizes = [0] * len(dealt)
    for source in sorted(sources, key=lambda each: each.size, reverse=True):
        least = sizes.index(min(sizes))
        dealt[least].append(source)
        sizes[least] += source.size
    return [LocateTask(tuple(some), column, path, access) for some in dealt if some]


def united(results: Iterable[Located]) -> Located:
    """Return what all tasks have found."""
    all_ = [*results]
    return Located(
        {uri: rows for each in all_ for uri, rows in each.rows.items()},
        tuple(uri for each in all_ for uri in each.missing),
        tuple(uri for each in all_ for uri in each.unreadable),
        sum(each.searched for each in all_),
    )


def _located(task: LocateTask) -> Located:
    s3, rows, missing, unreadable, searched = task.access.client("s3"), dict[str, LocatedRows](), [], [], 0
    for source in task.sources:
        try:
            [stored] = opened([source], s3)
        except s3.exceptions.ClientError as error:
            if not is_missing(error, s3, source.uri):
                raise
            missing.append(source.uri)
            continue
        search = _Search(stored, task)
        try:
            found = search.run()
        except Unsuitable:
            unreadable.append(source.uri)
            continue
        searched += search.has_read
        if found is not None:
            rows[source.uri] = found
    return Located(rows, tuple(missing), tuple(unreadable), searched)


class _Search:
    """The search in one file."""

    def __init__(self, stored: StoredFile, task: LocateTask) -> None:
        self._stored = stored
        self._task = task
        self._ids = task.ids
        self.has_read = False

    def run(self) -> LocatedRows | None:
        """Return the rows that were found; None if there are none. Raises Unsuitable for what is no Parquet file."""
        with readable():
            file = parquet_file(self._stored)
        rows = file.metadata.num_rows
        if self._stored.source.rows == UNKNOWN_ROWS:
            self._stored.source = replace(self._stored.source, rows=rows)
        if has_field_ids(file.schema_arrow):
            found, unsuitable = self._by_field_id(), None
        else:
            found, unsuitable = self._by_name(file), _FOREIGN
        if not len(found):
            return None
        if len(found) == rows:
            unsuitable = None  # Nothing of it has to be written again.
        return LocatedRows(RowSet.of(found), len(found), rows, unsuitable, _raw_ids(file, self._stored, found))

    def _by_field_id(self) -> BitMap:
        file = OpenedFile(self._stored)
        project = file.projection(pa.schema([self._task.column]))
        in_file = project.fields[0]
        leaf = None if in_file is None else _leaf(in_file, self._task.column)
        found = BitMap()
        groups = [group for group in file.groups if self._ids.may_be_in(group.metadata, leaf)]
        for group, following in with_following(groups):
            self.has_read = True
            first = group.first
            for table in file.read(group, project, following):
                self._add(found, _values(table.column(0), self._task.path), first)
                first += table.num_rows
        return found

    def _by_name(self, file: pq.ParquetFile) -> BitMap:
        """Search by the names that the columns have now, as engines do that map names (Iceberg spec: Name Mapping)."""
        found, first, path = BitMap(), 0, self._task.path
        if path[0] not in file.schema_arrow.names:
            return found
        self.has_read = True
        with readable():
            for batch in file.iter_batches(columns=[path[0]], use_threads=False):
                values = _values(batch.column(0), path)
                try:
                    typed = values.cast(self._ids.type)
                except pa.ArrowException:
                    raise Unsuitable(f"has column {path[0]} as {values.type}") from None
                self._add(found, typed, first)
                first += batch.num_rows
        return found

    def _add(self, found: BitMap, values: Any, first: int) -> None:
        hits = np.flatnonzero(self._ids.contains(values))
        if hits.size:
            found |= BitMap((hits + first).astype(np.uint32))


def _raw_ids(file: pq.ParquetFile, stored: StoredFile, found: BitMap) -> bytes | None:
    """Return the raw ids of the rows that were found, as `LocatedRows` has them."""
    if len(found) > _MOST_RAW_IDS or RAW_ID not in file.schema_arrow.names:
        return None
    ids, first = bytearray(), 0
    try:
        for group in range(file.num_row_groups):
            after = first + file.metadata.row_group(group).num_rows
            if not found.range_cardinality(first, after):
                first = after
                continue
            stored.hold(extents(file.metadata.row_group(group), [RAW_ID]))
            with readable():
                for batch in file.iter_batches(row_groups=[group], columns=[RAW_ID], use_threads=False):
                    rows = [row - first for row in found & BitMap(range(first, first + batch.num_rows))]
                    texts: Any = batch.column(0).take(pa.array(rows, pa.int64())).to_pylist()
                    ids += b"".join(UUID(text).bytes for text in texts)
                    first += batch.num_rows
    except (Unsuitable, ValueError, TypeError, AttributeError):
        return None  # A row of another writer, or a null.
    return bytes(ids)


def distinct_rows(raw_ids: Iterable[bytes | None]) -> int | None:
    """Return how many rows the raw ids of several files are of; None if those of a file are not known."""
    of_files = [*raw_ids]
    known = [each for each in of_files if each is not None]
    if len(known) < len(of_files):
        return None
    return len({each[start : start + 16] for each in known for start in range(0, len(each), 16)})


def _values(column: Any, path: tuple[str, ...]) -> Any:
    """Return the values of a field within a column; null where a struct around it is."""
    column = one_array(column)
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _leaf(in_file: pa.Field[Any], wanted: pa.Field[Any]) -> str | None:
    """Return the path, in a file, of the one field within a column that is wanted; None if the file lacks it."""
    path = [in_file.name]
    while isinstance(wanted.type, pa.StructType):
        wanted = wanted.type.field(0)
        if not isinstance(in_file.type, pa.StructType):
            return None
        children = [in_file.type.field(number) for number in range(in_file.type.num_fields)]
        ids = [field_id(child) for child in children]
        if (wanted_id := field_id(wanted)) not in ids:
            return None
        in_file = children[ids.index(wanted_id)]
        path.append(in_file.name)
    return ".".join(path)
