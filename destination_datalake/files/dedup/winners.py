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
from pyroaring import BitMap

from destination_datalake.aws.access import AwsAccess
from destination_datalake.files.dedup.index import write_index
from destination_datalake.files.dedup.remove import removed_of
from destination_datalake.files.dedup.tasks import (
    IndexPart,
    Removed,
    Versions,
    Winners,
    WinnersTask,
    add_rows,
    row_sets,
    united,
)
from destination_datalake.files.dedup.versions import comparable, database, divided, find_winners
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.parquet import columns_by_id, field_id
from destination_datalake.files.projection import Unsuitable, naming
from destination_datalake.files.reading import OpenedFile, StoredFile, deleted_rows, opened

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SENT_BYTES = 8 * 1024 * 1024
"""Arrow bytes of rows that are divided among parts at a time: each part is sent its share of them."""

_PAYLOAD_BYTES = 2 * 1024 * 1024


def winners(tasks: Iterable[WinnersTask]) -> Iterator[Winners | Failed]:
    """Find the winners of every task, whose files have all rows of their keys; yield a result for each."""
    for task in tasks:
        yield attempt(partial(_winners, task), partial(_problem, task))


def _winners(task: WinnersTask) -> Winners:
    files = _opened(task)
    files = [*files] if task.removals else files
    found = _found(read_versions(task, files), 0, task)
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
            with database() as (connection, _):
                for table in _blocks(read_versions(task, _opened(task))):
                    yield from _divided(connection, table, task)
        except Exception as error:
            yield 0, pickle.dumps(_Share(_for_consumers(task), failed=_problem(task, error).failed(error)))


def consume_versions(part: int, payloads: Iterator[bytes]) -> Iterator[Winners | Failed]:
    """Find the winners of a part of the keys, all rows of which are in `payloads`; yield one result."""
    shares = (pickle.loads(payload) for payload in payloads)
    first: _Share = next(shares)
    yield attempt(partial(_winners_of_part, part, chain([first], shares), first.task), partial(_problem, first.task))


def _winners_of_part(part: int, shares: Iterable[_Share], task: WinnersTask) -> Winners | Failed:
    failed: list[Failed] = []

    def versions() -> Iterator[pa.Table]:
        for share in shares:
            if share.failed is not None:
                failed.append(share.failed)
            elif not failed:
                yield pa.ipc.open_stream(share.versions).read_all()

    found = _found(versions(), part, task)
    return failed[0] if failed else found


@dataclass(frozen=True, slots=True)
class _Share:
    """What a producer sends to a part: rows of its task's files."""

    task: WinnersTask
    versions: bytes = b""
    failed: Failed | None = None


def _divided(connection: DuckDBPyConnection, table: pa.Table, task: WinnersTask) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of each part, as a payload."""
    rows = divided(connection, table, task.parts).to_arrow_table()
    ends = np.searchsorted(rows.column("part").to_numpy(), np.arange(task.parts), "right").tolist()
    rows = rows.drop_columns("part")
    payload_rows = max(1, rows.num_rows * _PAYLOAD_BYTES // max(1, rows.nbytes))
    for part, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        for start in range(begin, end, payload_rows):
            versions = rows.slice(start, min(payload_rows, end - start))
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


def _found(versions: Iterator[pa.Table], part: int, task: WinnersTask) -> Winners:
    if (first := next(versions, None)) is None:
        return Winners(part, 0, {}, {}, None)
    losers: dict[int, BitMap] = {}
    """All rows, without the winners in the end."""
    won: dict[int, BitMap] = {}
    tombstones: dict[int, BitMap] = {}
    index: IndexPart | None = None
    with database() as (connection, scratch):
        find_winners(connection, _noted(chain([first], versions), losers), first.schema, task.content_files)
        for batch in connection.sql("SELECT file, position, is_tombstone FROM winners").to_arrow_reader():
            files, positions, deletes = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
            add_rows(won, files, positions)
            add_rows(tombstones, files[deletes], positions[deletes])
        if won and task.index_folder is not None:
            types = [field.type for field in columns_by_id(task.schema, task.versions.key)]
            index = write_index(connection, types, scratch, task.index_folder, task.access)
    for number, rows in won.items():
        losers[number] -= rows
    return Winners(part, sum(map(len, won.values())), row_sets(losers), row_sets(tombstones), index)


def _noted(versions: Iterable[pa.Table], places: dict[int, BitMap]) -> Iterator[pa.Table]:
    """Yield rows, and note where they lie."""
    for table in versions:
        add_rows(places, table.column("file").to_numpy(), table.column("position").to_numpy())
        yield table


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
    """Yield the rows that position deletes have left, in order, a few at a time; `files` are the task's.

    Columns are those of `Versions.names`, `raw_id`, `is_tombstone`, `file` (its number) and `position`. Raises
    Unsuitable, and errors of AWS.
    """
    s3 = task.access.client("s3")
    fields = {field_id(field): field for field in task.schema}
    wanted = pa.schema([fields[id_] for id_ in task.versions.columns if id_ in fields])
    for number, stored in enumerate(files, task.first_file):
        with naming(stored.source.uri):
            dead = deleted_rows(stored.source, s3)
            first = 0
            for table in OpenedFile(stored).rows(wanted):
                positions = np.arange(first, first + table.num_rows)
                first += table.num_rows
                columns = _named(table, task.versions)
                columns |= {"file": np.full(table.num_rows, number, np.int32), "position": positions}
                found = pa.table(columns)
                yield found if dead is None else found.filter(pa.array(~dead[positions]))


def _named(table: pa.Table, versions: Versions) -> dict[str, Any]:
    by_id = {field_id(field): comparable(table.column(position)) for position, field in enumerate(table.schema)}

    def column(id_: int) -> Any:
        # A column that the table has no more is null in all rows.
        return by_id[id_] if id_ in by_id else pa.nulls(table.num_rows)

    named = {name: column(id_) for name, id_ in zip(versions.names, (*versions.key, *versions.order), strict=True)}
    named["raw_id"] = column(versions.raw_id)
    is_deleted = None if versions.deleted_at is None else column(versions.deleted_at).is_valid()
    named["is_tombstone"] = np.zeros(table.num_rows, np.bool_) if is_deleted is None else is_deleted
    return named


def _blocks(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of several tables as one of _SENT_BYTES or more."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(each.nbytes for each in waiting) >= _SENT_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
