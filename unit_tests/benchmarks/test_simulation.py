"""The model of large syncs: bounds that any outcome must keep, whatever the costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulation.model import S3, Costs, Setting, simulate
from destination_datalake.buffer.buffer import SEGMENT_BYTES

pytestmark = pytest.mark.slow

COSTS = Costs(read=2.0, upload=1.0, encode=8.0, job=0.05, task=0.002, commit=0.06, start=10.0)
INSTANT = S3(median_seconds=0.0, connection=1e15)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.5, 4), st.floats(0, 4), st.floats(1, 20), st.integers(1, 64), st.integers(1, 20))
def test_no_sync_is_faster_than_its_slowest_stage(
    read: float, upload: float, encode: float, cores: int, gigabytes: int
) -> None:
    costs = replace(COSTS, read=read, upload=upload, encode=encode)

    outcome = simulate(Setting(gigabytes, cores), costs, S3())

    segments = round(gigabytes * 1e9 / SEGMENT_BYTES) * SEGMENT_BYTES / 1e9
    assert outcome.seconds >= segments * max(read, upload / 3, encode / cores) * 0.999
    assert 0 < outcome.reading <= 1
    assert 0 < outcome.encoding <= 1.001


def test_one_stdin_is_the_ceiling_however_many_cores_there_are() -> None:
    speeds = [100 / simulate(Setting(100, cores), COSTS, S3()).seconds for cores in (4, 64, 256)]

    assert speeds[0] < speeds[1]
    assert speeds[1] == pytest.approx(speeds[2], rel=0.1)
    assert speeds[2] < 1 / COSTS.read


def test_without_waiting_a_single_core_takes_what_its_encoding_takes() -> None:
    costs = Costs(read=0.01, upload=0.0, encode=10.0, job=0.0, task=0.0, commit=0.0, start=0.0)

    outcome = simulate(Setting(10, 1), costs, INSTANT)

    assert outcome.seconds == pytest.approx(100, rel=0.05)
    assert outcome.encoding == pytest.approx(1, rel=0.05)


def test_the_same_seed_gives_the_same_outcome() -> None:
    first, second, other_seed = (simulate(Setting(5, 8), COSTS, S3(), seed) for seed in (1, 1, 2))

    assert first == second != other_seed
