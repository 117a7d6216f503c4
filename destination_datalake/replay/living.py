"""Lives through syncs once more: their batches go through encoding and commits as they did, read from the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyroaring import BitMap

from destination_datalake.archive.plan import Kind, ReplayedLines, ReplayedSync, Step
from destination_datalake.buffer.batching import Batch
from destination_datalake.buffer.disk import MiB
from destination_datalake.buffer.staging import Segment
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.segments import ArchivedLines, StagedSegment, Window
from destination_datalake.rejects.ledger import RejectCounts, RejectFile, RejectLedger
from destination_datalake.sync.landing import Encoding, Landing, StreamTables
from destination_datalake.sync.outcome import BatchCommitted, BatchFailed, BatchMalformed, BatchOutcome
from destination_datalake.sync.progress import ActiveStages

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.buffer.staging import Staging
    from destination_datalake.files.suppression import People
    from destination_datalake.protocol.catalog import Stream, StreamId
    from destination_datalake.spark.engine import Engine
    from destination_datalake.tables.table import Table

TASK_BYTES = 1024 * MiB
"""Records of consecutive batches of one sync are encoded by one job and committed together, up to so many bytes for
each task that runs at the same time: a batch may be one object, which one task reads."""


class ArchiveStaging:
    """Segments that are objects of the archive. What jobs write for later ones goes where `own` has it."""

    uses_files = True

    def __init__(self, own: Staging) -> None:
        self._own = own
        self.scratch = own.scratch
        self.shared_folder = own.shared_folder

    def on_free_file(self, call: Callable[[Segment], None]) -> None:
        """Do nothing: there are no files."""

    def begin(self, segment: Segment) -> None:
        """Do nothing: the object is there."""

    def stage(self, segment: Segment) -> StagedSegment:
        """Return the archived object."""
        assert isinstance(segment, ArchivedSegment)
        assert segment.location is not None
        return segment.staged(segment.location)

    def release(self, segments: Iterable[Segment]) -> None:
        """Do nothing: the objects stay."""


@dataclass(frozen=True, slots=True)
class ArchivedSegment(Segment):
    """A segment whose lines are an object of the archive."""

    location: ArchivedLines | None = None

    @classmethod
    def of(cls, stream: StreamId, replayed: ReplayedLines, window: Window | None) -> ArchivedSegment:
        """Return the segment of archived lines, or of those that were extracted within a window."""
        lines, archived = replayed.lines, replayed.lines.archived
        only = None if replayed.only is None else BitMap(replayed.only)
        first_id = bytes.fromhex(archived.first_id)
        location = ArchivedLines(lines.uri, lines.etag, lines.size, first_id, only, window)
        counts = (archived.first_record, archived.lines, archived.bytes)
        return cls(stream, Path(archived.name), *counts, since=0.0, location=location)


class NoRejects(RejectLedger):
    """Deletes rejects instead of publishing them: the syncs that are lived through again have published theirs."""

    def publish(self, files: Sequence[RejectFile]) -> None:
        """Delete the rejects of a batch."""
        self.delete_uncommitted(files)


@dataclass(frozen=True, slots=True)
class World:
    """What all syncs that are lived through share: the fencing token too, which is the run's.

    Rows are made of what was extracted within the `window` alone, if there is one.
    """

    engine: Engine
    staging: Staging
    access: AwsAccess
    run: str
    rejects: RejectLedger
    open_table: Callable[[Stream], Table]
    window: Window | None = None
    left_out: People = field(default_factory=dict)
    """People whose rows were erased: no rows are made of their records, whenever these were archived."""


class Life:
    """One sync, lived through again. Every failure is raised as a ConnectorError."""

    def __init__(self, world: World, stream: Stream, number: int) -> None:
        """Prepare the table. `number` is that of the sync in this replay, from 1."""
        self._stream = stream.id
        self._outcomes: list[BatchOutcome] = []
        self._batches = 0
        self._window = world.window
        name = f"{world.run}-{number:04d}"
        self._landing = Landing(
            StreamTables({stream.id: lambda: world.open_table(stream)}, world.access),
            Encoding(world.engine, ArchiveStaging(world.staging), world.access, name, lambda: world.left_out),
            world.rejects,
            self._outcomes.append,
            lambda _batch: True,
            ActiveStages(),
        )
        if (failure := self._landing.preparation_failure(stream.id)) is not None:
            self.close()
            raise ConnectorError(failure)

    def land(self, lines: Sequence[ReplayedLines]) -> RejectCounts:
        """Encode lines and commit them as one batch; return what was rejected."""
        self._batches += 1
        segments = tuple(ArchivedSegment.of(self._stream, each, self._window) for each in lines)
        self._landing.land([Batch(self._stream, self._batches, segments)])
        match self._outcomes.pop():
            case BatchCommitted(counts=counts):
                return counts
            case BatchFailed(failure=failure):
                raise ConnectorError(failure)
            case BatchMalformed(record=record, reason=reason):
                message = f"Record {record} of stream {self._stream} in the archive is no Airbyte message: {reason}"
                raise ConnectorError(Failure(message, message, "system_error"))
            case _:
                raise AssertionError("batches are skipped only where states cannot be released")

    def publish(self) -> None:
        """Publish the table."""
        for failure in self._landing.publish([self._stream]).values():
            raise ConnectorError(failure)

    def close(self) -> None:
        """End the threads."""
        self._landing.close(lambda: False)


def groups(
    steps: Sequence[Step], syncs: Mapping[str, ReplayedSync], most_bytes: Callable[[], int]
) -> Iterator[Sequence[Step]]:
    """Yield the steps one by one, but batches of a sync that follow each other together, up to so many bytes."""
    group: list[Step] = []
    size = 0
    for step in steps:
        own = sum(each.lines.archived.bytes for each in lines_of([step], syncs))
        joins = group and step.kind is Kind.BATCH is group[-1].kind and step.sync == group[-1].sync
        if group and (not joins or size + own > most_bytes()):
            yield group
            group, size = [], 0
        group.append(step)
        size += own
    if group:
        yield group


def lines_of(steps: Iterable[Step], syncs: Mapping[str, ReplayedSync]) -> list[ReplayedLines]:
    """Return the lines of batches."""
    return [each for step in steps if step.kind is Kind.BATCH for each in syncs[step.sync].batches[step.batch]]


def without(lines: ReplayedLines, present: Sequence[int]) -> ReplayedLines | None:
    """Return the lines but for those whose rows the table has already; None if it has all."""
    if not present:
        return lines
    wanted = set(range(lines.lines.archived.lines) if lines.only is None else lines.only) - set(present)
    return replace(lines, only=tuple(sorted(wanted))) if wanted else None
