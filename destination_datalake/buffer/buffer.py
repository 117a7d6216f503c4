"""The buffer: every stream's open segment and its queue of sealed ones, within a bound on disk space."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from destination_datalake.buffer.descriptors import share
from destination_datalake.buffer.disk import disk_errors
from destination_datalake.buffer.segments import OpenFiles, OpenSegment, Segment
from destination_datalake.protocol.catalog import StreamId

MiB = 1024 * 1024

OPEN_FILES = 256
"""Segments of that many streams have an open file; those of more are opened again for each piece of input."""


class Buffer:
    """Keeps records on disk by stream. Not thread-safe: its owner locks.

    A segment is sealed once it holds `segment_bytes`. `buffered_bytes` counts record lines from `append` to `release`:
    those that wait and those that are being landed. `disk_bytes` is the size of all files, spare ones and the unused
    ends of others included. Spare files are kept while `disk_bytes` is less than `max_disk_bytes`.
    """

    def __init__(self, directory: Path, segment_bytes: int, max_disk_bytes: int, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._max_disk_bytes = max_disk_bytes
        self._clock = clock
        self._open: dict[StreamId, OpenSegment] = {}
        self._open_files = OpenFiles(share(OPEN_FILES))
        self._sealed: dict[StreamId, deque[Segment]] = {}
        self._waiting: dict[StreamId, int] = {}
        self._files = 0
        self._spare: list[tuple[Path, int]] = []
        self._spare_bytes = 0
        self.buffered_bytes = 0
        self.disk_bytes = 0

    @property
    def occupied_bytes(self) -> int:
        """Bytes on disk that cannot be given back before something has landed."""
        return self.disk_bytes - self._spare_bytes

    def append(self, stream: StreamId, lines: bytes | memoryview, records: int, first: int) -> bool:
        """Add record lines to the stream's open segment; `first` is the number of the first of them in the stream.

        True if that may make a batch due: a segment was sealed, or begun in an empty buffer, so that its age counts.
        Raises DiskFailed, and has then not taken any of the lines.
        """
        segment = self._open.get(stream)
        begun = segment is None and not self._waiting
        with disk_errors(self._directory):
            if segment is None:
                segment = OpenSegment(stream, *self._file(), first, self._clock())
                self._open[stream] = segment
            extent = segment.extent
            self._open_files.mark_used(segment)
            try:
                segment.append(lines, records)
            finally:
                if not segment.bytes:
                    self._delete(stream, segment)
        self.disk_bytes += segment.extent - extent
        self._waiting[stream] = self.waiting_bytes(stream) + len(lines)
        self.buffered_bytes += len(lines)
        self._delete_spare_files(self._max_disk_bytes)
        if segment.bytes >= self._segment_bytes:
            self._seal(stream)
            return True
        return begun

    def waiting_bytes(self, stream: StreamId) -> int:
        """Bytes of the stream that no batch has taken yet."""
        return self._waiting.get(stream, 0)

    def waiting_sizes(self) -> Iterable[int]:
        """Bytes of each stream of which some wait that no batch has taken yet."""
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

        The open segment is sealed when the sealed ones do not fill the batch. Raises DiskFailed if that cannot be.
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
        self._count_out(stream, size)
        return taken

    def release(self, segments: Iterable[Segment]) -> None:
        """Give back the space of segments that are committed, or that nobody will commit.

        Their files are written again by segments to come: pages that the system already has for a file cost it a
        fraction of new ones.
        """
        for segment in segments:
            self._spare.append((segment.path, segment.bytes))
            self._spare_bytes += segment.bytes
            self.buffered_bytes -= segment.bytes
        self._delete_spare_files(self._max_disk_bytes)

    def release_stream(self, stream: StreamId) -> None:
        """Give back the space of all that waits of a stream."""
        self.release(self._sealed.pop(stream, ()))
        self._waiting.pop(stream, None)
        segment = self._open.get(stream)
        if segment is not None:
            self.buffered_bytes -= segment.bytes
            self._delete(stream, segment)

    def delete_spare_files(self) -> None:
        """Give back all the space that nothing needs now."""
        self._delete_spare_files(0)

    def _file(self) -> tuple[Path, int]:
        if self._spare:
            path, size = self._spare.pop()
            self._spare_bytes -= size
            return path, size
        self._files += 1
        return self._directory / f"{self._files:08d}.jsonl", 0

    def _seal(self, stream: StreamId) -> None:
        segment = self._open[stream]
        extent = segment.extent
        with disk_errors(self._directory):
            sealed = segment.seal()
        self._open_files.close(self._open.pop(stream))
        self.disk_bytes -= extent - sealed.bytes
        self._sealed.setdefault(stream, deque()).append(sealed)

    def _delete(self, stream: StreamId, segment: OpenSegment) -> None:
        """Take away an open segment with its file."""
        self._open_files.close(self._open.pop(stream))
        self.disk_bytes -= segment.extent
        segment.path.unlink(missing_ok=True)

    def _count_out(self, stream: StreamId, size: int) -> None:
        left = self.waiting_bytes(stream) - size
        if left:
            self._waiting[stream] = left
        else:
            self._waiting.pop(stream, None)

    def _delete_spare_files(self, max_disk_bytes: int) -> None:
        while self._spare and self.disk_bytes >= max_disk_bytes:
            path, size = self._spare.pop(0)
            path.unlink(missing_ok=True)
            self._spare_bytes -= size
            self.disk_bytes -= size
