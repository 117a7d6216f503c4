"""The maintenance steps for an Iceberg table (compaction, expiry, orphan file removal) and for a table's archive."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyroaring import BitMap

from destination_datalake.archive.objects import ARCHIVE_FOLDER, table_folder
from destination_datalake.archive.plan import History, StoredLines, build_plan, read_history, unindexed_units
from destination_datalake.aws.errors import explain
from destination_datalake.aws.objects import delete, folders_in
from destination_datalake.config.options import Config, aws_access
from destination_datalake.errors import ConnectorError, Failure, counted
from destination_datalake.files.jobs import results_or_raise
from destination_datalake.files.scan import find_by_row_id, merge_row_ids, row_id_tasks
from destination_datalake.maintenance.report import StepName, StepReport, megabytes
from destination_datalake.tables.catalog import is_iceberg
from destination_datalake.tables.factory import rebuild_of
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.compatibility import newer_format
from destination_datalake.tables.iceberg.maintenance.cleanup import Expirer, OrphanRemover, claim_daily_run
from destination_datalake.tables.iceberg.maintenance.compaction import CompactFiles, TableCompaction, plan_compaction
from destination_datalake.tables.iceberg.maintenance.references import DeadlineExceeded, Deletion, MaintenanceSkipped
from destination_datalake.tables.iceberg.maintenance.second_reader import Disagreement
from destination_datalake.tables.iceberg.snapshots.files import Incomplete
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.table import CommitStateUnknown, TableBusy, TableConflict, TableName
from destination_datalake.unforeseen import unforeseen

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.tables import Retention
    from destination_datalake.spark.engine import Engine
    from destination_datalake.tables.catalog import TableCatalog


# --- Steps ------------------------------------------------------------------------------------------------------------
# The maintenance steps for an Iceberg table: compaction, expiry of snapshots, and removal of orphan files. If a step
# fails, the other steps still run.


_logger = logging.getLogger(__name__)

_NO_TIME = "the step reached its time limit; the next run continues"


@dataclass(frozen=True, slots=True)
class Maintainer:
    """Runs maintenance steps on Iceberg tables. Each step returns a report and raises no exception.

    `compact_files` rewrites files on executors. `should_continue` returns False when a step must not start further
    work. In a dry run, the steps change nothing, and report the changes that they would make.
    """

    retention: Retention
    target_bytes: int
    catalog: TableCatalog
    compact_files: CompactFiles
    should_continue: Callable[[], bool]
    dry_run: bool = False
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def compact(self, table: TableName) -> StepReport:
        """Rewrite the table's small files as fewer files of about `target_bytes`, and return a report."""
        return self.step(table, "compaction", self._plan_compaction if self.dry_run else self._compact)

    def remove(self, table: TableName) -> Iterator[StepReport]:
        """Expire snapshots, then remove orphan files, which no snapshot references. Yield a report of each step."""
        yield self.step(table, "expiry", self._expire)
        yield self.step(table, "orphans", self._remove_orphans)

    def due(self, table: TableName) -> Iterator[StepReport]:
        """Run compaction and, once a day per table, `remove`. Yield a report of each step.

        Yields no report of a successful compaction that rewrote no files.
        """
        compaction = self.compact(table)
        if compaction.failure is not None or compaction.figures.get("files"):
            yield compaction
        claimed = self.step(table, "expiry", self._claim_daily_run)
        if claimed.failure is not None:
            yield claimed
        elif claimed.figures:
            yield from self.remove(table)

    def _claim_daily_run(self, table: TableName) -> StepReport:
        is_claimed = claim_daily_run(self._operations(table), self.now())
        return StepReport(table, "expiry", "is due", {"due": 1} if is_claimed else {})

    def step(self, table: TableName, step: StepName, run: Callable[[TableName], StepReport]) -> StepReport:
        """Call `run`, and return its report with the step's duration.

        If `run` raises an exception, returns a report with the failure or, for MaintenanceSkipped, with the reason. If
        no time is left, skips the step, and returns a report that states this.
        """
        began = time.monotonic()
        if not self.should_continue():
            return StepReport(table, step, _NO_TIME)
        try:
            report = run(table)
        except DeadlineExceeded:
            report = StepReport(table, step, _NO_TIME)
        except MaintenanceSkipped as reason:
            report = StepReport(table, step, f"skipped: {reason}")
        except Exception as error:
            report = StepReport(table, step, "failed", failure=_failure(error, table, step))
        return replace(report, seconds=time.monotonic() - began)

    def _plan_compaction(self, table: TableName) -> StepReport:
        plan = plan_compaction(self._operations(table).load(), self.target_bytes)
        outcome = f"would rewrite {_amount(plan.files, plan.bytes)} as {len(plan.bins)}"
        return _compaction(table, plan.files, plan.bytes, len(plan.bins), outcome, plan.notes)

    def _compact(self, table: TableName) -> StepReport:
        # Only for its check of the table's format version.
        self._operations(table)
        compaction = TableCompaction(table, self.catalog, self.compact_files, self.target_bytes)
        result = compaction.run(self.should_continue)
        before = _amount(result.files_before, result.bytes_before)
        outcome = f"rewrote {before} as {result.files_after} ({megabytes(result.bytes_after)})"
        report = _compaction(table, result.files_before, result.bytes_before, result.files_after, outcome, result.notes)
        return replace(report, failure=next(iter(result.failures), None))

    def _expire(self, table: TableName) -> StepReport:
        options = self.retention
        max_age = timedelta(days=options.snapshot_retention_days)
        expirer = Expirer(self._operations(table), max_age, options.min_snapshots_to_keep)
        result = expirer.expire(self.now(), self.should_continue, dry_run=self.dry_run)
        text, deleted, paths = self._deleted((result.data, "file"), (result.metadata, "metadata file"))
        figures = {"snapshots": len(result.expired.snapshots), "refs": len(result.expired.refs), **deleted}
        if not result.expired:
            return StepReport(table, "expiry", "no snapshots expired", figures)
        refs = f" and {', '.join(result.expired.refs)}" if result.expired.refs else ""
        outcome = f"{self._verb('expire')} {counted(len(result.expired.snapshots), 'snapshot')}{refs}, {text}"
        outside = result.data.outside
        notes = [f"kept {counted(outside, 'file')} outside the folder of the table"] if outside else []
        return StepReport(table, "expiry", outcome, figures, notes, paths)

    def _remove_orphans(self, table: TableName) -> StepReport:
        remover = OrphanRemover(self._operations(table), timedelta(days=self.retention.orphan_retention_days))
        result = remover.remove(self.now(), self.should_continue, dry_run=self.dry_run)
        text, figures, paths = self._deleted((result.files, "orphan file"), (result.old_metadata, "old metadata file"))
        outcome = text if result.files.files or result.old_metadata.files else "no orphan files"
        return StepReport(table, "orphans", outcome, figures, (), paths)

    def _deleted(
        self, files: tuple[Deletion, str], metadata: tuple[Deletion, str]
    ) -> tuple[str, dict[str, int], Sequence[str]]:
        """Return a clause, figures and paths about deleted files and deleted metadata files.

        Each argument is a pair of a deletion and the singular noun for the files that it deleted.
        """
        (data, noun), (metadata_files, metadata_noun) = files, metadata
        figures = {
            "files": data.files,
            "metadata_files": metadata_files.files,
            "bytes": data.bytes + metadata_files.bytes,
        }
        amount = f"{counted(data.files, noun)} and {counted(metadata_files.files, metadata_noun)}"
        text = f"{self._verb('delete')} {amount} ({megabytes(figures['bytes'])})"
        return text, figures, [*data.paths, *metadata_files.paths]

    def _operations(self, table: TableName) -> TableOperations:
        """Return the operations for a table. Raises MaintenanceSkipped if the table's format version is too new."""
        operations = TableOperations(table, self.catalog)
        if (problem := newer_format(operations.load().metadata)) is not None:
            raise MaintenanceSkipped(problem)
        return operations

    def _verb(self, verb: str) -> str:
        """Return the past form of `verb`, which must end in "e", or "would" and `verb` in a dry run."""
        return f"would {verb}" if self.dry_run else f"{verb}d"


