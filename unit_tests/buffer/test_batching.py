"""Sizes of batches: what a task should encode for its files to reach the target, and how many tasks a batch has."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.buffer.backlog import Backlog
from destination_datalake.buffer.batching import (
    EXPECTED_YIELDS,
    READ_AHEAD_BATCHES,
    Batch,
    BatchPolicy,
    LearnedBatches,
)
from destination_datalake.buffer.buffer import Buffer
from destination_datalake.buffer.disk import MiB
from destination_datalake.config.tables import JsonlCodec, ParquetCodec
from destination_datalake.files.plan import even_file_bytes
from destination_datalake.protocol.catalog import StreamId

ORDERS, ITEMS = StreamId(None, "orders"), StreamId(None, "items")


def sizes(
    *, target: int = 4 * MiB, buffer: int = 60 * MiB, parallelism: int = 2, least: int = 2 * MiB
) -> LearnedBatches:
    return LearnedBatches(least, target, buffer, expected_yield=0.5, parallelism=parallelism)


@pytest.mark.parametrize(
    ("lines", "files", "partitions", "share"),
    [
        pytest.param(0, 0, 1.0, 8, id="nothing is known: as expected"),
        pytest.param(10, 5, 1.0, 8, id="a file is half of its lines: twice the target"),
        pytest.param(10, 10, 1.0, 4, id="a file is as large as its lines: the target"),
        pytest.param(10, 20, 1.0, 2, id="a file is larger than its lines"),
        pytest.param(10, 10, 3.0, 12, id="three partitions in each task: three times as much"),
        pytest.param(10, 10, 0.0, 4, id="all records were rejected in some task"),
        pytest.param(10, 1, 1.0, 15, id="as much as the buffer has room for"),
        pytest.param(10, 10, 500.0, 15, id="no more for many partitions"),
        pytest.param(10, 0, 1.0, 8, id="no files, as all records were rejected: as expected"),
    ],
)
def test_share_of_a_task_fills_a_file_per_partition(lines: int, files: int, partitions: float, share: int) -> None:
    learned = sizes()

    learned.learn(ORDERS, lines * MiB, files * MiB, partitions)

    assert learned.share(ORDERS) == share * MiB
    assert learned.share(ITEMS) == 8 * MiB, "of another stream nothing is known"


def test_a_tiny_batch_teaches_nothing() -> None:
    learned = sizes()

    learned.learn(ORDERS, 1000, 9000, 1.0)

    assert learned.share(ORDERS) == 8 * MiB


@pytest.mark.parametrize(("parallelism", "share"), [(1, 20), (2, 15), (4, 10), (13, 4)])
def test_the_buffer_has_room_for_a_share_per_task_and_two_that_wait(parallelism: int, share: int) -> None:
    learned = sizes(target=100 * MiB, parallelism=parallelism)

    assert learned.share(ORDERS) == share * MiB
    assert learned.share(ORDERS) * (parallelism + 2) <= 60 * MiB


@pytest.mark.parametrize(("least", "due"), [(2, 8), (8, 8), (10, 10), (16, 16)])
def test_a_batch_is_due_at_a_share_or_at_the_least_size_if_that_is_more(least: int, due: int) -> None:
    assert sizes(least=least * MiB).batch_bytes(ORDERS) == due * MiB


def test_there_is_an_expectation_for_every_format() -> None:
    codecs = {"Parquet": get_args(ParquetCodec), "JSONL": get_args(JsonlCodec)}

    assert EXPECTED_YIELDS.keys() == {(format_, codec) for format_, names in codecs.items() for codec in names}


@dataclass
class Source:
    """A source of one stream whose records have 10 bytes each, and its backlog: a task should encode 40 bytes."""

    directory: Path
    least: int = 20
    buffer: int = 1000
    flush_seconds: float = 3600.0
    sent: int = 0

    def __post_init__(self) -> None:
        self.sizes = LearnedBatches(self.least, 20, self.buffer, expected_yield=0.5, parallelism=2)
        buffer = Buffer(self.directory, 10, self.buffer, time.monotonic)
        self.backlog = Backlog(buffer, self.sizes, self.flush_seconds)

    def send(self, size: int, stream: StreamId = ORDERS) -> None:
        for _ in range(size // 10):
            self.backlog.buffer.append(stream, b"123456789\n", 1, self.sent)
            self.sent += 1

    def has_enough_queued(self, landing: int, tasks: int) -> bool:
        return self.sizes.has_enough_queued(self.backlog.buffer.waiting(), landing, tasks)

    def take(self, slots: int | None, running: int, *, ended: bool = False) -> list[tuple[int, int | None]]:
        """Take what is due; return the size of each batch, and the number of tasks of their job."""
        batches = self.backlog.next_batches(everything=ended, ended=ended, slots=slots, tasks=running)
        return [(batch.bytes, batch.tasks) for batch in batches]


@pytest.mark.parametrize(
    ("waiting", "slots", "running", "taken"),
    [
        pytest.param(30, 2, 0, [], id="less than a share waits for more"),
        pytest.param(50, 2, 0, [(40, 1)], id="a share is a batch of one task, though two could run"),
        pytest.param(90, 2, 0, [(80, 2)], id="two shares are a batch of two tasks"),
        pytest.param(500, 2, 0, [(80, 2)], id="a share for each task that can run"),
        pytest.param(500, 8, 0, [(320, 8)], id="however many"),
        pytest.param(500, 8, 5, [(120, 3)], id="and does not yet"),
        pytest.param(500, 2, 2, [(40, 1)], id="one share may wait in Spark"),
    ],
)
def test_a_batch_has_a_share_for_each_task_that_can_run_now(
    tmp_path: Path, waiting: int, slots: int, running: int, taken: list[tuple[int, int]]
) -> None:
    source = Source(tmp_path)
    source.send(waiting)

    assert source.take(slots, running) == taken


@pytest.mark.parametrize(
    ("waiting", "slots", "running", "taken"),
    [
        pytest.param(30, 2, 0, [(30, 2)], id="all tasks that can run share it"),
        pytest.param(30, 2, 1, [(30, 1)], id="and no others"),
        pytest.param(300, 2, 0, [(300, 2)], id="it is not cut, as no more will come"),
        pytest.param(600, 2, 2, [(250, 2)], id="what must wait in Spark is no more than one task could encode"),
        pytest.param(300, None, 0, [(300, None)], id="Spark has not said yet how many tasks run"),
    ],
)
def test_what_waits_at_the_end_of_the_input_is_shared_by_all_tasks_that_can_run(
    tmp_path: Path, waiting: int, slots: int | None, running: int, taken: list[tuple[int, int | None]]
) -> None:
    source = Source(tmp_path)
    source.send(waiting)

    assert source.take(slots, running, ended=True) == taken


def test_what_is_due_by_age_is_encoded_by_as_few_tasks_as_have_a_share_each(tmp_path: Path) -> None:
    source = Source(tmp_path, flush_seconds=0.0)
    source.send(30)
    source.send(20, ITEMS)

    assert source.take(slots=2, running=0) == [(30, 1)]
    assert source.take(slots=2, running=1) == [(20, 1)], "nothing is cut off to fill the first job"


def test_a_batch_of_several_shares_that_waits_in_spark_is_not_one_long_task(tmp_path: Path) -> None:
    source = Source(tmp_path, least=160)
    source.send(400)

    assert source.take(slots=4, running=4) == [(160, 4)]


def test_small_streams_share_a_job(tmp_path: Path) -> None:
    source = Source(tmp_path, flush_seconds=0.0)
    source.send(10)
    source.send(40, ITEMS)
    source.send(20, StreamId(None, "customers"))

    assert source.take(slots=2, running=0) == [(10, 1), (20, 1)]
    assert source.take(slots=2, running=1) == [(40, 1)], "what fills a job of its own is not cut"


def test_nothing_is_taken_while_spark_starts_unless_everything_is_due() -> None:
    assert sizes().waits_for_spark(None, 0, everything=False)
    assert not sizes().waits_for_spark(None, 0, everything=True)


@pytest.mark.parametrize(("running", "waits"), [(0, False), (1, False), (2, False), (3, True)])
def test_one_more_task_than_can_run_may_wait_in_spark(running: int, waits: bool) -> None:
    assert [sizes().waits_for_spark(2, running, everything=flag) for flag in (True, False)] == [waits, waits]


def test_batches_of_a_fixed_size_do_not_wait_for_spark() -> None:
    assert not BatchPolicy(10).waits_for_spark(None, 9, everything=False)


@pytest.mark.parametrize(
    ("waiting", "running", "ahead"),
    [(30, 2, False), (40, 1, False), (40, 2, True), (70, 2, True), (80, 0, False), (120, 0, True), (40, 9, True)],
)
def test_reading_waits_once_there_is_a_share_for_each_task_and_one_more(
    tmp_path: Path, waiting: int, running: int, ahead: bool
) -> None:
    source = Source(tmp_path)
    source.send(waiting)

    assert source.has_enough_queued(1, running) is ahead


@pytest.mark.parametrize(
    ("waiting", "landing", "ahead"),
    [
        pytest.param([], 0, False, id="nothing waits"),
        pytest.param([], 4, False, id="everything is being landed"),
        pytest.param([39], 0, False, id="nearly four batches of a stream"),
        pytest.param([40], 0, True, id="four batches of a stream"),
        pytest.param([10, 3, 35], 0, True, id="batches of two streams"),
        pytest.param([10], 3, True, id="a batch besides those that are being landed"),
        pytest.param([9] * 100, 4, False, id="many streams, none with a whole batch"),
    ],
)
def test_reading_waits_once_enough_batches_of_a_fixed_size_wait_or_land(
    waiting: list[int], landing: int, ahead: bool
) -> None:
    assert READ_AHEAD_BATCHES == 4
    assert BatchPolicy(10).has_enough_queued(of_streams(waiting), landing, 0) is ahead


@given(st.lists(st.integers(0, 100)), st.integers(0, 5), st.integers(0, 100), st.integers(0, 5))
def test_more_work_never_ends_back_pressure(waiting: list[int], landing: int, more: int, more_landing: int) -> None:
    policy = BatchPolicy(10)

    if policy.has_enough_queued(of_streams(waiting), landing, 0):
        assert policy.has_enough_queued(of_streams([*waiting, more]), landing + more_landing, 0)
        assert policy.has_enough_queued(of_streams([size + more for size in waiting]), landing, 0)


def of_streams(sizes: list[int]) -> list[tuple[StreamId, int]]:
    return [(StreamId(None, str(number)), size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
@pytest.mark.parametrize("pace", [1, 3, 100], ids=["slow source", "source as fast as Spark", "fast source"])
@pytest.mark.parametrize("actual", [0.3, 0.5, 0.8], ids=["smaller files", "files as expected", "larger files"])
def test_the_files_of_a_long_sync_are_near_their_target(tmp_path: Path, slots: int, pace: int, actual: float) -> None:
    source = Source(tmp_path, buffer=4000)
    target = source.sizes.target_bytes
    files: list[float] = []
    running: list[tuple[Batch, int, int]] = []
    total, step = 8000, 0
    while source.sent * 10 < total or source.backlog.buffer.buffered_bytes:
        step += 1
        tasks = sum(count for _, count, _ in running)
        if not source.has_enough_queued(len(running), tasks):
            source.send(min(pace * 10, total - source.sent * 10))
        ended = source.sent * 10 >= total
        if not source.sizes.waits_for_spark(slots, tasks, everything=ended):
            for batch in source.backlog.next_batches(everything=ended, ended=ended, slots=slots, tasks=tasks):
                count = batch.tasks or slots
                running.append((batch, count, step + batch.bytes // count // 10))
        for batch, count, _ in [job for job in running if job[2] <= step]:
            made = batch.bytes / count * actual
            assert batch.expected_yield is not None
            at = even_file_bytes(batch.bytes / count * batch.expected_yield, target)
            files += ([at] * int(made // at) + [made % at]) * count
            source.sizes._yields[ORDERS] = actual
            source.backlog.buffer.release(batch.segments)
        running = [job for job in running if job[2] > step]

    near = sum(size for size in files if target / 2 <= size <= target * 3 / 2)
    assert sum(files) == pytest.approx(total * actual)
    assert near / sum(files) >= 0.9
