"""One `write` from first line to last: the conductor. It knows every part and does none of their work.

stdin is read into the buffer on the main thread; job threads cut batches and land them; what has landed makes states
true, which a thread of their own writes out. One lock guards the buffer, the ledger and the counts; nobody does I/O to
AWS or to stdout under it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from destination_datalake.buffer.backlog import Backlog
from destination_datalake.buffer.batches import Batch, SealFailed
from destination_datalake.buffer.buffer import MiB
from destination_datalake.buffer.descriptors import raise_limit
from destination_datalake.buffer.disk import DiskFailed, buffer_directory
from destination_datalake.buffer.staging import LocalStaging, RemoteStaging
from destination_datalake.config.access import aws_access
from destination_datalake.errors import Failure, SyncRefused
from destination_datalake.protocol.catalog import Stream, StreamId, parse_catalog
from destination_datalake.protocol.ledger import StateLedger
from destination_datalake.protocol.messages import MalformedLine
from destination_datalake.protocol.states import State
from destination_datalake.protocol.statuses import Statuses
from destination_datalake.protocol.stdin import chunks
from destination_datalake.rejects.ledger import RejectLedger
from destination_datalake.rejects.limit import RejectLimit
from destination_datalake.rejects.location import REJECTS_FOLDER
from destination_datalake.sync.failures import disk_failed, malformed_input, trace_of, unexpected, unread
from destination_datalake.sync.intake import Intake, RecordRuns, RefusedMessage
from destination_datalake.sync.landing import JOBS_AT_ONCE, BatchOutcome, Landing
from destination_datalake.sync.outcome import Outcome
from destination_datalake.sync.releasing import Releasing
from destination_datalake.sync.report import Activities, Progress, Reporter, StreamProgress
from destination_datalake.sync.workers import Workers
from destination_datalake.tables.factory import open_table
from destination_datalake.tables.glue.database import Databases
from destination_datalake.tables.glue.rejects_table import RejectsTable
from destination_datalake.tables.naming import TableNaming

if TYPE_CHECKING:
    from pathlib import Path

    from destination_datalake.config.options import Config
    from destination_datalake.protocol.stdout import Stdout
    from destination_datalake.spark.engine import Engine
    from destination_datalake.sync.termination import Termination

TERMINATION_SECONDS = 45
"""After SIGTERM the platform waits 60 s; what has not landed by then is left for the next sync."""

EXIT_TERMINATED = 143


def run_sync(
    config: Config,
    catalog: Mapping[str, object],
    stdin: int,
    out: Stdout,
    engine: Engine,
    termination: Termination,
) -> int:
    """Write what comes on `stdin` (a file descriptor) to the lake; return the exit code.

    0: every stream landed. 1: something did not, and a TRACE ERROR says what. 143: SIGTERM; what had been read is
    committed and its states are out. Raises SyncRefused before anything is read if the catalog cannot work.
    """
    raise_limit()
    termination.tell(partial(out.give_up_after, TERMINATION_SECONDS))
    streams = parse_catalog(catalog)
    naming = TableNaming.of(config)
    tables = naming.tables_of(streams)
    access = aws_access(config)
    sync_name = uuid.uuid4().hex[:12]
    databases = Databases(access)
    openers = {
        stream.id: partial(open_table, config, naming.naming, sync_name, stream, tables[stream.id], access, databases)
        for stream in streams
    }
    root, day = config.uri(REJECTS_FOLDER), datetime.now(UTC).date().isoformat()
    rejects_table = RejectsTable(config.lakeformation_database_name, root, access)
    limit = RejectLimit(config.rejects.max_ratio, config.rejects.max_count)
    rejects = RejectLedger(root, sync_name, day, limit, rejects_table, access)
    staging = LocalStaging() if engine.local else RemoteStaging(config.uri("_staging", sync_name), access)
    new_landing = partial(Landing, openers, engine, staging, access, sync_name, rejects)
    try:
        with buffer_directory() as directory:
            return _Sync(config, streams, new_landing, directory, out, termination).run(stdin)
    except DiskFailed as error:
        raise SyncRefused(str(error)) from error


class _Sync:
    """The state of one sync. Names of methods that need the lock held end in `_locked`."""

    def __init__(
        self,
        config: Config,
        streams: Sequence[Stream],
        new_landing: Callable[[Callable[[BatchOutcome], None], Callable[[Batch], bool], Activities], Landing],
        directory: Path,
        out: Stdout,
        termination: Termination,
        patience: float = TERMINATION_SECONDS,
    ) -> None:
        self._streams = {stream.id: stream for stream in streams}
        self._out = out
        self._termination = termination
        self._patience = patience
        self._started = time.monotonic()
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        batch_bytes, buffer_bytes = config.batch_size_mb * MiB, config.buffer_size_mb * MiB
        self._backlog = Backlog(directory, batch_bytes, buffer_bytes, float(config.flush_interval_seconds))
        self._buffer = self._backlog.buffer
        self._ledger = StateLedger(self._streams, self._backlog.states.keep)
        self._releasing = Releasing(self._ledger, lock, out, self._changed.notify_all, self._stop)
        self._statuses = Statuses(streams)
        self._progress = {stream: StreamProgress(stream) for stream in self._streams}
        self._outcome = Outcome(self._streams)
        self._intake = Intake(self._streams, self._statuses, partial(out.log, "WARN"))
        self._ended = False
        self._read_to_the_end = False
        self._spark_has_gone = False
        self._published = False
        self._done = False
        self._jobs = 0
        self._jobs_running = 0
        self._activities = Activities()
        self._landing = new_landing(self._on_landed, self._is_wanted, self._activities)

    def run(self, stdin: int) -> int:
        """Read to the end, land everything, publish what is complete, and say how it went."""
        with Reporter(self._out, self._look):
            self._releasing.start()
            jobs = Workers(JOBS_AT_ONCE, "job")
            self._jobs = jobs.count
            for _ in range(jobs.count):
                jobs.submit(self._job)
            with self._activities.during("reading"):
                self._read(stdin)
            self._wait_for_end()
            self._releasing.close()
        self._landing.close(lambda: self._termination.requested)
        return self._conclude()

    # Reading, on the main thread.

    def _read(self, stdin: int) -> None:
        try:
            for chunk in chunks(stdin, self._termination.descriptor):
                for step in self._intake.steps(chunk):
                    if isinstance(step, RecordRuns):
                        self._take_records(step)
                    else:
                        self._take_state(step)
                if not self._wait_for_room():
                    return
            self._read_to_the_end = not self._termination.requested
        except MalformedLine as error:
            self._stop(malformed_input(error))
        except RefusedMessage as error:
            self._stop(Failure(str(error), str(error), "system_error"))
        except DiskFailed as error:
            with self._changed:
                self._backlog.free_space()
            self._stop(disk_failed(error))

    def _take_records(self, gathered: RecordRuns) -> None:
        with self._changed:
            due = False
            for stream, records in gathered.streams.items():
                lines = records.pieces[0] if len(records.pieces) == 1 else b"".join(records.pieces)
                first = self._ledger.received(stream)
                if not self._outcome.has_failed(stream):
                    due |= self._buffer.append(stream, lines, records.count, first)
                self._ledger.record(stream, records.count)
                progress = self._progress[stream]
                progress.received += records.count
                progress.received_bytes += len(lines)
            if due:
                self._changed.notify_all()

    def _take_state(self, state: State) -> None:
        with self._changed:
            self._ledger.hold(state)
            self._releasing.wake()

    def _wait_for_room(self) -> bool:
        """Wait while the buffer is full or Spark has enough to do. False when there is no point in reading on."""
        with self._changed:
            while not (self._termination.requested or self._is_pointless_locked()) and (
                self._is_full_locked() or self._backlog.is_ahead_of_spark(self._jobs_running)
            ):
                self._changed.notify_all()
                self._changed.wait(0.5)
            return not self._is_pointless_locked()

    def _is_pointless_locked(self) -> bool:
        """Whether nothing that may still come can be landed and acknowledged."""
        return self._outcome.nothing_is_left or self._spark_has_gone or self._ledger.is_blocked

    def _is_full_locked(self) -> bool:
        """Whether everything that waits must land before more is read."""
        return self._backlog.is_full(self._ledger.held, self._ledger.needs)

    # Landing, on the jobs' threads.

    def _job(self) -> None:
        try:
            while (batches := self._next_batches()) is not None:
                self._land(batches)
        except Exception as error:
            self._stop(unexpected("land what was received", error))
        with self._changed:
            self._jobs -= 1
            last = not self._jobs
        if last:
            self._end()

    def _next_batches(self) -> list[Batch] | None:
        """Wait for batches that are due; None when the input has ended and nothing is left, or no Spark for it."""
        with self._changed:
            while True:
                if not self._spark_has_gone and (batches := self._next_batches_locked()):
                    self._jobs_running += 1
                    self._changed.notify_all()
                    return batches
                if self._ended:
                    return None
                self._changed.wait(None if self._spark_has_gone else self._backlog.seconds_until_due())

    def _next_batches_locked(self) -> list[Batch]:
        """The batches that are due and wanted; none if nothing is due."""
        while True:
            try:
                batches = self._backlog.next_batches(everything=self._ended or self._is_full_locked())
            except SealFailed as error:
                self._fail_locked(error.stream, Failure(str(error), trace_of(error), "transient_error"))
                continue
            wanted = [batch for batch in batches if self._is_wanted(batch)]
            for batch in batches:
                if batch not in wanted:
                    self._buffer.release(batch.segments)
            if wanted or not batches:
                return wanted

    def _land(self, batches: list[Batch]) -> None:
        try:
            self._landing.land(batches)
        finally:
            gone = self._landing.spark_has_gone()
            with self._changed:
                self._spark_has_gone |= gone
                self._jobs_running -= 1
                self._changed.notify_all()

    def _is_wanted(self, batch: Batch) -> bool:
        """Whether a state may yet acknowledge the batch, at least in part."""
        with self._changed:
            return self._ledger.can_acknowledge(batch.stream, batch.first_record)

    def _on_landed(self, landed: BatchOutcome) -> None:
        stream = landed.batch.stream
        with self._changed:
            self._buffer.release(landed.batch.segments)
            if landed.failure is not None:
                self._fail_locked(stream, landed.failure)
            elif not landed.skipped:
                counts = landed.counts
                self._ledger.commit(stream, landed.batch.first_record, landed.batch.records, counts.refused)
                progress = self._progress[stream]
                progress.committed += landed.batch.records - counts.refused
                progress.files += landed.files
                progress.file_bytes += landed.bytes
                progress.rejected_records += counts.refused
                progress.rejected_values += counts.values
                self._releasing.wake()
            self._changed.notify_all()

    # Failing.

    def _fail_locked(self, stream: StreamId, failure: Failure) -> None:
        """Note that a stream has failed: nothing more of it can be acknowledged, so nothing more of it lands."""
        if not self._outcome.has_failed(stream):
            self._outcome.fail(stream, failure)
            self._ledger.fail(stream)
            self._buffer.release_stream(stream)

    def _stop(self, failure: Failure) -> None:
        """Note what ends the reading; what was read still lands."""
        with self._changed:
            self._outcome.stop(failure)
            self._changed.notify_all()

    # The end.

    def _end(self) -> None:
        """Settle every stream once all jobs have ended: on the last one's thread, so that SIGTERM need not wait."""
        try:
            if self._outcome.fatal is None:
                self._outcome.account(self._ledger, spark_has_gone=self._spark_has_gone)
                if not (self._read_to_the_end or self._outcome.is_failure or self._termination.requested):
                    self._outcome.stop(unread())
                elif self._read_to_the_end and not self._termination.requested:
                    self._outcome.publish(self._landing, self._statuses)
                    self._published = True
        except Exception as error:
            self._stop(unexpected("end the sync", error))
        with self._changed:
            self._done = True
            self._changed.notify_all()

    def _wait_for_end(self) -> None:
        """Wait until all that was read has landed and all states are out; after SIGTERM for as long as there is."""
        deadline: float | None = None
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            while not (self._done and self._releasing.idle()):
                if self._termination.requested:
                    deadline = deadline or time.monotonic() + self._patience
                    if time.monotonic() >= deadline:
                        return
                self._changed.wait(0.2)

    def _conclude(self) -> int:
        self._outcome.tell(self._out)
        self._out.flush()
        if self._termination.requested and not self._published:
            return EXIT_TERMINATED
        return 1 if self._outcome.is_failure else 0

    def _look(self) -> Progress:
        with self._changed:
            return Progress(
                tuple(replace(p, failed=self._outcome.has_failed(p.stream)) for p in self._progress.values()),
                time.monotonic() - self._started,
                self._buffer.buffered_bytes,
                self._ledger.released,
                self._ledger.held,
                ("starting Spark",) * self._landing.spark_is_starting() + self._activities.now(),
            )
