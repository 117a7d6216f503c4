"""The plan of a merge for a table as it is: the files that take part, which may have its keys, and the jobs to run.

A plan keeps the bounds of the key's columns of each file, and no others. Manifests and files are immutable: what was
read of a manifest, and what a job has made of files, is kept while a merge is planned again and again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import DoubleType, FloatType

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import delete
from destination_datalake.files.dedup.tasks import (
    Deletes,
    IndexPart,
    Removal,
    Removed,
    RemoveTask,
    RowSet,
    Versions,
    Winners,
    WinnersTask,
    local_path,
    united,
)
from destination_datalake.files.dedup.winners import consume_versions, produce_versions, winners
from destination_datalake.files.jobs import Failed, results_or_raise
from destination_datalake.files.parquet import field_id
from destination_datalake.tables.iceberg.dedup.definition import MergeScope, way_out
from destination_datalake.tables.iceberg.rework import Removals, StalePlan, folder_of_new_file
from destination_datalake.tables.iceberg.schema import arrow_schema
from destination_datalake.tables.iceberg.snapshots.branch_files import BranchFiles, LiveFile, PartitionKey
from destination_datalake.tables.iceberg.snapshots.entries import KeyColumns

if TYPE_CHECKING:
    from destination_datalake.tables.context import Jobs

_ROWS_OF_A_PART = 1_000_000
"""Keys of more pending rows are divided among as many tasks as have so many."""


class Unmergeable(Exception):
    """The table cannot be merged. The text is a clause about it, followed by the remedy, without a full stop."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The files of a merge, as `table` has them.

    The rows in `pending` are merged among themselves, and into those in `stored`, which are unique. The last `arriving`
    of the pending files are on another branch than the stored ones; the others stay in the table unless rows are
    removed from them: they are there because somebody has appended to the table, or replaced its content.
    """

    table: Table
    scope: MergeScope
    versions: Versions
    schema: pa.Schema
    pending: tuple[LiveFile, ...]
    arriving: int
    stored: tuple[LiveFile, ...]
    manifests_of_deletes: frozenset[str]
    """The manifests that list delete files of the stored files' branch."""

    @property
    def metadata(self) -> TableMetadata:
        """The table's metadata."""
        return self.table.metadata

    @property
    def pending_head(self) -> Snapshot | None:
        """The snapshot that the arriving files are in; None if there are none."""
        return self.metadata.snapshot_by_name(self.scope.pending) if self.scope.pending is not None else None

    @property
    def paths(self) -> frozenset[str]:
        """The URIs of all files that jobs may read."""
        return frozenset(path for each in (*self.pending, *self.stored) for path in each.state)

    @property
    def columns(self) -> pa.Schema:
        """The columns of the versions, in the types that the table has now."""
        return pa.schema([field for field in self.schema if field_id(field) in self.versions.columns])

    @property
    def pooled(self) -> int:
        """How many of the pending files, the first, are on the branch of the stored ones."""
        return len(self.pending) - self.arriving

    def arrives(self, number: int) -> bool:
        """Whether a pending file, by its number, is on another branch than the stored files."""
        return number >= self.pooled

    @property
    def parts(self) -> int:
        """Into how many parts to divide the keys, each of which a task finds the winners of."""
        return max(1, -(-sum(each.entry.record_count for each in self.pending) // _ROWS_OF_A_PART))

    def touched(self, index: Sequence[IndexPart]) -> Iterator[tuple[LiveFile, tuple[IndexPart, ...]]]:
        """Yield the stored files that may have rows of the keys in an index, and its parts that have those keys."""
        key = KeyColumns.of(self.versions.key, self.metadata.schema())
        partitions = self._partitions()
        for file in self.stored:
            is_of_their_spec = file.entry.spec_id == self.pending[0].entry.spec_id
            if partitions is not None and is_of_their_spec and file.partition not in partitions:
                continue
            if parts := tuple(part for part in index if key.may_have(file.entry, part)):
                yield file, parts

    def _partitions(self) -> set[tuple[int, str]] | None:
        """Return the partitions of all rows of the pending keys, in files of their spec; None if they may be in any.

        Rows with the same key are in the same partition if this is made of nothing but the key.
        """
        metadata = self.metadata
        specs = {each.entry.spec_id for each in self.pending}
        if len(specs) != 1:
            return None
        fields = metadata.specs()[specs.pop()].fields
        for field in fields:
            if isinstance(field.transform, VoidTransform):
                continue
            # As values 0.0 and -0.0 are the same key, and they are different partitions.
            is_exact = not isinstance(_type(field.source_id, metadata.schema()), FloatType | DoubleType)
            if field.source_id not in self.versions.key or not is_exact:
                return None
        return {each.partition for each in self.pending}


def plan_merge(table: Table, scope: MergeScope, files: BranchFiles) -> MergePlan | None:
    """Return what to do; None if no rows are pending. Raises Unmergeable."""
    schema, versions = table.schema(), scope.definition.versions(table.schema())
    if versions is None:
        raise Unmergeable(
            f"its rows are to be unique by ({scope.definition.key_names(schema)}), and a column of that key or one of "
            f"the connector's own was dropped: {way_out(scope.definition, table.metadata)}"
        )
    if (arrow := arrow_schema(schema)) is None:
        raise Unmergeable(
            "it has columns of types that this connector does not write, so its files cannot be written again. Drop "
            "those columns"
        )
    arriving = files.of(table, scope.pending) if scope.pending is not None else []
    content = files.of(table, scope.target)
    # Some deletes may be left that apply to no file any more, as after a compaction.
    if any(each.has_equality_deletes for each in (*arriving, *content)):
        raise Unmergeable(
            "another engine has deleted rows from it by equality deletes, which this connector does not apply. "
            "Compact the table (in Athena OPTIMIZE, in Spark rewrite_data_files with delete-file-threshold 1), and "
            "sync again"
        )
    if any(each.entry.file_format != FileFormat.PARQUET for each in (*arriving, *content)):
        raise Unmergeable(
            "some of its files are no Parquet files. Set its property write.format.default to parquet and rewrite them "
            "(in Spark rewrite_data_files with rewrite-all)"
        )
    # A removal, which is by path, would remove all of them, and a file's rows are looked at once for each.
    if len({each.path for each in (*arriving, *content)}) < len(arriving) + len(content):
        raise Unmergeable(
            "it lists a file more than once, so that its rows are there more than once. Write its files again (in "
            "Spark rewrite_data_files with rewrite-all), and sync again"
        )
    unique = _unique(content, table, scope, files)
    pending = [*(file for file in content if file.path not in unique), *arriving]
    if not pending:
        return None
    stored = tuple(file for file in content if file.path in unique)
    listed_in = files.manifests_of_deletes(table, scope.target)
    return MergePlan(table, scope, versions, arrow, tuple(pending), len(arriving), stored, listed_in)


def _unique(content: Sequence[LiveFile], table: Table, scope: MergeScope, files: BranchFiles) -> frozenset[str]:
    """Return the paths of files of the content no two rows of which, in all of them, have the same key.

    Those are the files of the last snapshot that was unique, unless rows that were deleted from them are back.
    """
    if scope.is_unique(table.metadata):
        return frozenset(file.path for file in content)
    if (snapshot := scope.last_unique(table.metadata)) is None:
        return frozenset()
    deletes = {file.path: set(file.state) for file in files.at(snapshot, table.io)}
    return frozenset(file.path for file in content if file.path in deletes and deletes[file.path] <= set(file.state))


def _type(id_: int, schema: Schema) -> object:
    return schema.find_type(id_) if schema.find_column_name(id_) is not None else None


# --- the jobs, and their results by what they depend on ---------------------------------------------------------------


_SMALL_BYTES = 2 * 1024 * 1024
"""Files up to this size are looked at by one task, and those that lose rows become one: each costs requests, more than
to encode its rows again."""

_TOGETHER_BYTES = 16 * 1024 * 1024
_MOST_TOGETHER = 200
"""Limits of the small files of one task, which it holds in memory."""


@dataclass(frozen=True, slots=True)
class _FoundWinners:
    """The winners of all parts of the keys, as `Winners` has those of one. `name` is their index's."""

    name: str
    keys: int
    index: tuple[IndexPart, ...]
    losers: Mapping[int, RowSet]
    tombstones: Mapping[int, RowSet]


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
    """Runs what a plan needs and is not known yet. Results are asked for by plan: StalePlan if one is missing."""

    def __init__(self, jobs: Jobs, access: AwsAccess, folder: str, codec: str, deletes: Deletes) -> None:
        """New files lie in `folder`, an S3 URI without a slash at its end, or in the folder of those they replace."""
        self._executors = jobs.executors
        self._scratch = jobs.scratch
        self._access = access
        self._folder = folder
        self._codec = codec
        self._deletes = deletes
        self._winners: tuple[Hashable, _FoundWinners] | None = None
        self.removals = Removals(jobs.executors)
        self._indexes: list[IndexPart] = []
        self._touched: tuple[MergePlan, _FoundWinners, list[_Losers]] | None = None

    def run(self, plan: MergePlan) -> None:
        """Run the jobs that the plan needs. Raises ConnectorError if one has failed."""
        if self._winners is None or self._winners[0] != _key_of_winners(plan):
            self._find_winners(plan)
        found = self._winners_of(plan)
        self._remove({_key_of_probe(files, plan, found): files for files in self._files_touched(plan, found)}, plan)
        self._remove({_key_of_removal(files, plan): files for files in self._by_task(plan, self._dead(plan))}, plan)

    def from_stored(self, plan: MergePlan) -> list[tuple[list[LiveFile], Removed]]:
        """Return what became of the stored files that were looked at."""
        found = self._winners_of(plan)
        return [
            ([each.file for each in files], self.removals.of(_key_of_probe(files, plan, found)))
            for files in self._files_touched(plan, found)
        ]

    def from_pending(self, plan: MergePlan) -> list[tuple[list[int], Removed]]:
        """Return what became of pending files from which rows had to be removed, by their numbers."""
        return [
            ([each.number for each in files], self.removals.of(_key_of_removal(files, plan)))
            for files in self._by_task(plan, self._dead(plan))
        ]

    def merged_keys(self, plan: MergePlan) -> int:
        """Return of how many keys a pending row comes into the table."""
        found = self._winners_of(plan)
        without = united((found.tombstones, self._superseded(plan)))
        return found.keys - sum(len(each.rows()) for each in without.values())

    def delete_indexes(self) -> None:
        """Delete the indexes, which nobody will look at any more. Raises errors of S3 and of the disk."""
        for part in self._indexes:
            if (path := local_path(part.uri)) is not None:
                path.unlink(missing_ok=True)
            elif part.uri:
                delete(self._access.client("s3"), part.uri)
        self._indexes = []

    def _files_touched(self, plan: MergePlan, found: _FoundWinners) -> list[_Losers]:
        """Return what `MergePlan.touched` yields, by task. It is asked for again and again."""
        if self._touched is None or self._touched[0] is not plan or self._touched[1] is not found:
            touched = (_Losing(file, index=parts) for file, parts in plan.touched(found.index))
            self._touched = plan, found, [*_together(touched)]
        return self._touched[2]

    def _by_task(self, plan: MergePlan, dead: Mapping[int, RowSet | None]) -> list[_Losers]:
        """Return the pending files that are named by number, by task."""
        losing = [_Losing(plan.pending[number], rows, (), number) for number, rows in dead.items()]
        return [
            files
            for arrive in (False, True)
            for files in _together(each for each in losing if plan.arrives(each.number) == arrive)
        ]

    def _find_winners(self, plan: MergePlan) -> None:
        name, parts = uuid4().hex, plan.parts
        folder = f"{self._scratch()}/{name}" if plan.stored else None
        sources = [each.source(plan.metadata) for each in plan.pending]
        # Without a shuffle, one task reads them all.
        count = 1 if parts == 1 else max(1, min(len(sources), self._executors.parallelism()))
        removals = self._removals(plan) if parts == 1 else {}
        names = {partition: task.name for partition, task in removals.items()}
        at_once = tuple(removals.values())
        bounds = pairwise(len(sources) * number // count for number in range(count + 1))
        tasks = [
            WinnersTask(
                tuple(sources[begin:end]),
                begin,
                plan.columns,
                plan.versions,
                parts,
                folder,
                self._access,
                plan.pooled,
                at_once,
            )
            for begin, end in bounds
        ]
        if parts == 1:
            results = self._executors.run(winners, tasks)
        else:
            results = self._executors.exchange(produce_versions, tasks, consume_versions, parts)
        for each in results:
            if not isinstance(each, Failed) and each.index is not None:
                self._indexes.append(each.index)
        removed = {each.name: each for part in results if isinstance(part, Winners) for each in part.removed}
        self.removals.written += [file for each in removed.values() for file in each.written]
        winning = results_or_raise(results)
        found = _FoundWinners(
            name,
            sum(each.keys for each in winning),
            tuple(each.index for each in winning if each.index is not None),
            united(each.losers for each in winning),
            united(each.tombstones for each in winning),
        )
        self._winners = _key_of_winners(plan), found
        losing = self._by_task(plan, united((found.losers, found.tombstones)))
        self.removals.results |= {
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

    def _remove(self, losers: Mapping[Hashable, _Losers], plan: MergePlan) -> None:
        known = self.removals.results
        self.removals.run({key: self._task(files, plan) for key, files in losers.items() if key not in known})

    def _winners_of(self, plan: MergePlan) -> _FoundWinners:
        if self._winners is None or self._winners[0] != _key_of_winners(plan):
            raise StalePlan
        return self._winners[1]

    def _superseded(self, plan: MergePlan) -> dict[int, RowSet]:
        """Return the pending rows that lose to stored ones, by the number of their file."""
        return united(result.superseded for _, result in self.from_stored(plan))

    def _dead(self, plan: MergePlan) -> dict[int, RowSet]:
        """Return the pending rows that do not come into the table."""
        found = self._winners_of(plan)
        return united((found.losers, found.tombstones, self._superseded(plan)))

    def _task(self, files: _Losers, plan: MergePlan) -> RemoveTask:
        # Format version 1 has no delete files (Iceberg spec: Version 2).
        deletes = self._deletes if plan.metadata.format_version > 1 else "copy_on_write"
        if len(files) > 1 and plan.arrives(files[0].number):
            deletes = "copy_on_write"  # Nobody has read these files. Several with deletes each would cost readers more.
        return RemoveTask(
            uuid4().hex,
            tuple(Removal(each.file.source(plan.metadata), each.dead) for each in files),
            plan.versions,
            plan.schema,
            folder_of_new_file(files[0].file.path, self._folder),
            self._codec,
            deletes,
            self._access,
            tuple({part.uri or part.content: part for each in files for part in each.index}.values()),
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


def _key_of_winners(plan: MergePlan) -> Hashable:
    files = tuple(each.state for each in plan.pending)
    return files, plan.pooled, plan.versions, plan.metadata.current_schema_id, bool(plan.stored)


def _key_of_probe(files: _Losers, plan: MergePlan, found: _FoundWinners) -> Hashable:
    return tuple(each.file.state for each in files), found.name, plan.metadata.current_schema_id


def _key_of_removal(files: _Losers, plan: MergePlan) -> Hashable:
    return tuple((each.file.state, each.dead) for each in files), plan.metadata.current_schema_id
