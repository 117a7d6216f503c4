"""When a batch is due, and when reading must wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.buffer.batching.triggers import (
    AgeTrigger,
    BackpressureLimit,
    DiskLimit,
    HeldStatesLimit,
    SizeTrigger,
)

_sizes = st.lists(st.integers(0, 100))


def test_a_batch_is_due_from_its_size_on() -> None:
    assert not SizeTrigger(7).due(6)
    assert SizeTrigger(7).due(7)


@pytest.mark.parametrize(("since", "due"), [(None, False), (40.1, False), (40.0, True), (0.0, True)])
def test_a_batch_is_due_from_its_age_on(since: float | None, due: bool) -> None:
    assert AgeTrigger(60).due(since, now=100.0) is due


@given(since=st.integers(0, 100), waited=st.integers(0, 100))
def test_a_batch_is_due_by_age_exactly_when_no_time_remains(since: int, waited: int) -> None:
    trigger = AgeTrigger(60)
    now = since + waited

    assert trigger.due(since, now) is (trigger.remaining(since, now) == 0)
    assert trigger.due(since, now + trigger.remaining(since, now))


def test_the_disk_limit_is_reached_at_its_bytes() -> None:
    assert not DiskLimit(7).reached(6)
    assert DiskLimit(7).reached(7)


def test_held_states_and_the_streams_they_wait_for_count_together() -> None:
    assert not HeldStatesLimit(10).reached(4, 5)
    assert HeldStatesLimit(10).reached(4, 6)


@pytest.mark.parametrize(
    ("waiting", "landing", "reached"),
    [
        pytest.param([], 0, False, id="nothing waits"),
        pytest.param([], 2, False, id="everything is being landed"),
        pytest.param([19], 0, False, id="nearly two batches of a stream"),
        pytest.param([20], 0, True, id="two batches of a stream"),
        pytest.param([10, 3, 15], 0, True, id="a batch of each of two streams"),
        pytest.param([10], 1, True, id="a batch besides the one that is being landed"),
        pytest.param([9] * 100, 2, False, id="many streams, none with a whole batch"),
    ],
)
def test_reading_waits_once_enough_whole_batches_wait_or_land(waiting: list[int], landing: int, reached: bool) -> None:
    assert BackpressureLimit(batch_bytes=10, batches=2).reached(waiting, landing) is reached


@given(_sizes, st.integers(0, 5), st.integers(0, 100), st.integers(0, 5))
def test_more_work_never_ends_back_pressure(waiting: list[int], landing: int, more: int, more_landing: int) -> None:
    limit = BackpressureLimit(batch_bytes=10, batches=4)

    if limit.reached(waiting, landing):
        assert limit.reached([*waiting, more], landing + more_landing)
        assert limit.reached([size + more for size in waiting], landing)
