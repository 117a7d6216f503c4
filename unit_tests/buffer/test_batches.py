"""When waiting records become a batch: by size, by age, for want of space, and at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from destination_datalake.buffer.batches import Batch, Batcher, SealFailed
from destination_datalake.buffer.buffer import Buffer
from destination_datalake.buffer.triggers import AgeTrigger, BackpressureLimit, DiskLimit, HeldStatesLimit, SizeTrigger
from destination_datalake.protocol.catalog import StreamId

ORDERS, ITEMS, USERS = StreamId(None, "orders"), StreamId(None, "items"), StreamId(None, "users")


class Waiting:
    """A buffer with a clock that a test turns: segments of 10 bytes, batches of 20, due after 60 s."""

    def __init__(self, directory: Path) -> None:
        self.now = 0.0
        self.buffer = Buffer(directory, 10, 1000, lambda: self.now)
        self.batcher = Batcher(SizeTrigger(20), AgeTrigger(60))
        self._received = {ORDERS: 0, ITEMS: 0, USERS: 0}

    def receive(self, stream: StreamId, count: int = 1) -> None:
        """Ten bytes a record."""
        for _ in range(count):
            self.buffer.append(stream, b"123456789\n", 1, self._received[stream])
            self._received[stream] += 1

    def next_batches(self, *, everything: bool = False) -> list[Batch]:
        return self.batcher.next_batches(self.buffer, self.now, everything=everything)

    def seconds_until_due(self) -> float | None:
        return self.batcher.seconds_until_due(self.buffer, self.now)


@pytest.fixture
def waiting(tmp_path: Path) -> Waiting:
    return Waiting(tmp_path)


def contents(batches: list[Batch]) -> list[tuple[StreamId, int, int]]:
    """Whose, from which record, how many."""
    return [(batch.stream, batch.first, batch.records) for batch in batches]


def test_little_that_is_young_waits(waiting: Waiting) -> None:
    waiting.receive(ORDERS)
    waiting.receive(ITEMS)

    assert waiting.next_batches() == []


def test_a_batch_s_worth_is_cut_and_the_rest_stays(waiting: Waiting) -> None:
    waiting.receive(ORDERS, 3)
    waiting.receive(ITEMS)

    [batch] = waiting.next_batches()

    assert (batch.stream, batch.first, batch.records, batch.bytes, batch.number) == (ORDERS, 0, 2, 20, 1)
    assert waiting.next_batches() == []


def test_what_has_waited_long_enough_is_cut_however_little(waiting: Waiting) -> None:
    waiting.receive(ORDERS)
    waiting.now = 59.9
    waiting.receive(ITEMS)
    assert waiting.next_batches() == []
    waiting.now = 60.0

    assert contents(waiting.next_batches()) == [(ORDERS, 0, 1)]
    assert waiting.next_batches() == []


def test_everything_is_cut_the_longest_waiting_first(waiting: Waiting) -> None:
    for number, stream in enumerate([ITEMS, ORDERS, USERS]):
        waiting.now = float(number)
        waiting.receive(stream)

    assert contents(waiting.next_batches(everything=True)) == [(ITEMS, 0, 1), (ORDERS, 0, 1)]
    assert contents(waiting.next_batches(everything=True)) == [(USERS, 0, 1)]


def test_a_stream_whose_records_cannot_be_handed_over_is_named_and_does_not_keep_the_others(
    waiting: Waiting, tmp_path: Path
) -> None:
    waiting.batcher = Batcher(SizeTrigger(1000), AgeTrigger(60))
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


def test_at_the_end_everything_is_cut_about_a_batch_s_bytes_at_a_time(waiting: Waiting) -> None:
    waiting.receive(ORDERS, 5)
    waiting.receive(ITEMS)

    cuts = []
    while batches := waiting.next_batches(everything=True):
        cuts.append(contents(batches))

    assert cuts == [[(ORDERS, 0, 2)], [(ORDERS, 2, 2)], [(ORDERS, 4, 1), (ITEMS, 0, 1)]]
    assert waiting.next_batches(everything=True) == []


def test_small_streams_share_a_cut(waiting: Waiting) -> None:
    waiting.receive(ORDERS)
    waiting.receive(ITEMS)
    waiting.now = 60

    assert contents(waiting.next_batches()) == [(ORDERS, 0, 1), (ITEMS, 0, 1)]


def test_batches_are_numbered_in_the_order_they_are_cut(waiting: Waiting) -> None:
    waiting.receive(ORDERS, 4)
    waiting.receive(ITEMS)

    batches = waiting.next_batches() + waiting.next_batches() + waiting.next_batches(everything=True)

    assert [batch.number for batch in batches] == [1, 2, 3]


def test_a_record_larger_than_a_batch_is_a_batch(waiting: Waiting) -> None:
    waiting.buffer.append(ORDERS, b"x" * 500 + b"\n", 1, 0)

    assert contents(waiting.next_batches()) == [(ORDERS, 0, 1)]


def test_the_wait_ends_when_the_oldest_record_is_old_enough(waiting: Waiting) -> None:
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


@pytest.mark.parametrize(("since", "due"), [(None, False), (40.1, False), (40.0, True), (0.0, True)])
def test_age_is_due_after_its_seconds(since: float | None, due: bool) -> None:
    assert AgeTrigger(60).due(since, now=100.0) is due


def test_a_batch_is_due_from_its_size() -> None:
    assert not SizeTrigger(7).due(6)
    assert SizeTrigger(7).due(7)


def test_the_disk_limit_is_reached_at_its_bytes() -> None:
    assert not DiskLimit(7).reached(6)
    assert DiskLimit(7).reached(7)


def test_states_and_what_they_wait_for_are_too_many_from_their_bound() -> None:
    assert not HeldStatesLimit(10).reached(4, 5)
    assert HeldStatesLimit(10).reached(4, 6)


@pytest.mark.parametrize(
    ("waiting", "landing", "due"),
    [
        pytest.param([], 0, False, id="nothing waits"),
        pytest.param([], 2, False, id="all there is is being landed"),
        pytest.param([19], 0, False, id="nearly two batches of a stream"),
        pytest.param([20], 0, True, id="two batches of a stream"),
        pytest.param([10, 3, 15], 0, True, id="a batch of each of two streams"),
        pytest.param([10], 1, True, id="a batch besides the one that is being landed"),
        pytest.param([9] * 100, 2, False, id="many streams, none with a whole batch"),
    ],
)
def test_reading_is_far_enough_ahead_once_whole_batches_are_in_hand(
    waiting: list[int], landing: int, due: bool
) -> None:
    assert BackpressureLimit(batch_bytes=10, batches=2).reached(waiting, landing) is due
