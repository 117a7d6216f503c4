"""Merges pending rows into the content of a table, so that the content has one row per key.

Pending rows are committed rows on a branch of their own, which readers do not see. A merge is one commit, so readers
see the content either before or after the merge. If the process dies during a merge, the pending rows stay for the next
sync, and the new files become orphan files.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import S3Address, delete
from destination_datalake.errors import ConnectorError, counted
from destination_datalake.files.dedup.tasks import (
    Deletes,
    IndexPart,
    Removal,
    Removed,
    RemoveTask,
    RowSet,
    Winners,
    WinnersTask,
    local_path,
    united,
)
from destination_datalake.files.dedup.winners import consume_versions, produce_versions, winners
from destination_datalake.files.jobs import Failed, results_or_raise
from destination_datalake.tables.context import MergeFigures
from destination_datalake.tables.iceberg.branches import (
    PENDING_BRANCH,
    has_new_files,
    history,
    remove_merged_branches,
    state_of,
    summary_number,
    unique_property,
)
from destination_datalake.tables.iceberg.commit import TableOperations, set_property
from destination_datalake.tables.iceberg.dedup.plan import PENDING_BY, UNIQUE_BY, MergePlan, plan_merge
from destination_datalake.tables.iceberg.maintenance.references import Deletion, File, References, is_garbage_collected
from destination_datalake.tables.iceberg.rework import Removals, Rework, StalePlan, folder_of_new_file
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.files import (
    BranchFiles,
    Entries,
    LiveFile,
    PartitionKey,
    applies_only_to,
    live_entries,
    position_deletes_entry,
)

if TYPE_CHECKING:
    from destination_datalake.files.plan import FilePlan, WrittenFile
    from destination_datalake.tables.context import Jobs, TableContext
    from destination_datalake.tables.iceberg.dedup.plan import MergeScope
    from destination_datalake.tables.table import TableName

_logger = logging.getLogger(__name__)

MAX_PENDING_BYTES = 2 * 1024**3
MAX_PENDING_AGE = timedelta(minutes=30)
RETRY_DELAY = timedelta(minutes=10)
"""The pause after a failed merge. Without this pause, every batch would start another merge."""

_ATTEMPTS = 8
_HIGH_AMPLIFICATION = 20
_BYTES = "total-files-size"


def is_merge_due(metadata: TableMetadata, now: datetime) -> bool:
    """Return whether over 2 GiB of files are pending, or the oldest file has been pending for over half an hour."""
    snapshots = [*history(PENDING_BRANCH, metadata)]
    if not snapshots:
        return False
    # The pending branch begins without a parent, so its history contains no snapshots of main.
    head, oldest = snapshots[0], snapshots[-1]
    if (summary_number(head, _BYTES) or 0) > MAX_PENDING_BYTES:
        return True
    return now - datetime.fromtimestamp(oldest.timestamp_ms / 1000, now.tzinfo) > MAX_PENDING_AGE


class Writer(Protocol):
    """The interface that a merge requires of the sync that runs the merge."""

    def snapshot_properties(self, branch: str, metadata: TableMetadata) -> dict[str, str]:
        """Return the properties for the summary of a new snapshot on `branch`."""

    def require(self, metadata: TableMetadata) -> None:
        """Raise an error if the sync may no longer write to the table."""

    def end_merge(self, table: Table, transaction: Transaction) -> None:
        """Add the sync's own changes to the merge's commit, such as the publication of an overwrite."""


class MergeResult:
    """The files that a merge adds to and removes from its target branch, with numbers for the sync's report.

    Sizes are in bytes. The constructor raises StalePlan if a job of the plan has no result yet.
    """

    def __init__(self, plan: MergePlan, jobs: MergeJobs) -> None:
        self._plan = plan
        self._entries = Entries(plan.metadata)
        self.added: list[IcebergFile] = []
        self.removed: list[IcebergFile] = []
        self.listed_in: set[str] = set()
        """The paths of the manifests that list the removed data files."""
        self.used: set[str] = set()
        """The URIs of the new files that the commit adds to the table."""
        self.obsolete: list[str] = []
        """The URIs of files to which probably only the removed pending branch referred."""
        self.obsolete_since = 0
        """The sequence number of the first commit to the pending branch. No obsolete file is older than this commit."""
        self.rewritten = self.with_deletes = self.by_reference = self.bytes_written = 0
        results = jobs.results(plan)
        for files, result in results.stored:
            self._replace(files, result)
        self._add_pending(results.pending)
        self.pending_rows = sum(file.entry.record_count for file in plan.pending)
        self.pending_bytes = sum(file.entry.file_size_in_bytes for file in plan.pending)
        self.replaced = sum(result.replaced for _, result in results.stored)
        self.deleted = sum(result.deleted for _, result in results.stored)
        self.inserted = max(0, results.keys - self.replaced)

    @property
    def change(self) -> Change:
        """The added and removed files, as the change of the merge's snapshot."""
        return Change(self.added, self.removed, frozenset(self.listed_in))

    @property
    def figures(self) -> MergeFigures:
        """The numbers of the merge for the sync's report."""
        return MergeFigures(1, self.pending_rows, self.replaced, self.deleted, self.pending_bytes, self.bytes_written)

    def describe(self, key: str, deletes: Deletes) -> str:
        """Return the log message about the merge, without the table's name.

        `key` contains the names of the key's columns. If the merge wrote much more than was pending, the message says
        how to write less.
        """
        amplification = self.bytes_written / max(1, self.pending_bytes)
        with_deletes = f", added position deletes to {counted(self.with_deletes, 'file')}" if self.with_deletes else ""
        text = (
            f"merged {counted(self.pending_rows, 'row')} by ({key}): {self.inserted:,} inserted, {self.replaced:,} "
            f"replaced, {self.deleted:,} deleted. Rewrote {counted(self.rewritten, 'file')}{with_deletes} and added "
            f"{counted(self.by_reference, 'file')} unchanged. Wrote {self.bytes_written / 1e6:,.1f} MB for "
            f"{self.pending_bytes / 1e6:,.1f} MB of pending rows ({amplification:,.1f} times as much)."
        )
        if amplification <= _HIGH_AMPLIFICATION:
            return text
        option = "set dedup.deletes to merge_on_read, " if deletes == "copy_on_write" else ""
        return (
            f"{text} If one row of a file is replaced, the whole file is rewritten. To write less, {option}partition "
            "or sort by the key (partition_by, sort_by), or run fewer syncs with more records."
        )

    def _add_pending(self, results: Sequence[tuple[Sequence[int], Removed]]) -> None:
        plan, rewritten = self._plan, set[int]()
        deletes: dict[int, WrittenFile] = {}
        for numbers, result in results:
            if not plan.arrives(numbers[0]):
                self._replace([plan.pending[number] for number in numbers], result)
                continue
            rewritten |= {numbers[place] for place in result.obsolete}
            deletes |= {numbers[place]: file for place, file in result.position_deletes.items()}
            if result.rewritten is not None:
                self._add(plan.pending[numbers[result.obsolete[0]]], result.rewritten)
        entries = self._arriving_entries()
        for number, file in enumerate(plan.pending):
            if not plan.arrives(number) or number in rewritten:
                continue
            self.added.append(entries[file.path])
            self.by_reference += 1
            if number in deletes:
                self._add_deletes(file, deletes[number])
            else:
                # Data files and position deletes get the sequence number of the same snapshot, so the deletes still
                # apply (Iceberg spec: Scan Planning).
                self.added += [delete_file for delete_file in file.deletes if delete_file not in self.added]

    def _replace(self, files: Sequence[LiveFile], result: Removed) -> None:
        """Replace files of the target branch by the new files of the task that removed rows from the old ones."""
        for place, file in enumerate(files):
            if place not in result.obsolete and place not in result.position_deletes:
                continue
            # The new delete file or data file takes these deletes into account. Delete files for several data files
            # stay.
            self.removed += [delete_file for delete_file in file.deletes if applies_only_to(delete_file, file.path)]
            if place in result.position_deletes:
                self._add_deletes(file, result.position_deletes[place])
            else:
                self.removed.append(file.entry)
                self.listed_in.add(file.manifest)
                self.rewritten += 1
        if result.rewritten is not None:
            self._add(files[result.obsolete[0]], result.rewritten)

    def _add(self, file: LiveFile, new: WrittenFile) -> None:
        entry = self._entries.of_compacted(new, file.entry, file.entry.sort_order_id)
        assert entry is not None, "the schema is that of the plan"
        self.added.append(entry)
        self._use(new)

    def _add_deletes(self, file: LiveFile, new: WrittenFile) -> None:
        self.added.append(position_deletes_entry(new, file.entry))
        self.with_deletes += 1
        self._use(new)

    def _use(self, new: WrittenFile) -> None:
        self.used.add(new.uri)
        self.bytes_written += new.size

    def _arriving_entries(self) -> dict[str, IcebergFile]:
        """Return the manifest entries of the pending branch's files, with all metrics, by path.

        Read the entries again, because the plan keeps only the metrics of the columns that the merge compares.
        """
        plan = self._plan
        wanted = {file.manifest for number, file in enumerate(plan.pending) if plan.arrives(number)}
        if plan.pending_head is None or not wanted:
            return {}
        return {
            entry.data_file.file_path: entry.data_file
            for manifest in plan.pending_head.manifests(plan.table.io)
            if manifest.manifest_path in wanted
            for entry in live_entries(manifest, plan.table.io)
        }


