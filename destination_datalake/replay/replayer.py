"""The replay of one table: what is there, what is done of it, and the steps that are left.

Syncs are lived through once more: their batches go through encoding and commits as they did, read from the archive.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyroaring import BitMap

from destination_datalake.archive.history import History, StoredLines, StoredSync, read_history, time_text
from destination_datalake.archive.lines import ArchivedLines
from destination_datalake.archive.plan import Kind, Plan, Step, as_append, doubtful_units, plan_of
from destination_datalake.archive.progress import Done, Progress
from destination_datalake.buffer.batching import Batch
from destination_datalake.buffer.disk import MiB, buffer_directory, raise_limit
from destination_datalake.buffer.staging import Segment
from destination_datalake.errors import ConfigError, ConnectorError, Failure, counted
from destination_datalake.files.find import TableRows, find, find_tasks, total
from destination_datalake.files.jobs import done as results_of
from destination_datalake.files.segments import StagedSegment
from destination_datalake.files.suppression import DELETIONS_FOLDER, requests, rules_of
from destination_datalake.rejects.ledger import REJECTS_FOLDER, RejectCounts, RejectFile, RejectLedger, RejectLimit
from destination_datalake.sync.conductor import staging_for
from destination_datalake.sync.landing import MAX_TASKS, Encoding, Landing, StreamTables
from destination_datalake.sync.outcome import BatchCommitted, BatchFailed, BatchMalformed, BatchOutcome
from destination_datalake.sync.progress import ActiveStages
from destination_datalake.tables.context import Jobs, TableContext
from destination_datalake.tables.factory import Replay, open_table, rebuild_of
from destination_datalake.tables.ownership import REPLAY_OF
from destination_datalake.tables.rebuild import Rebuild, TableState
from destination_datalake.tables.table import TableName

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
"""Records of consecutive batches of one sync are encoded by one job and committed together, up to so many bytes for
each task that runs at the same time: a batch may be one object, which one task reads."""

_STALE_SECONDS = 24 * 3600
"""After so long a replacement is begun anew: maintenance takes files that no table has for orphans some days later."""

_DISPLACED = 3
"""How often steps are begun whose table another replay may have taken meanwhile."""

_NAMED = 5
"""Syncs that are named with the number of their rows."""

_TAKEN_OVER_IN = 10
"""How often syncs may commit while the rest of the archive is replayed, before the replacement is given up."""


class ArchiveStaging:
    """Segments that are objects of the archive. What jobs write for later ones goes where `own` has it."""

    uses_files = True

    def __init__(self, own: Staging) -> None:
        self._own = own
        self.scratch = own.scratch
        self.shared_folder = own.shared_folder

    def on_free_file(self, call: Callable[[Segment], None]) -> None:
        """Do nothing: there are no files."""

    def begin(self, segment: Segment) -> None:
        """Do nothing: the object is there."""

    def stage(self, segment: Segment) -> StagedSegment:
        """Return the archived object."""
        assert isinstance(segment, ArchivedSegment)
        assert segment.location is not None
        return replace(segment.staged(segment.location), first_id=segment.first_id)

    def release(self, segments: Iterable[Segment]) -> None:
        """Do nothing: the objects stay."""


@dataclass(frozen=True, slots=True)
class ArchivedSegment(Segment):
    """A segment whose lines are an object of the archive."""

    location: ArchivedLines | None = None
    first_id: bytes = b""

    @classmethod
    def of(cls, stream: StreamId, lines: StoredLines) -> ArchivedSegment:
        """Return the segment of archived lines."""
        archived = lines.archived
        only = None if lines.only is None else BitMap(lines.only)
        location = ArchivedLines(lines.uri, lines.etag, lines.size, only, archived.sha256)
        counts = (archived.first_record, archived.lines, archived.bytes)
        return cls(
            stream,
            Path(archived.name),
            *counts,
            since=0.0,
            location=location,
            first_id=bytes.fromhex(archived.first_id),
        )


class NoRejects(RejectLedger):
    """Deletes rejects instead of publishing them: the syncs that are lived through again have published theirs."""

    def publish(self, files: Sequence[RejectFile]) -> None:
        """Delete the rejects of a batch."""
        self.delete_uncommitted(files)


@dataclass(frozen=True, slots=True)
class World:
    """What all syncs that are lived through share: the fencing token too, which is the run's."""

    engine: Engine
    staging: Staging
    access: AwsAccess
    run: str
    rejects: RejectLedger
    open_table: Callable[[Stream], Table]
    suppressed: SuppressionRules = field(default_factory=dict)
    """People whose rows were erased: no rows are made of their records, whenever these were archived."""


