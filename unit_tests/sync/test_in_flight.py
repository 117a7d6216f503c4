"""In flight: batches and states between the threads of a sync, and when each of them waits."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from destination_datalake.buffer.backlog import Backlog
from destination_datalake.buffer.batching import READ_AHEAD_BATCHES, Batch, BatchPolicy
from destination_datalake.buffer.buffer import Buffer
from destination_datalake.buffer.staging import Staging
from destination_datalake.errors import Failure
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.protocol.messages import Records
from destination_datalake.protocol.states import State
from destination_datalake.protocol.stdout import Stdout
from destination_datalake.rejects.ledger import RejectCounts
from destination_datalake.sync.in_flight import InFlight, release_states
from destination_datalake.sync.intake import StreamRecords
from destination_datalake.sync.outcome import BatchCommitted, BatchFailed, BatchSkipped, SyncOutcome
from destination_datalake.termination import Termination
from unit_tests.buffer.uploads import SlowUploads
from unit_tests.sync.fakes.messages import failures, parsed, record, state

A, B = StreamId(None, "a"), StreamId(None, "b")
RECORD_BYTES = len(record("a") + b"\n")
"""Also the size of a batch."""
FAILURE = Failure("It failed.", "", "system_error")


class Flight:
    """What is in flight of the streams a and b."""

    def __init__(
        self,
        directory: Path,
        staging: Staging | None = None,
        buffer_bytes: int = 1_000_000,
        slots: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.termination = Termination()
        self.outcome = SyncOutcome([A, B])
        backlog = Backlog(
            Buffer(directory, RECORD_BYTES, buffer_bytes, time.monotonic, staging), BatchPolicy(RECORD_BYTES), 3600
        )
        self.all = InFlight([A, B], backlog, self.outcome, self.termination, slots)

    def add(self, *streams: StreamId) -> None:
        """Add a record of each."""
        read: defaultdict[StreamId, StreamRecords] = defaultdict(StreamRecords)
        for stream in streams:
            read[stream].add(Records(None, stream.name, record(stream.name) + b"\n", 1, 1))
        self.all.add_records(read)

    def hold(self, number: int, stream: StreamId | None) -> None:
        self.all.add_state(State(state(number, None if stream is None else stream.name), stream))

    def take(self) -> Batch:
        """Take the one batch that is due."""
        batches = self.all.next_batches()
        assert batches is not None
        (batch,) = batches
        return batch

    def land(self, *, engine_failed: bool = False) -> None:
        """Commit the one batch that is due."""
        self.all.settle(committed(self.take()))
        self.all.end_job(engine_failed=engine_failed)

    def release_state(self) -> None:
        """Release the next state that is due."""
        self.next_state()

    def next_state(self) -> int:
        """Release the next state that is due; return its number."""
        due = self.all.next_state()
        assert due is not None
        number: int = json.loads(due.line.read())["state"]["id"]
        self.all.release_state()
        return number


@pytest.fixture
def flight(tmp_path: Path) -> Iterator[Flight]:
    flight = Flight(tmp_path)
    yield flight
    flight.termination.close()


def committed(batch: Batch) -> BatchCommitted:
    return BatchCommitted(batch, RejectCounts(batch.records), batch.records, (1,), 1.0)


def reported(outcome: SyncOutcome) -> dict[str | None, tuple[str, str]]:
    """The type and the message of each failure by stream; the whole sync's is None's."""
    reader, writer = os.pipe()
    outcome.write_traces(Stdout(writer))
    os.close(writer)
    with os.fdopen(reader, "rb") as traces:
        return failures(parsed(traces.read()))


def waits(call: Callable[[], Any], until: Callable[[], None]) -> Any:
    """Assert that a call does not return before `until` was called; return its result."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join(0.05)
    assert results == []
    until()
    thread.join()
    return results[0]


# --- Uploads


@pytest.fixture
def uploads(tmp_path: Path) -> Iterator[tuple[Flight, SlowUploads]]:
    """What is in flight where executors are on other machines, and the disk has room for two records."""
    staging = SlowUploads()
    flight = Flight(tmp_path, staging, buffer_bytes=2 * RECORD_BYTES)
    yield flight, staging
    flight.termination.close()


