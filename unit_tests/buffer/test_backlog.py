"""The backlog: which waiting records are the next batches, and when reading waits for Spark or the disk."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.buffer.backlog import MAX_HELD_STATES, RESERVED_BYTES, Backlog, SealFailed
from destination_datalake.buffer.batching import Batch, BatchPolicy
from destination_datalake.buffer.buffer import Buffer
from destination_datalake.buffer.disk import DiskFailed, MiB
from destination_datalake.protocol.catalog import StreamId

ORDERS, ITEMS, USERS = StreamId(None, "orders"), StreamId(None, "items"), StreamId(None, "users")
BATCH_BYTES = MiB


@pytest.fixture
def backlog(tmp_path: Path) -> Backlog:
    """Batches of 1 MiB, a disk budget of 10 MiB, and a flush interval that does not end."""
    return Backlog(Buffer(tmp_path, BATCH_BYTES, 10 * MiB, time.monotonic), BatchPolicy(BATCH_BYTES), 3600)


def file_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def test_an_empty_backlog_is_neither_full_nor_due(backlog: Backlog) -> None:
    assert not backlog.is_full(states=0, needs=0)
    assert (backlog.next_batches(everything=True), backlog.seconds_until_due()) == ([], None)


def test_records_and_states_fill_the_disk_together(backlog: Backlog) -> None:
    backlog.buffer.append(ORDERS, bytes(4 * MiB), 1, 0)
    for _ in range(7):
        backlog.states.keep(bytes(2 * MiB))  # Four of them in memory.
    assert (backlog.buffer.disk_bytes, backlog.states.disk_bytes) == (4 * MiB, 6 * MiB)

    assert backlog.is_full(states=7, needs=7)


def test_too_many_held_states_fill_the_backlog(backlog: Backlog) -> None:
    assert backlog.is_full(states=1, needs=MAX_HELD_STATES - 1)


def test_freed_space_is_the_reserve_and_all_spare_files(backlog: Backlog, tmp_path: Path) -> None:
    backlog.buffer.append(ORDERS, bytes(BATCH_BYTES), 1, 0)
    [batch] = backlog.next_batches(everything=True)
    backlog.buffer.release(batch.segments)
    assert file_bytes(tmp_path) == RESERVED_BYTES + BATCH_BYTES

    for _ in range(2):
        backlog.free_space()

        assert file_bytes(tmp_path) == 0


def test_a_reserve_that_cannot_be_allocated_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DiskFailed, match=f"{tmp_path.parent}.*TMPDIR"):
        Backlog(Buffer(tmp_path / "gone", 1, 1, time.monotonic), BatchPolicy(1), 1)


# --- Batches


class Waiting:
    """A buffer with a settable clock: segments of 10 bytes, batches of 20, due after 60 s."""

    def __init__(self, directory: Path) -> None:
        self.now = 0.0
        self.buffer = Buffer(directory, 10, 1000, lambda: self.now)
        self.backlog = Backlog(self.buffer, BatchPolicy(20), 60)
        self.received = {ORDERS: 0, ITEMS: 0, USERS: 0}

    def receive(self, stream: StreamId, count: int = 1) -> None:
        """Ten bytes a record."""
        for _ in range(count):
            self.buffer.append(stream, b"123456789\n", 1, self.received[stream])
            self.received[stream] += 1

    def next_batches(self, *, everything: bool = False) -> list[Batch]:
        return self.backlog.next_batches(everything=everything)

    def seconds_until_due(self) -> float | None:
        return self.backlog.seconds_until_due()


@pytest.fixture
def waiting(tmp_path: Path) -> Waiting:
    return Waiting(tmp_path)


def contents(batches: list[Batch]) -> list[tuple[StreamId, int, int]]:
    """Stream, first record, number of records."""
    return [(batch.stream, batch.first_record, batch.records) for batch in batches]


def test_young_records_of_less_than_a_batch_wait(waiting: Waiting) -> None:
    waiting.receive(ORDERS)
    waiting.receive(ITEMS)

    assert waiting.next_batches() == []


def test_a_whole_batch_is_taken_and_the_rest_waits(waiting: Waiting) -> None:
    waiting.receive(ORDERS, 3)
    waiting.receive(ITEMS)

    [batch] = waiting.next_batches()

    assert (batch.stream, batch.first_record, batch.records, batch.bytes, batch.number) == (ORDERS, 0, 2, 20, 1)
    assert waiting.next_batches() == []


def test_old_records_are_taken_however_few(waiting: Waiting) -> None:
    waiting.receive(ORDERS)
    waiting.now = 59.9
    waiting.receive(ITEMS)
    assert waiting.next_batches() == []
    waiting.now = 60.0

    assert contents(waiting.next_batches()) == [(ORDERS, 0, 1)]
    assert waiting.next_batches() == []


def test_everything_is_taken_the_longest_waiting_first(waiting: Waiting) -> None:
    for number, stream in enumerate([ITEMS, ORDERS, USERS]):
        waiting.now = float(number)
        waiting.receive(stream)

    assert contents(waiting.next_batches(everything=True)) == [(ITEMS, 0, 1), (ORDERS, 0, 1)]
    assert contents(waiting.next_batches(everything=True)) == [(USERS, 0, 1)]


def test_a_stream_that_cannot_be_sealed_is_named_and_does_not_block_the_others(
    waiting: Waiting, tmp_path: Path
) -> None:
    waiting.backlog.policy = BatchPolicy(1000)
    for number, stream in enumerate([ITEMS, ORDERS, USERS]):
        waiting.now = float(number)
        waiting.buffer.append(stream, b"a\n", 1, 0)
    waiting.buffer._open[ORDERS].close()
    waiting.buffer._open[ORDERS].path.unlink()
    waiting.buffer._open[ORDERS].path.mkdir()  # Nothing can be written there any more.

    assert contents(waiting.next_batches(everything=True)) == [(ITEMS, 0, 1)]
    with pytest.raises(SealFailed, match=f"stream orders.*{tmp_path.parent}.*TMPDIR") as refused:
        waiting.next_batches(everything=True)
    waiting.buffer._open[ORDERS].path.rmdir()
    waiting.buffer.release_stream(refused.value.stream)
    assert contents(waiting.next_batches(everything=True)) == [(USERS, 0, 1)]


def test_everything_is_taken_about_the_bytes_of_one_batch_at_a_time(waiting: Waiting) -> None:
    waiting.receive(ORDERS, 5)
    waiting.receive(ITEMS)

    calls = []
    while batches := waiting.next_batches(everything=True):
        calls.append(contents(batches))

    assert calls == [[(ORDERS, 0, 2)], [(ORDERS, 2, 2)], [(ORDERS, 4, 1), (ITEMS, 0, 1)]]
    assert waiting.next_batches(everything=True) == []


def test_small_streams_share_a_job(waiting: Waiting) -> None:
    waiting.receive(ORDERS)
    waiting.receive(ITEMS)
    waiting.now = 60

    assert contents(waiting.next_batches()) == [(ORDERS, 0, 1), (ITEMS, 0, 1)]


def test_batches_are_numbered_in_order(waiting: Waiting) -> None:
    waiting.receive(ORDERS, 4)
    waiting.receive(ITEMS)

    batches = waiting.next_batches() + waiting.next_batches() + waiting.next_batches(everything=True)

    assert [batch.number for batch in batches] == [1, 2, 3]


def test_a_record_larger_than_a_batch_is_a_batch_of_its_own(waiting: Waiting) -> None:
    waiting.buffer.append(ORDERS, b"x" * 500 + b"\n", 1, 0)

    assert contents(waiting.next_batches()) == [(ORDERS, 0, 1)]


def test_the_oldest_record_decides_when_a_batch_is_due(waiting: Waiting) -> None:
    assert waiting.seconds_until_due() is None
    waiting.receive(ITEMS)
    waiting.now = 20.0
    waiting.receive(ORDERS)
    waiting.now = 50.0
    assert waiting.seconds_until_due() == 10.0

    waiting.now = 70.0
    assert waiting.seconds_until_due() == 0.0
    waiting.next_batches()
    assert waiting.seconds_until_due() == 10.0


@given(
    steps=st.lists(st.tuples(st.sampled_from([ORDERS, ITEMS, USERS]), st.integers(0, 3), st.integers(0, 40))),
)
def test_every_record_is_in_one_batch_in_order_and_calls_are_bounded(
    steps: list[tuple[StreamId, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    waiting = Waiting(tmp_path_factory.mktemp("buffer"))
    taken: dict[StreamId, int] = {ORDERS: 0, ITEMS: 0, USERS: 0}
    numbers: list[int] = []

    def take(*, everything: bool) -> bool:
        batches = waiting.next_batches(everything=everything)
        for batch in batches:
            assert batch.first_record == taken[batch.stream]
            taken[batch.stream] += batch.records
            numbers.append(batch.number)
        assert sum(batch.bytes for batch in batches[:-1]) < 20
        return bool(batches)

    for stream, count, seconds in steps:
        waiting.receive(stream, count)
        waiting.now += seconds
        while take(everything=False):
            pass
        assert all(waiting.buffer.waiting_bytes(stream) < 20 for stream in taken)
        assert waiting.seconds_until_due() != 0
    while take(everything=True):
        pass

    assert taken == waiting.received
    assert numbers == [*range(1, len(numbers) + 1)]
