"""A merge: rows that are pending become part of the table's content, one for each key, in one commit.

Readers see the content of before, or that of after. A merge that dies leaves what is pending as it was, for the next
sync, and files that no table has, for the removal of orphans.
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
    forget_branches,
    has_new_files,
    history,
    says_unique,
    state_of,
    summary_number,
)
from destination_datalake.tables.iceberg.commit import TableOperations, set_property
from destination_datalake.tables.iceberg.dedup.definition import PENDING_BY, UNIQUE_BY
from destination_datalake.tables.iceberg.dedup.plan import MergeJobs, MergePlan, Unmergeable, plan_merge
from destination_datalake.tables.iceberg.maintenance.deletion import Deletion, is_garbage_collected
from destination_datalake.tables.iceberg.maintenance.references import File, References
from destination_datalake.tables.iceberg.rework import Rework
from destination_datalake.tables.iceberg.snapshots.branch_files import BranchFiles, LiveFile, is_for_one, live_entries
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.entries import Entries, position_deletes_entry
from destination_datalake.tables.table import TableBusy, TableConflict, TableName

if TYPE_CHECKING:
    from destination_datalake.files.dedup.tasks import Deletes, Removed
    from destination_datalake.files.plan import FilePlan, WrittenFile
    from destination_datalake.tables.context import Jobs
    from destination_datalake.tables.iceberg.dedup.definition import MergeScope

_logger = logging.getLogger(__name__)

MOST_BYTES = 2 * 1024**3
LONGEST = timedelta(minutes=30)
AFTER_FAILURE = timedelta(minutes=10)
"""Back-off after a failed merge; otherwise each batch would try again."""

_ATTEMPTS = 8
_HIGH_AMPLIFICATION = 20
_BYTES = "total-files-size"


def is_merge_due(metadata: TableMetadata, now: datetime) -> bool:
    """Whether more than 2 GiB of files are pending, or any for more than half an hour."""
    snapshots = [*history(PENDING_BRANCH, metadata)]
    if not snapshots:
        return False
    head, oldest = snapshots[0], snapshots[-1]
    if (summary_number(head, _BYTES) or 0) > MOST_BYTES:
        return True
    return now - datetime.fromtimestamp(oldest.timestamp_ms / 1000, now.tzinfo) > LONGEST


class Writer(Protocol):
    """What a merge asks of the sync that merges."""

    def snapshot_properties(self, branch: str, metadata: TableMetadata) -> dict[str, str]:
        """Return the properties of a snapshot on a branch."""

    def require(self, metadata: TableMetadata) -> None:
        """Raise if the sync must not write to the table any more."""

    def end_merge(self, table: Table, transaction: Transaction) -> None:
        """Add what belongs to the commit."""


@dataclass(frozen=True, slots=True)
class Merges:
    """The merges of one sync of a stream: what all of them are run with."""

    table: TableName
    operations: TableOperations
    jobs: Jobs
    deletes: Deletes
    journal: Journal = field(default_factory=Journal)

    def run(self, scope: MergeScope, plan: FilePlan, writer: Writer) -> bool:
        """Merge what is pending; files are written as the plan of the next batch says. Return whether there was any.

        Raises TableBusy if other writers were faster every time: what is pending stays so. Raises TableConflict,
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
        """Do the same, but leave it for later, and return False, if other writers are faster every time."""
        try:
            self.run(scope, plan, writer)
        except TableBusy as error:
            _logger.warning("%s", error)
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Obsolete:
    """The URIs of what the pending branch alone seems to have had, and the sequence number of its first commit.

    None of it existed long before that commit.
    """

    files: tuple[str, ...] = ()
    since: int = 0


class MergeResult:
    """What a merge, whose jobs are done, changes in a branch, and its figures. Sizes are in bytes."""

    def __init__(self, plan: MergePlan, jobs: MergeJobs) -> None:
        self._plan = plan
        self._entries = Entries(plan.metadata)
        self.added: list[IcebergFile] = []
        self.removed: list[IcebergFile] = []
        self.listed_in: set[str] = set()
        """The manifests that may list what is removed."""
        self.used: set[str] = set()
        """The URIs of new files that the table has then."""
        self.obsolete = _Obsolete()
        self.rewritten = self.with_deletes = self.by_reference = self.bytes_written = 0
        stored = jobs.from_stored(plan)
        for files, changed in stored:
            self._replace(files, changed)
        self._add_pending(jobs.from_pending(plan))
        self.pending_rows = sum(each.entry.record_count for each in plan.pending)
        self.pending_bytes = sum(each.entry.file_size_in_bytes for each in plan.pending)
        self.replaced = sum(changed.replaced for _, changed in stored)
        self.deleted = sum(changed.deleted for _, changed in stored)
        self.inserted = max(0, jobs.merged_keys(plan) - self.replaced)

    @property
    def change(self) -> Change:
        """What is committed."""
        return Change(self.added, self.removed, frozenset(self.listed_in))

    @property
    def figures(self) -> MergeFigures:
        """What the sync's report tells of it."""
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
            f"{text} Each file with one replaced row is written again: {option}partitioning or sorting by the key "
            "(partition_by, sort_by), or fewer syncs with more records would write less."
        )

    def _add_pending(self, results: Sequence[tuple[Sequence[int], Removed]]) -> None:
        plan, gone = self._plan, set[int]()
        deletes: dict[int, WrittenFile] = {}
        for numbers, result in results:
            if not plan.arrives(numbers[0]):
                self._replace([plan.pending[number] for number in numbers], result)
                continue
            gone |= {numbers[place] for place in result.gone}
            deletes |= {numbers[place]: file for place, file in result.position_deletes.items()}
            if result.rewritten is not None:
                self._add(plan.pending[numbers[result.gone[0]]], result.rewritten)
        entries = self._arriving()
        for number, file in enumerate(plan.pending):
            if not plan.arrives(number) or number in gone:
                continue
            self.added.append(entries[file.path])
            self.by_reference += 1
            if number in deletes:
                self._add_deletes(file, deletes[number])
            else:
                self.added += [each for each in file.deletes if each not in self.added]

    def _replace(self, files: Sequence[LiveFile], result: Removed) -> None:
        """Put the new form of files of one task into the place of those that are in the branch."""
        for place, file in enumerate(files):
            if place not in result.gone and place not in result.position_deletes:
                continue
            if deletes := [each for each in file.deletes if is_for_one(each, file.path)]:
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

    def _arriving(self) -> dict[str, IcebergFile]:
        """Return the entries of arriving files by path, with all metrics."""
        plan = self._plan
        wanted = {file.manifest for number, file in enumerate(plan.pending) if plan.arrives(number)}
        if plan.pending_head is None or not wanted:
            return {}
        manifests = [each for each in plan.pending_head.manifests(plan.table.io) if each.manifest_path in wanted]
        return {
            entry.data_file.file_path: entry.data_file
            for manifest in manifests
            for entry in live_entries(manifest, plan.table.io)
        }


