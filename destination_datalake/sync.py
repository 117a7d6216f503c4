"""One `write` from first line to last: the conductor. It knows every part and does none of their work.

stdin is read into the buffer on the main thread; a dispatcher thread cuts batches and lands them on job threads; what
has landed releases states. One lock guards the buffer, the ledger and the counts; nobody does I/O to AWS under it.
"""

from __future__ import annotations

import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from destination_datalake.aws.access import AwsAccess
from destination_datalake.buffer.batches import Batch, Cutter
from destination_datalake.buffer.buffer import Buffer, MiB
from destination_datalake.buffer.staging import LocalStaging, RemoteStaging
from destination_datalake.buffer.triggers import AgeTrigger, AheadTrigger, SizeTrigger, SpaceTrigger
from destination_datalake.intake import Gathered, Intake, RefusedMessage
from destination_datalake.landing import JOBS_AT_ONCE, Landed, Landing, StreamFailure
from destination_datalake.protocol.catalog import Stream, StreamId, parse_catalog
from destination_datalake.protocol.messages import MalformedLine
from destination_datalake.protocol.states import State, StateLedger
from destination_datalake.protocol.statuses import Statuses
from destination_datalake.protocol.stdin import chunks
from destination_datalake.protocol.stdout import StdoutClosedError
from destination_datalake.rejects.book import RejectBook
from destination_datalake.rejects.catalog import RejectsTable
from destination_datalake.rejects.limit import RejectLimit
from destination_datalake.rejects.place import FOLDER
from destination_datalake.report import Progress, Reporter, StreamProgress
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.opening import open_table

if TYPE_CHECKING:
    from destination_datalake.config import Config
    from destination_datalake.protocol.stdout import Stdout
    from destination_datalake.spark.engine import Engine
    from destination_datalake.termination import Termination

SEGMENT_BYTES = 16 * MiB
"""Small enough that a batch divides evenly among the cores, large enough that opening it costs nothing."""

BATCHES_IN_HAND = 4
"""Whole batches that wait or are being landed: while Spark starts reading goes on, and each job finds the next one."""

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
    streams = parse_catalog(catalog)
    naming = TableNaming.of(config)
    tables = naming.tables_of(streams)
    access = AwsAccess.of(config)
    sync_name = uuid.uuid4().hex[:12]
    openers = {
        stream.id: partial(open_table, config, naming.naming, sync_name, stream, tables[stream.id], access)
        for stream in streams
    }
    root, day = config.uri(FOLDER), datetime.now(UTC).date().isoformat()
    rejects_table = RejectsTable(config.lakeformation_database_name, root, access)
    limit = RejectLimit(config.rejects.max_ratio, config.rejects.max_count)
    rejects = RejectBook(root, sync_name, day, limit, rejects_table, access)
    staging = LocalStaging() if engine.local else RemoteStaging(config.uri("_staging", sync_name), access)
    with tempfile.TemporaryDirectory(prefix="destination-datalake-", ignore_cleanup_errors=True) as directory:
        new_landing = partial(Landing, openers, engine, staging, access, sync_name, rejects)
        return _Sync(config, streams, new_landing, Path(directory), out, termination).run(stdin)


