"""The steps of maintaining one table: compaction, expiry, orphans. What one fails with does not stop the others."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from destination_datalake.aws.errors import explain
from destination_datalake.errors import ConnectorError, Failure, counted
from destination_datalake.maintenance.report import StepName, StepReport, megabytes
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.compatibility import newer_format
from destination_datalake.tables.iceberg.maintenance.compaction import CompactFiles, TableCompaction, plan_compaction
from destination_datalake.tables.iceberg.maintenance.deletion import DeadlineExceeded, Deletion, MaintenanceSkipped
from destination_datalake.tables.iceberg.maintenance.expiry import Expirer, claim_daily_run
from destination_datalake.tables.iceberg.maintenance.orphans import OrphanRemover
from destination_datalake.tables.iceberg.maintenance.second_reader import Disagreement
from destination_datalake.tables.iceberg.snapshots.branch_files import Incomplete
from destination_datalake.tables.table import CommitStateUnknown, TableBusy, TableConflict

if TYPE_CHECKING:
    from destination_datalake.config.tables import Retention
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.table import TableName

_logger = logging.getLogger(__name__)

_NO_TIME = "there was no time for the rest, which is left to the next run"


@dataclass(frozen=True, slots=True)
class Maintainer:
    """Maintains tables. `compact_files` runs on the executors; `should_continue` says whether there is time left."""

    retention: Retention
    target_bytes: int
    catalog: TableCatalog
    compact_files: CompactFiles
    should_continue: Callable[[], bool]
    dry_run: bool = False
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def compact(self, table: TableName) -> StepReport:
        """Rewrite small files as fewer large ones."""
        return self.step(table, "compaction", self._plan_compaction if self.dry_run else self._compact)

    def remove(self, table: TableName) -> Iterator[StepReport]:
        """Expire snapshots, then remove orphans; yield what became of each."""
        yield self.step(table, "expiry", self._expire)
        yield self.step(table, "orphans", self._remove_orphans)

    def due(self, table: TableName) -> Iterator[StepReport]:
        """Compact, and if no one has done so within a day, remove; yield what was done, and what failed."""
        compaction = self.compact(table)
        if compaction.failure is not None or compaction.figures.get("files"):
            yield compaction
        claimed = self.step(table, "expiry", self._claim_daily_run)
        if claimed.failure is not None:
            yield claimed
        elif claimed.figures:
            yield from self.remove(table)

    def _claim_daily_run(self, table: TableName) -> StepReport:
        taken = claim_daily_run(self._operations(table), self.now())
        return StepReport(table, "expiry", "is due", {"due": 1} if taken else {})

    def step(self, table: TableName, step: StepName, act: Callable[[TableName], StepReport]) -> StepReport:
        """Return what became of one step, which may fail."""
        began = time.monotonic()
        if not self.should_continue():
            return StepReport(table, step, _NO_TIME)
        try:
            report = act(table)
        except DeadlineExceeded:
            report = StepReport(table, step, _NO_TIME)
        except MaintenanceSkipped as reason:
            report = StepReport(table, step, f"is left alone: {reason}")
        except Exception as error:
            report = StepReport(table, step, "failed", failure=_failure(error, table, step))
        return replace(report, seconds=time.monotonic() - began)

    def _plan_compaction(self, table: TableName) -> StepReport:
        plan = plan_compaction(self._operations(table).load(), self.target_bytes)
        done = f"would rewrite {_amount(plan.files, plan.bytes)} as {len(plan.bins)}"
        return _compaction(table, plan.files, plan.bytes, len(plan.bins), done, plan.notes)

    def _compact(self, table: TableName) -> StepReport:
        self._operations(table)
        compaction = TableCompaction(table, self.catalog, self.compact_files, self.target_bytes)
        found = compaction.run(self.should_continue)
        before = _amount(found.files_before, found.bytes_before)
        done = f"{before} became {found.files_after} ({megabytes(found.bytes_after)})"
        report = _compaction(table, found.files_before, found.bytes_before, found.files_after, done, found.notes)
        return replace(report, failure=next(iter(found.failures), None))

    def _expire(self, table: TableName) -> StepReport:
        options = self.retention
        max_age = timedelta(days=options.snapshot_retention_days)
        expirer = Expirer(self._operations(table), max_age, options.min_snapshots_to_keep)
        found = expirer.expire(self.now(), self.should_continue, dry_run=self.dry_run)
        text, deleted, paths = self._deleted((found.data, "file"), (found.metadata, "metadata file"))
        figures = {"snapshots": len(found.expired.snapshots), "refs": len(found.expired.refs), **deleted}
        if not found.expired:
            return StepReport(table, "expiry", "nothing has expired", figures)
        refs = f" and {', '.join(found.expired.refs)}" if found.expired.refs else ""
        done = f"{self._did('expire')} {counted(len(found.expired.snapshots), 'snapshot')}{refs}, {text}"
        notes = [f"{counted(found.data.outside, 'file')} outside the table's folder stay"] if found.data.outside else []
        return StepReport(table, "expiry", done, figures, notes, paths)

    def _remove_orphans(self, table: TableName) -> StepReport:
        remover = OrphanRemover(self._operations(table), timedelta(days=self.retention.orphan_retention_days))
        found = remover.remove(self.now(), self.should_continue, dry_run=self.dry_run)
        text, figures, paths = self._deleted((found.files, "orphan"), (found.old_metadata, "old metadata file"))
        done = text if found.files.files or found.old_metadata.files else "no orphans"
        return StepReport(table, "orphans", done, figures, (), paths)

    def _deleted(
        self, files: tuple[Deletion, str], metadata: tuple[Deletion, str]
    ) -> tuple[str, dict[str, int], Sequence[str]]:
        """Return what was deleted, each kind with its name, in words, in numbers, and by path."""
        (data, name), (other, other_name) = files, metadata
        figures = {"files": data.files, "metadata_files": other.files, "bytes": data.bytes + other.bytes}
        amount = f"{counted(data.files, name)} and {counted(other.files, other_name)}"
        return f"{self._did('delete')} {amount} ({megabytes(figures['bytes'])})", figures, [*data.paths, *other.paths]

    def _operations(self, table: TableName) -> TableOperations:
        """Return what changes a table. Raises MaintenanceSkipped for a format that may refer to unknown objects."""
        operations = TableOperations(table, self.catalog)
        if (problem := newer_format(operations.load().metadata)) is not None:
            raise MaintenanceSkipped(problem)
        return operations

    def _did(self, verb: str) -> str:
        """Return a verb that ends in e as what was done, or as what would be."""
        return f"would {verb}" if self.dry_run else f"{verb}d"


def _amount(files: int, size: int) -> str:
    return f"{counted(files, 'file')} ({megabytes(size)})"


def _compaction(table: TableName, files: int, size: int, new_files: int, done: str, notes: Sequence[str]) -> StepReport:
    figures = {"files": files, "bytes": size, "new_files": new_files}
    return StepReport(table, "compaction", done if files else "nothing to compact", figures, notes)


def _failure(error: Exception, table: TableName, step: StepName) -> Failure:
    if isinstance(error, ConnectorError):
        return error.failure
    if isinstance(error, TableConflict):
        return Failure(str(error), str(error), "config_error")
    if isinstance(error, TableBusy | CommitStateUnknown):
        return Failure(str(error), str(error), "transient_error")
    if isinstance(error, FileNotFoundError):
        message = (
            f"Cannot maintain table {table} ({step}): {error}. The table refers to it, so readers fail too. Nothing "
            "more was deleted. If the bucket keeps versions, remove the object's delete marker."
        )
        return Failure(message, str(error), "config_error")
    if isinstance(error, Incomplete | Disagreement):
        message = (
            f"Cannot maintain table {table} ({step}): {error}. Nothing more was deleted, as this may be a mistake of "
            "the connector. Leave the table's objects as they are, and report it with that file. If other engines can "
            "read the table, let them write its manifests again (Spark: the procedure rewrite_manifests)."
        )
        return Failure(message, str(error), "system_error")
    if (failure := explain(error, doing=f"maintain ({step})", resource=f"table {table}")) is not None:
        return failure
    trace = "".join(traceback.format_exception(error))
    return Failure(f"Table {table} could not be maintained ({step}): {error!r}.", trace, "system_error")
