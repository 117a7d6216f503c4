"""Batches: the segments of a stream that one Spark job encodes, and which of them are next."""

from __future__ import annotations

from dataclasses import dataclass

from destination_datalake.buffer.buffer import Buffer
from destination_datalake.buffer.disk import DiskFailed
from destination_datalake.buffer.segments import Segment
from destination_datalake.buffer.triggers import AgeTrigger, SizeTrigger
from destination_datalake.protocol.catalog import StreamId


@dataclass(frozen=True, slots=True)
class Batch:
    """Segments of one stream that are encoded by one Spark job and committed together; `number` counts from 1."""

    stream: StreamId
    number: int
    segments: tuple[Segment, ...]

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

    def __init__(self, size: SizeTrigger, age: AgeTrigger) -> None:
        self._size = size
        self._age = age
        self._batches = 0

    def next_batches(self, buffer: Buffer, now: float, *, everything: bool) -> list[Batch]:
        """Take what is due out of the buffer: at least one batch if any is, and about the bytes of one batch in all.

        Small streams that are due share a job, so that a hundred of them do not cost a hundred jobs. With `everything`
        all that waits is due: the buffer is full, or the input has ended. Raises SealFailed; then nothing was taken.
        """
        batches: list[Batch] = []
        room = self._size.batch_bytes
        for stream in self._due(buffer, now, everything=everything):
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
        return batches

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
            if self._size.due(buffer.waiting_bytes(stream)) or self._age.due(buffer.oldest(stream), now)
        ]
