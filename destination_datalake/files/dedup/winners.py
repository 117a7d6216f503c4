"""The first job of a merge, as it runs on executors: the latest row of each key among pending files, and their index.

Keys that one task can hold need no shuffle (`winners`). Others are divided by their hashes: `produce_versions` reads
the files, and `consume_versions` has all rows of a part of the keys.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap

from destination_datalake.aws.access import AwsAccess
from destination_datalake.files.dedup.index import bounds_of, index_table, write_index
from destination_datalake.files.dedup.keys import canonical_keys, key_hashes, one_array, part_numbers
from destination_datalake.files.dedup.order import latest
from destination_datalake.files.dedup.remove import removed_of
from destination_datalake.files.dedup.tasks import (
    IndexPart,
    Removed,
    RowSet,
    Versions,
    Winners,
    WinnersTask,
    add_rows,
    row_sets,
    united,
)
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.parquet import field_id
from destination_datalake.files.projection import Unsuitable, naming
from destination_datalake.files.reading import OpenedFile, StoredFile, deleted_rows, opened

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

READ_BYTES = 16 * 1024 * 1024
"""Arrow bytes of rows that are read at a time."""

_REDUCED_BYTES = 64 * 1024 * 1024

_SENT_BYTES = 8 * 1024 * 1024
"""Arrow bytes of rows that are divided among parts at a time: each part is sent its share of them."""

_PAYLOAD_BYTES = 2 * 1024 * 1024


def winners(tasks: Iterable[WinnersTask]) -> Iterator[Winners | Failed]:
    """Find the winners of every task, whose files have all rows of their keys; yield a result for each."""
    for task in tasks:
        yield attempt(partial(_winners, task), partial(_problem, task))


def _winners(task: WinnersTask) -> Winners:
    candidates = Candidates()
    files = _opened(task)
    files = [*files] if task.removals else files
    for table in read_versions(task, files):
        candidates.add(table)
    found = _found(candidates, 0, task)
    return replace(found, removed=tuple(_removed(task, found, files)))


def _opened(task: WinnersTask) -> Iterable[StoredFile]:
    return opened(task.files, task.access.client("s3"))


def _removed(task: WinnersTask, found: Winners, files: Iterable[StoredFile]) -> Iterator[Removed]:
    """Do the task's removals. One that fails is left to a job of its own, which says why."""
    if not task.removals:
        return
    dead = united((found.losers, found.tombstones))
    numbered = enumerate(files, task.first_file)
    losing = {file.source.uri: (file, dead[number]) for number, file in numbered if number in dead}
    for removal in task.removals:
        chosen = tuple(
            replace(each, dead=losing[each.source.uri][1]) for each in removal.files if each.source.uri in losing
        )
        if not chosen:
            continue
        stored = [losing[each.source.uri][0] for each in chosen]
        result = removed_of(replace(removal, files=chosen, access=task.access), stored)
        if isinstance(result, Removed):
            yield result


def produce_versions(tasks: Iterable[WinnersTask]) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of every task's files by the part that their keys belong to, for `consume_versions`.

    A failure is sent to part 0, whose result has it.
    """
    pa.set_cpu_count(1)  # Spark runs a task per core already.
    for task in tasks:
        try:
            for table in blocks(read_versions(task, _opened(task)), _SENT_BYTES):
                yield from _divided(table, task)
        except Exception as error:
            yield 0, pickle.dumps(_Share(_for_consumers(task), failed=_problem(task, error).failed(error)))


def consume_versions(part: int, payloads: Iterator[bytes]) -> Iterator[Winners | Failed]:
    """Find the winners of a part of the keys, all rows of which are in `payloads`; yield one result."""
    shares = (pickle.loads(payload) for payload in payloads)
    first: _Share = next(shares)
    yield attempt(partial(_winners_of_part, part, chain([first], shares)), partial(_problem, first.task))


def _winners_of_part(part: int, shares: Iterable[_Share]) -> Winners | Failed:
    candidates = Candidates()
    failed: Failed | None = None
    for share in shares:
        failed = failed or share.failed
        if failed is None:
            candidates.add(pa.ipc.open_stream(share.versions).read_all())
    return failed or _found(candidates, part, share.task)


@dataclass(frozen=True, slots=True)
class _Share:
    """What a producer sends to a part: rows of its task's files."""

    task: WinnersTask
    versions: bytes = b""
    failed: Failed | None = None


