"""Runs the jobs of one merge, and caches their results, keyed by their input files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from botocore.exceptions import BotoCoreError, ClientError

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.address import S3Address
from destination_datalake.aws.objects import delete
from destination_datalake.files.dedup.remove import remove
from destination_datalake.files.dedup.tasks import (
    Deletes,
    IndexPart,
    Removal,
    Removed,
    RemoveTask,
    RowSet,
    Winners,
    WinnersTask,
    united,
)
from destination_datalake.files.dedup.winners import consume_versions, produce_versions, winners
from destination_datalake.files.jobs import Failed, done
from destination_datalake.tables.iceberg.dedup.plan import MergePlan
from destination_datalake.tables.iceberg.snapshots.branch_files import LiveFile, PartitionKey

if TYPE_CHECKING:
    from destination_datalake.tables.context import Jobs

_TASKS_OF_A_JOB = 1000
"""Spark's driver holds all tasks of a job in memory, and each has the table's schema."""

_USUAL_EXPANSION = 2.0
_FEW_BYTES = 2 * 1024 * 1024
"""An index of the keys in so many bytes of files is not too large, however much they are alike."""

_SMALL_BYTES = 2 * 1024 * 1024
"""Files up to this size are looked at by one task, and those that lose rows become one: each costs requests, more than
to encode its rows again."""

_TOGETHER_BYTES = 16 * 1024 * 1024
_MOST_TOGETHER = 200
"""Limits of the small files of one task, which it holds in memory."""

_TAIL_BYTES = 256 * 1024
"""So many bytes at the end of a file mostly have its footer."""

_CacheKey = tuple[object, ...]
"""What a result depends on: it is valid as long as that is the same."""


@dataclass(frozen=True, slots=True)
class _FoundWinners:
    """The winners of all parts of the keys. `name` is their index's."""

    name: str
    parts: tuple[Winners, ...]

    @property
    def index(self) -> tuple[IndexPart, ...]:
        return tuple(part.index for part in self.parts if part.index is not None)

    @property
    def losers(self) -> dict[int, RowSet]:
        return united(part.losers for part in self.parts)

    @property
    def tombstones(self) -> dict[int, RowSet]:
        return united(part.tombstones for part in self.parts)


@dataclass(frozen=True, slots=True)
class _Losing:
    """A file from which a job may have to remove rows, and by what.

    `number` is that of a pending file, -1 for a stored one.
    """

    file: LiveFile
    dead: RowSet | None = None
    index: tuple[IndexPart, ...] = ()
    number: int = -1


_Losers = tuple[_Losing, ...]
"""The files of one task."""


