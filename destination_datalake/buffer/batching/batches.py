"""Batches: the segments of a stream that one Spark job encodes, and which of them are next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from destination_datalake.buffer.batching.sizes import BatchSizes
from destination_datalake.buffer.batching.triggers import AgeTrigger, SizeTrigger
from destination_datalake.buffer.buffer import Buffer
from destination_datalake.buffer.disk import DiskFailed
from destination_datalake.buffer.segments import Segment
from destination_datalake.protocol.catalog import StreamId


@dataclass(frozen=True, slots=True)
class Batch:
    """Segments of one stream that are encoded by one Spark job and committed together; `number` counts from 1.

    `tasks` is how many tasks should encode it, together with the batches that were taken with it; None: as many as run
    at the same time. `expected_yield` is the size of the files that a byte of a task's records is expected to become in
    each of their partitions, if there is an expectation.
    """

    stream: StreamId
    number: int
    segments: tuple[Segment, ...]
    tasks: int | None = None
    expected_yield: float | None = None

    @property
    def first_record(self) -> int:
        """The number (from 0) of the batch's first record in the stream's input."""
        return self.segments[0].first_record

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(segment.records for segment in self.segments)

    @property
    def bytes(self) -> int:
        """The size of the record lines, in bytes."""
        return sum(segment.bytes for segment in self.segments)


class SealFailed(Exception):
    """A stream's open segment cannot be sealed, so it has no batch; other streams have. The text is for the user."""

    def __init__(self, stream: StreamId, cause: DiskFailed) -> None:
        super().__init__(f"The records of stream {stream} cannot be handed over. {cause}")
        self.stream = stream


class Batcher:
    """Takes batches out of a buffer: those that are due by size or age, or everything."""

    def __init__(self, size: SizeTrigger, age: AgeTrigger, sizes: BatchSizes | None = None) -> None:
        """Make all batches of the size in `size`, unless there are `sizes`."""
        self._size = size
        self._age = age
        self._sizes = sizes
        self._batches = 0

    def next_batches(
        self, buffer: Buffer, now: float, *, everything: bool, ended: bool = False, idle: int | None = None
    ) -> list[Batch]:
        """Take what is due out of the buffer: at least one batch if any is, and about the bytes of one batch in all.

        Small streams that are due share a job, so that a hundred of them do not cost a hundred jobs. A stream of which
        more waits than the job has room for is left to a job of its own, if there are `sizes`. With `everything`
        all that waits is due: the buffer is full, or the input has `ended`. `idle` tasks can run now, if that is known.
        Raises SealFailed; then nothing was taken.
        """
        batches: list[Batch] = []
        room = self._size.batch_bytes
        for stream in self._due(buffer, now, everything=everything):
            if not batches and self._sizes is not None:
                room = _room(self._sizes, stream, buffer.waiting_bytes(stream), idle, ended=ended)
            elif self._sizes is not None and buffer.waiting_bytes(stream) > room:
                continue  # What is cut off a larger batch becomes a small file.
            try:
                segments = buffer.take(stream, room)
            except DiskFailed as error:
                if batches:
                    break  # The next call begins with this stream, and raises.
                raise SealFailed(stream, error) from error
            self._batches += 1
            batches.append(Batch(stream, self._batches, tuple(segments)))
            room -= batches[-1].bytes
            if room <= 0:
                break
        return batches if self._sizes is None else _planned(self._sizes, batches, idle, all_idle=everything)

    def batch_bytes(self, stream: StreamId) -> int:
        """Return the size at which a batch of the stream is due."""
        return self._size.batch_bytes if self._sizes is None else self._sizes.batch_bytes(stream)

    def seconds_until_due(self, buffer: Buffer, now: float) -> float | None:
        """Return the seconds until a batch is due by age; None while nothing waits.

        A state is never older than the oldest record it waits for, so this bounds the age of states too.
        """
        for stream in buffer.waiting_streams():
            since = buffer.oldest(stream)
            return None if since is None else self._age.remaining(since, now)
        return None

    def _due(self, buffer: Buffer, now: float, *, everything: bool) -> list[StreamId]:
        waiting = buffer.waiting_streams()
        if everything:
            return waiting
        return [
            stream
            for stream in waiting
            if SizeTrigger(self.batch_bytes(stream)).due(buffer.waiting_bytes(stream))
            or self._age.due(buffer.oldest(stream), now)
        ]


def _room(sizes: BatchSizes, stream: StreamId, waiting: int, idle: int | None, *, ended: bool) -> int:
    """Return the bytes of the next job: a share for each idle task. At the end no task waits for what may come."""
    if ended:
        return sizes.largest_share * (idle or sizes.parallelism)
    share = sizes.share(stream)
    return max(sizes.batch_bytes(stream), min(idle or 1, waiting // share) * share)


def _planned(sizes: BatchSizes, batches: Sequence[Batch], idle: int | None, *, all_idle: bool) -> list[Batch]:
    """Return the batches of one job with their tasks: as many as have about a share each, or `all_idle` if more.

    They may be more than are idle: a batch of several shares would otherwise keep one task busy when others are idle.
    """
    tasks = idle
    if idle is not None:
        shares = round(sum(batch.bytes / sizes.share(batch.stream) for batch in batches))
        tasks = max(idle if all_idle else 1, min(sizes.parallelism, shares))
    return [replace(batch, tasks=tasks, expected_yield=sizes.yield_of(batch.stream)) for batch in batches]