class Merge(Rework[MergePlan, MergeResult]):
    """One merge of a table's pending rows. After a conflict, the merge is planned and attempted again.

    `plan` defines the folder and codec of new files.
    """

    def __init__(
        self,
        table: TableName,
        operations: TableOperations,
        context: TableContext,
        deletes: Deletes,
        scope: MergeScope,
        plan: FilePlan,
        writer: Writer,
    ) -> None:
        super().__init__(
            operations,
            _ATTEMPTS,
            f"Cannot merge the pending rows of table {table}",
            "The table is unchanged, and no acknowledged rows are lost. The next sync merges the rows.",
        )
        self._table = table
        self._scope = scope
        self._deletes = deletes
        self._journal = context.journal
        self._folder = plan.folder
        self._writer = writer
        definition = scope.definition
        columns = (*definition.key, definition.cursor, definition.deleted_at)
        self._files = BranchFiles([id_ for id_ in columns if id_ is not None])
        self._jobs = MergeJobs(context.jobs, operations.access, plan.folder, plan.codec, deletes)

    def run(self) -> bool:
        """Merge pending rows. Return whether any rows were pending.

        Raises TableBusy if other writers committed first at every attempt. In this case, the rows stay pending. Also
        raises TableConflict, ConnectorError, CommitStateUnknown and errors from AWS.
        """
        try:
            merged = self.rework()
        except ConnectorError as error:
            where = self._scope.pending or self._scope.target
            message = (
                f"{error.failure.message} No acknowledged rows are lost: the branch {where} of table {self._table} "
                "contains these rows. The next sync of the stream merges the rows, unless it overwrites the table."
            )
            raise ConnectorError(replace(error.failure, message=message)) from error
        finally:
            # A failed deletion must not make a merge fail that has been committed.
            with self.operations.logging_leftovers():
                self._jobs.delete_indexes()
        if merged is None:
            return False
        table, result = merged
        self._delete_obsolete(result, table)
        key = self._scope.definition.key_names(table.schema())
        _logger.info("Table %s: %s", self._table, result.describe(key, self._deletes))
        self._journal.merged(self._table, result.figures)
        self._journal.state(self._table, state_of(table.metadata))
        return True

    def plan(self, table: Table) -> MergePlan | None:
        """Return the plan, or None if no rows are pending. Raises Unsuitable, and the errors of `Writer.require`."""
        self._writer.require(table.metadata)
        return plan_merge(table, self._scope, self._files)

    def sources(self, plan: MergePlan) -> frozenset[str]:
        """Return the URIs of the pending files, the stored files, and their delete files."""
        return plan.paths

    def run_jobs(self, plan: MergePlan) -> None:
        """Find the latest row of each key. Remove the rows that the latest row replaces from their files."""
        self._jobs.run(plan)

    def change(self, plan: MergePlan, table: Table, transaction: Transaction) -> MergeResult:
        """Add and remove the merge's files in one snapshot of the target branch. Remove the pending branch."""
        result = MergeResult(plan, self._jobs)
        change, target = result.change, self._scope.target
        # Even without changes of files, a new snapshot records that the rows are unique. The next merge then skips
        # them.
        if change.added or change.removed or not self._scope.is_unique(table.metadata):
            properties = self._writer.snapshot_properties(target, transaction.table_metadata)
            unique = unique_property(self._scope.definition.key)
            change_branch(change, target, table, transaction, {**properties, **unique})
        if self._scope.pending is not None:
            remove_merged_branches([self._scope.pending], transaction)
        if target == MAIN_BRANCH:
            self._scope.definition.write_to(UNIQUE_BY, transaction)
            set_property(PENDING_BY, None, transaction)
        # After the snapshot, because the publication of an overwrite moves main to the branch's new head.
        self._writer.end_merge(table, transaction)
        self._find_obsolete(plan, result, transaction)
        return result

    def unused(self, outcome: MergeResult | None) -> list[WrittenFile]:
        """Return the new files that the commit did not add to the table."""
        used = outcome.used if outcome is not None else set()
        return [file for file in self._jobs.removals.written if file.uri not in used]

    def _find_obsolete(self, plan: MergePlan, result: MergeResult, transaction: Transaction) -> None:
        """Store in `result.obsolete` the files to which the table probably does not refer after the commit.

        These are the pending files that the merge did not add to the content, and the pending branch's manifests and
        manifest lists. Store nothing if a tag keeps a snapshot of the branch, if an earlier snapshot may contain the
        files, or if the table may share files with another table. Manifests that an earlier commit has merged into
        another manifest become orphan files.
        """
        head = plan.pending_head
        remaining = {snapshot.snapshot_id for snapshot in transaction.table_metadata.snapshots}
        snapshots = {snapshot.snapshot_id: snapshot for snapshot in plan.metadata.snapshots}
        removed = {id_: snapshot for id_, snapshot in snapshots.items() if id_ not in remaining}
        if head is None or head.snapshot_id not in removed or not is_garbage_collected(plan.metadata):
            return
        parents = {None, *removed}
        if not all(has_new_files(snapshot) and snapshot.parent_snapshot_id in parents for snapshot in removed.values()):
            return
        added_paths = {file.file_path for file in result.added}
        pending = (file for number, file in enumerate(plan.pending) if plan.arrives(number))
        result.obsolete = [path for file in pending for path in file.state if path not in added_paths]
        manifests = head.manifests(plan.table.io)
        result.obsolete += [manifest.manifest_path for manifest in manifests if manifest.added_snapshot_id in removed]
        result.obsolete += [snapshot.manifest_list for snapshot in removed.values()]
        result.obsolete_since = min(snapshot.sequence_number or 0 for snapshot in removed.values())

    def _delete_obsolete(self, result: MergeResult, table: Table) -> None:
        """Delete the merge's obsolete files that the table does not reference. Only log failures.

        A manifest cannot reference a file that was written later, so this method reads only manifests since the first
        commit to the pending branch. In tables of format version 1, no sequence number shows the age of a manifest. In
        these tables, and in S3 Tables, the removal of orphan files deletes the obsolete files later.
        """
        # New files go to the folder `data` in the table's location.
        folder = S3Address.parse(self._folder.rpartition("/")[0])
        if result.obsolete_since == 0 or folder.is_in_s3_tables:
            return
        s3 = self.operations.access.client("s3")
        with self.operations.logging_leftovers():
            references = References(table.io, s3, result.obsolete_since)
            references.add_metadata(table.metadata, table.metadata_location)
            references.add_files()
            dead = references.unreferenced(File(path, 0) for path in result.obsolete)
            Deletion(s3, folder).delete(dead)