class _Merge(Rework[MergePlan, MergeResult]):
    """One merge of a table."""

    def __init__(self, common: Merges, scope: MergeScope, plan: FilePlan, writer: Writer) -> None:
        super().__init__(
            common.operations,
            _ATTEMPTS,
            f"Cannot merge what is pending in table {common.table}: other writers have changed its files at every "
            "attempt. Nothing was changed, and nothing that was acknowledged is lost: the next sync merges it.",
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
        """Merge what is pending; return whether anything is. Raises as `Merges.run`."""
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
        """Return the plan; None if nothing is pending. Raises TableConflict, and what the writer raises."""
        self._writer.require(table.metadata)
        try:
            return plan_merge(table, self._scope, self._files)
        except Unmergeable as error:
            raise TableConflict(f"Cannot merge what is pending in table {self._table}: {error}.") from error

    def sources(self, plan: MergePlan) -> frozenset[str]:
        """Return the URIs of the pending and the stored files, and of their deletes."""
        return plan.paths

    def run_jobs(self, plan: MergePlan) -> None:
        """Find the winners, and remove what they replace."""
        self._jobs.run(plan)

    def change(self, plan: MergePlan, table: Table, transaction: Transaction) -> MergeResult:
        """Replace and add files in one snapshot, and remove the branch of pending rows."""
        result = MergeResult(plan, self._jobs)
        change, target = result.change, self._scope.target
        if change.added or change.removed or not self._scope.is_unique(table.metadata):
            properties = self._writer.snapshot_properties(target, transaction.table_metadata)
            unique = says_unique(self._scope.definition.key)
            change_branch(change, target, table, transaction, {**properties, **unique})
        if self._scope.pending is not None:
            forget_branches([self._scope.pending], transaction)
        if target == MAIN_BRANCH:
            self._scope.definition.write_to(UNIQUE_BY, transaction)
            set_property(PENDING_BY, None, transaction)
        self._writer.end_merge(table, transaction)
        result.obsolete = self._obsolete_files(plan, result, transaction)
        return result

    def unused(self, outcome: MergeResult | None) -> list[WrittenFile]:
        """Return the new files that the table does not have."""
        used = outcome.used if outcome is not None else set()
        return [file for file in self._jobs.removals.written if file.uri not in used]

    def _obsolete_files(self, plan: MergePlan, found: MergeResult, transaction: Transaction) -> _Obsolete:
        """Return what may be needed no more after the commit: pending files whose rows were written again, or are dead,
        and manifests and manifest lists of the branch.

        Nothing if somebody's tag still has some, if others may have had the files before the branch did, or if files of
        the table may be those of another one too. Of manifests that were merged while rows were landed, only the latest
        are found. What is not found here becomes orphans.
        """
        head = plan.pending_head
        remaining = {each.snapshot_id for each in transaction.table_metadata.snapshots}
        gone = {each.snapshot_id: each for each in plan.metadata.snapshots if each.snapshot_id not in remaining}
        if head is None or head.snapshot_id not in gone or not is_garbage_collected(plan.metadata):
            return _Obsolete()
        if not all(has_new_files(each) and each.parent_snapshot_id in {None, *gone} for each in gone.values()):
            return _Obsolete()
        kept = {file.file_path for file in found.added}
        pending = (file for number, file in enumerate(plan.pending) if plan.arrives(number))
        files = [path for file in pending for path in file.state if path not in kept]
        manifests = head.manifests(plan.table.io)
        files += [each.manifest_path for each in manifests if each.added_snapshot_id in gone]
        files += [each.manifest_list for each in gone.values()]
        return _Obsolete(tuple(files), min(each.sequence_number or 0 for each in gone.values()))

    def _delete_obsolete(self, obsolete: _Obsolete, table: Table) -> None:
        """Delete what nothing refers to. Only what was committed since it was made is read: nothing else can.

        Without sequence numbers, as in tables of format version 1, that is unknown: then it is left to the removal of
        orphans. A failure is logged, and no more.
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
