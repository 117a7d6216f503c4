"""Batches split into the tasks of a Spark job: every segment once, in order, in tasks of even size."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.aws.access import AwsAccess
from destination_datalake.files.block_tables import new_first_id, parse_ingest_order
from destination_datalake.files.plan import (
    MIN_TASK_BYTES,
    EncodeTask,
    EncodeUnit,
    FilePlan,
    even_file_bytes,
    split_into_tasks,
)
from destination_datalake.files.segments import LocalFile, StagedSegment
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import RejectLocation

ACCESS = AwsAccess("eu-west-1")
PLAN = FilePlan("parquet", "ZSTD", (), {}, "s3://lake/data", False, 1, None, None)
REJECTS = RejectLocation("s3://lake/_errors", "run", "2026-11-21", "db", "t")
MiB = 1024 * 1024


def batch(name: str, sizes: list[int]) -> EncodeUnit:
    segments = tuple(StagedSegment(LocalFile(f"{name}/{index}"), size) for index, size in enumerate(sizes))
    return EncodeUnit(StreamId(None, name), f"batch-{name}", segments, PLAN, REJECTS)


def sizes(tasks: list[EncodeTask]) -> list[int]:
    """Bytes of each task."""
    return [sum(segment.bytes for unit in task.units for segment in unit.segments) for task in tasks]


batch_sizes = st.lists(st.lists(st.integers(1, 20 * MiB), min_size=1, max_size=20), min_size=1, max_size=20)


@given(sizes_=batch_sizes, parallelism=st.integers(1, 16))
def test_every_segment_is_in_one_task_and_a_stream_s_segments_are_in_order(
    sizes_: list[list[int]], parallelism: int
) -> None:
    batches = [batch(str(index), segment_sizes) for index, segment_sizes in enumerate(sizes_)]

    tasks = split_into_tasks(batches, parallelism, ACCESS)

    units = [unit for task in tasks for unit in task.units]
    for batch_ in batches:
        stream_units = [unit for unit in units if unit.stream == batch_.stream]
        assert [segment for unit in stream_units for segment in unit.segments] == [*batch_.segments]
        assert [unit.name for unit in stream_units] == [
            f"{batch_.name}-{part:04d}" for part in range(len(stream_units))
        ]
    assert sum(len(unit.segments) for unit in units) == sum(map(len, sizes_))
    assert len({unit.name for unit in units}) == len(units)
    assert all(unit.segments for unit in units)
    assert all(task.units for task in tasks)


@given(sizes_=batch_sizes, parallelism=st.integers(1, 16))
def test_tasks_are_even_to_within_one_segment(sizes_: list[list[int]], parallelism: int) -> None:
    batches = [batch(str(index), segment_sizes) for index, segment_sizes in enumerate(sizes_)]
    total = sum(map(sum, sizes_))
    share = max(MIN_TASK_BYTES, -(-total // parallelism))
    largest = max(map(max, sizes_))

    tasks = sizes(split_into_tasks(batches, parallelism, ACCESS))

    assert len(tasks) <= parallelism
    assert max(tasks) <= share + largest
    assert all(task >= share - largest for task in tasks[:-1])
    assert sum(tasks) == total


@given(count=st.integers(1, 200), parallelism=st.integers(1, 16), size=st.integers(16 * MiB, 18 * MiB))
def test_no_task_is_a_small_remainder(count: int, parallelism: int, size: int) -> None:
    tasks = sizes(split_into_tasks([batch("a", [size] * count)], parallelism, ACCESS))

    assert max(tasks) - min(tasks) <= size


@pytest.mark.parametrize(
    ("sent", "parallelism", "expected"),
    [
        ([[16 * MiB] * 16], 2, [128 * MiB, 128 * MiB]),
        ([[16 * MiB] * 16], 4, [64 * MiB] * 4),
        ([[16 * MiB] * 16], 100, [16 * MiB] * 16),
        ([[16 * MiB] * 3], 2, [32 * MiB, 16 * MiB]),
        ([[100]], 8, [100]),
        ([[100]] * 100, 2, [10_000]),
        ([[MiB]] * 32, 2, [16 * MiB] * 2),
        ([[500 * MiB]], 2, [500 * MiB]),
    ],
)
def test_number_of_tasks_is_the_parallelism_unless_they_would_be_too_small(
    sent: list[list[int]], parallelism: int, expected: list[int]
) -> None:
    batches = [batch(str(index), segment_sizes) for index, segment_sizes in enumerate(sent)]

    assert sizes(split_into_tasks(batches, parallelism, ACCESS)) == expected


def test_row_ids_have_a_number_for_each_unit_of_the_largest_batch() -> None:
    """A cluster may have more cores, and a buffer may hold more records, than a row id has numbers for units."""
    tasks = split_into_tasks([batch("a", [16 * MiB] * 10_000)], 10_000, ACCESS)

    orders = [unit.ingest_order for task in tasks for unit in task.units]
    ids = [parse_ingest_order(str(UUID(bytes=new_first_id(order)))) for order in orders]
    assert ids == orders
    assert ids == sorted(set(ids))


def test_task_has_the_batch_s_plan_and_the_access() -> None:
    [task] = split_into_tasks([batch("a", [1, 2])], 1, ACCESS)

    [unit] = task.units
    assert (task.access, unit.plan, unit.segments) == (ACCESS, PLAN, batch("a", [1, 2]).segments)


@pytest.mark.parametrize(
    ("expected", "ends_at"),
    [
        pytest.param(10, 150, id="a small file"),
        pytest.param(149, 150, id="one file, although it is larger than the target"),
        pytest.param(160, 80, id="two files below the target rather than one and a small one"),
        pytest.param(249, 124, id="two files above the target"),
        pytest.param(330, 110, id="three"),
        pytest.param(1000, 100, id="ten"),
    ],
)
def test_files_of_a_task_are_even(expected: float, ends_at: int) -> None:
    assert even_file_bytes(expected, 100) == ends_at


@given(expected=st.floats(1, 10**12), target=st.integers(1, 4096 * MiB))
def test_even_files_are_within_half_of_the_target(expected: float, target: int) -> None:
    assert target // 2 <= even_file_bytes(expected, target) <= target * 3 / 2


def test_a_unit_plans_files_of_the_size_that_its_records_are_expected_to_fill() -> None:
    plan = replace(PLAN, target_bytes=10 * MiB)
    staged = replace(batch("a", [16 * MiB] * 4), plan=plan, expected_yield=0.5)

    units = [unit for task in split_into_tasks([staged], 2, ACCESS) for unit in task.units]

    assert [unit.plan.target_bytes for unit in units] == [8 * MiB, 8 * MiB]
