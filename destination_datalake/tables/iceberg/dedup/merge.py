"""Merges of pending rows into the content of a table: one row for each key, in one commit.

Readers see the content before the merge, or the content after it. A merge that dies leaves the pending rows for the
next sync, and orphaned files.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.aws.objects import S3Address
from destination_datalake.errors import ConnectorError
from destination_datalake.tables.context import Journal, MergeFigures
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
from destination_datalake.tables.iceberg.dedup.definition import PENDING_BY, UNIQUE_BY
from destination_datalake.tables.iceberg.dedup.plan import MergeJobs, MergePlan, Unmergeable, plan_merge
from destination_datalake.tables.iceberg.maintenance.deletion import Deletion, is_garbage_collected
from destination_datalake.tables.iceberg.maintenance.references import File, References
from destination_datalake.tables.iceberg.rework import Rework
from destination_datalake.tables.iceberg.snapshots.branch_files import (
    BranchFiles,
    LiveFile,
    applies_only_to,
    live_entries,
)
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.entries import Entries, position_deletes_entry
from destination_datalake.tables.table import TableBusy, TableConflict, TableName

if TYPE_CHECKING:
    from destination_datalake.files.dedup.tasks import Deletes, Removed
    from destination_datalake.files.plan import FilePlan, WrittenFile
    from destination_datalake.tables.context import Jobs
    from destination_datalake.tables.iceberg.dedup.definition import MergeScope

_logger = logging.getLogger(__name__)

MAX_PENDING_BYTES = 2 * 1024**3
MAX_PENDING_AGE = timedelta(minutes=30)
RETRY_DELAY = timedelta(minutes=10)
"""Delay after a failed merge. Without it, every batch would try again."""

_ATTEMPTS = 8
_HIGH_AMPLIFICATION = 20
_BYTES = "total-files-size"


def is_merge_due(metadata: TableMetadata, now: datetime) -> bool:
    """Whether more than 2 GiB of files are pending, or a file is pending for more than half an hour."""
    snapshots = [*history(PENDING_BRANCH, metadata)]
    if not snapshots:
        return False
    head, oldest = snapshots[0], snapshots[-1]
    if (summary_number(head, _BYTES) or 0) > MAX_PENDING_BYTES:
        return True
    return now - datetime.fromtimestamp(oldest.timestamp_ms / 1000, now.tzinfo) > MAX_PENDING_AGE


class Writer(Protocol):
    """The sync that merges."""

    def snapshot_properties(self, branch: str, metadata: TableMetadata) -> dict[str, str]:
        """Return the properties of a snapshot on a branch."""

    def require(self, metadata: TableMetadata) -> None:
        """Raise if the sync may not write to the table any more."""

    def end_merge(self, table: Table, transaction: Transaction) -> None:
        """Add changes of the sync to the commit of a merge."""


@dataclass(frozen=True, slots=True)
class Merges:
    """Runs the merges of one sync of a stream."""

    table: TableName
    operations: TableOperations
    jobs: Jobs
    deletes: Deletes
    journal: Journal = field(default_factory=Journal)

    def run(self, scope: MergeScope, plan: FilePlan, writer: Writer) -> bool:
        """Merge pending rows. Return whether any were pending. New files have the folder and codec of `plan`.

        Raises TableBusy if other writers were faster at every attempt; the rows stay pending. Raises TableConflict,
        ConnectorError, CommitStateUnknown and errors of AWS.
        """
        try:
            return _Merge(self, scope, plan, writer).run()
        except ConnectorError as error:
            where = scope.pending or scope.target
            message = (
                f"{error.failure.message} No acknowledged rows are lost: they are on the branch {where} of table "
                f"{self.table}. The next sync of the stream merges them, unless it overwrites the table."
            )
            raise ConnectorError(replace(error.failure, message=message)) from error

    def try_run(self, scope: MergeScope, plan: FilePlan, writer: Writer) -> bool:
        """Run a merge as `run`, but log TableBusy and return False."""
        try:
            self.run(scope, plan, writer)
        except TableBusy as error:
            _logger.warning("%s", error)
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Obsolete:
    """URIs of files that only the pending branch seems to have had, and the sequence number of its first commit.

    No file is older than this commit.
    """

    files: tuple[str, ...] = ()
    since: int = 0


class MergeResult:
    """The changes of a merge in a branch, and its figures. Sizes are in bytes. Raises StalePlan if a job is missing."""

    def __init__(self, plan: MergePlan, jobs: MergeJobs) -> None:
        self._plan = plan
        self._entries = Entries(plan.metadata)
        self.added: list[IcebergFile] = []
        self.removed: list[IcebergFile] = []
        self.listed_in: set[str] = set()
        """The manifests that may list the removed files."""
        self.used: set[str] = set()
        """The URIs of new files that the table has after the commit."""
        self.obsolete = _Obsolete()
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
        """The change to commit."""
        return Change(self.added, self.removed, frozenset(self.listed_in))

    @property
    def figures(self) -> MergeFigures:
        """The figures for the report of the sync."""
        return MergeFigures(1, self.pending_rows, self.replaced, self.deleted, self.pending_bytes, self.bytes_written)

    def describe(self, key: str, deletes: Deletes) -> str:
        """Return the line for the log, without the table."""
        amplification = self.bytes_written / max(1, self.pending_bytes)
        with_deletes = f", {self.with_deletes} got position deletes" if self.with_deletes else ""
        text = (
            f"{self.pending_rows} rows were merged by ({key}): {self.inserted} inserted, {self.replaced} replaced, "
            f"{self.deleted} deleted. {self.rewritten} files were rewritten{with_deletes}, {self.by_reference} added "
            f"as they were: {self.bytes_written / 1e6:.1f} MB written for {self.pending_bytes / 1e6:.1f} MB "
            f"({amplification:.1f} times as much)."
        )
        if amplification <= _HIGH_AMPLIFICATION:
            return text
        option = "dedup.deletes merge_on_read, " if deletes == "copy_on_write" else ""
        return (
            f"{text} A file with one replaced row is rewritten as a whole: {option}partitioning or sorting by the key "
            "(partition_by, sort_by), or fewer syncs with more records would write less."
        )

    def _add_pending(self, results: Sequence[tuple[Sequence[int], Removed]]) -> None:
        plan, rewritten = self._plan, set[int]()
        deletes: dict[int, WrittenFile] = {}
        for numbers, result in results:
            if not plan.arrives(numbers[0]):
                self._replace([plan.pending[number] for number in numbers], result)
                continue
            rewritten |= {numbers[place] for place in result.gone}
            deletes |= {numbers[place]: file for place, file in result.position_deletes.items()}
            if result.rewritten is not None:
                self._add(plan.pending[numbers[result.gone[0]]], result.rewritten)
        entries = self._arriving_entries()
        for number, file in enumerate(plan.pending):
            if not plan.arrives(number) or number in rewritten:
                continue
            self.added.append(entries[file.path])
            self.by_reference += 1
            if number in deletes:
                self._add_deletes(file, deletes[number])
            else:
                self.added += [deletes for deletes in file.deletes if deletes not in self.added]

    def _replace(self, files: Sequence[LiveFile], result: Removed) -> None:
        """Replace files of the branch by the result of one task."""
        for place, file in enumerate(files):
            if place not in result.gone and place not in result.position_deletes:
                continue
            if deletes := [deletes for deletes in file.deletes if applies_only_to(deletes, file.path)]:
                self.removed += deletes
                self.listed_in |= self._plan.manifests_of_deletes
            if place in result.position_deletes:
                self._add_deletes(file, result.position_deletes[place])
            else:
                self.removed.append(file.entry)
                self.listed_in.add(file.manifest)
                self.rewritten += 1
        if result.rewritten is not None:
            self._add(files[result.gone[0]], result.rewritten)

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
        """Return the entries of arriving files by path, with all metrics: the plan has those of the key only."""
        plan = self._plan
        wanted = {file.manifest for number, file in enumerate(plan.pending) if plan.arrives(number)}
        if plan.pending_head is None or not wanted:
            return {}
        manifests = [
            manifest for manifest in plan.pending_head.manifests(plan.table.io) if manifest.manifest_path in wanted
        ]
        return {
            entry.data_file.file_path: entry.data_file
            for manifest in manifests
            if manifest.manifest_path in wanted
            for entry in live_entries(manifest, plan.table.io)
        }


class _Merge(Rework[MergePlan, MergeResult]):
    """One merge of a table."""

    def __init__(self, common: Merges, scope: MergeScope, plan: FilePlan, writer: Writer) -> None:
        super().__init__(
            common.operations,
            _ATTEMPTS,
            f"Cannot merge the pending rows of table {common.table}: other writers have changed its files at every "
            "attempt. Nothing was changed, and no acknowledged rows are lost: the next sync merges them.",
        )
        self._table = common.table
        self._scope = scope
        self._deletes = common.deletes
        self._journal = common.journal
        self._folder = plan.folder
        self._writer = writer
        definition = scope.definition
        columns = (*definition.key, definition.cursor, definition.deleted_at)
        self._files = BranchFiles([id_ for id_ in columns if id_ is not None])
        self._jobs = MergeJobs(common.jobs, common.operations.access, plan.folder, plan.codec, common.deletes)

    def run(self) -> bool:
        """Merge pending rows; return whether any were pending. Raises as `Merges.run`."""
        try:
            merged = self.rework()
        finally:
            with self.operations.logging_leftovers():
                self._jobs.delete_indexes()
        if merged is None:
            return False
        table, result = merged
        self._delete_obsolete(result.obsolete, table)
        key = self._scope.definition.key_names(table.schema())
        _logger.info("Table %s: %s", self._table, result.describe(key, self._deletes))
        self._journal.merged(self._table, result.figures)
        self._journal.state(self._table, state_of(table.metadata))
        return True

    def plan(self, table: Table) -> MergePlan | None:
        """Return the plan; None without pending rows. Raises TableConflict, and errors of `Writer.require`."""
        self._writer.require(table.metadata)
        try:
            return plan_merge(table, self._scope, self._files)
        except Unmergeable as error:
            raise TableConflict(f"Cannot merge the pending rows of table {self._table}: {error}.") from error

    def sources(self, plan: MergePlan) -> frozenset[str]:
        """Return the URIs of the pending and the stored files, and of their deletes."""
        return plan.paths

    def run_jobs(self, plan: MergePlan) -> None:
        """Find the latest row of each key, and remove the rows that it replaces."""
        self._jobs.run(plan)

    def change(self, plan: MergePlan, table: Table, transaction: Transaction) -> MergeResult:
        """Replace and add files in one snapshot, and remove the branch of pending rows."""
        result = MergeResult(plan, self._jobs)
        change, target = result.change, self._scope.target
        if change.added or change.removed or not self._scope.is_unique(table.metadata):
            properties = self._writer.snapshot_properties(target, transaction.table_metadata)
            unique = unique_property(self._scope.definition.key)
            change_branch(change, target, table, transaction, {**properties, **unique})
        if self._scope.pending is not None:
            remove_merged_branches([self._scope.pending], transaction)
        if target == MAIN_BRANCH:
            self._scope.definition.write_to(UNIQUE_BY, transaction)
            set_property(PENDING_BY, None, transaction)
        self._writer.end_merge(table, transaction)
        result.obsolete = self._find_obsolete(plan, result, transaction)
        return result

    def unused(self, outcome: MergeResult | None) -> list[WrittenFile]:
        """Return the new files that the table does not have."""
        used = outcome.used if outcome is not None else set()
        return [file for file in self._jobs.removals.written if file.uri not in used]

    def _find_obsolete(self, plan: MergePlan, result: MergeResult, transaction: Transaction) -> _Obsolete:
        """Return files that are probably unreferenced after the commit: pending files without live rows, manifests and
        manifest lists of the pending branch.

        Returns nothing if a tag still has one of its snapshots, if an earlier snapshot may have the files, or if the
        table may share files with another one. Of manifests that were merged while rows were landed, only the latest
        are returned. The others become orphans.
        """
        head = plan.pending_head
        remaining = {snapshot.snapshot_id for snapshot in transaction.table_metadata.snapshots}
        snapshots = {snapshot.snapshot_id: snapshot for snapshot in plan.metadata.snapshots}
        removed = {id_: snapshot for id_, snapshot in snapshots.items() if id_ not in remaining}
        if head is None or head.snapshot_id not in removed or not is_garbage_collected(plan.metadata):
            return _Obsolete()
        parents = {None, *removed}
        if not all(has_new_files(snapshot) and snapshot.parent_snapshot_id in parents for snapshot in removed.values()):
            return _Obsolete()
        kept = {file.file_path for file in result.added}
        pending = (file for number, file in enumerate(plan.pending) if plan.arrives(number))
        files = [path for file in pending for path in file.state if path not in kept]
        manifests = head.manifests(plan.table.io)
        files += [manifest.manifest_path for manifest in manifests if manifest.added_snapshot_id in removed]
        files += [snapshot.manifest_list for snapshot in removed.values()]
        return _Obsolete(tuple(files), min(snapshot.sequence_number or 0 for snapshot in removed.values()))

    def _delete_obsolete(self, obsolete: _Obsolete, table: Table) -> None:
        """Delete the unreferenced files. A failure is logged only.

        Manifests that are older than the files cannot refer to them, so only later ones are read. Tables of format
        version 1 have no sequence numbers, by which to tell: there, the files are left to the removal of orphans.
        """
        folder = S3Address.parse(self._folder.rpartition("/")[0])
        if obsolete.since == 0 or folder.is_of_s3_tables:
            return
        s3 = self.operations.access.client("s3")
        with self.operations.logging_leftovers():
            references = References(table.io, s3, obsolete.since)
            references.add_metadata(table.metadata, table.metadata_location)
            references.add_files()
            dead = references.unreferenced(File(path, 0) for path in obsolete.files)
            Deletion(s3, folder).delete(dead)
