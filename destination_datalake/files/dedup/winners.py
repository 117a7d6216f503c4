"""The first job of a merge on executors: find the latest row of each key in the pending files, and write the index.

A file is pending until a merge includes its rows. If one task can process all keys, `winners` runs without a shuffle.
Otherwise, the job partitions the keys by their hash and has two stages: `produce_versions` reads the files, and
`consume_versions` receives all rows of one part of the keys.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from destination_datalake.aws.access import AwsAccess
from destination_datalake.files.dedup.index import write_index
from destination_datalake.files.dedup.remove import remove_rows
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
from destination_datalake.files.dedup.versions import comparable, database, find_winners, with_parts
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.parquet import columns_by_id, field_id
from destination_datalake.files.reading import (
    OpenedFile,
    StoredFile,
    UnsupportedFile,
    deleted_rows,
    naming_file,
    open_files,
)
from destination_datalake.partitioning.spec import Identity, PartitionField
from destination_datalake.partitioning.transforms import by_partition

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BLOCK_BYTES = 8 * 1024 * 1024
"""The size, in Arrow bytes, of a block of rows that `produce_versions` partitions by key at once."""

_PAYLOAD_BYTES = 2 * 1024 * 1024
_PART = (PartitionField("part", ("part",), Identity()),)


def winners(tasks: Iterable[WinnersTask]) -> Iterator[Winners | Failed]:
    """Find the latest row of each key in the files of each task. Yield one result per task.

    All pending rows of a key must be in the same task.
    """
    for task in tasks:
        yield attempt(partial(_winners, task), partial(_problem, task))


def _winners(task: WinnersTask) -> Winners:
    files = _open(task)
    files = [*files] if task.removals else files  # The removals read the files a second time.
    result = _find_winners(read_versions(task, files), 0, task)
    return replace(result, removed=tuple(_remove(task, result, files)))


def _open(task: WinnersTask) -> Iterable[StoredFile]:
    return open_files(task.files, task.access.client("s3"))


def _remove(task: WinnersTask, result: Winners, files: Iterable[StoredFile]) -> Iterator[Removed]:
    """Run the task's removals and yield their results. Omit failed removals, because a separate job repeats them."""
    if not task.removals:
        # Without removals, `files` is an iterator that is exhausted already.
        return
    dead = united((result.losers, result.tombstones))
    numbered = enumerate(files, task.first_file)
    with_dead_rows = {file.source.uri: (file, dead[number]) for number, file in numbered if number in dead}
    for task_of_files in task.removals:
        removals = tuple(
            replace(removal, dead=with_dead_rows[removal.source.uri][1])
            for removal in task_of_files.files
            if removal.source.uri in with_dead_rows
        )
        if not removals:
            continue
        stored = [with_dead_rows[removal.source.uri][0] for removal in removals]
        removed = remove_rows(replace(task_of_files, files=removals, access=task.access), stored)
        if isinstance(removed, Removed):
            yield removed


def produce_versions(tasks: Iterable[WinnersTask]) -> Iterator[tuple[int, bytes]]:
    """Read the rows of each task's files. Yield payloads of rows, each preceded by the number of its part of the keys.

    `consume_versions` receives the payloads. If a task fails, yields the failure in a payload for part 0. The consumer
    of this part then returns the failure as its result.
    """
    pa.set_cpu_count(1)  # Spark already runs one task per core.
    for task in tasks:
        try:
            with database() as (connection, _):
                for table in _blocks(read_versions(task, _open(task))):
                    yield from _partition(connection, table, task)
        except Exception as error:
            # An error would stop the job without a message for the user, so send it to a consumer.
            yield 0, pickle.dumps(_Share(_for_consumers(task), failed=_problem(task, error).failed(error)))


def consume_versions(part: int, payloads: Iterator[bytes]) -> Iterator[Winners | Failed]:
    """Find the latest row of each key in one part of the keys. Yield one result.

    `payloads` contains all rows of the part, as `produce_versions` yields them.
    """
    shares = (pickle.loads(payload) for payload in payloads)
    first: _Share = next(shares)
    yield attempt(partial(_winners_of_part, part, chain([first], shares), first.task), partial(_problem, first.task))


def _winners_of_part(part: int, shares: Iterable[_Share], task: WinnersTask) -> Winners | Failed:
    failed: list[Failed] = []

    def versions() -> Iterator[pa.Table]:
        for share in shares:
            # The result is discarded after a failure, so do not decode the remaining rows.
            if share.failed is not None:
                failed.append(share.failed)
            elif not failed:
                yield pa.ipc.open_stream(share.versions).read_all()

    result = _find_winners(versions(), part, task)
    return failed[0] if failed else result


@dataclass(frozen=True, slots=True)
class _Share:
    """A payload for the consumer of one part of the keys: some rows of a task's files, or the task's failure."""

    task: WinnersTask
    versions: bytes = b""
    failed: Failed | None = None