class MergeJobs:
    """Runs what a plan needs and is not known yet."""

    def __init__(self, jobs: Jobs, access: AwsAccess, folder: str, codec: str, deletes: Deletes) -> None:
        """New files lie in `folder`, an S3 URI without a slash at its end, or in the folder of those they replace."""
        self._executors = jobs.executors
        self._scratch = jobs.scratch
        self._access = access
        self._folder = folder
        self._codec = codec
        self._deletes = deletes
        self._winners: tuple[_CacheKey, _FoundWinners] | None = None
        self._removed: dict[_CacheKey, Removed] = {}
        self._all: list[Removed] = []
        self._indexes: list[IndexPart] = []
        self._touched: tuple[MergePlan, _FoundWinners, list[_Losers]] | None = None

    def run(self, plan: MergePlan) -> None:
        """Run the jobs that the plan needs. Raises ConnectorError if one has failed."""
        while (job := self._next(plan)) is not None:
            job()

    def is_done(self, plan: MergePlan) -> bool:
        """Whether all results that the plan needs are there."""
        return self._next(plan) is None

    def from_stored(self, plan: MergePlan) -> list[tuple[list[LiveFile], Removed]]:
        """Return what became of the stored files that were looked at, by a plan whose jobs are done."""
        found = self._winners_of(plan)
        return [
            ([each.file for each in files], self._removed[_key_of_probe(files, plan, found)])
            for files in self._files_touched(plan, found)
        ]

    def from_pending(self, plan: MergePlan) -> list[tuple[list[int], Removed]]:
        """Return what became of pending files from which rows had to be removed, by their numbers."""
        return [
            ([each.number for each in files], self._removed[_key_of_removal(files, plan)])
            for files in self._files_losing(plan)
        ]

    def merged_keys(self, plan: MergePlan) -> int:
        """Return of how many keys a pending row comes into the table, by a plan whose jobs are done."""
        found = self._winners_of(plan)
        without = united((found.tombstones, self._superseded(plan)))
        return sum(part.keys for part in found.parts) - sum(len(each.rows()) for each in without.values())

    def written(self) -> list[Removed]:
        """Return all results, whether or not a plan has use for them."""
        return self._all

    def delete_indexes(self) -> None:
        """Delete the indexes, which nobody will look at any more. Raises errors of S3 and of the disk."""
        for part in self._indexes:
            if part.uri.startswith("file:"):
                Path(unquote(urlsplit(part.uri).path)).unlink(missing_ok=True)
            elif part.uri:
                delete(self._access.client("s3"), part.uri)
        self._indexes = []

    def _next(self, plan: MergePlan) -> Callable[[], None] | None:
        if self._winners is None or self._winners[0] != _key_of_winners(plan):
            return lambda: self._find_winners(plan)
        found = self._winners[1]
        stored = [
            (key, self._task(files, plan))
            for files in self._files_touched(plan, found)
            if (key := _key_of_probe(files, plan, found)) not in self._removed
        ]
        if stored:
            return lambda: self._remove(stored)
        pending = [
            (key, self._task(files, plan))
            for files in self._files_losing(plan)
            if (key := _key_of_removal(files, plan)) not in self._removed
        ]
        return (lambda: self._remove(pending)) if pending else None

    def _files_touched(self, plan: MergePlan, found: _FoundWinners) -> list[_Losers]:
        """Return what `MergePlan.touched` yields, by task. It is asked for again and again."""
        if self._touched is None or self._touched[0] is not plan or self._touched[1] is not found:
            touched = (_Losing(file, index=parts) for file, parts in plan.touched(found.index))
            self._touched = plan, found, [*_together(touched)]
        return self._touched[2]

    def _files_losing(self, plan: MergePlan) -> list[_Losers]:
        """Return the pending files with rows that do not come into the table, by task."""
        return self._by_task(plan, self._dead(plan))

    def _by_task(self, plan: MergePlan, dead: Mapping[int, RowSet | None]) -> list[_Losers]:
        """Return the pending files that are named by number, by task."""
        losing = [_Losing(plan.pending[number], rows, (), number) for number, rows in dead.items()]
        return [
            files
            for arrive in (False, True)
            for files in _together(each for each in losing if plan.arrives(each.number) == arrive)
        ]

    def _find_winners(self, plan: MergePlan) -> None:
        name, parts = uuid4().hex, plan.parts(self._expansion(plan))
        folder = f"{self._scratch()}/{name}" if plan.stored else None
        sources = [each.source(plan.metadata) for each in plan.pending]
        # Without a shuffle, one task reads them all.
        count = 1 if parts == 1 else max(1, min(len(sources), self._executors.parallelism()))
        removals = self._removals(plan) if parts == 1 else {}
        names = {partition: task.name for partition, task in removals.items()}
        at_once = tuple(removals.values())
        tasks = []
        for number in range(count):
            begin, end = (len(sources) * each // count for each in (number, number + 1))
            files = tuple(sources[begin:end])
            tasks.append(
                WinnersTask(
                    files, begin, plan.columns, plan.versions, parts, folder, self._access, plan.pooled, at_once
                )
            )
        if parts == 1:
            results = self._executors.run(winners, tasks)
        else:
            results = self._executors.exchange(produce_versions, tasks, consume_versions, parts)
        for each in results:
            if not isinstance(each, Failed) and each.index is not None:
                self._indexes.append(each.index)
        removed = {each.name: each for part in results if isinstance(part, Winners) for each in part.removed}
        self._all += removed.values()
        found = _FoundWinners(name, tuple(done(results)))
        self._winners = _key_of_winners(plan), found
        losing = self._by_task(plan, united((found.losers, found.tombstones)))
        self._removed |= {
            _key_of_removal(files, plan): removed[name]
            for files in losing
            if (name := names.get(files[0].file.partition, "")) in removed
        }

    def _removals(self, plan: MergePlan) -> Mapping[PartitionKey, RemoveTask]:
        """Return by partition what the job that finds winners, having read the files, can remove from them at once.

        Nothing unless all files are small, few, and on the branch of pending rows: rows may still lose to stored ones.
        """
        entries = [each.entry for each in plan.pending]
        is_small = (
            not plan.pooled
            and len(entries) <= _MOST_TOGETHER
            and sum(each.file_size_in_bytes for each in entries) <= _TOGETHER_BYTES
            and all(each.file_size_in_bytes <= _SMALL_BYTES and not each.sort_order_id for each in entries)
        )
        if not is_small:
            return {}
        # Executors use their own access, or one that they are lent: that of the task around them.
        return {
            files[0].file.partition: replace(self._task(files, plan), access=AwsAccess(self._access.region))
            for files in self._by_task(plan, dict.fromkeys(range(len(entries))))
        }

    def _expansion(self, plan: MergePlan) -> float:
        """Return how many times as large as in the pending files texts are in memory: keys may be much alike."""
        if not plan.texts or sum(each.entry.file_size_in_bytes for each in plan.pending) < _FEW_BYTES:
            return _USUAL_EXPANSION
        largest = max(plan.pending, key=lambda each: each.entry.file_size_in_bytes)
        address = S3Address.parse(largest.path)
        try:
            answer = self._access.client("s3").get_object(
                Bucket=address.bucket, Key=address.key, Range=f"bytes=-{_TAIL_BYTES}"
            )
            with closing(answer["Body"]) as body:
                found = _expansion(body.read(), plan.texts)
        except (ClientError, BotoCoreError, pa.ArrowException, OSError):
            return _USUAL_EXPANSION  # The job that reads the file says what is wrong with it.
        return max(_USUAL_EXPANSION, found)

    def _remove(self, tasks: Sequence[tuple[_CacheKey, RemoveTask]]) -> None:
        # Large files first, so that no executor is left alone with one in the end.
        tasks = sorted(tasks, key=lambda each: sum(file.source.size for file in each[1].files), reverse=True)
        for batch in (tasks[begin : begin + _TASKS_OF_A_JOB] for begin in range(0, len(tasks), _TASKS_OF_A_JOB)):
            results = self._executors.run(remove, [task for _, task in batch])
            self._all += [each for each in results if not isinstance(each, Failed)]
            self._removed |= {key: each for (key, _), each in zip(batch, done(results), strict=True)}

    def _winners_of(self, plan: MergePlan) -> _FoundWinners:
        assert self._winners is not None
        assert self._winners[0] == _key_of_winners(plan)
        return self._winners[1]

    def _superseded(self, plan: MergePlan) -> dict[int, RowSet]:
        """Return the pending rows that lose to stored ones, by the number of their file."""
        return united(result.superseded for _, result in self.from_stored(plan))

    def _dead(self, plan: MergePlan) -> dict[int, RowSet]:
        """Return the pending rows that do not come into the table."""
        found = self._winners_of(plan)
        return united((found.losers, found.tombstones, self._superseded(plan)))

    def _task(self, files: _Losers, plan: MergePlan) -> RemoveTask:
        folder = files[0].file.path.rpartition("/")[0]
        # Format version 1 has no delete files (Iceberg spec: Version 2).
        deletes = self._deletes if plan.metadata.format_version > 1 else "copy_on_write"
        if len(files) > 1 and plan.arrives(files[0].number):
            deletes = "copy_on_write"  # Nobody has read these files. Several with deletes each would cost readers more.
        return RemoveTask(
            uuid4().hex,
            tuple(Removal(each.file.source(plan.metadata), each.dead, each.index) for each in files),
            plan.versions,
            plan.schema,
            folder if f"{folder}/".startswith(f"{self._folder}/") else self._folder,
            self._codec,
            deletes,
            self._access,
        )


def _together(files: Iterable[_Losing]) -> Iterator[_Losers]:
    """Yield the files of each task: a large or a sorted one alone, small ones of a partition together."""
    waiting: dict[PartitionKey, list[_Losing]] = {}
    for each in files:
        entry = each.file.entry
        if entry.file_size_in_bytes > _SMALL_BYTES or entry.sort_order_id:
            yield (each,)
            continue
        of_partition = waiting.setdefault(each.file.partition, [])
        size = sum(other.file.entry.file_size_in_bytes for other in of_partition)
        if len(of_partition) == _MOST_TOGETHER or size + entry.file_size_in_bytes > _TOGETHER_BYTES:
            yield tuple(of_partition)
            of_partition.clear()
        of_partition.append(each)
    yield from map(tuple, waiting.values())


def _expansion(tail: bytes, ids: Collection[int]) -> float:
    """Return how many times as many bytes as in a file its top-level columns with these ids have before compression.

    `tail` are the last bytes of the file. It is 1 if it has none of the columns. Raises Arrow's errors for what is no
    Parquet file, or has a larger footer.
    """
    footer = pq.read_metadata(pa.BufferReader(tail))
    wanted = {str(id_).encode() for id_ in ids}
    schema = footer.schema.to_arrow_schema()
    names = {field.name for field in schema if (field.metadata or {}).get(b"PARQUET:field_id") in wanted}
    stored = values = 0
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.path_in_schema in names:
                stored += chunk.total_compressed_size
                values += chunk.total_uncompressed_size
    return values / stored if stored else 1.0


def _key_of_winners(plan: MergePlan) -> _CacheKey:
    files = tuple(each.state for each in plan.pending)
    return files, plan.pooled, plan.versions, plan.metadata.current_schema_id, bool(plan.stored)


def _key_of_probe(files: _Losers, plan: MergePlan, found: _FoundWinners) -> _CacheKey:
    return tuple(each.file.state for each in files), found.name, plan.metadata.current_schema_id


def _key_of_removal(files: _Losers, plan: MergePlan) -> _CacheKey:
    return tuple((each.file.state, each.dead) for each in files), plan.metadata.current_schema_id
