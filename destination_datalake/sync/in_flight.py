"""The uncommitted records and unreleased states of a sync.

The threads of a sync communicate through `InFlight`, which has one lock:

- The main thread adds records and states.
- Job threads take batches, write them to the tables, and report the outcome of each batch (`settle`).
- The releasing thread takes the states that are due, and writes them to stdout.

No thread calls AWS or Spark, or writes to stdout, while it holds the lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
"""The interval, in seconds, at which waiting threads check for SIGTERM. The signal handler cannot wake these threads,
because a signal handler must not use locks."""

_START_SECONDS = 0.05
"""The interval, in seconds, at which a waiting thread checks whether Spark has started."""


class InFlight:
    """The uncommitted records and unreleased states of one sync, which all threads of the sync share.

    The caller of a method whose name ends in `_locked` must hold the lock. All other methods acquire the lock
    themselves. `outcome` collects the failures.
    """

    def __init__(
        self,
        streams: Iterable[StreamId],
        backlog: Backlog,
        outcome: SyncOutcome,
        termination: Termination,
        slots: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Create an empty instance.

        `slots` returns the number of tasks that Spark can run concurrently, or None while Spark is starting.
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
        # Reentrant, because methods that hold the lock call methods that acquire it. Only the releasing thread waits
        # for `_state_due`, so a due state does not wake the other threads.
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
        """Count the records, and buffer those of streams that have not failed. Raises DiskFailed."""
        with self._changed:
            due = False
            for stream, records in read.items():
                # A single piece needs no copy.
                lines = records.pieces[0] if len(records.pieces) == 1 else b"".join(records.pieces)
                first = self._ledger.received(stream)
                if not self._outcome.has_failed(stream):
                    # Append before `record`: if the disk fails, the ledger counts only records that are in the buffer.
                    due |= self._buffer.append(stream, lines, records.count, first)
                self._ledger.record(stream, records.count)
                progress = self._progress[stream]
                progress.began = progress.began or time.monotonic()
                progress.rows_received += records.count
                progress.bytes_received += len(lines)
            if due:
                self._changed.notify_all()

    def add_state(self, state: State) -> None:
        """Hold a state until the sync has committed all earlier records that the state covers. Raises DiskFailed."""
        with self._changed:
            self._ledger.hold(state)
            self._notify_of_states_locked()

    def wait_for_room(self) -> bool:
        """Block the reader while the backlog is full, or while Spark has enough queued records.

        Returns False if the sync could commit or acknowledge no further record, and True if reading can continue. After
        SIGTERM, stops waiting.
        """
        with self._changed:
            while not (self._termination.requested or self._is_pointless_locked()) and (
                self._backlog.is_full(self._ledger.held, self._ledger.needs)
                or self._policy.has_enough_queued(self._buffer.waiting(), self._jobs_running, self._tasks_running)
            ):
                # A full backlog makes all queued records due. `add_records` notifies job threads only if a batch is due
                # by size or age.
                self._changed.notify_all()
                self._changed.wait(_POLL_SECONDS)
            return not self._is_pointless_locked()

    def end_input(self) -> None:
        """Record the end of the input. From now on, all buffered records are due, regardless of their size and age."""
        with self._changed:
            self._input_ended = True
            self._state_due.notify()
            self._changed.notify_all()

    def free_file(self, segment: Segment) -> None:
        """Keep the file of an uploaded or discarded segment for reuse. After the end of the input, delete the file.

        A segment is a file of record lines.
        """
        with self._freeing_files():
            self._buffer.free_file(segment)

    def free_space(self) -> None:
        """Delete the spare files and the reserved file. Spark then has space to process the buffer of a full disk."""
        with self._changed:
            self._backlog.free_space()

    def stop(self, failure: Failure) -> None:
        """Mark the whole sync as failed. The main thread then stops reading; job threads commit buffered records."""
        with self._changed:
            self._outcome.stop(failure)
            self._changed.notify_all()

    def _is_pointless_locked(self) -> bool:
        return self._outcome.all_failed or self._engine_failed or self._ledger.is_blocked

    def _must_flush_locked(self) -> bool:
        return self._backlog.must_flush(self._ledger.held, self._ledger.needs)

    # Landing.

    def next_batches(self) -> list[Batch] | None:
        """Wait until batches are due. Return the batches of the next Spark job, or None if no batch can follow.

        No batch can follow if the input has ended, and either no batch is left or Spark has failed. The caller must
        call `end_job` after the job.
        """
        while True:
            # Before the lock is acquired, because `_slots` can call Spark, which may not respond.
            slots = self._slots()
            with self._changed:
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
                    # Only the end of the input can end this wait.
                    seconds = None
                elif early:
                    # Nothing notifies this thread when Spark has started. Once Spark runs, the end of a job does.
                    seconds = _START_SECONDS if slots is None else None
                else:
                    seconds = self._backlog.seconds_until_due()
                self._changed.wait(seconds)

    def end_job(self, batches: Sequence[Batch] = (), *, engine_failed: bool) -> None:
        """Record that the job with these batches has ended. `batches` is the list that `next_batches` returned.

        `engine_failed` states whether Spark can run no more jobs.
        """
        with self._changed:
            self._engine_failed |= engine_failed
            self._jobs_running -= 1
            self._tasks_running -= _tasks(batches)
            self._bytes_running -= sum(batch.bytes for batch in batches)
            self._changed.notify_all()

    def can_acknowledge(self, batch: Batch) -> bool:
        """Return whether a state can still acknowledge the batch's records. If not, do not commit the batch."""
        with self._changed:
            return self._ledger.can_acknowledge(batch.stream, batch.first_record)

    def settle(self, outcome: BatchOutcome) -> None:
        """Record the outcome of a batch, and release its records from the buffer.

        If the batch was committed, states that waited for its records may become due. If the batch failed, its stream
        fails too.
        """
        batch = outcome.batch
        with self._freeing_files():
            self._buffer.release(batch.segments)
            match outcome:
                case BatchCommitted(counts=counts):
                    self._policy.learn(batch.stream, batch.bytes, sum(outcome.sizes), outcome.partitions)
                    self._ledger.commit(batch.stream, batch.first_record, batch.records, counts.refused)
                    progress = self._progress[batch.stream]
                    progress.committed += batch.records - counts.refused
                    progress.seconds = time.monotonic() - (progress.began or self._started)
                    progress.row_count += outcome.rows
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

    @contextmanager
    def _freeing_files(self) -> Iterator[None]:
        """Hold the lock during the `with` block, which adds spare files. Then notify all waiting threads.

        After the end of the input, no segment reuses a spare file, so this method deletes all spare files. It first
        releases the lock, because the kernel takes time to free the pages of a deleted file.
        """
        with self._changed:
            yield
            unused = self._buffer.take_spare_files() if self._input_ended else []
            self._changed.notify_all()
        for path in unused:
            path.unlink(missing_ok=True)

    def _due_batches_locked(self, slots: int | None) -> list[Batch]:
        """Return the due batches whose records a state can still acknowledge. Discard the other due batches."""
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
        """Wait for the next due state, and return it. Return the same state until `release_state` is called.

        Returns None when three conditions hold: the input has ended, `finish` was called, and no state is due. `finish`
        can come before the end of the input, because failed jobs end early.
        """
        with self._state_due:
            while (state := self._ledger.due()) is None and not (self._finished and self._input_ended):
                self._state_due.wait()
            return state

    def release_state(self) -> None:
        """Remove the state that `next_state` returned. Call this method after writing the state."""
        with self._state_due:
            self._ledger.release()
            # The main thread may be waiting for the last due state.
            if self._ledger.due() is None:
                self._changed.notify_all()

    def fail_states(self, failure: Failure) -> None:
        """Mark the whole sync as failed, because states can no longer be written."""
        with self._changed:
            # Mark the sync as failed first: `_states_failed` ends `wait_until_finished`, whose caller then reads the
            # outcome.
            self.stop(failure)
            self._states_failed = True

    def _notify_of_states_locked(self) -> None:
        if self._ledger.due() is not None:
            self._state_due.notify()

    # The end.

    def fail_uncommitted(self) -> None:
        """Fail each stream that has a record neither committed nor rejected. Call this method after all jobs ended."""
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
        """Record that all commits and publications have ended. The releasing thread still writes the due states."""
        with self._changed:
            self._finished = True
            self._state_due.notify()
            self._changed.notify_all()

    @property
    def is_finished(self) -> bool:
        """Whether `finish` was called, and all due states are written or writing has failed."""
        with self._changed:
            return self._finished and (self._states_failed or self._ledger.due() is None)

    def wait_until_finished(self, patience: float) -> None:
        """Wait until the sync `is_finished`. After SIGTERM, wait for at most `patience` seconds."""
        deadline: float | None = None
        with self._changed:
            while not self.is_finished:
                if self._termination.requested:
                    deadline = deadline or time.monotonic() + patience
                    if time.monotonic() >= deadline:
                        return
                self._changed.wait(_POLL_SECONDS)

    def progress(self, stages: tuple[str, ...]) -> Progress:
        """Return the current counts of the sync. `stages` contains the names of the active stages."""
        with self._changed:
            released = self._ledger.released_by_stream
            return Progress(
                tuple(replace(p, states_released=released[p.stream]) for p in self._progress.values()),
                time.monotonic() - self._started,
                self._buffer.buffered_bytes,
                released.total(),
                self._ledger.held,
                stages,
                self._bytes_running,
            )


def _tasks(batches: Sequence[Batch]) -> int:
    """Return the number of Spark tasks of the job that encodes these batches, or 1 if the number is unknown."""
    return (batches[0].tasks or 1) if batches else 0


# --- Releasing ------------------------------------------------------------------------------------------------------


def release_states(in_flight: InFlight, out: Stdout) -> None:
    """Write due states to stdout, in order, until the sync ends. Only one thread may run this function.

    The thread does nothing else, so job threads can commit records while stdout blocks. If the function cannot write a
    state, the sync fails, and the function writes no later state.
    """
    try:
        while (state := in_flight.next_state()) is not None:
            # Release the state after writing it. Otherwise, the main thread could end the process between both calls,
            # as no state would be due.
            out.write_line(with_statistics(state.line.read(), state.written, state.rejected))
            in_flight.release_state()
    except Exception as error:
        in_flight.fail_states(states_not_written(error))