# --- the jobs, with a cache of their results --------------------------------------------------------------------------


_SMALL_BYTES = 2 * 1024 * 1024
"""Maximum size of a small file in bytes.

One task reads several small files, and combines the files that lose rows into one new file, because requests for small
files cost more than encoding their rows again.
"""

_MAX_GROUP_BYTES = 16 * 1024 * 1024
_MAX_GROUP_FILES = 200
"""Maximum number of small files that one task reads and holds in memory."""


@dataclass(frozen=True, slots=True)
class _MergeWinners:
    """The winners among the pending rows. The winner of a key is the latest pending row with this key.

    `name` identifies the index of the winners' keys. `losers` are pending rows that another pending row replaces.
    `tombstones` are winners that delete the row with their key. Both group the rows by the number of the pending file
    that contains them.
    """

    name: str
    keys: int
    index: tuple[IndexPart, ...]
    losers: Mapping[int, RowSet]
    tombstones: Mapping[int, RowSet]


@dataclass(frozen=True, slots=True)
class _FileWithDeadRows:
    """A file from which a job removes rows: those in `dead`, and those with a key in `index`.

    `number` is the number of a pending file, or -1 for a stored file.
    """

    live: LiveFile
    dead: RowSet | None = None
    index: tuple[IndexPart, ...] = ()
    number: int = -1


