"""From batches to the tasks of one Spark job: few, even, and no smaller than is worth a task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from destination_datalake.aws.access import AwsAccess
from destination_datalake.files.plan import FilePlan
from destination_datalake.files.tasks import EncodeTask, EncodeUnit
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.location import RejectLocation

MIN_TASK_BYTES = 16 * 1024 * 1024
"""Below this, another task would make smaller files and save no time."""


@dataclass(frozen=True, slots=True)
class StagedSegment:
    """A segment as executors find it, and its size."""

    place: str
    bytes: int


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """A batch whose segments executors can reach, how its files are to be written, and where its rejects go.

    `name` begins the names of them all.
    """

    stream: StreamId
    name: str
    segments: tuple[StagedSegment, ...]
    plan: FilePlan
    rejects: RejectLocation


def tasks_for(batches: Sequence[StagedBatch], parallelism: int, access: AwsAccess) -> list[EncodeTask]:
    """Cut the batches into at most about `parallelism` tasks of even size, segments kept in order."""
    total = sum(segment.bytes for batch in batches for segment in batch.segments)
    share = max(MIN_TASK_BYTES, -(-total // max(parallelism, 1)))
    tasks: list[list[EncodeUnit]] = [[]]
    room = share
    for batch in batches:
        part = 0
        waiting: list[StagedSegment] = []
        for segment in batch.segments:
            if room < segment.bytes / 2 and (waiting or tasks[-1]):
                part = _close(tasks[-1], batch, part, waiting)
                waiting = []
                tasks.append([])
                room = share
            waiting.append(segment)
            room -= segment.bytes
        _close(tasks[-1], batch, part, waiting)
    return [EncodeTask(tuple(units), access) for units in tasks if units]


def _close(task: list[EncodeUnit], batch: StagedBatch, part: int, segments: Iterable[StagedSegment]) -> int:
    """Give the task the segments gathered for it, if any; return the number of the batch's next part."""
    places = tuple(segment.place for segment in segments)
    if not places:
        return part
    task.append(EncodeUnit(batch.stream, f"{batch.name}-{part:04d}", places, batch.plan, batch.rejects))
    return part + 1