class Life:
    """One sync, lived through again. Every failure is raised as a ConnectorError."""

    def __init__(self, world: World, stream: Stream, number: int) -> None:
        """Prepare the table. `number` is that of the sync in this replay, from 1."""
        self._stream = stream.id
        self._outcomes: list[BatchOutcome] = []
        self._batches = 0
        name = f"{world.run}-{number:04d}"
        self._landing = Landing(
            StreamTables({stream.id: lambda: world.open_table(stream)}, world.access),
            Encoding(world.engine, ArchiveStaging(world.staging), world.access, name, lambda: world.suppressed),
            world.rejects,
            self._outcomes.append,
            lambda _batch: True,
            ActiveStages(),
        )
        if (failure := self._landing.preparation_failure(stream.id)) is not None:
            self.close()
            raise ConnectorError(failure)

    def land(self, lines: Sequence[StoredLines]) -> RejectCounts:
        """Encode lines and commit them as one batch; return what was rejected."""
        self._batches += 1
        segments = tuple(ArchivedSegment.of(self._stream, each) for each in lines)
        self._landing.land([Batch(self._stream, self._batches, segments)])
        match self._outcomes.pop():
            case BatchCommitted(counts=counts):
                return counts
            case BatchFailed(failure=failure):
                raise ConnectorError(failure)
            case BatchMalformed(record=record, reason=reason):
                message = f"Record {record} of stream {self._stream} in the archive is no Airbyte message: {reason}"
                raise ConnectorError(Failure(message, message, "system_error"))
            case _:
                raise AssertionError("batches are skipped only where states cannot be released")

    def publish(self) -> None:
        """Publish the table."""
        for failure in self._landing.publish([self._stream]).values():
            raise ConnectorError(failure)

    def close(self) -> None:
        """End the threads."""
        self._landing.close(lambda: False)


@dataclass(frozen=True, slots=True)
class Source:
    """The table whose archive is replayed; `folder` is the S3 URI of the archive."""

    config: Config
    access: AwsAccess
    catalog: TableCatalog
    name: TableName
    folder: str