_FileGroup = tuple[_FileWithDeadRows, ...]
"""The files that one task reads."""


@dataclass(frozen=True, slots=True)
class MergeJobResults:
    """The results of removing rows from groups of files.

    `stored` contains the stored files of each group. `pending` contains the numbers of each group's pending files.
    `keys` counts the keys for which the content has a formerly pending row after the merge.
    """

    stored: list[tuple[list[LiveFile], Removed]]
    pending: list[tuple[list[int], Removed]]
    keys: int


class MergeJobs:
    """Runs the jobs of a merge's plan, and keeps their results for later attempts."""

    def __init__(self, jobs: Jobs, access: AwsAccess, folder: str, codec: str, deletes: Deletes) -> None:
        """Prepare the jobs. `folder` is a URI without a trailing slash.

        If the replaced file's folder is inside `folder`, a job writes the new file to the replaced file's folder,
        otherwise to `folder`.
        """
        self._executors = jobs.executors
        self._scratch = jobs.scratch
        self._access = access
        self._folder = folder
        self._codec = codec
        self._deletes = deletes
        self._winners: dict[Hashable, _MergeWinners] = {}
        """The winners of the last plan. The key consists of everything on which the winners depend."""
        self.removals = Removals(jobs.executors)
        self._indexes: list[IndexPart] = []

    def run(self, plan: MergePlan) -> None:
        """Run the plan's jobs that have no result yet. Raises ConnectorError if a job fails."""
        if (key := _key_of_winners(plan)) not in self._winners:
            # The winners of an earlier plan are useless once the pending files differ.
            self._winners = {key: self._find_winners(plan)}
        winners = self._winners[key]
        probes = self._probes(plan, winners)
        self._remove(probes, plan)
        # Only the probes show which pending rows are older than stored rows, so the pending files are rewritten last.
        superseded = united(self.removals.result(key).superseded for key in probes)
        self._remove(_by_key(plan, (winners.losers, winners.tombstones, superseded)), plan)

    def results(self, plan: MergePlan) -> MergeJobResults:
        """Return the results of the plan's jobs. Raises StalePlan if a job has no result yet."""
        if (winners := self._winners.get(_key_of_winners(plan))) is None:
            raise StalePlan
        probes = self._probes(plan, winners)
        stored = [([file.live for file in files], self.removals.result(key)) for key, files in probes.items()]
        superseded = united(result.superseded for _, result in stored)
        losers = _by_key(plan, (winners.losers, winners.tombstones, superseded))
        pending = [([file.number for file in files], self.removals.result(key)) for key, files in losers.items()]
        not_inserted = united((winners.tombstones, superseded))
        keys = winners.keys - sum(len(row_set.rows()) for row_set in not_inserted.values())
        return MergeJobResults(stored, pending, keys)

    def delete_indexes(self) -> None:
        """Delete the indexes of keys that the jobs have written. Call this after the merge.

        Raises errors from S3 and from the disk.
        """
        for part in self._indexes:
            if (path := local_path(part.uri)) is not None:
                path.unlink(missing_ok=True)
            elif part.uri:
                delete(self._access.client("s3"), part.uri)
        self._indexes = []

    def _probes(self, plan: MergePlan, winners: _MergeWinners) -> dict[Hashable, _FileGroup]:
        """Return groups of stored files that may contain pending keys. One task searches each group.

        The groups are returned by the key of their task's result.
        """
        files = (_FileWithDeadRows(file, index=parts) for file, parts in plan.may_change(winners.index))
        schema_id = plan.metadata.current_schema_id
        return {(tuple(file.live.state for file in group), winners.name, schema_id): group for group in _grouped(files)}

    def _find_winners(self, plan: MergePlan) -> _MergeWinners:
        name, parts = uuid4().hex, plan.parts
        folder = f"{self._scratch()}/{name}" if plan.stored else None
        sources = [file.source(plan.metadata) for file in plan.pending]
        # A single part needs no shuffle, so one task reads all files.
        count = 1 if parts == 1 else max(1, min(len(sources), self._executors.parallelism()))
        removals = self._removals(plan) if parts == 1 else {}
        names = {partition: task.name for partition, task in removals.items()}
        at_once = tuple(removals.values())
        # Split the files into `count` consecutive ranges of nearly equal length.
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
        # Remember the indexes and files of successful tasks before a failed task raises, so that they are deleted.
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
        self.removals.results |= {
            key: removed[name]
            for key, files in _by_key(plan, (all_winners.losers, all_winners.tombstones)).items()
            if (name := names.get(files[0].live.partition, "")) in removed
        }
        return all_winners

    def _removals(self, plan: MergePlan) -> Mapping[PartitionKey, RemoveTask]:
        """Return the tasks that remove rows in the same job that finds the winners, by partition.

        The job holds the pending files in memory, so it can also rewrite them. It rewrites them only if they are few
        and small, and all on the pending branch. A later job removes pending rows that lose to stored rows.
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
        # The enclosing task supplies the S3 access, which may be that of the executors' own role or session.
        all_files = (_FileWithDeadRows(file, number=number) for number, file in enumerate(plan.pending))
        return {
            files[0].live.partition: replace(self._task(files, plan), access=AwsAccess(self._access.region))
            for files in _grouped(all_files)
        }

    def _remove(self, losers: Mapping[Hashable, _FileGroup], plan: MergePlan) -> None:
        known = self.removals.results
        self.removals.run({key: self._task(files, plan) for key, files in losers.items() if key not in known})

    def _task(self, files: _FileGroup, plan: MergePlan) -> RemoveTask:
        # Format version 1 has no delete files (Iceberg spec: Version 2).
        deletes = self._deletes if plan.metadata.format_version > 1 else "copy_on_write"
        if len(files) > 1 and plan.arrives(files[0].number):
            deletes = "copy_on_write"  # Readers read one small file faster than several files with position deletes.
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
    """Yield the files of each task: one large or sorted file, or several small files of one partition."""
    waiting: dict[PartitionKey, list[_FileWithDeadRows]] = {}
    for file in files:
        entry = file.live.entry
        # A sorted file stays alone, because rows of several files in sequence would not be sorted.
        if entry.file_size_in_bytes > _SMALL_BYTES or entry.sort_order_id:
            yield (file,)
            continue
        group = waiting.setdefault(file.live.partition, [])
        size = sum(group_file.live.entry.file_size_in_bytes for group_file in group)
        if len(group) == _MAX_GROUP_FILES or size + entry.file_size_in_bytes > _MAX_GROUP_BYTES:
            yield tuple(group)
            group.clear()
        group.append(file)
    yield from map(tuple, waiting.values())


def _key_of_winners(plan: MergePlan) -> Hashable:
    # The job writes an index only if there are stored files to search, so their existence is part of the key.
    files = tuple(file.state for file in plan.pending)
    return files, plan.pending_in_target, plan.versions, plan.metadata.current_schema_id, bool(plan.stored)


def _by_key(plan: MergePlan, dead_rows: Iterable[Mapping[int, RowSet]]) -> dict[Hashable, _FileGroup]:
    """Return groups of pending files from which rows are removed, by the key of their task's result.

    `dead_rows` contains the rows to remove, by the number of the pending file.
    """
    files = [_FileWithDeadRows(plan.pending[number], rows, (), number) for number, rows in united(dead_rows).items()]
    return {
        (tuple((file.live.state, file.dead) for file in group), plan.metadata.current_schema_id): group
        # Do not mix the branches in one task: the commit removes a file of the target branch, but not an arriving file.
        for arrives in (False, True)
        for group in _grouped(file for file in files if plan.arrives(file.number) == arrives)
    }
