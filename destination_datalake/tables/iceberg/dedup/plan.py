"""The plan of a merge for one state of a table, and the jobs that the plan needs.

A plan keeps the bounds of the key's columns of each file, and no other metrics. Manifests and data files are immutable,
so entries of manifests and results of jobs are reused when a merge is planned again.
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
from destination_datalake.tables.iceberg.dedup.definition import MergeScope, remedy_for_key
from destination_datalake.tables.iceberg.rework import Removals, StalePlan, folder_of_new_file
from destination_datalake.tables.iceberg.schema import arrow_schema
from destination_datalake.tables.iceberg.snapshots.branch_files import BranchFiles, LiveFile, PartitionKey
from destination_datalake.tables.iceberg.snapshots.entries import KeyColumns

if TYPE_CHECKING:
    from destination_datalake.tables.context import Jobs

_ROWS_OF_A_PART = 1_000_000
"""Pending rows per task that finds winners: the keys of more rows are divided among several tasks."""


class Unmergeable(Exception):
    """The table cannot be merged. The message is a clause about it, with the remedy, without a full stop."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The files of a merge in one state of a table.

    The rows in `pending` are merged among themselves and into the rows in `stored`, which are unique. The last
    `arriving` of the pending files are on the pending branch. The other pending files are on the target branch already,
    as another writer has appended to the table or replaced its content; they stay unless rows are removed from them.
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
        return frozenset(path for file in (*self.pending, *self.stored) for path in file.state)

    @property
    def columns(self) -> pa.Schema:
        """The columns of the versions, in the table's present types."""
        return pa.schema([field for field in self.schema if field_id(field) in self.versions.columns])

    @property
    def pending_in_target(self) -> int:
        """How many of the pending files, the first ones, are on the target branch."""
        return len(self.pending) - self.arriving

    def arrives(self, number: int) -> bool:
        """Whether the pending file with this number is on the pending branch."""
        return number >= self.pending_in_target

    @property
    def parts(self) -> int:
        """The number of parts into which the keys are divided. One task finds the winners of one part."""
        return max(1, -(-sum(file.entry.record_count for file in self.pending) // _ROWS_OF_A_PART))

    def may_change(self, index: Sequence[IndexPart]) -> Iterator[tuple[LiveFile, tuple[IndexPart, ...]]]:
        """Yield the stored files that may have rows with keys of an index, and the parts of it with these keys."""
        key = KeyColumns.of(self.versions.key, self.metadata.schema())
        partitions = self._partitions()
        for file in self.stored:
            has_same_spec = file.entry.spec_id == self.pending[0].entry.spec_id
            if partitions is not None and has_same_spec and file.partition not in partitions:
                continue
            if parts := tuple(part for part in index if key.may_have(file.entry, part)):
                yield file, parts

    def _partitions(self) -> set[tuple[int, str]] | None:
        """Return the partitions, of the pending files' spec, that can have rows with pending keys; None if any can.

        Rows with the same key are in the same partition if all partition fields derive from columns of the key.
        """
        metadata = self.metadata
        specs = {file.entry.spec_id for file in self.pending}
        if len(specs) != 1:
            return None
        fields = metadata.specs()[specs.pop()].fields
        for field in fields:
            if isinstance(field.transform, VoidTransform):
                continue
            # 0.0 and -0.0 are the same key, but different partitions.
            is_exact = not isinstance(_type(field.source_id, metadata.schema()), FloatType | DoubleType)
            if field.source_id not in self.versions.key or not is_exact:
                return None
        return {file.partition for file in self.pending}


def plan_merge(table: Table, scope: MergeScope, files: BranchFiles) -> MergePlan | None:
    """Return the plan; None without pending rows. Raises Unmergeable."""
    schema, versions = table.schema(), scope.definition.versions(table.schema())
    if versions is None:
        raise Unmergeable(
            f"its rows must be unique by ({scope.definition.key_names(schema)}), and a column of that key or one of "
            f"the connector's own was dropped: {remedy_for_key(scope.definition, table.metadata)}"
        )
    if (arrow := arrow_schema(schema)) is None:
        raise Unmergeable(
            "it has columns of types that this connector does not write, so its files cannot be written again. Drop "
            "those columns"
        )
    arriving = files.of(table, scope.pending) if scope.pending is not None else []
    content = files.of(table, scope.target)
    # By file: a table may have delete files that apply to no data file any more, for example after a compaction.
    if any(file.has_equality_deletes for file in (*arriving, *content)):
        raise Unmergeable(
            "another engine has deleted rows from it by equality deletes, which this connector does not apply. "
            "Compact the table (in Athena OPTIMIZE, in Spark rewrite_data_files with delete-file-threshold 1), and "
            "sync again"
        )
    if any(file.entry.file_format != FileFormat.PARQUET for file in (*arriving, *content)):
        raise Unmergeable(
            "some of its files are not Parquet files. Set its property write.format.default to parquet and rewrite "
            "them (in Spark rewrite_data_files with rewrite-all)"
        )
    # Files are removed by path: all entries of a file would go with one. And its rows would be merged twice.
    if len({file.path for file in (*arriving, *content)}) < len(arriving) + len(content):
        raise Unmergeable(
            "it lists a file more than once, so it has the rows of this file more than once. Rewrite its files (in "
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
    """Return the paths of the content's files whose rows, taken together, are unique by the key.

    These are the files of the last unique snapshot, except files of which deleted rows were restored since.
    """
    if scope.is_unique(table.metadata):
        return frozenset(file.path for file in content)
    if (snapshot := scope.last_unique(table.metadata)) is None:
        return frozenset()
    deletes = {file.path: set(file.state) for file in files.at(snapshot, table.io)}
    return frozenset(file.path for file in content if file.path in deletes and deletes[file.path] <= set(file.state))


def _type(id_: int, schema: Schema) -> object:
    return schema.find_type(id_) if schema.find_column_name(id_) is not None else None


# --- the jobs, with a cache of their results ---------------------------------------------------------------


_SMALL_BYTES = 2 * 1024 * 1024
"""Files up to this size are read together by one task, and those that lose rows are rewritten as one file. For such
files, requests cost more than encoding."""

_MAX_GROUP_BYTES = 16 * 1024 * 1024
_MAX_GROUP_FILES = 200
"""Limits of the small files of one task, which holds them in memory."""


@dataclass(frozen=True, slots=True)
class _MergeWinners:
    """The winners of all parts of the keys; `Winners` are those of one part. `name` is the name of their index."""

    name: str
    keys: int
    index: tuple[IndexPart, ...]
    losers: Mapping[int, RowSet]
    tombstones: Mapping[int, RowSet]


@dataclass(frozen=True, slots=True)
class _FileWithDeadRows:
    """A file from which a job removes rows: the `dead` ones, and those that a row in the index replaces.

    `number` is the number of a pending file, -1 for a stored file.
    """

    live: LiveFile
    dead: RowSet | None = None
    index: tuple[IndexPart, ...] = ()
    number: int = -1


_FileGroup = tuple[_FileWithDeadRows, ...]
"""The files of one task."""


@dataclass(frozen=True, slots=True)
class MergeJobResults:
    """Results of removals: from stored files, and from pending files by their numbers. `keys` get a pending row."""

    stored: list[tuple[list[LiveFile], Removed]]
    pending: list[tuple[list[int], Removed]]
    keys: int


class MergeJobs:
    """Runs the jobs of a plan that have no result yet."""

    def __init__(self, jobs: Jobs, access: AwsAccess, folder: str, codec: str, deletes: Deletes) -> None:
        """Write new files to `folder`, a URI without a slash at its end, or to the folder of the replaced file."""
        self._executors = jobs.executors
        self._scratch = jobs.scratch
        self._access = access
        self._folder = folder
        self._codec = codec
        self._deletes = deletes
        self._winners: tuple[Hashable, _MergeWinners] | None = None
        self.removals = Removals(jobs.executors)
        self._indexes: list[IndexPart] = []

    def run(self, plan: MergePlan) -> None:
        """Run the jobs. Raises ConnectorError if one fails."""
        if self._winners is None or self._winners[0] != _key_of_winners(plan):
            self._find_winners(plan)
        winners = self._winners_of(plan)
        probes = self._probes(plan, winners)
        self._remove(probes, plan)
        superseded = united(self.removals.of(key).superseded for key in probes)
        self._remove(_by_key(plan, (winners.losers, winners.tombstones, superseded)), plan)

    def results(self, plan: MergePlan) -> MergeJobResults:
        """Return the results of all jobs. Raises StalePlan if a job has no result yet."""
        winners = self._winners_of(plan)
        probes = self._probes(plan, winners)
        stored = [([file.live for file in files], self.removals.of(key)) for key, files in probes.items()]
        superseded = united(result.superseded for _, result in stored)
        losers = _by_key(plan, (winners.losers, winners.tombstones, superseded))
        pending = [([file.number for file in files], self.removals.of(key)) for key, files in losers.items()]
        not_inserted = united((winners.tombstones, superseded))
        keys = winners.keys - sum(len(row_set.rows()) for row_set in not_inserted.values())
        return MergeJobResults(stored, pending, keys)

    def delete_indexes(self) -> None:
        """Delete the indexes when the merge has ended. Raises errors of S3 and of the disk."""
        for part in self._indexes:
            if (path := local_path(part.uri)) is not None:
                path.unlink(missing_ok=True)
            elif part.uri:
                delete(self._access.client("s3"), part.uri)
        self._indexes = []

    def _probes(self, plan: MergePlan, winners: _MergeWinners) -> dict[Hashable, _FileGroup]:
        """Return the stored files that may have rows with pending keys, by the key of their task's result."""
        files = (_FileWithDeadRows(file, index=parts) for file, parts in plan.may_change(winners.index))
        schema_id = plan.metadata.current_schema_id
        return {(tuple(file.live.state for file in group), winners.name, schema_id): group for group in _grouped(files)}

    def _find_winners(self, plan: MergePlan) -> None:
        name, parts = uuid4().hex, plan.parts
        folder = f"{self._scratch()}/{name}" if plan.stored else None
        sources = [file.source(plan.metadata) for file in plan.pending]
        # One part needs no shuffle, so one task reads all files.
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
                plan.pending_in_target,
                at_once,
            )
            for begin, end in bounds
        ]
        if parts == 1:
            results = self._executors.run(winners, tasks)
        else:
            results = self._executors.exchange(produce_versions, tasks, consume_versions, parts)
        for result in results:
            if not isinstance(result, Failed) and result.index is not None:
                self._indexes.append(result.index)
        removed = {result.name: result for part in results if isinstance(part, Winners) for result in part.removed}
        self.removals.written += [file for result in removed.values() for file in result.written]
        winning = results_or_raise(results)
        all_winners = _MergeWinners(
            name,
            sum(part.keys for part in winning),
            tuple(part.index for part in winning if part.index is not None),
            united(part.losers for part in winning),
            united(part.tombstones for part in winning),
        )
        self._winners = _key_of_winners(plan), all_winners
        self.removals.results |= {
            key: removed[name]
            for key, files in _by_key(plan, (all_winners.losers, all_winners.tombstones)).items()
            if (name := names.get(files[0].live.partition, "")) in removed
        }

    def _removals(self, plan: MergePlan) -> Mapping[PartitionKey, RemoveTask]:
        """Return removals by partition that the job that finds winners can do too, as it has the files in memory.

        Only if the files are few, small, and all pending. Rows that lose to stored rows are removed later.
        """
        entries = [file.entry for file in plan.pending]
        is_small = (
            not plan.pending_in_target
            and len(entries) <= _MAX_GROUP_FILES
            and sum(entry.file_size_in_bytes for entry in entries) <= _MAX_GROUP_BYTES
            and all(entry.file_size_in_bytes <= _SMALL_BYTES and not entry.sort_order_id for entry in entries)
        )
        if not is_small:
            return {}
        # The access of the enclosing task is used: it may be that of the executors' own role or session.
        all_files = (_FileWithDeadRows(file, number=number) for number, file in enumerate(plan.pending))
        return {
            files[0].live.partition: replace(self._task(files, plan), access=AwsAccess(self._access.region))
            for files in _grouped(all_files)
        }

    def _remove(self, losers: Mapping[Hashable, _FileGroup], plan: MergePlan) -> None:
        known = self.removals.results
        self.removals.run({key: self._task(files, plan) for key, files in losers.items() if key not in known})

    def _winners_of(self, plan: MergePlan) -> _MergeWinners:
        if self._winners is None or self._winners[0] != _key_of_winners(plan):
            raise StalePlan
        return self._winners[1]

    def _task(self, files: _FileGroup, plan: MergePlan) -> RemoveTask:
        # Format version 1 has no delete files (Iceberg spec: Version 2).
        deletes = self._deletes if plan.metadata.format_version > 1 else "copy_on_write"
        if len(files) > 1 and plan.arrives(files[0].number):
            deletes = "copy_on_write"  # One small file is cheaper for readers than several with position deletes.
        return RemoveTask(
            uuid4().hex,
            tuple(Removal(file.live.source(plan.metadata), file.dead) for file in files),
            plan.versions,
            plan.schema,
            folder_of_new_file(files[0].live.path, self._folder),
            self._codec,
            deletes,
            self._access,
            tuple({part.uri or part.content: part for file in files for part in file.index}.values()),
        )


def _grouped(files: Iterable[_FileWithDeadRows]) -> Iterator[_FileGroup]:
    """Yield the files of each task: a large or sorted file alone, small files of a partition together."""
    waiting: dict[PartitionKey, list[_FileWithDeadRows]] = {}
    for file in files:
        entry = file.live.entry
        if entry.file_size_in_bytes > _SMALL_BYTES or entry.sort_order_id:
            yield (file,)
            continue
        of_partition = waiting.setdefault(file.live.partition, [])
        size = sum(other.live.entry.file_size_in_bytes for other in of_partition)
        if len(of_partition) == _MAX_GROUP_FILES or size + entry.file_size_in_bytes > _MAX_GROUP_BYTES:
            yield tuple(of_partition)
            of_partition.clear()
        of_partition.append(file)
    yield from map(tuple, waiting.values())


def _key_of_winners(plan: MergePlan) -> Hashable:
    files = tuple(file.state for file in plan.pending)
    return files, plan.pending_in_target, plan.versions, plan.metadata.current_schema_id, bool(plan.stored)


def _by_key(plan: MergePlan, dead_rows: Iterable[Mapping[int, RowSet]]) -> dict[Hashable, _FileGroup]:
    """Return the pending files with dead rows, by the key of their task's result."""
    files = [_FileWithDeadRows(plan.pending[number], rows, (), number) for number, rows in united(dead_rows).items()]
    return {
        (tuple((file.live.state, file.dead) for file in group), plan.metadata.current_schema_id): group
        for arrives in (False, True)
        for group in _grouped(file for file in files if plan.arrives(file.number) == arrives)
    }
