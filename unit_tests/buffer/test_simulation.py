"""Syncs of several streams in simulated time: reading, batches and Spark never wait for each other for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.buffer.backlog import Backlog
from destination_datalake.buffer.batching import Batch, LearnedBatches
from destination_datalake.buffer.buffer import Buffer
from destination_datalake.protocol.catalog import StreamId
from unit_tests.examples import examples

pytestmark = pytest.mark.share(7)

RECORD = b"123456789\n"
YIELD = 0.5
_PATIENCE = 5_000
"""Steps in which any of these syncs is over unless it hangs."""


@dataclass
class Job:
    """A Spark job: its batches, and the steps that each of its tasks still takes."""

    batches: list[Batch]
    tasks: int
    remaining: list[int]


@dataclass
class Simulation:
    """A sync whose source sends the records of `order`, one stream's number each, `pace` of them in a step.

    Spark starts at a step and runs `slots` tasks at once, each of which encodes a record in a step.
    """

    directory: Path
    order: Sequence[int]
    slots: int = 2
    start: int = 0
    pace: int = 100
    least: int = 20
    target: int = 20
    buffer: int = 1000
    segment: int = 10
    flush: float = 1e9
    now: float = 0.0
    jobs: list[Job] = field(default_factory=list)
    landed: list[Batch] = field(default_factory=list)

    def run(self) -> None:
        """Run the sync to its end. Raises AssertionError if it hangs, or breaks a limit."""
        self.sizes = LearnedBatches(self.least, self.target, self.buffer, YIELD)
        buffer = Buffer(self.directory, self.segment, self.buffer, lambda: self.now)
        self.backlog = Backlog(buffer, self.sizes, self.flush)
        self.sent: Counter[int] = Counter()
        source = iter(self.order)
        while sum(self.sent.values()) < len(self.order) or self.backlog.buffer.buffered_bytes:
            assert self.now < _PATIENCE, "the sync hangs"
            if not (self._is_full() or self._has_enough_queued()):
                self._read(islice(source, self.pace))
            self._begin_jobs(ended=sum(self.sent.values()) == len(self.order))
            self._run_spark()
            self.now += 1

    def _is_full(self) -> bool:
        return self.backlog.is_full(0, 0)

    def _has_enough_queued(self) -> bool:
        return self.sizes.has_enough_queued(self.backlog.buffer.waiting(), len(self.jobs), self._tasks())

    def _tasks(self) -> int:
        return sum(job.tasks for job in self.jobs)

    def _read(self, streams: islice[int]) -> None:
        for number in streams:
            self.backlog.buffer.append(stream_id(number), RECORD, 1, self.sent[number])
            self.sent[number] += 1
        assert self.backlog.buffer.disk_bytes <= self.buffer + self.pace * len(RECORD), "the disk is bounded"

    def _begin_jobs(self, *, ended: bool) -> None:
        slots = self.slots if self.now >= self.start else None
        while len(self.jobs) < LearnedBatches.jobs:
            everything, tasks = ended or self._is_full(), self._tasks()
            if self.sizes.waits_for_spark(slots, tasks, everything=everything):
                return
            batches = self.backlog.next_batches(everything=everything, ended=ended, slots=slots, tasks=tasks)
            if not batches:
                due_in = self.backlog.seconds_until_due()
                assert due_in is None or due_in > 0, "what is old enough is taken if Spark is free"
                return
            count = batches[0].tasks or self.slots
            records = sum(batch.records for batch in batches)
            self.jobs.append(Job(batches, batches[0].tasks or 1, [-(-records // count)] * count))

    def _run_spark(self) -> None:
        free = self.slots if self.now >= self.start else 0
        for job in self.jobs:
            running = [task for task, remaining in enumerate(job.remaining) if remaining][:free]
            free -= len(running)
            for task in running:
                job.remaining[task] -= 1
        for job in [job for job in self.jobs if not any(job.remaining)]:
            self.jobs.remove(job)
            for batch in job.batches:
                self.landed.append(batch)
                self.sizes.learn(batch.stream, batch.bytes, int(batch.bytes * YIELD), 1.0)
                self.backlog.buffer.release(batch.segments)


def stream_id(number: int) -> StreamId:
    return StreamId(None, f"stream_{number}")


@pytest.mark.law
@settings(max_examples=examples(500))
@given(
    order=st.lists(st.integers(0, 5), max_size=200),
    slots=st.sampled_from([1, 2, 3, 8, 200]),
    start=st.sampled_from([0, 3, 100]),
    pace=st.sampled_from([1, 3, 10]),
    least=st.sampled_from([10, 50, 500]),
    target=st.sampled_from([1, 20, 500]),
    buffer=st.sampled_from([10, 100, 500, 10_000]),
    segment=st.sampled_from([10, 40]),
    flush=st.sampled_from([0.0, 7.0, 1e9]),
)
def test_every_record_lands_once_in_stream_order(
    order: list[int],
    slots: int,
    start: int,
    pace: int,
    least: int,
    target: int,
    buffer: int,
    segment: int,
    flush: float,
) -> None:
    with TemporaryDirectory() as directory:
        sync = Simulation(Path(directory), order, slots, start, pace, least, target, buffer, segment, flush)

        sync.run()

    landed: dict[StreamId, list[int]] = {}
    for batch in sorted(sync.landed, key=lambda batch: batch.number):
        for segment_ in batch.segments:
            numbers = range(segment_.first_record, segment_.first_record + segment_.records)
            landed.setdefault(batch.stream, []).extend(numbers)
    assert landed == {stream_id(number): list(range(count)) for number, count in Counter(order).items()}


@pytest.mark.parametrize(
    ("streams", "buffer"),
    [
        pytest.param(300, 1000, id="hundreds share a buffer in which none fills a batch"),
        pytest.param(2, 10, id="the buffer is smaller than a batch"),
        pytest.param(1, 20, id="the buffer is as small as a batch"),
    ],
)
@pytest.mark.parametrize("slots", [1, 3, 200])
def test_a_full_buffer_lands(tmp_path: Path, streams: int, buffer: int, slots: int) -> None:
    sync = Simulation(tmp_path, list(islice(cycle(range(streams)), 900)), slots, start=50, pace=7, buffer=buffer)

    sync.run()

    assert sum(batch.records for batch in sync.landed) == 900


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
@pytest.mark.parametrize("streams", [2, 3])
def test_batches_of_streams_that_arrive_together_are_not_cut(tmp_path: Path, streams: int, slots: int) -> None:
    """A share is 44 bytes, which records of 10 do not fill: what is left of a job's room makes a file of one record."""
    order = list(islice(cycle(range(streams)), 1200))
    sync = Simulation(tmp_path, order, slots, pace=5, target=22, buffer=1000)

    sync.run()

    assert sum(batch.bytes < 40 for batch in sync.landed) <= streams, "the last of each stream"


def test_a_stream_that_sends_little_is_not_kept_waiting_by_one_that_sends_much(tmp_path: Path) -> None:
    order = [1, *([0] * 800)]
    sync = Simulation(tmp_path, order, pace=50, flush=10.0, buffer=2000)

    sync.run()

    assert [batch.stream for batch in sync.landed].index(stream_id(1)) <= len(sync.landed) // 2
