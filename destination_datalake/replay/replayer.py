"""Re-run the archived syncs of one table.

Each sync runs like the original: it prepares the table, encodes and commits its batches, and publishes the table. It
reads its records from the archive instead of the source. The replay stores the completed steps in an object in the
archive, so that an interrupted replay can resume.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyroaring import BitMap

from destination_datalake.archive.lines import ArchivedLines
from destination_datalake.archive.plan import (
    CompletedSteps,
    History,
    Plan,
    ReplayProgress,
    Step,
    StepKind,
    StoredLines,
    StoredSync,
    as_append,
    build_plan,
    read_history,
    time_text,
    unindexed_units,
)
from destination_datalake.buffer.batching import Batch
from destination_datalake.buffer.disk import MiB, buffer_directory, raise_limit
from destination_datalake.buffer.staging import Segment
from destination_datalake.errors import ConfigError, ConnectorError, Failure, counted
from destination_datalake.files.jobs import results_or_raise
from destination_datalake.files.scan import TableRows, find_by_row_id, merge_row_ids, row_id_tasks
from destination_datalake.files.segments import StagedSegment
from destination_datalake.files.suppression import DELETIONS_FOLDER, requests, rules_of
from destination_datalake.rejects.ledger import REJECTS_FOLDER, RejectCounts, RejectFile, RejectLedger, RejectLimit
from destination_datalake.sync.conductor import staging_for
from destination_datalake.sync.landing import MAX_TASKS, Encoding, Landing, StreamTables
from destination_datalake.sync.outcome import BatchCommitted, BatchFailed, BatchOutcome
from destination_datalake.sync.progress import ActiveStages
from destination_datalake.tables.context import Jobs, TableContext
from destination_datalake.tables.factory import Replay, open_table, rebuild_of
from destination_datalake.tables.naming import REPLAY_OF, is_replay_of
from destination_datalake.tables.table import Rebuild, TableName, TableState

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.buffer.staging import Staging
    from destination_datalake.config.options import Config
    from destination_datalake.files.plan import SourceFile
    from destination_datalake.files.suppression import SuppressionRules
    from destination_datalake.protocol.catalog import Stream, StreamId
    from destination_datalake.spark.engine import Engine
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.table import Table

_TASK_BYTES = 1024 * MiB
"""Maximum size in bytes, per concurrent task, of the lines that one Spark job encodes. The replay combines several
consecutive batches of a sync into one job and one commit. A batch of a single object would occupy only one task, and
leave the other cores idle."""

_MAX_REPLACEMENT_AGE_SECONDS = 24 * 3600
"""Maximum age of an unfinished replacement that can resume. An older replacement starts again, because maintenance may
have deleted its files: no table references these files, and maintenance deletes unreferenced files after some days."""

_MAX_STEP_ATTEMPTS = 3
"""Maximum number of attempts to run the steps of a replay. An attempt fails if an older replay takes the fencing token
of the target table. Only the holder of the token can commit."""

_MAX_LISTED_SYNCS = 5
"""Maximum number of syncs that a message lists, each with its row count."""

_MAX_REPLACE_ATTEMPTS = 10
"""Maximum number of attempts to replace the table. An attempt fails if a sync commits to the table during the
attempt."""


class ArchiveAccess:
    """Provides archived objects to executors, which read these objects directly from S3.

    `staging` only supplies the folder that executors and driver share.
    """

    def __init__(self, staging: Staging) -> None:
        self.shared_folder = staging.shared_folder

    def stage(self, segment: Segment) -> StagedSegment:
        """Return a reference to the segment's archived object, without copying any lines."""
        assert isinstance(segment, ArchivedSegment)
        assert segment.location is not None
        # With the same first ID, rows get the raw IDs of the original sync. Comparisons and resumed replays find rows
        # by these IDs.
        return replace(segment.staged(segment.location), first_id=segment.first_id)


