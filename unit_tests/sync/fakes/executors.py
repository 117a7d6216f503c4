"""Executors without Spark: a data file is a list of the ids of the records in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from destination_datalake.errors import Failure
from destination_datalake.files.plan import (
    DataFile,
    Encoded,
    EncodeTask,
    EncodeUnit,
    NotEncoded,
    RewriteTask,
    Rewritten,
    UnitResult,
)
from destination_datalake.files.segments import LocalFile, StagedObject, StagedSegment
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import RejectCounts
from destination_datalake.spark.backend import JobsProgress, SparkFailed

_ID = re.compile(rb'"id":(\d+)')


class FakeExecutors:
    """Executors that read segments and write nothing. With `ended` they behave like a Spark that has ended."""

    def __init__(self) -> None:
        self.jobs = 0
        self.tasks = 1
        self.ended = False
        self.starting = False
        self.ids: dict[str, list[int]] = {}
        """The ids of the records of each unit, by the URI of its file, refused ones included."""
        self.read_staged: Callable[[StagedObject], bytes] = lambda _segment: b""
        """Reads segments that are staged in S3."""

    @property
    def error(self) -> SparkFailed | None:
        return SparkFailed("Spark's Java process has ended.") if self.ended else None

    def is_starting(self) -> bool:
        return self.starting

    def parallelism(self) -> int:
        return self.tasks

    def progress(self) -> JobsProgress:
        return JobsProgress()

    def encode(self, tasks: Sequence[EncodeTask]) -> Sequence[UnitResult]:
        self.jobs += 1
        if self.ended:
            raise SparkFailed("Spark could not run a job.")
        return [self.encode_unit(unit) for task in tasks for unit in task.units]

    def encode_unit(self, unit: EncodeUnit, refused: int = 0) -> Encoded:
        """Write one file of all records of the unit but `refused`, of at least one."""
        lines = [line for segment in unit.segments for line in self._read(segment).splitlines()]
        refused = min(refused, len(lines) - 1)
        rows = len(lines) - refused
        file = DataFile(f"s3://lake/{unit.name}-{self.jobs}", rows, rows, (), b"", None)
        self.ids[file.uri] = [int(match[1]) for line in lines if (match := _ID.search(line))]
        return Encoded(unit.stream, (file,), RejectCounts(len(lines), refused, refused), ())

    def _read(self, segment: StagedSegment) -> bytes:
        match segment.location:
            case LocalFile(path):
                return Path(path).read_bytes()
            case StagedObject():
                return self.read_staged(segment.location)
            case _:
                raise AssertionError("a sync replays nothing")

    def rewrite(self, _tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
        raise AssertionError("no fake table asks for it")


def not_encoded(stream: StreamId) -> NotEncoded:
    return NotEncoded(Failure(f"Stream {stream} could not be encoded.", "", "system_error"), stream)
