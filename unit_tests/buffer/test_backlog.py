"""The backlog: records and states together fill the disk, and reading waits for Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from destination_datalake.buffer.backlog import MAX_HELD_STATES, READ_AHEAD_BATCHES, RESERVED_BYTES, Backlog
from destination_datalake.buffer.buffer import MiB
from destination_datalake.protocol.catalog import StreamId

ORDERS, ITEMS = StreamId(None, "orders"), StreamId(None, "items")
BATCH_BYTES = MiB


@pytest.fixture
def backlog(tmp_path: Path) -> Backlog:
    """Batches of 1 MiB, a disk budget of 10 MiB, and a flush interval that does not end."""
    return Backlog(tmp_path, BATCH_BYTES, 10 * MiB, flush_seconds=3600)


def file_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def test_an_empty_backlog_is_neither_full_nor_ahead_nor_due(backlog: Backlog) -> None:
    assert not backlog.is_full(states=0, needs=0)
    assert not backlog.is_ahead_of_spark(landing=2)
    assert (backlog.next_batches(everything=True), backlog.seconds_until_due()) == ([], None)


def test_records_and_states_fill_the_disk_together(backlog: Backlog) -> None:
    backlog.buffer.append(ORDERS, bytes(4 * MiB), 1, 0)
    for _ in range(7):
        backlog.states.keep(bytes(2 * MiB))  # Four of them in memory.
    assert (backlog.buffer.disk_bytes, backlog.states.disk_bytes) == (4 * MiB, 6 * MiB)

    assert backlog.is_full(states=7, needs=7)


def test_too_many_held_states_fill_the_backlog_whatever_the_disk_has(backlog: Backlog) -> None:
    assert backlog.is_full(states=1, needs=MAX_HELD_STATES - 1)


def test_reading_is_ahead_once_enough_whole_batches_wait(backlog: Backlog) -> None:
    for number in range(READ_AHEAD_BATCHES):
        assert not backlog.is_ahead_of_spark(landing=0)
        backlog.buffer.append(ORDERS, bytes(BATCH_BYTES), 1, number)

    assert backlog.is_ahead_of_spark(landing=0)


def test_whole_batches_are_next_and_the_rest_waits_for_its_age(backlog: Backlog) -> None:
    backlog.buffer.append(ORDERS, bytes(BATCH_BYTES), 1, 0)
    backlog.buffer.append(ITEMS, b"a\n", 1, 0)

    assert [batch.stream for batch in backlog.next_batches(everything=False)] == [ORDERS]
    assert backlog.next_batches(everything=False) == []
    remaining = backlog.seconds_until_due()
    assert remaining is not None
    assert 0 < remaining <= 3600


def test_freed_space_is_the_reserve_and_all_spare_files(backlog: Backlog, tmp_path: Path) -> None:
    backlog.buffer.append(ORDERS, bytes(BATCH_BYTES), 1, 0)
    [batch] = backlog.next_batches(everything=True)
    backlog.buffer.release(batch.segments)
    assert file_bytes(tmp_path) == RESERVED_BYTES + BATCH_BYTES

    backlog.free_space()

    assert file_bytes(tmp_path) == 0