@dataclass(frozen=True, slots=True)
class ArchivedSegment(Segment):
    """A segment whose lines executors read from an archived object instead of a local file."""

    location: ArchivedLines | None = None
    first_id: bytes = b""

    @classmethod
    def from_lines(cls, stream: StreamId, lines: StoredLines) -> ArchivedSegment:
        """Return a segment of `stream` that consists of these archived lines."""
        archived = lines.archived
        line_numbers = None if lines.line_numbers is None else BitMap(lines.line_numbers)
        location = ArchivedLines(lines.uri, lines.etag, lines.size, line_numbers, archived.sha256)
        counts = (archived.first_record, archived.lines, archived.bytes)
        return cls(
            stream,
            Path(archived.name),
            *counts,
            since=0.0,
            location=location,
            first_id=bytes.fromhex(archived.first_id),
        )


class DiscardingRejectLedger(RejectLedger):
    """A reject ledger that deletes all rejects, because the original syncs have already published them."""

    def publish(self, files: Sequence[RejectFile]) -> None:
        """Delete the reject files of a batch instead of publishing them."""
        self.delete_uncommitted(files)


@dataclass(frozen=True, slots=True)
class ReplayContext:
    """The resources that all syncs of a replay share.

    `run` is the ID of the replay's current run, and all syncs commit under this ID. `rejects` receives the records and
    values that the syncs reject. `open_table` opens the target table for a stream.
    """

    engine: Engine
    staging: Staging
    access: AwsAccess
    run: str
    rejects: RejectLedger
    open_table: Callable[[Stream], Table]
    suppressed: SuppressionRules = field(default_factory=dict)
    """The suppression rules of `delete-rows`, by table name. A replay skips matching records, even if the archive
    received them before the rule existed."""


class SyncReplay:
    """The re-run of one archived sync.

    The constructor prepares the table, `land` writes a batch, and `publish` publishes the table. All three raise
    ConnectorError for any failure.
    """

    def __init__(self, context: ReplayContext, stream: Stream, number: int) -> None:
        """Prepare the table for `stream`. `number` is the number of the sync in this run, starting at 1."""
        self._stream = stream.id
        self._outcomes: list[BatchOutcome] = []
        self._batches = 0
        # The names of data files begin with this name. Each sync counts its batches from 1, so the number keeps the
        # files of different syncs apart.
        name = f"{context.run}-{number:04d}"
        self._landing = Landing(
            StreamTables({stream.id: lambda: context.open_table(stream)}, context.access),
            Encoding(context.engine, ArchiveAccess(context.staging), context.access, name, lambda: context.suppressed),
            context.rejects,
            self._outcomes.append,
            # A replay releases no states, so it may commit every batch.
            lambda _batch: True,
            ActiveStages(),
        )
        if (failure := self._landing.preparation_failure(stream.id)) is not None:
            self.close()
            raise ConnectorError(failure)

    def land(self, lines: Sequence[StoredLines]) -> RejectCounts:
        """Encode archived lines, and commit them as one batch. Return the number of rejected records and values."""
        self._batches += 1
        segments = tuple(ArchivedSegment.from_lines(self._stream, stored) for stored in lines)
        self._landing.land([Batch(self._stream, self._batches, segments)])
        match self._outcomes.pop():
            case BatchCommitted(counts=counts):
                return counts
            case BatchFailed(failure=failure):
                raise ConnectorError(failure)
            case _:
                raise AssertionError("a replay releases no states, so it skips no batch")

    def publish(self) -> None:
        """Merge the table's pending rows (committed, but not yet deduplicated), and publish the table."""
        for failure in self._landing.publish([self._stream]).values():
            raise ConnectorError(failure)

    def close(self) -> None:
        """Wait until running commits have ended, and stop the threads of the sync."""
        self._landing.close(lambda: False)


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """The table whose archive a replay reads.

    `name` is the name of the table, and `folder` is the S3 URI of its archive, without a trailing slash.
    """

    config: Config
    access: AwsAccess
    catalog: TableCatalog
    name: TableName
    folder: str