def test_reading_waits_for_uploads_while_they_fill_the_disk(uploads: tuple[Flight, SlowUploads]) -> None:
    flight, staging = uploads
    flight.add(A)
    flight.add(A)

    assert waits(flight.all.wait_for_room, until=staging.end_one)


def test_files_of_uploads_that_end_after_the_input_are_deleted(
    uploads: tuple[Flight, SlowUploads], tmp_path: Path
) -> None:
    flight, staging = uploads
    flight.add(A)
    flight.all.end_input()

    staging.end_one()

    assert [*tmp_path.glob("*.jsonl")] == []


# --- Batches


def test_a_job_waits_for_a_batch_that_is_due(flight: Flight) -> None:
    batches = waits(flight.all.next_batches, until=lambda: flight.add(A))

    assert [batch.stream for batch in batches] == [A]


def test_a_job_gets_nothing_more_once_the_input_has_ended_and_all_is_taken(flight: Flight) -> None:
    assert waits(flight.all.next_batches, until=flight.all.end_input) is None


def test_a_job_gets_nothing_more_once_spark_has_ended(flight: Flight) -> None:
    flight.add(A)
    flight.take()
    flight.all.end_job(engine_failed=True)
    flight.add(A)
    flight.all.end_input()

    assert flight.all.next_batches() is None


def test_batches_of_a_failed_stream_are_not_landed(flight: Flight) -> None:
    flight.add(A)
    first = flight.take()
    flight.add(A, B)
    flight.all.settle(BatchFailed(first, FAILURE))
    flight.all.end_input()

    assert flight.take().stream == B
    assert not flight.all.can_acknowledge(first)
    assert flight.all.next_batches() is None


# --- Back-pressure


def test_reading_waits_while_enough_batches_are_in_flight(flight: Flight) -> None:
    for _ in range(READ_AHEAD_BATCHES):
        flight.add(A)

    assert waits(flight.all.wait_for_room, until=flight.land)


def test_sigterm_ends_the_wait_for_room(flight: Flight) -> None:
    for _ in range(READ_AHEAD_BATCHES):
        flight.add(A)

    assert waits(flight.all.wait_for_room, until=flight.termination.request)


def test_reading_ends_when_all_streams_have_failed(flight: Flight) -> None:
    flight.add(A, B)
    batches = flight.all.next_batches(), flight.all.next_batches()

    for batch in (batch for landed in batches for batch in landed or ()):
        flight.all.settle(BatchFailed(batch, FAILURE))

    assert not flight.all.wait_for_room()


def test_reading_ends_when_spark_has_ended(flight: Flight) -> None:
    flight.add(A)
    flight.land(engine_failed=True)

    assert not flight.all.wait_for_room()


# --- States


def test_files_of_landed_batches_are_reused_and_deleted_once_the_input_has_ended(
    flight: Flight, tmp_path: Path
) -> None:
    flight.add(A)
    flight.land()
    flight.add(A)
    flight.add(B)
    assert len([*tmp_path.glob("*.jsonl")]) == 2

    flight.all.end_input()
    flight.land()

    assert len([*tmp_path.glob("*.jsonl")]) == 1


def test_a_state_is_due_once_the_records_before_it_are_committed(flight: Flight) -> None:
    flight.add(A)
    flight.hold(1, A)
    flight.add(A)
    flight.hold(2, A)

    assert waits(flight.next_state, until=flight.land) == 1
    assert waits(flight.next_state, until=flight.land) == 2


def test_no_state_comes_after_the_end_but_those_that_are_due(flight: Flight) -> None:
    flight.hold(1, A)
    flight.add(A)
    flight.hold(2, A)
    flight.all.end_input()
    flight.all.finish()

    assert flight.next_state() == 1
    assert flight.all.next_state() is None


def test_a_state_that_is_read_after_the_end_of_all_jobs_is_due(flight: Flight) -> None:
    """Jobs end before the input does if errors end them."""
    flight.all.finish()

    assert waits(flight.next_state, until=lambda: flight.hold(1, A)) == 1


def test_no_state_comes_after_the_end_of_the_input_if_all_jobs_have_ended_before(flight: Flight) -> None:
    flight.all.finish()

    assert waits(flight.all.next_state, until=flight.all.end_input) is None


