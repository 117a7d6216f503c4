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

import numpy as np
import pyarrow as pa

from destination_datalake.aws.access import AwsAccess
from destination_datalake.files.dedup.index import index_table, write_index
from destination_datalake.files.dedup.keys import canonical_keys, key_hashes, part_numbers
from destination_datalake.files.dedup.remove import removed_of
from destination_datalake.files.dedup.tasks import IndexPart, Removed, Winners, WinnersTask, united
from destination_datalake.files.dedup.versions import (
    Candidates,
    UnsuitableFile,
    blocks,
    key_bounds,
    key_columns,
    read_versions,
)
from destination_datalake.files.jobs import Failed, Problem, attempt
from destination_datalake.files.reading import StoredFile, opened

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
        table = index_table(canonical_keys(key_columns(rows)), rows)
        index = write_index(table, part, task.parts, key_bounds(rows), task.index_folder, task.access)
    return Winners(part, rows.num_rows, candidates.losers(), candidates.tombstones(), index)


def _problem(task: WinnersTask, error: Exception) -> Problem:
    folder = task.files[0].uri.rpartition("/")[0] if task.files else task.index_folder or "the table's folder"
    remedy = None
    if isinstance(error, UnsuitableFile):
        remedy = (
            f"Rows of the table's file {error.uri} cannot be deduplicated: it {error}. Have another engine write the "
            "table's files again (Iceberg's rewrite_data_files), or refresh the stream."
        )
    headline = f"Rows of files under {folder} could not be deduplicated"
    return Problem(headline, "deduplicate the rows of files under", folder, task.access, remedy)
