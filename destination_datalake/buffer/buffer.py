"""The buffer: every stream's open segment and its queue of sealed ones, within a bound on disk space."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from destination_datalake.buffer.segments import OpenSegment, Segment
from destination_datalake.protocol.catalog import StreamId

MiB = 1024 * 1024


class Buffer:
    """Keeps records on disk by stream. Not thread-safe: its owner locks.

    A segment is sealed when it holds `segment_bytes`. `used` counts the bytes that wait or are being landed, from
    `append` to `discard`; the files in `directory` are never more than were needed at once.
    """

    def __init__(self, directory: Path, segment_bytes: int, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._open: dict[StreamId, OpenSegment] = {}
        self._sealed: dict[StreamId, deque[Segment]] = {}
        self._waiting: dict[StreamId, int] = {}
        self._files = 0
        self._spare: list[Path] = []
        self.used = 0

    def append(self, stream: StreamId, lines: bytes | memoryview, records: int, first: int) -> bool:
        """Add record lines to the stream's open segment; `first` is the number of the first of them in the stream.

        True if that may make a batch due: a segment was begun, whose age now counts, or sealed.
        """
        segment = self._open.get(stream)
        begun = segment is None
        if segment is None:
            segment = self._open[stream] = OpenSegment(stream, self._file(), first, self._clock())
        segment.append(lines, records)
        self._waiting[stream] = self.waiting(stream) + len(lines)
        self.used += len(lines)
        if segment.bytes >= self._segment_bytes:
            self._seal(stream)
            return True
        return begun

    def waiting(self, stream: StreamId) -> int:
        """Bytes of the stream that no batch has taken yet."""
        return self._waiting.get(stream, 0)

    def waiting_sizes(self) -> Iterable[int]:
        """Bytes of each stream that no batch has taken yet."""
        return self._waiting.values()

    def waiting_streams(self) -> list[StreamId]:
        """The streams with records that no batch has taken yet, the longest waiting first."""
        since = {stream: queue[0].since for stream, queue in self._sealed.items() if queue}
        for stream, segment in self._open.items():
            since.setdefault(stream, segment.since)
        return sorted(since, key=since.__getitem__)

    def oldest(self, stream: StreamId) -> float | None:
        """When the first record that no batch has taken yet was read, by the clock."""
        if self._sealed.get(stream):
            return self._sealed[stream][0].since
        open_segment = self._open.get(stream)
        return open_segment.since if open_segment else None

    def take(self, stream: StreamId, at_most: int) -> list[Segment]:
        """The stream's next segments, in order, at least one and then as many as fit into `at_most` bytes.

        The open segment is sealed when the sealed ones do not fill the batch.
        """
        queue = self._sealed.get(stream)
        if stream in self._open and sum(segment.bytes for segment in queue or ()) < at_most:
            self._seal(stream)
            queue = self._sealed[stream]
        taken: list[Segment] = []
        size = 0
        while queue and (not taken or size + queue[0].bytes <= at_most):
            taken.append(queue.popleft())
            size += taken[-1].bytes
        self._waiting[stream] = self.waiting(stream) - size
        return taken

    def discard(self, segments: Iterable[Segment]) -> None:
        """Give back the space of segments that are committed, or that nobody will commit.

        Their files are written again by segments to come: pages that the system already has for a file cost it a
        fraction of new ones.
        """
        for segment in segments:
            self._spare.append(segment.path)
            self.used -= segment.bytes

    def _file(self) -> Path:
        if self._spare:
            return self._spare.pop()
        self._files += 1
        return self._directory / f"{self._files:08d}.jsonl"

    def _seal(self, stream: StreamId) -> None:
        self._sealed.setdefault(stream, deque()).append(self._open.pop(stream).seal())
