"""The tasks of an encoding job: what an executor receives, what it answers, and how batches are split into tasks.

They are small values that travel between driver and executors; records do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from destination_datalake.aws.access import AwsAccess
from destination_datalake.files.jobs import Failed
from destination_datalake.files.plan import FIRST, Arrival, DataFile, FilePlan
from destination_datalake.files.segments import StagedSegment
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.counts import RejectCounts
from destination_datalake.rejects.location import RejectFile, RejectLocation

MIN_TASK_BYTES = 16 * 1024 * 1024
"""Below this, another task would make smaller files and save no time."""


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """A batch of staged segments, how its files are written, and where its rejects go.

    `name` is the prefix of the names of all objects written for it. `expected_yield` is how many bytes a file is
    expected to get, in each partition, of each byte that a task encodes. `arrived` are the milliseconds of its units'
    `Arrival`.
    """

    stream: StreamId
    name: str
    segments: tuple[StagedSegment, ...]
    plan: FilePlan
    rejects: RejectLocation
    expected_yield: float | None = None
    arrived: int = 0


@dataclass(frozen=True, slots=True)
class EncodeUnit:
    """Segments of one stream, read in order and written to as few files as `FilePlan.target_bytes` allows.

    `name` begins the names of its files and rejects; each attempt at it adds its own.
    """

    stream: StreamId
    name: str
    segments: tuple[StagedSegment, ...]
    plan: FilePlan
    rejects: RejectLocation
    arrival: Arrival = FIRST


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """The work of one Spark task: units, of several streams where each is small."""

    units: tuple[EncodeUnit, ...]
    access: AwsAccess


@dataclass(frozen=True, slots=True)
class Encoded:
    """The result of a unit: every record of its segments is in one of `files` or, refused, among the rejects.

    `rejects` are durable, and visible once they are published; `counts` counts them. `undeclared` has the paths of
    fields that occur in the unit's first records and not in the stream's schema.
    """

    stream: StreamId
    files: tuple[DataFile, ...]
    counts: RejectCounts
    rejects: tuple[RejectFile, ...]
    undeclared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotEncoded(Failed):
    """The result of a unit that failed."""

    stream: StreamId


UnitResult = Encoded | NotEncoded


def split_into_tasks(batches: Sequence[StagedBatch], parallelism: int, access: AwsAccess) -> list[EncodeTask]:
    """Split the batches into at most `parallelism` tasks, even to within a segment; segments keep their order."""
    total = sum(segment.bytes for batch in batches for segment in batch.segments)
    share = max(MIN_TASK_BYTES, -(-total // max(parallelism, 1)))
    tasks: dict[int, list[EncodeUnit]] = {}
    start = 0
    for batch in batches:
        parts: dict[int, list[StagedSegment]] = {}
        for segment in batch.segments:
            # The task that the segment's middle belongs to: rounding does not add up to one more, small task.
            number = max(0, -(-(2 * start + segment.bytes) // (2 * share)) - 1)
            parts.setdefault(number, []).append(segment)
            start += segment.bytes
        for part, (number, segments) in enumerate(parts.items()):
            tasks.setdefault(number, []).append(_unit(batch, part, segments))
    return [EncodeTask(tuple(units), access) for units in tasks.values()]


def even_file_bytes(expected: float, target: int) -> int:
    """Return the size at which files should end so that `expected` bytes become files of even sizes.

    Files of 3.3 times the target would be four, one of them small; these are three, each 1.1 times the target. What is
    expected to be one file remains one if it becomes half as large again.
    """
    files = round(expected / target)
    return int(expected / files) if files > 1 else target + target // 2


def _unit(batch: StagedBatch, part: int, segments: Sequence[StagedSegment]) -> EncodeUnit:
    plan = batch.plan
    if batch.expected_yield is not None:
        expected = sum(segment.bytes for segment in segments) * batch.expected_yield
        plan = replace(plan, target_bytes=even_file_bytes(expected, plan.target_bytes))
    arrival = Arrival(batch.arrived, part)
    return EncodeUnit(batch.stream, f"{batch.name}-{part:04d}", tuple(segments), plan, batch.rejects, arrival)