def _amount(files: int, size: int) -> str:
    return f"{counted(files, 'file')} ({megabytes(size)})"


def _compaction(
    table: TableName, files: int, size: int, new_files: int, outcome: str, notes: Sequence[str]
) -> StepReport:
    figures = {"files": files, "bytes": size, "new_files": new_files}
    return StepReport(table, "compaction", outcome if files else "nothing to compact", figures, notes)


def _failure(error: Exception, table: TableName, step: StepName) -> Failure:
    if isinstance(error, ConnectorError):
        return error.failure
    if isinstance(error, TableConflict):
        return Failure(str(error), str(error), "config_error")
    if isinstance(error, TableBusy | CommitStateUnknown):
        return Failure(str(error), str(error), "transient_error")
    if isinstance(error, FileNotFoundError):
        message = (
            f"Cannot maintain table {table} ({step}): {error}. The table references this object, so queries fail too. "
            "The step stopped and deleted no further objects. If versioning is enabled for the bucket, remove the "
            "delete marker of the object."
        )
        return Failure(message, str(error), "config_error")
    if isinstance(error, Incomplete | Disagreement):
        message = (
            f"Cannot maintain table {table} ({step}): {error}. The step stopped and deleted no further objects, "
            "because the connector may be the cause. Keep the objects of the table unchanged, and report the problem "
            "with the named file. If a different engine can read the table, rewrite the manifests with this engine "
            "(in Spark: the procedure rewrite_manifests)."
        )
        return Failure(message, str(error), "system_error")
    if (failure := explain(error, doing=f"maintain ({step})", resource=f"table {table}")) is not None:
        return failure
    return unforeseen(f"Cannot maintain table {table} ({step})", error)