def _partition(connection: DuckDBPyConnection, table: pa.Table, task: WinnersTask) -> Iterator[tuple[int, bytes]]:
    """Split the rows of a table by the part that contains their key. Yield the number of each part with a payload."""
    payload_rows = max(1, table.num_rows * _PAYLOAD_BYTES // max(1, table.nbytes))
    for (part,), rows in by_partition(with_parts(connection, table, task.parts), _PART):
        versions = rows.drop_columns("part")
        for start in range(0, versions.num_rows, payload_rows):
            stream = _as_stream(versions.slice(start, payload_rows))
            yield cast("int", part), pickle.dumps(_Share(_for_consumers(task), stream))


def _for_consumers(task: WinnersTask) -> WinnersTask:
    """Return a copy of the task without the data that consumers do not need.

    The payloads contain this copy, and Spark stores the payloads on disk. The copy therefore contains the task's AWS
    keys only if consumers write the index to S3.
    """
    in_s3 = task.index_folder is not None and task.index_folder.startswith("s3:")
    return replace(task, files=(), access=task.access if in_s3 else AwsAccess(task.access.region))


def _as_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _find_winners(versions: Iterator[pa.Table], part: int, task: WinnersTask) -> Winners:
    if (first := next(versions, None)) is None:
        return Winners(part, 0, {}, {}, None)
    losers: dict[int, BitMap] = {}
    """The rows of each file. At the end of this function, the winners are removed, so that only the losers remain."""
    won: dict[int, BitMap] = {}
    tombstones: dict[int, BitMap] = {}
    index: IndexPart | None = None
    with database() as (connection, scratch):
        # DuckDB reads the stream once. Meanwhile, `_recorded` adds every row to `losers`.
        find_winners(connection, _recorded(chain([first], versions), losers), first.schema, task.content_files)
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


def _recorded(versions: Iterable[pa.Table], rows: dict[int, BitMap]) -> Iterator[pa.Table]:
    """Yield the tables unchanged. Add the position of each row to the bitmap of its file in `rows`."""
    for table in versions:
        add_rows(rows, table.column("file").to_numpy(), table.column("position").to_numpy())
        yield table


def _problem(task: WinnersTask, error: Exception) -> Problem:
    folder = task.files[0].uri.rpartition("/")[0] if task.files else task.index_folder or "the table's folder"
    remedy = None
    if isinstance(error, UnsupportedFile):
        remedy = (
            f"Cannot deduplicate rows of {error.uri}: the file {error}. Rewrite the table's files with another engine "
            "(Spark: CALL system.rewrite_data_files with the option rewrite-all), or refresh the stream."
        )
    headline = f"Cannot deduplicate the rows of files under {folder}"
    return Problem(headline, "deduplicate the rows of files under", folder, task.access, remedy)


# --- Versions of rows ------------------------------------------------------------------------------------------------


def read_versions(task: WinnersTask, files: Iterable[StoredFile]) -> Iterator[pa.Table]:
    """Yield the live rows of the task's files, in order, in small batches.

    The columns are those in `Versions.names`, then `raw_id`, `is_tombstone` (whether the row deletes its key), `file`
    (the number of the file) and `position`. Raises UnsupportedFile and AWS errors.
    """
    s3 = task.access.client("s3")
    fields = {field_id(field): field for field in task.schema}
    wanted = pa.schema([fields[id_] for id_ in task.versions.columns if id_ in fields])
    for number, stored in enumerate(files, task.first_file):
        with naming_file(stored.source.uri):
            dead = deleted_rows(stored.source, s3)
            file = OpenedFile(stored)
            for first, table in file.read(file.groups, file.projection(wanted)):
                positions = np.arange(first, first + table.num_rows)
                columns = _named(table, task.versions)
                columns |= {"file": np.full(table.num_rows, number, np.int32), "position": positions}
                rows = pa.table(columns)
                yield rows if dead is None else rows.filter(pa.array(~dead[positions]))


def _named(table: pa.Table, versions: Versions) -> dict[str, Any]:
    by_id = {field_id(field): comparable(table.column(position)) for position, field in enumerate(table.schema)}

    def column(id_: int) -> Any:
        # If another program has dropped the column from the table, its values are null.
        return by_id[id_] if id_ in by_id else pa.nulls(table.num_rows)

    named = {name: column(id_) for name, id_ in zip(versions.names, (*versions.key, *versions.order), strict=True)}
    named["raw_id"] = column(versions.raw_id)
    is_deleted = None if versions.deleted_at is None else column(versions.deleted_at).is_valid()
    named["is_tombstone"] = np.zeros(table.num_rows, np.bool_) if is_deleted is None else is_deleted
    return named


def _blocks(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate consecutive tables to tables of at least _BLOCK_BYTES. The last table may be smaller."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(table.nbytes for table in waiting) >= _BLOCK_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