def _divided(table: pa.Table, task: WinnersTask) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of each part, as a payload."""
    numbers = part_numbers(key_hashes(canonical_keys(key_columns(table))), task.parts)
    order = np.argsort(numbers, kind="stable")
    divided = table.take(order)
    ends = np.cumsum(np.bincount(numbers, minlength=task.parts))
    payload_rows = max(1, divided.num_rows * _PAYLOAD_BYTES // max(1, divided.nbytes))
    for part, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        for start in range(begin, end, payload_rows):
            versions = divided.slice(start, min(payload_rows, end - start))
            yield part, pickle.dumps(_Share(_for_consumers(task), _written(versions)))


def _for_consumers(task: WinnersTask) -> WinnersTask:
    """Return what a consumer needs of a task. Payloads wait on disks: keys of AWS are in them only if they are used."""
    in_s3 = task.index_folder is not None and task.index_folder.startswith("s3:")
    return replace(task, files=(), access=task.access if in_s3 else AwsAccess(task.access.region))


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _found(candidates: Candidates, part: int, task: WinnersTask) -> Winners:
    if (rows := candidates.winners()) is None:
        return Winners(part, 0, {}, {}, None)
    index: IndexPart | None = None
    if task.index_folder is not None:
        key = key_columns(rows)
        table, bounds = index_table(canonical_keys(key), rows), tuple(map(bounds_of, key))
        index = write_index(table, part, task.parts, bounds, task.index_folder, task.access)
    return Winners(part, rows.num_rows, candidates.losers(), candidates.tombstones(), index)


def _problem(task: WinnersTask, error: Exception) -> Problem:
    folder = task.files[0].uri.rpartition("/")[0] if task.files else task.index_folder or "the table's folder"
    remedy = None
    if isinstance(error, Unsuitable):
        remedy = (
            f"Rows of the table's file {error.uri} cannot be deduplicated: it {error}. Have another engine write the "
            "table's files again (Iceberg's rewrite_data_files), or refresh the stream."
        )
    headline = f"Rows of files under {folder} could not be deduplicated"
    return Problem(headline, "deduplicate the rows of files under", folder, task.access, remedy)


# --- Versions of rows ------------------------------------------------------------------------------------------------


def read_versions(task: WinnersTask, files: Iterable[StoredFile]) -> Iterator[pa.Table]:
    """Yield the rows that position deletes have left, in order, about READ_BYTES at a time; `files` are the task's.

    Columns are `key0` and so on, `order0` and so on (of `Versions.order`), `arrives` (1, if only some files do),
    `raw_id`, `is_tombstone`, `file` (its number) and `position`. Raises Unsuitable, and errors of AWS.
    """
    s3 = task.access.client("s3")
    fields = {field_id(field): field for field in task.schema}
    wanted = pa.schema([fields[id_] for id_ in task.versions.columns if id_ in fields])
    for number, stored in enumerate(files, task.first_file):
        with naming(stored.source.uri):
            for rows in _versions(stored, number, wanted, task.versions, s3):
                if task.content_files:
                    arrives = np.full(rows.num_rows, number >= task.content_files, np.int8)
                    yield rows.append_column("arrives", pa.array(arrives))
                else:
                    yield rows


def blocks(tables: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """Yield the rows of several tables as one of `size` Arrow bytes or more, whose columns are one array each."""
    waiting: list[pa.Table] = []
    waiting_bytes = 0
    for table in tables:
        waiting.append(table)
        waiting_bytes += table.nbytes
        if waiting_bytes >= size:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, waiting_bytes = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _versions(
    stored: StoredFile, number: int, wanted: pa.Schema, versions: Versions, s3: S3Client
) -> Iterator[pa.Table]:
    dead = deleted_rows(stored.source, s3)
    first = 0
    for table in blocks(OpenedFile(stored).rows(wanted), READ_BYTES):
        rows = _named(table, versions)
        positions = np.arange(first, first + table.num_rows)
        rows["file"] = pa.array(np.full(table.num_rows, number, np.int32))
        rows["position"] = pa.array(positions)
        first += table.num_rows
        found = pa.table(rows)
        yield found if dead is None else found.filter(pa.array(~dead[positions]))


def _named(table: pa.Table, versions: Versions) -> dict[str, Any]:
    by_id = {field_id(field): table.column(position) for position, field in enumerate(table.schema)}

    def column(id_: int) -> Any:
        # A column that the table has no more is null in all rows.
        return by_id[id_] if id_ in by_id else pa.nulls(table.num_rows)

    named = {f"key{number}": column(id_) for number, id_ in enumerate(versions.key)}
    named |= {f"order{number}": column(id_) for number, id_ in enumerate(versions.order)}
    named["raw_id"] = column(versions.raw_id)
    if versions.deleted_at is None:
        named["is_tombstone"] = pa.array(np.zeros(table.num_rows, np.bool_))
    else:
        named["is_tombstone"] = column(versions.deleted_at).is_valid()
    return named


def key_columns(table: pa.Table) -> list[pa.Array[Any]]:
    """Return the columns of the key, of rows that `read_versions` has yielded."""
    return [one_array(table.column(name)) for name in table.column_names if name.startswith("key")]


def order_columns(table: pa.Table) -> list[pa.Array[Any]]:
    """Return the columns that say which of several rows is the latest, the most significant first."""
    order = [name for name in table.column_names if name.startswith("order")]
    names = (*order, "arrives", "raw_id", "file", "position")
    return [one_array(table.column(name)) for name in names if name in table.column_names]


class Candidates:
    """Takes rows in any order, as `read_versions` yields them. Of each key, one is kept from time to time.

    Memory grows with the number of keys, and by a bit for each row of the files at most.
    """

    def __init__(self, reduced_bytes: int = _REDUCED_BYTES) -> None:
        """`reduced_bytes` are the Arrow bytes of rows up to which all are kept."""
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._least_bytes = self._limit = reduced_bytes
        self._losers: dict[int, BitMap] = {}

    def add(self, table: pa.Table) -> None:
        """Add rows of files."""
        if not table.num_rows:
            return
        self._tables.append(table)
        self._bytes += table.nbytes
        if self._bytes >= self._limit:
            self._reduce()
            self._limit = max(self._least_bytes, 2 * self._bytes)

    def winners(self) -> pa.Table | None:
        """Return the latest row of each key, as `read_versions` has it; None if there are no rows."""
        if self._tables:
            self._reduce()
        return self._tables[0] if self._tables else None

    def losers(self) -> dict[int, RowSet]:
        """Return the rows that others replace, by file."""
        return row_sets(self._losers)

    def tombstones(self) -> dict[int, RowSet]:
        """Return the winners that delete their keys, by file. `winners` must have been called."""
        found: dict[int, BitMap] = {}
        for table in self._tables:
            _add_places(found, table, table.column("is_tombstone").to_numpy())
        return row_sets(found)

    def _reduce(self) -> None:
        """Keep the latest row of each key."""
        tables, self._tables = self._tables, []
        table = _combined(tables)
        keys = canonical_keys(key_columns(table))
        won = latest(keys, key_hashes(keys), order_columns(table))
        if not won.all():
            _add_places(self._losers, table, ~won)
            table = table.filter(pa.array(won))
        self._tables = [table]
        self._bytes = table.nbytes


def _add_places(found: dict[int, BitMap], table: pa.Table, chosen: NDArray[np.bool_]) -> None:
    add_rows(found, table.column("file").to_numpy()[chosen], table.column("position").to_numpy()[chosen])


def _combined(tables: list[pa.Table]) -> pa.Table:
    """Return the rows of all tables in one, and empty the list: memory has one column twice, not all."""
    schema = tables[0].schema
    chunks = [[one_array(table.column(name)) for table in tables] for name in schema.names]
    tables.clear()
    columns = []
    for of_column in chunks:
        columns.append(of_column[0] if len(of_column) == 1 else pa.concat_arrays(of_column))
        of_column.clear()
    return pa.Table.from_arrays(columns, schema=schema)