def test_states_of_other_streams_are_due_although_a_stream_has_failed(flight: Flight) -> None:
    flight.add(A)
    flight.hold(1, A)
    flight.hold(2, B)
    flight.all.settle(BatchFailed(flight.take(), FAILURE))

    assert flight.next_state() == 2


# --- The end


def test_the_end_waits_for_states_that_are_due(flight: Flight) -> None:
    flight.hold(1, A)
    flight.all.finish()

    waits(lambda: flight.all.wait_until_finished(30.0), until=flight.release_state)


def test_the_end_waits_for_patience_only_after_sigterm(flight: Flight) -> None:
    waits(lambda: flight.all.wait_until_finished(0.0), until=flight.termination.request)


def test_a_spark_that_does_not_respond_delays_neither_reading_nor_the_end_after_sigterm(tmp_path: Path) -> None:
    responding = threading.Event()

    def slots() -> int:
        responding.wait(10.0)
        return 1

    flight = Flight(tmp_path, slots=slots)
    job = threading.Thread(target=flight.all.next_batches)
    job.start()
    begun = time.monotonic()

    flight.add(A)
    flight.termination.request()
    flight.all.wait_until_finished(0.0)

    assert time.monotonic() - begun < 5.0
    assert job.is_alive()
    responding.set()
    job.join()
    flight.termination.close()


def test_the_end_does_not_wait_for_states_that_cannot_be_written(flight: Flight) -> None:
    flight.hold(1, A)
    flight.all.finish()

    waits(lambda: flight.all.wait_until_finished(30.0), until=lambda: flight.all.fail_states(FAILURE))

    assert flight.outcome.is_stopped


@pytest.mark.parametrize("engine_failed", [True, False])
def test_a_stream_with_records_that_are_not_committed_fails(flight: Flight, engine_failed: bool) -> None:
    flight.add(A, B)
    flight.all.settle(BatchSkipped(flight.take()))
    flight.all.end_job(engine_failed=engine_failed)

    flight.all.fail_uncommitted()

    assert flight.outcome.has_failed(A)


def test_the_progress_counts_what_was_received_committed_and_rejected(flight: Flight) -> None:
    flight.add(A, A, B)
    flight.hold(1, B)
    batches = [flight.all.next_batches() for _ in range(2)]

    for batch in (batch for landed in batches for batch in landed or ()):
        counts = RejectCounts(batch.records, refused=1, reasons={("x", "NOT_AN_INTEGER"): 2})
        flight.all.settle(BatchCommitted(batch, counts, batch.records - 1, (400, 600), 3.0))

    a, b = flight.all.progress(("reading",)).streams
    assert (a.rows_received, a.committed, a.row_count, [*a.sizes], a.partitions) == (2, 1, 1, [400, 600], 3.0)
    assert (b.rows_received, b.committed, b.row_count) == (1, 0, 0)
    assert [(progress.rows_rejected, progress.values_rejected) for progress in (a, b)] == [(1, 2), (1, 2)]


# --- Releasing ------------------------------------------------------------------------------------------------------


def release_two_states(flight: Flight, stdout: int) -> None:
    """Release two states that are due; return when there is nothing more to release."""
    for number in (1, 2):
        flight.hold(number, A)
    flight.all.end_input()
    flight.all.finish()
    release_states(flight.all, Stdout(stdout))
    flight.all.wait_until_finished(0.0)


def test_states_are_written_in_order_with_statistics(flight: Flight, tmp_path: Path) -> None:
    with (tmp_path / "stdout").open("wb") as stdout:
        release_two_states(flight, stdout.fileno())

    lines = (tmp_path / "stdout").read_bytes().splitlines()
    assert lines == [
        state(number, "a").removesuffix(b"}}") + b',"destinationStats":{"recordCount":0.0}}}' for number in (1, 2)
    ]


def test_a_closed_stdout_is_reported(flight: Flight) -> None:
    reader, writer = os.pipe()
    os.close(reader)

    release_two_states(flight, writer)

    os.close(writer)
    assert "The platform closed standard output" in reported(flight.outcome)[None][1]


def test_a_full_disk_under_stdout_is_reported(flight: Flight) -> None:
    full = os.open("/dev/full", os.O_WRONLY)

    release_two_states(flight, full)

    os.close(full)
    assert os.strerror(errno.ENOSPC) in reported(flight.outcome)[None][1]