# --- Superseded files -------------------------------------------------------------------------------------------------
# Delete archived lines whose rows a refresh has replaced (`raw_archive.superseded: delete`).
#
# This step deletes lines only if two independent sources agree: the archive's journal assigns the lines to batches
# before the refresh, and a search of the table's files finds no rows of these lines.


_SEARCHES = 8
"""The number of Spark tasks that search the table's files for rows."""


def remove_superseded(
    table: TableName, config: Config, catalog: TableCatalog, engine: Callable[[], Engine], *, dry_run: bool
) -> StepReport:
    """Delete a table's archived record lines whose rows a refresh has replaced, and their journal entries.

    Returns a report. Deletes nothing in a dry run, or if a search finds rows of these lines in the table. Raises AWS
    errors and errors of the catalog.
    """
    entry = catalog.find(table)
    # The search below assumes table_type. With another type, it would search other files than those of the table.
    if entry is not None and is_iceberg(entry) != (config.table_type == "ICEBERG"):
        return StepReport(
            table, "archive", f"skipped: the type of the table differs from table_type {config.table_type}"
        )
    access = aws_access(config)
    folder = table_folder(config.uri(ARCHIVE_FOLDER), *table)
    history = read_history(folder, access)
    state = rebuild_of(config, table, catalog, f"{folder}/replay/metadata").state(table)
    if state is None:
        return StepReport(table, "archive", "skipped: the table does not exist")

    def rows_of(units: frozenset[str]) -> Mapping[str, BitMap]:
        if not units or not state.written:
            return {}
        tasks = row_id_tasks(state.written, units, _SEARCHES, catalog.access_of(table))
        return merge_row_ids(results_or_raise(engine().run(find_by_row_id, tasks))).lines

    plan = build_plan(history, state, rows_of(unindexed_units(history)))
    replaced = plan.replaced_batches
    superseded = _lines(history, replaced)
    if present := rows_of(frozenset(lines.unit for lines in superseded)):
        return StepReport(
            table,
            "archive",
            f"skipped: the table contains rows from {counted(len(present), 'object')} that a refresh has replaced "
            "according to the archive's index",
        )
    entries = [
        f"{folder}/index/{sync.entry.started:013d}-{sync.name}/{number:06d}.json"
        for sync in history.syncs
        # A replay counts the entries of a sync that it runs, because it committed batches after the refresh, too.
        for number in (() if sync.name in plan.syncs else replaced.get(sync.name, ()))
        if number in sync.batches
    ]
    if not dry_run:
        s3 = access.client("s3")
        # Delete the lines before their journal entries. If this run is killed in between, the next run can delete the
        # entries without lines. It could not determine whether a refresh has replaced lines without an entry.
        for uri in (*(lines.uri for lines in superseded), *entries):
            delete(s3, uri)
    size = sum(lines.size for lines in superseded)
    verb = "would delete" if dry_run else "deleted"
    text = f"{verb} {counted(len(superseded), 'object')} ({megabytes(size)}) that a refresh has replaced"
    figures = {"files": len(superseded), "bytes": size}
    return StepReport(
        table,
        "archive",
        text if superseded else "no objects that a refresh has replaced",
        figures,
        (),
        [lines.uri for lines in superseded],
    )


def archived_tables(config: Config, access: AwsAccess, streams: Sequence[str]) -> list[TableName]:
    """Return the tables that have an archive, including dropped tables.

    `streams` contains names of the form "name" or "namespace.name". If it is not empty, returns only the tables of
    these streams. Raises AWS errors.
    """
    folders = folders_in(access.client("s3"), config.uri(ARCHIVE_FOLDER))
    # Other programs may have created folders without a table's name.
    tables = [name for folder in folders if (name := TableName.parse(folder)) is not None]
    if not streams:
        return tables
    naming = TableNaming.from_config(config)
    return [name for name in tables if any(name in naming.candidates(stream) for stream in streams)]


def _lines(history: History, batches: Mapping[str, Sequence[int]]) -> list[StoredLines]:
    lines: list[StoredLines] = []
    for sync in history.syncs:
        for number in batches.get(sync.name, ()):
            lines += sync.batches[number].lines if number in sync.batches else ()
            lines += sync.unindexed.get(number, ())
    return lines
