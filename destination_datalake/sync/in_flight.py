"""The records that are not yet committed, and the states that are not yet released.

The threads of a sync communicate through `InFlight`, which has one lock. The main thread adds records and states. Job
threads take batches and settle them: they report the outcomes. The releasing thread takes states. No thread calls AWS
or writes to stdout while it holds the lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from destination_datalake.buffer.backlog import SealFailed
from destination_datalake.buffer.batching import Batch
from destination_datalake.errors import Failure
from destination_datalake.protocol.states import DueState, StateLedger, with_statistics
from destination_datalake.rejects.ledger import RejectCounts
from destination_datalake.sync.outcome import (
    BatchCommitted,
    BatchFailed,
    BatchOutcome,
    BatchSkipped,
    SyncOutcome,
    seal_failed,
    spark_ended,
    states_not_written,
    unacknowledgeable,
    uncommitted,
)
from destination_datalake.sync.progress import Progress, StreamProgress

if TYPE_CHECKING:
    from destination_datalake.buffer.backlog import Backlog
    from destination_datalake.buffer.staging import Segment
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.protocol.states import State
    from destination_datalake.protocol.stdout import Stdout
    from destination_datalake.sync.intake import StreamRecords
    from destination_datalake.termination import Termination

_POLL_SECONDS = 0.2
"""The interval, in seconds, at which a waiting thread checks for SIGTERM: a signal handler must not notify a condition.
"""

_START_SECONDS = 0.05
"""The interval, in seconds, at which a waiting thread checks whether Spark has started."""


class InFlight:
    """The uncommitted records and unreleased states of one sync, shared by its threads.

    `outcome` collects the failures. The caller of a method whose name ends in `_locked` must hold the lock. The other
    methods acquire the lock.
    """

    def __init__(
        self,
        streams: Iterable[StreamId],
        backlog: Backlog,
        outcome: SyncOutcome,
        termination: Termination,
        slots: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Start without records and states.

        `slots` returns the number of tasks that Spark runs concurrently, or None while Spark is starting.
        """
        self._backlog = backlog
        self._buffer = backlog.buffer
        self._policy = backlog.policy
        self._outcome = outcome
        self._termination = termination
        self._slots = slots
        self._progress = {stream: StreamProgress(stream) for stream in streams}
        self._ledger = StateLedger(self._progress, backlog.states.keep)
        self._started = time.monotonic()
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._state_due = threading.Condition(lock)
        self._input_ended = False
        self._engine_failed = False
        self._jobs_running = 0
        self._tasks_running = 0
        self._bytes_running = 0
        self._finished = False
        self._states_failed = False
        backlog.buffer.staging.on_free_file(self.free_file)

    # Reading.

    def add_records(self, read: Mapping[StreamId, StreamRecords]) -> None:
        """Buffer the records of streams that have not failed, and count all records. Raises DiskFailed."""
        with self._changed:
            due = False
            for stream, records in read.items():
                lines = records.pieces[0] if len(records.pieces) == 1 else b"".join(records.pieces)
                first = self._ledger.received(stream)
                if not self._outcome.has_failed(stream):
                    due |= self._buffer.append(stream, lines, records.count, first)
                self._ledger.record(stream, records.count)
                progress = self._progress[stream]
                progress.began = progress.began or time.monotonic()
                progress.received += records.count
                progress.received_bytes += len(lines)
            if due:
                self._changed.notify_all()

    def add_state(self, state: State) -> None:
        """Hold a state until all records received before it are committed. Raises DiskFailed."""
        with self._changed:
            self._ledger.hold(state)
            self._notify_of_states_locked()

    def wait_for_room(self) -> bool:
        """Apply back-pressure: wait while the backlog is full or has enough records for Spark.

        Returns False if reading is pointless because no further record could be committed and acknowledged. SIGTERM
        ends the wait.
        """
        with self._changed:
            while not (self._termination.requested or self._is_pointless_locked()) and (
                self._backlog.is_full(self._ledger.held, self._ledger.needs)
                or self._policy.has_enough_queued(self._buffer.waiting(), self._jobs_running, self._tasks_running)
            ):
                self._changed.notify_all()
                self._changed.wait(_POLL_SECONDS)
            return not self._is_pointless_locked()

    def end_input(self) -> None:
        """Record the end of the input. All buffered records are then due."""
        with self._changed:
            self._input_ended = True
            self._state_due.notify()
            self._changed.notify_all()

    def free_file(self, segment: Segment) -> None:
        """Reuse the file of a segment whose upload has finished or was discarded.

        After the end of the input, delete the file.
        """
        with self._changed:
            self._buffer.free_file(segment)
            unused = self._buffer.take_spare_files() if self._input_ended else []
            self._changed.notify_all()
        for path in unused:
            path.unlink(missing_ok=True)

    def free_space(self) -> None:
        """Free disk space, so that buffered records can be landed even though the disk is full."""
        with self._changed:
            self._backlog.free_space()

    def stop(self, failure: Failure) -> None:
        """Fail the sync as a whole. Reading stops, but buffered records are still landed."""
        with self._changed:
            self._outcome.stop(failure)
            self._changed.notify_all()

    def _is_pointless_locked(self) -> bool:
        return self._outcome.all_failed or self._engine_failed or self._ledger.is_blocked

    def _must_flush_locked(self) -> bool:
        return self._backlog.must_flush(self._ledger.held, self._ledger.needs)

    # Landing.

    def next_batches(self) -> list[Batch] | None:
        """Wait until batches are due, and return the batches of the next job.

        The caller must call `end_job` after the job. Returns None if the input has ended and no batch is left, or if
        Spark has ended and cannot encode the batches.
        """
        with self._changed:
            while True:
                slots = self._slots()
                everything = self._input_ended or self._must_flush_locked()
                early = self._policy.waits_for_spark(slots, self._tasks_running, everything=everything)
                if not self._engine_failed and not early and (batches := self._due_batches_locked(slots)):
                    self._jobs_running += 1
                    self._tasks_running += _tasks(batches)
                    self._bytes_running += sum(batch.bytes for batch in batches)
                    self._changed.notify_all()
                    return batches
                if self._input_ended and (self._engine_failed or not early):
                    return None
                if self._engine_failed:
                    seconds = None
                elif early:
                    seconds = _START_SECONDS if slots is None else None
                else:
                    seconds = self._backlog.seconds_until_due()
                self._changed.wait(seconds)

    def end_job(self, batches: Sequence[Batch] = (), *, engine_failed: bool) -> None:
        """Record the end of the job with these batches, which `next_batches` returned."""
        with self._changed:
            self._engine_failed |= engine_failed
            self._jobs_running -= 1
            self._tasks_running -= _tasks(batches)
            self._bytes_running -= sum(batch.bytes for batch in batches)
            self._changed.notify_all()

    def can_acknowledge(self, batch: Batch) -> bool:
        """Return whether a state can still acknowledge records of the batch. If not, do not commit the batch."""
        with self._changed:
            return self._ledger.can_acknowledge(batch.stream, batch.first_record)

    def settle(self, outcome: BatchOutcome) -> None:
        """Record the outcome of a batch, and release its segments.

        If the batch was committed, states that wait for its records may become due. If the batch failed, its stream
        fails.
        """
        batch = outcome.batch
        with self._changed:
            self._buffer.release(batch.segments)
            # After the end of the input, spare files are not needed. They are deleted without the lock, because the
            # kernel then frees their pages, which takes time.
            unused = self._buffer.take_spare_files() if self._input_ended else []
            match outcome:
                case BatchCommitted(counts=counts):
                    self._policy.learn(batch.stream, batch.bytes, sum(outcome.sizes), outcome.partitions)
                    self._ledger.commit(batch.stream, batch.first_record, batch.records, counts.refused)
                    progress = self._progress[batch.stream]
                    progress.committed += batch.records - counts.refused
                    progress.seconds = time.monotonic() - (progress.began or self._started)
                    progress.rows += outcome.rows
                    progress.sizes.extend(outcome.sizes)
                    progress.partitions = max(progress.partitions, outcome.partitions)
                    progress.counts = RejectCounts.total([progress.counts, counts])
                    self._notify_of_states_locked()
                case BatchFailed(failure=failure):
                    self._fail_locked(batch.stream, failure)
                case BatchSkipped():
                    pass
                case _:
                    assert_never(outcome)
            self._changed.notify_all()
        for path in unused:
            path.unlink(missing_ok=True)

    def _due_batches_locked(self, slots: int | None) -> list[Batch]:
        """Return the due batches that a state can still acknowledge. Release all other due batches."""
        while True:
            try:
                batches = self._backlog.next_batches(
                    everything=self._input_ended or self._must_flush_locked(),
                    ended=self._input_ended,
                    slots=slots,
                    tasks=self._tasks_running,
                )
            except SealFailed as error:
                self._fail_locked(error.stream, seal_failed(error))
                continue
            landable = [batch for batch in batches if self.can_acknowledge(batch)]
            for batch in batches:
                if batch not in landable:
                    self._buffer.release(batch.segments)
            if landable or not batches:
                return landable

    def _fail_locked(self, stream: StreamId, failure: Failure) -> None:
        if self._outcome.fail(stream, failure):
            self._ledger.fail(stream)
            self._buffer.release_stream(stream)

    # Releasing.

    def next_state(self) -> DueState | None:
        """Wait for the next due state and return it. Returns the same state until `release_state` is called.

        Returns None if no state is due, `finish` was called, and the input has ended. States may arrive after `finish`:
        if jobs fail, they end before the input does.
        """
        with self._state_due:
            while (state := self._ledger.due()) is None and not (self._finished and self._input_ended):
                self._state_due.wait()
            return state

    def release_state(self) -> None:
        """Release the state that `next_state` returned. Call this after writing it."""
        with self._state_due:
            self._ledger.release()
            if self._ledger.due() is None:
                self._changed.notify_all()

    def fail_states(self, failure: Failure) -> None:
        """Fail the sync as a whole. Call this when no more states can be written."""
        with self._changed:
            # The order matters: when `wait_until_finished` stops waiting for states, the sync must already be marked as
            # failed.
            self.stop(failure)
            self._states_failed = True

    def _notify_of_states_locked(self) -> None:
        if self._ledger.due() is not None:
            self._state_due.notify()

    # The end.

    def fail_uncommitted(self) -> None:
        """Fail each stream that has a record that is neither committed nor rejected. All jobs must have ended."""
        with self._changed:
            for stream in self._progress:
                received, committed = self._ledger.received(stream), self._ledger.committed(stream)
                if received == committed or self._outcome.has_failed(stream):
                    continue
                if self._engine_failed:
                    failure = spark_ended(stream)
                elif self._ledger.is_blocked and (failed := self._outcome.first_failed) is not None:
                    failure = unacknowledgeable(stream, failed)
                else:
                    failure = uncommitted(stream, received, committed)
                self._outcome.fail(stream, failure)

    def finish(self) -> None:
        """Record that all commits and publications have ended. States that are already due are still released."""
        with self._changed:
            self._finished = True
            self._state_due.notify()
            self._changed.notify_all()

    def wait_until_finished(self, patience: float) -> None:
        """Wait for `finish` and for the release of all due states. After SIGTERM, wait at most `patience` seconds."""
        deadline: float | None = None
        with self._changed:
            while not (self._finished and (self._states_failed or self._ledger.due() is None)):
                if self._termination.requested:
                    deadline = deadline or time.monotonic() + patience
                    if time.monotonic() >= deadline:
                        return
                self._changed.wait(_POLL_SECONDS)

    def progress(self, stages: tuple[str, ...]) -> Progress:
        """Return the current counts of the sync. `stages` are the names of the active stages."""
        with self._changed:
            released = self._ledger.released_of
            return Progress(
                tuple(
                    replace(p, failed=self._outcome.has_failed(p.stream), states_released=released[p.stream])
                    for p in self._progress.values()
                ),
                time.monotonic() - self._started,
                self._buffer.buffered_bytes,
                released.total(),
                self._ledger.held,
                stages,
                self._bytes_running,
            )


def _tasks(batches: Sequence[Batch]) -> int:
    """Return the number of Spark tasks of the job that encodes these batches. An unknown number counts as one."""
    return (batches[0].tasks or 1) if batches else 0


# --- Releasing ------------------------------------------------------------------------------------------------------


class Releasing:
    """Writes the due states to stdout, and releases each state after it is written. No other thread writes states.

    The states are written on a separate thread, so that records continue to land while stdout waits for its reader. The
    thread ends with the sync, or when a state cannot be written. In the latter case, later states are not written
    either.
    """

    def __init__(self, in_flight: InFlight, out: Stdout) -> None:
        self._in_flight = in_flight
        self._out = out
        self._thread = threading.Thread(target=self._run, name="states", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _run(self) -> None:
        try:
            while (state := self._in_flight.next_state()) is not None:
                self._out.write_line(with_statistics(state.line.read(), state.written, state.rejected))
                self._in_flight.release_state()
        except Exception as error:
            self._in_flight.fail_states(states_not_written(error))