class Replayer:
    """Replays an archive into the table `made`. `say` writes a line for the user; `is_stopped` asks it to end soon."""

    def __init__(
        self,
        source: Source,
        made: TableName,
        engine: Callable[[], Engine],
        say: Callable[[str], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        self._source = source
        self._made = made
        self._engine = engine
        self._say = say
        self._is_stopped = is_stopped
        self._lives: dict[str, Life] = {}
        self._started_lives = 0
        self._records = self._rejected = self._bytes = self._left_out = 0
        self._replayed: set[str] = set()

    @property
    def summary(self) -> str:
        """What was replayed, without a period."""
        figures = f"{self._records:,} records ({self._bytes / 1e6:,.1f} MB) of {len(self._replayed)} syncs"
        return f"Replayed {figures}: {self._rejected:,} were refused, and {self._left_out} objects left out"

    def describe(self, history: History) -> Plan:
        """Say what an archive has and what is replayed of it; return the plan."""
        plan = self._plan(history, self._rebuild().state(self._source.name))
        batches = sum(step.kind is Kind.BATCH for step in plan.steps)
        since = time_text(min((each.sync.started for each in history.syncs), default=0))
        complete = "complete" if plan.is_complete else f"not complete: its first sync is of {since}"
        self._say(f"The archive of table {self._source.name} has {len(history.syncs)} syncs, and is {complete}.")
        self._left_out = len(plan.left_out)
        for text in plan.gaps:
            self._say(f"Gap: {text}")
        for text in plan.notes:
            self._say(f"Note: {text}")
        for uri in plan.left_out:
            self._say(f"Left out: {uri} is not in the journal, and the table has none of its rows.")
        self._say(
            f"{len(plan.syncs)} syncs, {batches} batches and {plan.records:,} records ({plan.bytes / 1e6:,.1f} MB) are "
            f"replayed into {self._made}."
        )
        return plan

    def describe_difference(self, plan: Plan) -> None:
        """Say how many rows the table would lose and get back if the plan replaced them, by their ids.

        Nothing is replayed: rows that were erased count among those that come back.
        """
        name, lines = self._source.name, plan.lines(plan.steps)
        if (state := self._rebuild().state(name)) is None:
            return
        table = self._rows(state.sources, {each.unit for each in lines}, name)
        self._say(f"{name} would lose {counted(table.unknown, 'row')} that the archive lacks.")
        returning = Counter[str]()
        for sync in plan.syncs.values():
            for batch in () if sync.stream.dedup else sync.batches.values():
                archived = sum(each.archived.lines for each in batch.lines)
                present = sum(len(table.lines.get(each.unit, ())) for each in batch.lines)
                returning[str(sync)] += max(0, min(batch.rows or archived, archived) - present)
        by_sync = ", ".join(f"{rows:,} of sync {sync}" for sync, rows in returning.most_common(_NAMED) if rows)
        returned = counted(returning.total(), "row")
        self._say(f"{name} would get back up to {returned} that it does not have any more{by_sync and f': {by_sync}'}.")
        if any(sync.stream.dedup for sync in plan.syncs.values()):
            self._say("Rows of deduplicated syncs are not among these: replay into another table to compare by key.")

    def run(self, history: History, run: str, *, replace: bool, accept_gaps: bool = False) -> bool:
        """Replay; with `replace`, put the result in the place of the table's content.

        False if it was stopped before. Raises ConnectorError, and what the AWS libraries raise.
        """
        plan = self.describe(history)
        if replace and self._rebuild().state(self._source.name) is None:
            raise ConfigError(f"There is no table {self._source.name} to replace. Replay into another table.")
        if replace and plan.gaps and not accept_gaps:
            raise ConfigError(
                f"Nothing was replaced: the archive does not have all rows of the table. {' '.join(plan.gaps)} Replay "
                "into another table, or repeat the command with --accept-gaps: the missing rows are then gone."
            )
        raise_limit()
        config = self._source.config
        with ExitStack() as stack:
            directory = stack.enter_context(buffer_directory())
            engine = self._engine()
            staging = stack.enter_context(
                staging_for(engine, directory, config.uri("_staging"), run, self._source.access)
            )
            stack.callback(self._close_lives)
            jobs = Jobs(engine, staging.scratch)
            ledger = NoRejects if replace else RejectLedger
            day = datetime.now(UTC).date().isoformat()
            rejects = ledger(config.uri(REJECTS_FOLDER), run, day, RejectLimit(), None, self._source.access)
            open_table = self._opener(jobs, run, in_place=replace)
            deletions = config.uri(DELETIONS_FOLDER)
            erased = rules_of(deletions, requests(deletions, self._source.access.client("s3")))
            people = {str(self._made): erased.get(str(self._source.name), ())}
            world = World(engine, staging, self._source.access, run, rejects, open_table, people)
            rebuild = self._rebuild(jobs, plan)
            progress = Progress(f"{self._source.folder}/replay/{self._made.table}.json", self._source.access)
            done = self._begin(progress, rebuild, run, replace=replace)
            if not replace:
                self._give_columns(plan, world)
            if not self._live(plan, world, rebuild, progress, done):
                return False
            if replace:
                return self._take_over(world, rebuild, progress, done, accept_gaps=accept_gaps)
            done.state = "complete"
            progress.save(done)
            self._say_differences(rebuild)
            return True

    def _say_differences(self, rebuild: Rebuild) -> None:
        """Say how the rows of the made table differ from those of the table, if there is one."""
        state, made = rebuild.state(self._source.name), rebuild.state(self._made)
        if state is None or made is None:
            return
        history = read_history(self._source.folder, self._source.access)
        differences = self._compare(history, state, made)
        for text in differences or [f"{self._made} has the rows of table {self._source.name}, by their ids."]:
            self._say(f"Difference: {text}" if differences else text)

    # What is there

    def _plan(self, history: History, state: TableState | None) -> Plan:
        return plan_of(history, state, self._found(state, doubtful_units(history), self._source.name))

    def _found(self, state: TableState | None, units: Collection[str], name: TableName) -> Mapping[str, BitMap]:
        """Return the rows of these units that a table has, or had until other rows took their place."""
        return {} if state is None or not units else self._rows(state.written, units, name).lines

    def _rows(self, files: Sequence[SourceFile], units: Collection[str], name: TableName) -> TableRows:
        """Return the rows of some files of a table."""
        if not files:
            return TableRows({})
        engine = self._engine()
        tasks = find_tasks(files, units, engine.parallelism(), self._source.catalog.access_of(name))
        return total(results_of(engine.run(find, tasks)), units)

    def _rebuild(self, jobs: Jobs | None = None, plan: Plan | None = None) -> Rebuild:
        def opened() -> Table:
            assert jobs is not None
            assert plan is not None
            source, latest = self._source, list(plan.syncs.values())[-1]
            context = TableContext(f"{latest.name}-replay", source.access, source.catalog, jobs)
            return open_table(as_append(latest.stream), source.name, source.config, context)

        return rebuild_of(self._source.config, self._source.name, self._source.catalog, opened)

    def _opener(self, jobs: Jobs, run: str, *, in_place: bool) -> Callable[[Stream], Table]:
        config = self._source.config
        if in_place:
            # Delete files belong to sequence numbers of the table that they were written for.
            config = config.model_copy(update={"dedup": config.dedup.model_copy(update={"deletes": "copy_on_write"})})
        context = TableContext(run, self._source.access, self._source.catalog, jobs)
        return lambda stream: open_table(stream, self._made, config, context, Replay(self._source.name, in_place))

    # Beginning

    def _begin(self, progress: Progress, rebuild: Rebuild, run: str, *, replace: bool) -> Done:
        """Return what is done already; make the table empty if that is nothing."""
        now = time.time()
        done = progress.claim(run, now)
        exists = rebuild.state(self._made) is not None
        if not replace:
            if exists and done.started == now:
                raise ConfigError(
                    f"Table {self._made} exists, and no replay has made it that could go on. Drop it, or choose "
                    "another table with --into."
                )
            if not exists:
                done.started, done.syncs = now, {}
            return done
        is_fresh = done.started != now and now - done.started < _STALE_SECONDS
        if exists and done.state == "replaying" and is_fresh:
            return done
        if exists:
            rebuild.drop(self._made)
        done.started, done.syncs, done.state = now, {}, "replaying"
        progress.save(done)
        rebuild.clone(self._made, {REPLAY_OF: str(self._source.name)})
        return done

    def _give_columns(self, plan: Plan, world: World) -> None:
        for stream in plan.columns:
            try:
                self._life(stream, world).close()
            except ConnectorError as error:
                self._say(f"Note: columns of a former sync are missing: {error.failure.message}")

    # Living

    def _live(self, plan: Plan, world: World, rebuild: Rebuild, progress: Progress, done: Done) -> bool:
        """Take the steps that are left; return False if it was stopped.

        A replay that this one has displaced may take the table's token before it finds that out, and leave. This one
        then begins with the same steps again.
        """
        for _ in range(_DISPLACED - 1):
            try:
                return self._lived(plan, world, rebuild, progress, done)
            except ConnectorError as error:
                progress.require(done.run)
                if error.failure.type != "config_error":
                    raise
                self._close_lives()
        return self._lived(plan, world, rebuild, progress, done)

    def _lived(self, plan: Plan, world: World, rebuild: Rebuild, progress: Progress, done: Done) -> bool:
        self._forget_unfinished(plan, done)
        left = [step for step in plan.steps if not done.has(step)]
        present: Mapping[str, BitMap] | None = None if done.syncs and not self._lives else {}
        for group in _groups(left, plan, lambda: _TASK_BYTES * min(world.engine.parallelism(), MAX_TASKS)):
            if self._is_stopped():
                return False
            sync = plan.syncs[group[0].sync]
            if sync.name not in self._lives:
                self._lives[sync.name] = self._life(sync.stream, world)
                progress.require(done.run)
            if present is None:
                # Now that the table is this replay's, and another one that had it commits no more.
                present = self._present(left, plan, rebuild)
            if group[0].kind is Kind.BATCH:
                self._land(sync, group, plan, present)
            elif group[0].kind is Kind.END:
                life = self._lives.pop(sync.name)
                life.publish()
                life.close()
            done.add(group)
            progress.save(done)
        return True

    def _land(self, sync: StoredSync, group: Sequence[Step], plan: Plan, present: Mapping[str, BitMap]) -> None:
        lines = plan.lines(group)
        if wanted := [left for each in lines if (left := _without(each, present.get(each.unit)))]:
            self._rejected += self._lives[sync.name].land(wanted).refused
        records = sum(each.archived.lines for each in lines)
        self._records += records
        self._bytes += sum(each.archived.bytes for each in lines)
        self._replayed.add(sync.name)
        self._say(f"Sync {sync}: {records:,} records of {counted(len(group), 'batch', 'es')}.")

    def _forget_unfinished(self, plan: Plan, done: Done) -> None:
        """Forget what was done of overwrites that cannot be continued, as nothing identifies them."""
        for name, sync in plan.syncs.items():
            known = done.syncs.get(name)
            unidentified = sync.stream.overwrites_table and sync.stream.overwrite_generation is None
            if known is not None and unidentified and not known.ended and name not in self._lives:
                del done.syncs[name]

    def _present(self, left: Sequence[Step], plan: Plan, rebuild: Rebuild) -> Mapping[str, BitMap]:
        """Return the rows of steps that are left that the table has: a replay was killed before it could say so."""
        state = rebuild.state(self._made)
        lines = {each.unit: each.archived.lines for each in plan.lines(left)}
        found = self._found(state, lines.keys(), self._made)
        return {unit: BitMap(range(lines[unit])) for unit in found} if state and state.commits_whole else found

    def _life(self, stream: Stream, world: World) -> Life:
        self._started_lives += 1
        return Life(world, stream, self._started_lives)

    def _close_lives(self) -> None:
        for life in self._lives.values():
            life.close()
        self._lives.clear()

    # Replacing

    def _take_over(self, world: World, rebuild: Rebuild, progress: Progress, done: Done, *, accept_gaps: bool) -> bool:
        """Replay what has come meanwhile, and put the made table's content in the place of the table's."""
        rebuild.begin()
        for _ in range(_TAKEN_OVER_IN):
            state = rebuild.state(self._source.name)
            if state is None:
                raise ConfigError(f"Table {self._source.name} does not exist any more. Replay into another table.")
            history = read_history(self._source.folder, self._source.access)
            plan = self._plan(history, state)
            if any(not done.has(step) for step in plan.steps):
                if not self._live(plan, world, rebuild, progress, done):
                    return False
                continue
            self._settle(plan, world, rebuild)
            made = None if accept_gaps else rebuild.state(self._made)
            if made is not None and (differences := self._compare(history, state, made)):
                raise ConfigError(
                    f"Nothing was replaced: table {self._source.name} would not have the same rows. "
                    f"{' '.join(differences)} Replay into another table to compare them, or repeat the command with "
                    f"--accept-gaps. {self._made} is kept until then."
                )
            done.state = "taking over"
            progress.save(done)
            if rebuild.take_over(self._made, state):
                done.state, done.syncs = "complete", {}
                progress.save(done)
                return True
            done.state = "replaying"
        message = (
            f"Table {self._source.name} was not replaced: syncs have committed to it each time before that could be. "
            "Nothing was changed. Run the replay again, it goes on where it was."
        )
        raise ConnectorError(Failure(message, "the table changes all the time", "transient_error"))

    def _settle(self, plan: Plan, world: World, rebuild: Rebuild) -> None:
        """Merge rows that wait for their deduplication."""
        state = rebuild.state(self._made)
        deduplicated = [sync.stream for sync in plan.syncs.values() if sync.stream.dedup]
        if state is not None and state.has_pending and deduplicated:
            with closing(self._life(as_append(deduplicated[-1], dedup=True), world)) as life:
                life.publish()

    def _compare(self, history: History, state: TableState, made: TableState) -> list[str]:
        """Return in sentences which rows of the table the made one lacks, and which it has besides, by their ids.

        While rows of the table wait for their deduplication, those that they may replace are not missed.
        """
        syncs = {each.unit: sync for sync in history.syncs for each in sync.lines()}
        table, ours = self._rows(state.sources, syncs, self._source.name), self._rows(made.sources, syncs, self._made)
        waiting = self._rows(state.unpublished if state.has_pending else (), syncs, self._source.name).lines
        none, missing, besides = BitMap(), Counter[str](), Counter[str]()
        for unit, sync in syncs.items():
            has, makes = table.lines.get(unit, none), ours.lines.get(unit, none)
            missing[str(sync)] += 0 if state.has_pending else len(has - makes)
            besides[str(sync)] += len(makes - has - waiting.get(unit, none))
        unknown = max(0, table.unknown - ours.unknown)
        lacking = ", ".join(sorted({*state.columns} - {*made.columns}))
        found = [
            (bool(lacking), f"The table has columns of syncs that are not in the archive: {lacking}."),
            (unknown, f"The table has {counted(unknown, 'row')} of other writers, or of syncs without an archive."),
            *(
                (rows, f"The table has {counted(rows, 'row')} of sync {sync} that the archive lacks.")
                for sync, rows in missing.items()
            ),
            *(
                (rows, f"The archive has {counted(rows, 'row')} of sync {sync} that the table does not have any more.")
                for sync, rows in besides.items()
            ),
        ]
        return [text for number, text in found if number]


def _groups(steps: Sequence[Step], plan: Plan, most_bytes: Callable[[], int]) -> Iterator[Sequence[Step]]:
    """Yield the steps one by one, but batches of a sync that follow each other together, up to so many bytes."""
    group: list[Step] = []
    size = 0
    for step in steps:
        own = sum(each.archived.bytes for each in plan.lines([step]))
        joins = group and step.kind is Kind.BATCH is group[-1].kind and step.sync == group[-1].sync
        if group and (not joins or size + own > most_bytes()):
            yield group
            group, size = [], 0
        group.append(step)
        size += own
    if group:
        yield group


def _without(lines: StoredLines, present: BitMap | None) -> StoredLines | None:
    """Return the lines but for those whose rows the table has already; None if it has all."""
    if not present:
        return lines
    wanted = set(range(lines.archived.lines) if lines.only is None else lines.only) - set(present)
    return replace(lines, only=tuple(sorted(wanted))) if wanted else None
