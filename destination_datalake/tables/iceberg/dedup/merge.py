"""A merge: rows that are pending become part of the table's content, one for each key, in one commit.

Readers see the content of before, or that of after. A merge that dies leaves what is pending as it was, for the next
sync, and files that no table has, for the removal of orphans.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.withdrawal import withdraw_all
from destination_datalake.errors import ConnectorError
from destination_datalake.tables.iceberg.branches import has_new_files
from destination_datalake.tables.iceberg.dedup.definition import PENDING_BY, UNIQUE_BY, remove_definition
from destination_datalake.tables.iceberg.dedup.files import LiveFiles
from destination_datalake.tables.iceberg.dedup.jobs import MergeJobs
from destination_datalake.tables.iceberg.dedup.outcome import Outcome, Superseded, outcome, unused
from destination_datalake.tables.iceberg.dedup.plan import MergePlan, Unmergeable, plan_merge
from destination_datalake.tables.iceberg.maintenance.removal.deletion import Deletion
from destination_datalake.tables.iceberg.maintenance.removal.guard import is_garbage_collected
from destination_datalake.tables.iceberg.maintenance.removal.paths import File
from destination_datalake.tables.iceberg.maintenance.removal.references import References
from destination_datalake.tables.iceberg.metadata.operations import TableOperations
from destination_datalake.tables.iceberg.snapshots.replacing import merge_files
from destination_datalake.tables.iceberg.snapshots.uniqueness import says_unique
from destination_datalake.tables.table import TableBusy, TableConflict, TableName

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.files.dedup.tasks import Deletes
    from destination_datalake.tables.iceberg.dedup.definition import MergeScope
    from destination_datalake.tables.table import Jobs

_logger = logging.getLogger(__name__)

_ATTEMPTS = 8


class _Outdated(Exception):
    """The table has changed, so that more has to be looked at before there can be a commit."""


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """How new files are written: where, and which."""

    folder: str
    codec: str
    deletes: Deletes


class Writer(Protocol):
    """What a merge asks of the sync that merges."""

    def snapshot_properties(self, branch: str, metadata: TableMetadata) -> dict[str, str]:
        """Return the properties of a snapshot on a branch."""

    def require(self, metadata: TableMetadata) -> None:
        """Raise if the sync must not write to the table any more."""

    def end_merge(self, table: Table, transaction: Transaction) -> None:
        """Add what belongs to the commit."""


class Merge:
    """One merge of a table."""

    def __init__(
        self,
        table: TableName,
        scope: MergeScope,
        operations: TableOperations,
        jobs: Jobs,
        access: AwsAccess,
        settings: MergeSettings,
        writer: Writer,
    ) -> None:
        self._table = table
        self._scope = scope
        self._operations = operations
        self._access = access
        self._settings = settings
        self._writer = writer
        definition = scope.definition
        columns = (*definition.key, definition.cursor, definition.deleted_at)
        self._files = LiveFiles([id_ for id_ in columns if id_ is not None])
        self._planned: tuple[str, MergePlan | None] | None = None
        """The plan of the table as it was last seen, by its metadata file."""
        self._merged: Table | None = None
        """The table after the commit."""
        self._key = ""
        self._jobs = MergeJobs(jobs, access, settings.folder, settings.codec, settings.deletes)

    def run(self) -> Outcome | None:
        """Merge what is pending; return None if nothing is.

        Raises TableBusy if other writers were faster every time: what is pending stays so. Raises TableConflict,
        ConnectorError, CommitStateUnknown and errors of AWS.
        """
        try:
            done = self._attempts()
        except (TableBusy, TableConflict, ConnectorError):
            self._clean_up(set())
            raise
        self._clean_up(done.used if done is not None else set())
        if done is not None:
            self._delete_superseded(done.superseded)
            copy_on_write = self._settings.deletes == "copy_on_write"
            _logger.info("Table %s: %s", self._table, done.describe(self._key, copy_on_write=copy_on_write))
        return done

    def _attempts(self) -> Outcome | None:
        for _ in range(_ATTEMPTS):
            with suppress(_Outdated):
                table, plan = self._load()
                if plan is None:
                    return None
                self._run_jobs(plan)
                self._merged, done = self._operations.commit(self._build, table)
                return done
        raise TableBusy(
            f"Cannot merge what is pending in table {self._table}: other writers have changed its files at every "
            "attempt. Nothing was changed, and nothing that was acknowledged is lost: the next sync merges it."
        )

    def _load(self) -> tuple[Table, MergePlan | None]:
        """Return the table as it is, and its plan. Raises _Outdated if manifests have expired meanwhile."""
        table = self._operations.load()
        try:
            return table, self._plan(table)
        except FileNotFoundError as error:
            if self._operations.load().metadata_location == table.metadata_location:
                raise
            raise _Outdated from error

    def _run_jobs(self, plan: MergePlan) -> None:
        """Run the plan's jobs. Raises _Outdated if they have failed, and files are not in the table any more.

        Another writer may have replaced them, and removed them then.
        """
        try:
            self._jobs.run(plan)
        except ConnectorError as error:
            _, now = self._load()
            if now is not None and plan.paths <= now.paths:
                raise
            raise _Outdated from error

    def _plan(self, table: Table) -> MergePlan | None:
        self._writer.require(table.metadata)
        if self._planned is not None and self._planned[0] == table.metadata_location:
            return self._planned[1]
        self._key = self._scope.definition.key_names(table.schema())
        try:
            plan = plan_merge(table, self._scope, self._files)
            self._planned = table.metadata_location, plan
            return plan
        except Unmergeable as error:
            raise TableConflict(f"Cannot merge what is pending in table {self._table}: {error}.") from error

    def _build(self, table: Table, transaction: Transaction) -> Outcome | None:
        plan = self._plan(table)
        if plan is None:
            return None  # Another sync has merged it.
        if not self._jobs.is_done(plan):
            raise _Outdated
        found = outcome(plan, self._jobs)
        branch = self._scope.pending if self._scope.pending in table.metadata.refs else None
        change = found.change
        if change.added or change.removed or not self._scope.is_unique(table.metadata):
            change = replace(change, states=says_unique(self._scope.definition.key))
        target = self._scope.target
        properties = self._writer.snapshot_properties(target, transaction.table_metadata)
        merge_files(change, target, table, transaction, properties, branch)
        if target == MAIN_BRANCH:
            self._scope.definition.write_to(UNIQUE_BY, transaction)
            remove_definition(PENDING_BY, transaction)
        self._writer.end_merge(table, transaction)
        found.superseded = self._superseded(plan, found, transaction)
        return found

    def _superseded(self, plan: MergePlan, found: Outcome, transaction: Transaction) -> Superseded:
        """Return what may be needed no more after the commit: pending files whose rows were written again, or are dead,
        and manifests and manifest lists of the branch.

        Nothing if somebody's tag still has some, if others may have had the files before the branch did, or if files of
        the table may be those of another one too. Of manifests that were merged while rows were landed, only the latest
        are found. What is not found here becomes orphans.
        """
        branch = plan.scope.pending
        ref = plan.metadata.refs.get(branch) if branch is not None else None
        head = plan.metadata.snapshot_by_id(ref.snapshot_id) if ref is not None else None
        remaining = {each.snapshot_id for each in transaction.table_metadata.snapshots}
        gone = {each.snapshot_id: each for each in plan.metadata.snapshots if each.snapshot_id not in remaining}
        if head is None or head.snapshot_id not in gone or not is_garbage_collected(plan.metadata):
            return Superseded()
        if not all(has_new_files(each) and each.parent_snapshot_id in {None, *gone} for each in gone.values()):
            return Superseded()
        kept = {file.file_path for file in found.added}
        pending = (file for number, file in enumerate(plan.pending) if plan.arrives(number))
        files = [path for file in pending for path in file.state if path not in kept]
        manifests = head.manifests(plan.table.io)
        files += [each.manifest_path for each in manifests if each.added_snapshot_id in gone]
        files += [each.manifest_list for each in gone.values()]
        return Superseded(tuple(files), min(each.sequence_number or 0 for each in gone.values()))

    def _delete_superseded(self, superseded: Superseded) -> None:
        """Delete what nothing refers to. Only what was committed since it was made is read: nothing else can.

        Without sequence numbers, as in tables of format version 1, that is unknown: then it is left to the removal of
        orphans. A failure is logged, and no more.
        """
        if self._merged is None or superseded.since == 0:
            return
        table, s3 = self._merged, self._access.client("s3")
        try:
            references = References(table.io, s3, superseded.since)
            references.add_metadata(table.metadata, table.metadata_location)
            references.add_files()
            folder = S3Address.parse(self._settings.folder.rpartition("/")[0])
            dead = references.unreferenced(File(path, 0) for path in superseded.files)
            Deletion(s3, folder, dry_run=False, goes_on=lambda: True).delete(dead)
        except Exception:
            self._warn()

    def _clean_up(self, used: set[str]) -> None:
        """Delete the indexes, and the files that the table does not have. A failure is logged, and no more."""
        try:
            withdraw_all(unused(self._jobs.written(), used), self._access.client("s3"))
            self._jobs.delete_indexes()
        except Exception:
            self._warn()

    def _warn(self) -> None:
        _logger.warning("Unused files of table %s could not be deleted.", self._table, exc_info=True)