class Replayer:
    """Replays the archive of a source table into the table `target_table`.

    The target is either a table that the user requested, or an intermediate table whose content then replaces that of
    the source table. `engine` returns the Spark engine, `print_line` prints a line for the user, and `is_stopped`
    returns whether to stop the replay.
    """

    def __init__(
        self,
        source: ReplaySource,
        target_table: TableName,
        engine: Callable[[], Engine],
        print_line: Callable[[str], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        self._source = source
        self._target_table = target_table
        self._engine = engine
        self._print_line = print_line
        self._is_stopped = is_stopped
        self._sync_replays: dict[str, SyncReplay] = {}
        self._sync_replay_count = 0
        self._records = self._rejected = self._bytes = self._skipped = 0
        self._replayed_syncs: set[str] = set()

    @property
    def summary(self) -> str:
        """Return a sentence with the totals of the replay, without its final period."""
        records, syncs = counted(self._records, "record"), counted(len(self._replayed_syncs), "sync")
        totals = f"{records} ({self._bytes / 1e6:,.1f} MB) of {syncs}"
        return f"Replayed {totals}: {self._rejected:,} rejected, {counted(self._skipped, 'object')} skipped"

    def describe(self, history: History) -> Plan:
        """Print a summary of the archive, its gaps, and the batches that a replay writes. Return the plan."""
        plan = self._plan(history, self._rebuild().state(self._source.name))
        batches = sum(step.kind is StepKind.BATCH for step in plan.steps)
        since = time_text(min((stored.entry.started for stored in history.syncs), default=0))
        completeness = "complete" if plan.is_complete else f"incomplete: its first sync started at {since}"
        self._print_line(
            f"The archive of table {self._source.name} contains {counted(len(history.syncs), 'sync')} and is "
            f"{completeness}."
        )
        self._skipped = len(plan.skipped)
        for text in plan.gaps:
            self._print_line(f"Gap: {text}")
        for text in plan.notes:
            self._print_line(f"Note: {text}")
        for uri in plan.skipped:
            self._print_line(f"Skipped: the journal does not list {uri}, and the table contains none of its rows.")
        self._print_line(
            f"The replay writes {counted(len(plan.syncs), 'sync')}, {counted(batches, 'batch', 'es')} and "
            f"{counted(plan.records, 'record')} ({plan.bytes / 1e6:,.1f} MB) to {self._target_table}."
        )
        return plan

    def describe_difference(self, plan: Plan) -> None:
        """Print how many rows the source table would lose and regain if the replay replaced it.

        Compares rows by raw ID. The number of regained rows is an upper bound, because only the replay applies the
        suppression rules.
        """
        name, lines = self._source.name, plan.lines(plan.steps)
        if (state := self._rebuild().state(name)) is None:
            return
        rows = self._rows(state.sources, {stored.unit for stored in lines}, name)
        lost = counted(rows.unknown + rows.duplicates, "row")
        self._print_line(f"{name} would lose {lost} that the archive does not contain.")
        regained = Counter[str]()
        for sync in plan.syncs.values():
            for batch in () if sync.stream.dedup else sync.batches.values():
                archived = sum(stored.archived.lines for stored in batch.lines)
                present = sum(len(rows.lines.get(stored.unit, ())) for stored in batch.lines)
                regained[str(sync)] += max(0, min(batch.rows or archived, archived) - present)
        by_sync = ", ".join(
            f"{count:,} of sync {sync}" for sync, count in regained.most_common(_MAX_LISTED_SYNCS) if count
        )
        total = counted(regained.total(), "row")
        self._print_line(f"{name} would regain up to {total} that it no longer contains{by_sync and f': {by_sync}'}.")
        if any(sync.stream.dedup for sync in plan.syncs.values()):
            self._print_line(
                "These numbers exclude deduplicated syncs. To compare their rows, replay into another table."
            )

    def run(self, history: History, run: str, *, replace: bool, accept_gaps: bool = False) -> bool:
        """Run or resume a replay. With `replace`, then replace the content of the source table.

        `run` is the ID of this run. Returns False if `is_stopped` ended the replay, otherwise True. With `replace`,
        raises ConfigError if rows are missing from the archive, unless `accept_gaps` is set. Raises ConnectorError, and
        errors of the AWS libraries.
        """
        plan = self.describe(history)
        if replace and self._rebuild().state(self._source.name) is None:
            raise ConfigError(
                f"Cannot replace table {self._source.name}: it does not exist. Omit --replace to replay into another "
                "table."
            )
        if replace and plan.gaps and not accept_gaps:
            raise ConfigError(
                f"Table {self._source.name} was not replaced: the archive does not contain all of its rows. "
                f"{' '.join(plan.gaps)} Replay into another table, or run the command again with --accept-gaps, which "
                "deletes the missing rows."
            )
        raise_limit()
        config = self._source.config
        with ExitStack() as stack:
            directory = stack.enter_context(buffer_directory())
            engine = self._engine()
            staging = stack.enter_context(
                staging_for(engine, directory, config.uri("_staging"), run, self._source.access)
            )
            stack.callback(self._close_sync_replays)
            jobs = Jobs(engine, staging.scratch)
            context = self._context(engine, staging, jobs, run, replace=replace)
            rebuild = self._rebuild(jobs, plan)
            progress = ReplayProgress(
                f"{self._source.folder}/replay/{self._target_table.table}.json", self._source.access
            )
            # Claim the progress object before the first change of the target table, so that an older run stops.
            completed = self._resume_or_start(progress, rebuild, run, replace=replace)
            if not replace:
                self._add_columns(plan, context)
            if not self._run_steps_with_retries(plan, context, rebuild, progress, completed):
                return False
            if replace:
                return self._replace_table(context, rebuild, progress, completed, accept_gaps=accept_gaps)
            self._require_no_erasure_since(context.suppressed, progress, completed)
            completed.state = "complete"
            progress.save(completed)
            self._print_differences(rebuild)
            return True

    def _context(self, engine: Engine, staging: Staging, jobs: Jobs, run: str, *, replace: bool) -> ReplayContext:
        """Return the context for the syncs. With `replace`, its ledger discards rejects, which S3 already contains."""
        config, access = self._source.config, self._source.access
        ledger = DiscardingRejectLedger if replace else RejectLedger
        day = datetime.now(UTC).date().isoformat()
        rejects = ledger(config.uri(REJECTS_FOLDER), run, day, RejectLimit(), None, access)
        open_table = self._table_opener(jobs, run, in_place=replace)
        return ReplayContext(engine, staging, access, run, rejects, open_table, self._suppressed())

    def _suppressed(self) -> SuppressionRules:
        folder = self._source.config.uri(DELETIONS_FOLDER)
        rules = rules_of(folder, requests(folder, self._source.access.client("s3")))
        # The rules belong to the source table, but the encoder looks them up by the name of the table that it writes.
        return {str(self._target_table): rules.get(str(self._source.name), ())}

    def _require_no_erasure_since(
        self, suppressed: SuppressionRules, progress: ReplayProgress, completed: CompletedSteps
    ) -> None:
        """Raise ConfigError if `delete-rows` has begun to erase rows since this run read the rules `suppressed`.

        The target table may then contain erased rows, so no later run may resume.
        """
        if self._suppressed() == suppressed:
            return
        completed.state, completed.syncs = "claimed", {}
        progress.save(completed)
        raise ConfigError(
            f"`delete-rows` began to erase rows of table {self._source.name} during this replay, so table "
            f"{self._target_table} may contain erased rows. Drop table {self._target_table}, and run the replay again."
        )

    def _print_differences(self, rebuild: Rebuild) -> None:
        """Print how the rows of the target and source tables differ. Do nothing if either table does not exist."""
        state, target_state = rebuild.state(self._source.name), rebuild.state(self._target_table)
        if state is None or target_state is None:
            return
        history = read_history(self._source.folder, self._source.access)
        differences = self._compare(history, state, target_state)
        same = f"{self._target_table} contains the same rows as table {self._source.name}, by raw ID"
        if state.has_pending:
            same = (
                f"Found no difference between {self._target_table} and table {self._source.name}, by raw ID. Table "
                f"{self._source.name} contains rows that are not deduplicated yet, so not all rows were compared"
            )
        for text in differences or [f"{same}."]:
            self._print_line(f"Difference: {text}" if differences else text)

    # Rows of the tables

    def _plan(self, history: History, state: TableState | None) -> Plan:
        return build_plan(history, state, self._find_rows(state, unindexed_units(history), self._source.name))

    def _find_rows(self, state: TableState | None, units: Collection[str], name: TableName) -> Mapping[str, BitMap]:
        """Return the rows of these units that a table contains or has contained, as line numbers by unit.

        A unit is the part of a batch that one task encodes. The result includes rows that later rows have replaced.
        """
        return {} if state is None or not units else self._rows(state.written, units, name).lines

    def _rows(self, files: Sequence[SourceFile], units: Collection[str], name: TableName) -> TableRows:
        """Return the rows of these units that the data files `files` of the table `name` contain, grouped by unit."""
        if not files:
            return TableRows({})
        engine = self._engine()
        tasks = row_id_tasks(files, units, engine.parallelism(), self._source.catalog.access_of(name))
        return merge_row_ids(results_or_raise(engine.run(find_by_row_id, tasks)))

    def _rebuild(self, jobs: Jobs | None = None, plan: Plan | None = None) -> Rebuild:
        """Return the operations on the source table as a whole. Only a replacement needs `jobs` and `plan`."""

        def open_source() -> Table:
            assert jobs is not None
            assert plan is not None
            latest = list(plan.syncs.values())[-1]
            context = TableContext(f"{latest.name}-replay", source.access, source.catalog, jobs)
            # Open the table for an append: an overwrite would prepare new content for the original table.
            return open_table(as_append(latest.stream), source.name, source.config, context)

        source = self._source
        return rebuild_of(source.config, source.name, source.catalog, f"{source.folder}/replay/metadata", open_source)

    def _table_opener(self, jobs: Jobs, run: str, *, in_place: bool) -> Callable[[Stream], Table]:
        config = self._source.config
        if in_place:
            # Do not write delete files: they refer to sequence numbers of this table, but its rows move to another
            # table.
            config = config.model_copy(update={"dedup": config.dedup.model_copy(update={"deletes": "copy_on_write"})})
        context = TableContext(run, self._source.access, self._source.catalog, jobs)
        return lambda stream: open_table(
            stream, self._target_table, config, context, Replay(self._source.name, in_place)
        )

    # The start

    def _resume_or_start(
        self, progress: ReplayProgress, rebuild: Rebuild, run: str, *, replace: bool
    ) -> CompletedSteps:
        """Return the steps that earlier runs have completed, or no steps if no earlier run can resume.

        With `replace`, a run that cannot resume drops the target table, and creates it again without rows. Without
        `replace`, raises ConfigError if the target table exists, but no earlier run that wrote to it can resume. Also
        raises ConfigError if no replay of the source table created the target table.
        """
        self._require_own_target()
        now = time.time()
        completed = progress.claim(run, now)
        exists = rebuild.state(self._target_table) is not None
        if not replace and exists:
            # A refused run leaves this state, too, so the next run is refused for the same reason.
            if completed.state in ("claimed", "taking over"):
                raise ConfigError(
                    f"Table {self._target_table} already exists, and does not belong to a replay that can resume. Drop "
                    "the table, or set --into to another name."
                )
            return completed
        # In any other state, the original table may already refer to files of the target table, so no run may write to
        # the target table again.
        if exists and completed.state == "replaying" and now - completed.started < _MAX_REPLACEMENT_AGE_SECONDS:
            return completed
        if exists:
            rebuild.drop(self._target_table)
        completed.started, completed.syncs, completed.state = now, {}, "replaying"
        # Save before creating the table: a kill in between leaves no table, and the next run starts again. In the other
        # order, the next run would skip the steps of the dropped table.
        progress.save(completed)
        if replace:
            rebuild.clone(self._target_table, {REPLAY_OF: str(self._source.name)})
        return completed

    def _require_own_target(self) -> None:
        """Raise ConfigError if the target table exists, but no replay of the source table created it."""
        entry = self._source.catalog.find(self._target_table)
        if entry is not None and not is_replay_of(self._source.name, entry):
            raise ConfigError(
                f"Table {self._target_table} already exists, and was not created by a replay of table "
                f"{self._source.name}. Rename or drop table {self._target_table}, or set --into to another name. No "
                "table was changed."
            )

    def _add_columns(self, plan: Plan, context: ReplayContext) -> None:
        """Add the columns of skipped syncs to the target table, by preparing it for each of their streams."""
        for stream in plan.columns:
            try:
                self._start_sync(stream, context).close()
            except ConnectorError as error:
                self._print_line(f"Note: Cannot add the columns of an earlier sync: {error.failure.message}")

    # The steps

    def _run_steps_with_retries(
        self, plan: Plan, context: ReplayContext, rebuild: Rebuild, progress: ReplayProgress, completed: CompletedSteps
    ) -> bool:
        """Run the remaining steps. Return False if `is_stopped` ended the replay.

        An older replay into the same table stops when it notices that this replay has claimed the progress object.
        Until then, the older replay may take the table's fencing token, so that the commits of this replay fail. In
        this case, this method runs the remaining steps again.
        """
        for _ in range(_MAX_STEP_ATTEMPTS - 1):
            try:
                return self._run_steps(plan, context, rebuild, progress, completed)
            except ConnectorError as error:
                progress.require(completed.run)
                if error.failure.type != "config_error":
                    raise
                self._close_sync_replays()
        return self._run_steps(plan, context, rebuild, progress, completed)

    def _run_steps(
        self, plan: Plan, context: ReplayContext, rebuild: Rebuild, progress: ReplayProgress, completed: CompletedSteps
    ) -> bool:
        self._discard_unresumable(plan, completed)
        remaining = [step for step in plan.steps if not completed.includes(step)]
        # An earlier run may have committed rows without recording the step.
        present: Mapping[str, BitMap] | None = None if not self._sync_replays else {}
        for group in _group_batches(
            remaining, plan, lambda: _TASK_BYTES * min(context.engine.parallelism(), MAX_TASKS)
        ):
            if self._is_stopped():
                return False
            sync = plan.syncs[group[0].sync]
            if sync.name not in self._sync_replays:
                # The start takes the fencing token of the target table, even from a newer run. The check below stops
                # this run before it commits anything with that token.
                self._sync_replays[sync.name] = self._start_sync(sync.stream, context)
                progress.require(completed.run)
            if present is None:
                # Search after the start of the sync, which takes the table's fencing token. From then on, no earlier
                # replay can commit.
                present = self._find_committed_rows(remaining, plan, rebuild)
            if group[0].kind is StepKind.BATCH:
                self._land(sync, group, plan, present)
            elif group[0].kind is StepKind.END:
                sync_replay = self._sync_replays.pop(sync.name)
                sync_replay.publish()
                sync_replay.close()
            # Save after the commit. If the run is killed in between, the next run finds the rows in the table
            # (`_find_committed_rows`).
            completed.add(group)
            progress.save(completed)
        return True

    def _land(self, sync: StoredSync, group: Sequence[Step], plan: Plan, present: Mapping[str, BitMap]) -> None:
        lines = plan.lines(group)
        if uncommitted := [part for stored in lines if (part := _exclude_present(stored, present.get(stored.unit)))]:
            self._rejected += self._sync_replays[sync.name].land(uncommitted).refused
        records = sum(stored.archived.lines for stored in lines)
        self._records += records
        self._bytes += sum(stored.archived.bytes for stored in lines)
        self._replayed_syncs.add(sync.name)
        self._print_line(f"Sync {sync}: replayed {counted(records, 'record')} in {counted(len(group), 'batch', 'es')}.")

    def _discard_unresumable(self, plan: Plan, completed: CompletedSteps) -> None:
        """Forget the completed steps of unfinished overwrites without a generation ID, because they cannot resume."""
        for name, sync in plan.syncs.items():
            steps = completed.syncs.get(name)
            lacks_generation = sync.stream.overwrites_table and sync.stream.overwrite_generation is None
            if steps is not None and lacks_generation and not steps.ended and name not in self._sync_replays:
                del completed.syncs[name]

    def _find_committed_rows(self, remaining: Sequence[Step], plan: Plan, rebuild: Rebuild) -> Mapping[str, BitMap]:
        """Return the rows of the remaining steps that the target table already contains, as line numbers by unit.

        An earlier run leaves such rows if it is killed after a commit, but before it has stored the completed step.
        """
        state = rebuild.state(self._target_table)
        lines = {stored.unit: stored.archived.lines for stored in plan.lines(remaining)}
        rows = self._find_rows(state, lines.keys(), self._target_table)
        # One row proves that the whole unit was committed. A merge may have replaced its other rows, which must not
        # come back.
        return {unit: BitMap(range(lines[unit])) for unit in rows} if state and state.commits_whole else rows

    def _start_sync(self, stream: Stream, context: ReplayContext) -> SyncReplay:
        self._sync_replay_count += 1
        return SyncReplay(context, stream, self._sync_replay_count)

    def _close_sync_replays(self) -> None:
        for sync_replay in self._sync_replays.values():
            sync_replay.close()
        self._sync_replays.clear()

    # The replacement

    def _replace_table(
        self,
        context: ReplayContext,
        rebuild: Rebuild,
        progress: ReplayProgress,
        completed: CompletedSteps,
        *,
        accept_gaps: bool,
    ) -> bool:
        """Replace the content of the source table with that of the target table.

        First replays the syncs that the archive has received since the start of this replay. Returns False if
        `is_stopped` ended the replay. Unless `accept_gaps` is set, raises ConfigError if one of the two tables contains
        rows that the other table lacks. Raises ConnectorError if a sync commits to the source table during every
        attempt.
        """
        rebuild.begin()
        for _ in range(_MAX_REPLACE_ATTEMPTS):
            state = rebuild.state(self._source.name)
            if state is None:
                raise ConfigError(f"Table {self._source.name} no longer exists. Replay into another table.")
            history = read_history(self._source.folder, self._source.access)
            plan = self._plan(history, state)
            # Syncs have written to the source table since the last attempt. `state` is older than the history, so a
            # commit in between makes `take_over` return False.
            if any(not completed.includes(step) for step in plan.steps):
                if not self._run_steps_with_retries(plan, context, rebuild, progress, completed):
                    return False
                continue
            self._merge_pending(plan, context, rebuild)
            target_state = None if accept_gaps else rebuild.state(self._target_table)
            if target_state is not None and (differences := self._compare(history, state, target_state)):
                raise ConfigError(
                    f"Table {self._source.name} was not replaced, because its rows differ from the replayed rows. "
                    f"{' '.join(differences)} Replay into another table to compare them, or run the command again with "
                    f"--accept-gaps, which uses the rows of {self._target_table}."
                )
            self._require_no_erasure_since(context.suppressed, progress, completed)
            # Save this state first: after a kill during the next call, the original table may already refer to files of
            # the target table.
            completed.state = "taking over"
            progress.save(completed)
            if rebuild.take_over(self._target_table, state):
                # The target table no longer exists, so none of its steps may count as completed.
                completed.state, completed.syncs = "complete", {}
                progress.save(completed)
                return True
            completed.state = "replaying"
        message = (
            f"Table {self._source.name} was not replaced: syncs committed to it before each of "
            f"{_MAX_REPLACE_ATTEMPTS} attempts. Run the replay again when no sync is running: it resumes."
        )
        raise ConnectorError(Failure(message, "concurrent commits to the table", "transient_error"))

    def _merge_pending(self, plan: Plan, context: ReplayContext, rebuild: Rebuild) -> None:
        """Merge the target table's pending rows (committed, but not yet deduplicated), if a sync deduplicated rows."""
        state = rebuild.state(self._target_table)
        deduplicated = [sync.stream for sync in plan.syncs.values() if sync.stream.dedup]
        if state is not None and state.has_pending and deduplicated:
            with closing(self._start_sync(as_append(deduplicated[-1], dedup=True), context)) as sync_replay:
                sync_replay.publish()

    def _compare(self, history: History, state: TableState, target_state: TableState) -> list[str]:
        """Return sentences about rows that only one of the two tables contains. Compares rows by raw ID.

        Also returns sentences about rows that the archive does not contain, rows that are in a table more than once,
        and columns that only the source table contains. If the source table contains pending rows (committed, but not
        yet deduplicated), does not report archived rows that only the source table contains, unless there are more of
        them than a merge of the pending rows can replace.
        """
        syncs = {stored.unit: sync for sync in history.syncs for stored in sync.lines()}
        source = self._rows(state.sources, syncs, self._source.name)
        target = self._rows(target_state.sources, syncs, self._target_table)
        pending = self._rows(state.unpublished if state.has_pending else (), syncs, self._source.name)
        no_rows, missing_rows, extra_rows = BitMap(), Counter[str](), Counter[str]()
        for unit, sync in syncs.items():
            source_rows, target_rows = source.lines.get(unit, no_rows), target.lines.get(unit, no_rows)
            missing_rows[str(sync)] += len(source_rows - target_rows)
            extra_rows[str(sync)] += len(target_rows - source_rows - pending.lines.get(unit, no_rows))
        if state.has_pending and not (state.is_unique and missing_rows.total() > pending.rows):
            missing_rows.clear()
        foreign, unarchived = counted(source.unknown, "row"), counted(target.unknown, "row")
        columns = ", ".join(sorted({*state.columns} - {*target_state.columns}))
        differences = [
            (bool(columns), f"The table contains columns that no archived sync wrote: {columns}."),
            (source.unknown, f"The table contains {foreign} of other writers, or of syncs without an archive."),
            (target.unknown, f"Table {self._target_table} contains {unarchived} that the archive does not contain."),
            *(
                (rows, f"Table {name} contains {counted(rows, 'row')} more than once.")
                for name, rows in ((self._source.name, source.duplicates), (self._target_table, target.duplicates))
            ),
            *(
                (rows, f"The table contains {counted(rows, 'row')} of sync {sync}, but the archive does not.")
                for sync, rows in missing_rows.items()
            ),
            *(
                (rows, f"The archive contains {counted(rows, 'row')} of sync {sync}, but the table does not.")
                for sync, rows in extra_rows.items()
            ),
        ]
        return [text for count, text in differences if count]


def _group_batches(steps: Sequence[Step], plan: Plan, max_bytes: Callable[[], int]) -> Iterator[Sequence[Step]]:
    """Yield the steps in groups, each of which runs as one job.

    Consecutive batches of a sync form groups with up to `max_bytes()` bytes of lines. A larger batch is a group of its
    own, and so is every step that is not a batch.
    """
    group: list[Step] = []
    group_bytes = 0
    for step in steps:
        step_bytes = sum(stored.archived.bytes for stored in plan.lines([step]))
        joins = group and step.kind is StepKind.BATCH is group[-1].kind and step.sync == group[-1].sync
        if group and (not joins or group_bytes + step_bytes > max_bytes()):
            yield group
            group, group_bytes = [], 0
        group.append(step)
        group_bytes += step_bytes
    if group:
        yield group


def _exclude_present(lines: StoredLines, present: BitMap | None) -> StoredLines | None:
    """Return the lines whose rows the table does not contain yet, or None if there are no such lines.

    `present` contains the line numbers of the rows that the table already contains.
    """
    if not present:
        return lines
    numbers = set(range(lines.archived.lines) if lines.line_numbers is None else lines.line_numbers) - set(present)
    return replace(lines, line_numbers=tuple(sorted(numbers))) if numbers else None