class _Sync:
    """The state of one sync. Names of methods that need the lock held end in `_locked`."""

    def __init__(
        self,
        config: Config,
        streams: Sequence[Stream],
        new_landing: Callable[[Callable[[Landed], None]], Landing],
        segments: Path,
        out: Stdout,
        termination: Termination,
    ) -> None:
        self._streams = {stream.id: stream for stream in streams}
        self._out = out
        self._termination = termination
        self._started = time.monotonic()
        self._changed = threading.Condition()
        self._ledger = StateLedger(self._streams)
        batch_bytes = config.batch_size_mb * MiB
        self._buffer = Buffer(segments, min(SEGMENT_BYTES, batch_bytes), time.monotonic)
        self._space = SpaceTrigger(config.buffer_size_mb * MiB)
        self._ahead = AheadTrigger(batch_bytes, BATCHES_IN_HAND)
        age = AgeTrigger(float(config.flush_interval_seconds))
        self._cutter = Cutter(SizeTrigger(batch_bytes), age, self._space)
        self._statuses = Statuses(streams)
        self._progress = {stream: StreamProgress(stream) for stream in self._streams}
        self._failures: dict[StreamId, StreamFailure] = {}
        self._fatal: StreamFailure | None = None
        self._intake = Intake(self._streams, self._statuses, partial(out.log, "WARN"))
        self._ended = False
        self._terminated = False
        self._drained = False
        self._jobs_running = 0
        self._landing = new_landing(self._on_landed)

    def run(self, stdin: int) -> int:
        """Read to the end, land everything, publish what is complete, and say how it went."""
        with Reporter(self._out, self._look):
            dispatcher = threading.Thread(target=self._dispatch, name="dispatch", daemon=True)
            dispatcher.start()
            self._read(stdin)
            drained = self._drain(dispatcher)
            if drained:
                self._account()
            if drained and not self._terminated and self._fatal is None:
                self._finish()
        if drained:
            self._landing.close()
        return self._conclude()

    # Reading, on the main thread.

    def _read(self, stdin: int) -> None:
        try:
            for chunk in chunks(stdin, self._termination.descriptor):
                for step in self._intake.steps(chunk):
                    if isinstance(step, Gathered):
                        self._take_records(step)
                    else:
                        self._take_state(step)
                if not self._wait_for_room():
                    break
        except MalformedLine as error:
            self._fatal = StreamFailure(
                f"{error}. The source or the platform sent something that is not the Airbyte protocol; the records "
                "before it are safe. Run the sync again, and report it to the source's maintainers if it stays.",
                str(error),
                "system_error",
            )
        except RefusedMessage as error:
            self._fatal = StreamFailure(str(error), str(error), "system_error")
        self._terminated = self._termination.requested

    def _take_records(self, gathered: Gathered) -> None:
        with self._changed:
            due = False
            for stream, records in gathered.streams.items():
                lines = records.pieces[0] if len(records.pieces) == 1 else b"".join(records.pieces)
                progress = self._progress[stream]
                progress.received += records.count
                progress.received_bytes += len(lines)
                first = self._ledger.received(stream)
                self._ledger.record(stream, records.count)
                if stream not in self._failures:
                    due |= self._buffer.append(stream, lines, records.count, first)
            if due:
                self._changed.notify_all()

    def _take_state(self, state: State) -> None:
        with self._changed:
            self._ledger.hold(state)
            self._release_locked()

    def _wait_for_room(self) -> bool:
        """Wait while the buffer is full or Spark has enough to do. False when there is no point in reading on."""
        with self._changed:
            while not self._termination.requested and (
                self._space.due(self._buffer.used) or self._ahead.due(self._buffer.waiting_sizes(), self._jobs_running)
            ):
                self._changed.notify_all()
                self._changed.wait(0.5)
            return len(self._failures) < len(self._streams) and self._fatal is None

    # Landing, on the dispatcher's and the jobs' threads.

    def _dispatch(self) -> None:
        with ThreadPoolExecutor(JOBS_AT_ONCE, "job") as jobs:
            while (batches := self._next_batches()) is not None:
                jobs.submit(self._land, batches)
        with self._changed:
            self._drained = True
            self._changed.notify_all()

    def _next_batches(self) -> list[Batch] | None:
        """Wait for batches that are due and a free job; None when the input has ended and nothing is left of it."""
        with self._changed:
            while True:
                now = time.monotonic()
                if self._jobs_running < JOBS_AT_ONCE:
                    batches = self._cutter.cut(self._buffer, now, ended=self._ended)
                    if batches:
                        self._jobs_running += 1
                        self._changed.notify_all()
                        return batches
                    if self._ended:
                        return None
                    self._changed.wait(self._cutter.wait(self._buffer, now))
                else:
                    self._changed.wait()

    def _land(self, batches: list[Batch]) -> None:
        try:
            self._landing.land(batches)
        except Exception as error:
            # Not a failure that landing knows how to tell; `_account` finds which records it has cost.
            self._out.log("ERROR", "".join(traceback.format_exception(error)))
        finally:
            with self._changed:
                self._jobs_running -= 1
                self._changed.notify_all()

    def _on_landed(self, landed: Landed) -> None:
        stream = landed.batch.stream
        with self._changed:
            self._buffer.discard(landed.batch.segments)
            progress = self._progress[stream]
            if landed.failure is not None:
                progress.failed = True
                self._failures.setdefault(stream, landed.failure)
            else:
                tally = landed.tally
                self._ledger.commit(stream, landed.batch.first, landed.batch.records, tally.refused)
                progress.committed += landed.batch.records - tally.refused
                progress.files += landed.files
                progress.file_bytes += landed.bytes
                progress.rejected_records += tally.refused
                progress.rejected_values += tally.values
                self._release_locked()
            self._changed.notify_all()

    def _release_locked(self) -> None:
        """Write out the states that are true now; under the lock, so that they keep their order."""
        try:
            for line in self._ledger.release():
                self._out.write_line(line)
        except StdoutClosedError as error:
            self._fatal = StreamFailure(
                "The platform closed the connector's output: no state can be acknowledged any more.",
                str(error),
                "system_error",
            )

    # The end.

    def _drain(self, dispatcher: threading.Thread) -> bool:
        """Land what was read. After SIGTERM only for as long as the platform waits; False if that was too short."""
        deadline = time.monotonic() + TERMINATION_SECONDS if self._terminated else None
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            while not self._drained:
                if deadline is None and self._termination.requested:
                    self._terminated = True
                    deadline = time.monotonic() + TERMINATION_SECONDS
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                self._changed.wait(0.2)
        dispatcher.join()
        return True

    def _account(self) -> None:
        """Fail every stream of which something was received and not committed: nothing is dropped without a word."""
        for stream in self._streams:
            received, committed = self._ledger.received(stream), self._ledger.committed(stream)
            if received != committed and stream not in self._failures:
                message = f"Stream {stream}: {received} records were received and {committed} committed."
                self._failures[stream] = StreamFailure(message, "records and rows do not match", "system_error")

    def _finish(self) -> None:
        """Publish the streams that are complete, and note what keeps the others from it."""
        for stream in self._streams:
            failure = self._landing.preparation_failure(stream)
            if failure is not None:
                self._failures.setdefault(stream, failure)
        complete = [s for s in self._streams if s not in self._failures and self._statuses.complete(s)]
        self._failures.update(self._landing.publish(complete))
        for stream in self._streams:
            if stream not in self._failures and not self._statuses.complete(stream):
                self._failures[stream] = StreamFailure(
                    f"Stream {stream} is incomplete: the source ended without saying that all its records were sent. "
                    "What was received is committed; nothing was replaced. The next sync goes on from there.",
                    "no COMPLETE status",
                    "transient_error",
                )

    def _conclude(self) -> int:
        for stream, failure in self._failures.items():
            self._progress[stream].failed = True
            descriptor = (stream.namespace, stream.name)
            self._out.trace_error(failure.message, failure.internal_message, failure.failure_type, descriptor)
        if self._fatal is not None:
            self._out.trace_error(self._fatal.message, self._fatal.internal_message, self._fatal.failure_type)
        if self._terminated:
            return EXIT_TERMINATED
        return 1 if self._failures or self._fatal else 0

    def _look(self) -> Progress:
        with self._changed:
            return Progress(
                tuple(replace(progress) for progress in self._progress.values()),
                time.monotonic() - self._started,
                self._buffer.used,
                self._ledger.released,
                self._ledger.held(),
            )
