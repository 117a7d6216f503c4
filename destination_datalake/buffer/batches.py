"""Batches: which streams' waiting records go to Spark now."""

from __future__ import annotations

from dataclasses import dataclass

from destination_datalake.buffer.buffer import Buffer
from destination_datalake.buffer.disk import DiskFailed
from destination_datalake.buffer.segments import Segment
from destination_datalake.buffer.triggers import AgeTrigger, SizeTrigger
from destination_datalake.protocol.catalog import StreamId


@dataclass(frozen=True, slots=True)
class Batch:
    """Segments of one stream that are encoded by one Spark job and committed together."""

    stream: StreamId
    number: int
    segments: tuple[Segment, ...]

    @property
    def first(self) -> int:
        """The number of the batch's first record among all of the stream, from 0."""
        return self.segments[0].first

    @property
    def records(self) -> int:
        """How many records."""
        return sum(segment.records for segment in self.segments)

    @property
    def bytes(self) -> int:
        """How many bytes of record lines."""
        return sum(segment.bytes for segment in self.segments)


class SealFailed(Exception):
    """A stream's waiting records cannot be handed over; those of the others can. The text says why and what to do."""

    def __init__(self, stream: StreamId, cause: DiskFailed) -> None:
        super().__init__(f"The records of stream {stream} cannot be handed over. {cause}")
        self.stream = stream


class Batcher:
    """Cuts batches: by size, by age of what waits, and when everything has to go."""

    def __init__(self, size: SizeTrigger, age: AgeTrigger) -> None:
        self._size = size
        self._age = age
        self._number = 0

    def next_batches(self, buffer: Buffer, now: float, *, everything: bool) -> list[Batch]:
        """Take what is due out of the buffer: at least one batch if any is, and together about one batch's bytes.

        Small streams that are due share a job, so that a hundred of them do not cost a hundred jobs. `everything` is
        due when the buffer is full, and at the end of the input. Raises SealFailed, and has then taken nothing.
        """
        batches: list[Batch] = []
        room = self._size.batch_bytes
        for stream in self._due(buffer, now, everything=everything):
            try:
                segments = buffer.take(stream, room)
            except DiskFailed as error:
                if batches:
                    break  # The next cut begins with this stream, and says so.
                raise SealFailed(stream, error) from error
            self._number += 1
            batches.append(Batch(stream, self._number, tuple(segments)))
            room -= batches[-1].bytes
            if room <= 0:
                break
        return batches

    def seconds_until_due(self, buffer: Buffer, now: float) -> float | None:
        """Seconds until something becomes due by its age alone; None while nothing waits.

        A state is never older than the oldest record it waits for, so this bounds the age of states as well.
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
