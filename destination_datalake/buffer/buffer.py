"""Buffer records on the local disk, in segments, up to a size limit.

A segment is a file of record lines of one stream. Each stream has at most one open segment, to which the buffer appends
lines, and a queue of sealed segments, which no longer change. Spark reads only sealed segments.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from pathlib import Path

from destination_datalake.buffer.disk import MiB, disk_errors, share_of_limit, write_at
from destination_datalake.buffer.staging import LocalStaging, Segment, Staging
from destination_datalake.protocol.catalog import StreamId

SEGMENT_BYTES = 16 * MiB
"""The default size of a segment. Segments of this size are small enough to divide a batch evenly among tasks, and large
enough that opening them takes little time."""

MAX_OPEN_FILES = 256
"""Maximum number of segment files that the process keeps open. Beyond this number, the buffer closes the least recently
written file, and reopens it for the next write."""


class Buffer:
    """Stores the records of all streams on disk until they are committed. Not thread-safe: callers must hold a lock.

    - The buffer seals a segment when the segment reaches `segment_bytes`, or when `take` needs its records.
    - `staging` makes sealed segments readable for executors. If executors are remote, `staging` uploads each segment,
      and the caller then frees the segment's file with `free_file`.
    - The buffer keeps freed files as spare files, which later segments overwrite. If `disk_bytes` reaches
      `max_disk_bytes`, the buffer deletes spare files.

    `buffered_bytes` is the size of all records that are queued or being written. `disk_bytes` is the size of all files,
    including spare files. `clock` returns the current time in seconds.
    """

    def __init__(
        self,
        directory: Path,
        segment_bytes: int,
        max_disk_bytes: int,
        clock: Callable[[], float],
        staging: Staging | None = None,
    ) -> None:
        self.directory = directory
        self._segment_bytes = segment_bytes
        self.max_disk_bytes = max_disk_bytes
        self.clock = clock
        self.staging = staging or LocalStaging()
        self._open: dict[StreamId, OpenSegment] = {}
        self._open_files = OpenFiles(share_of_limit(MAX_OPEN_FILES))
        self._sealed: dict[StreamId, deque[Segment]] = {}
        self._waiting: dict[StreamId, int] = {}
        self._files = 0
        self._spare: list[tuple[Path, int]] = []
        self._spare_bytes = 0
        self.buffered_bytes = 0
        self.disk_bytes = 0
        self.uploading_bytes = 0
        """The size of the files that are queued for upload or being uploaded. Each file is freed after its upload."""

    @property
    def occupied_bytes(self) -> int:
        """The size of all files except spare files, in bytes. Only commits and uploads can free this space."""
        return self.disk_bytes - self._spare_bytes

    def append(self, stream: StreamId, lines: bytes | memoryview, records: int, first_record: int) -> bool:
        """Append `records` record lines to the stream's open segment. Return whether a batch may have become due.

        `first_record` is the number of the first of these records among the stream's records, from 0. A batch may have
        become due if the buffer sealed a segment, or if no records were queued before. Raises DiskFailed if the lines
        cannot be written. The queued records are then unchanged.
        """
        segment = self._open.get(stream)
        begun = segment is None and not self._waiting
        with disk_errors(self.directory):
            if segment is None:
                segment = OpenSegment(stream, *self._next_file(), first_record, self.clock())
                self._open[stream] = segment
            file_bytes = segment.file_bytes
            try:
                self._open_files.mark_used(segment)
                segment.append(lines, records)
            finally:
                # Nothing was written to this new segment. `take` would otherwise seal a segment without records.
                if not segment.bytes:
                    self._delete(stream, segment)
        self.disk_bytes += segment.file_bytes - file_bytes
        self._waiting[stream] = self.waiting_bytes(stream) + len(lines)
        self.buffered_bytes += len(lines)
        self._trim_spare_files()
        if segment.bytes >= self._segment_bytes:
            self._seal(stream)
            return True
        return begun

    def waiting_bytes(self, stream: StreamId) -> int:
        """Return the size of the stream's queued record lines, in bytes."""
        return self._waiting.get(stream, 0)

    def waiting(self) -> Iterable[tuple[StreamId, int]]:
        """Return each stream that has queued records, with the size of its queued record lines in bytes."""
        return self._waiting.items()

    def waiting_streams(self) -> list[StreamId]:
        """Return the streams that have queued records, in the order of their oldest queued records."""
        return sorted(self._waiting, key=self.oldest)

    def oldest(self, stream: StreamId) -> float:
        """Return the time, by `clock`, at which the sync read the stream's oldest queued record.

        The stream must have queued records.
        """
        sealed = self._sealed.get(stream)
        return sealed[0].since if sealed else self._open[stream].since

    def take(self, stream: StreamId, at_most: int) -> list[Segment]:
        """Remove the stream's oldest segments from the queue, and return them.

        Returns as many segments as fit in `at_most` bytes, but at least one. If the sealed segments have less than
        `at_most` bytes, seals the open segment first. Raises DiskFailed if the buffer cannot seal the open segment.
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
        if remaining := self.waiting_bytes(stream) - size:
            self._waiting[stream] = remaining
        else:
            self._waiting.pop(stream, None)
        return taken

    def release(self, segments: Iterable[Segment]) -> None:
        """Free the disk space of segments whose batch the sync has committed or discarded."""
        released = [*segments]
        for segment in released:
            self.buffered_bytes -= segment.bytes
            if self.staging.uses_files:
                self._add_spare_file(segment)
        self.staging.release(released)
        self._trim_spare_files()

    def free_file(self, segment: Segment) -> None:
        """Free the file of a segment whose upload has finished or was cancelled."""
        self.uploading_bytes -= segment.bytes
        self._add_spare_file(segment)
        self._trim_spare_files()

    def release_stream(self, stream: StreamId) -> None:
        """Discard all queued records of a stream, and free their disk space."""
        self.release(self._sealed.pop(stream, ()))
        self._waiting.pop(stream, None)
        segment = self._open.get(stream)
        if segment is not None:
            self.buffered_bytes -= segment.bytes
            self._delete(stream, segment)

    def delete_spare_files(self) -> None:
        """Delete all spare files, if possible. The buffer keeps these files only for reuse."""
        for path in self.take_spare_files():
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def take_spare_files(self) -> list[Path]:
        """Remove all spare files from the buffer, and return their paths. The caller must delete the files."""
        paths = [path for path, _ in self._spare]
        self.disk_bytes -= self._spare_bytes
        self._spare, self._spare_bytes = [], 0
        return paths

    def _next_file(self) -> tuple[Path, int]:
        if self._spare:
            path, size = self._spare.pop()
            self._spare_bytes -= size
            return path, size
        self._files += 1
        return self.directory / f"{self._files:08d}.jsonl", 0

    def _seal(self, stream: StreamId) -> None:
        segment = self._open[stream]
        file_bytes = segment.file_bytes
        with disk_errors(self.directory):
            # If this fails, the segment stays open and keeps its records.
            sealed = segment.seal()
        self._open_files.close(self._open.pop(stream))
        self.disk_bytes -= file_bytes - sealed.bytes
        self._sealed.setdefault(stream, deque()).append(sealed)
        if not self.staging.uses_files:
            self.uploading_bytes += sealed.bytes
        self.staging.begin(sealed)

    def _add_spare_file(self, segment: Segment) -> None:
        """Keep the file of a released segment as a spare file, which a later segment overwrites.

        Overwriting a file in the page cache takes much less time than allocating new pages.
        """
        self._spare.append((segment.path, segment.bytes))
        self._spare_bytes += segment.bytes

    def _delete(self, stream: StreamId, segment: OpenSegment) -> None:
        """Delete the stream's open segment and the segment's file."""
        # The buffer discards the file, so it does not matter if the file lacks lines.
        with contextlib.suppress(OSError):
            self._open_files.close(self._open.pop(stream))
        self.disk_bytes -= segment.file_bytes
        with disk_errors(self.directory):
            segment.path.unlink(missing_ok=True)

    def _trim_spare_files(self) -> None:
        while self._spare and self.disk_bytes >= self.max_disk_bytes:
            path, size = self._spare.pop(0)
            with disk_errors(self.directory):
                path.unlink(missing_ok=True)
            self._spare_bytes -= size
            self.disk_bytes -= size


# --- Open segments --------------------------------------------------------------------------------------------------


class OpenSegment:
    """A segment that is not sealed yet. Writes lines to its file immediately, without keeping them in memory.

    The file at `path` may be a spare file that already contains `old_bytes` bytes. `append` overwrites these bytes, and
    `seal` truncates the file to the appended lines.
    """

    def __init__(self, stream: StreamId, path: Path, old_bytes: int, first_record: int, since: float) -> None:
        self.stream = stream
        self.path = path
        self.first_record = first_record
        self.since = since
        self.records = 0
        self.bytes = 0
        self._old_bytes = old_bytes
        self._file: int | None = None
        self._close_error: OSError | None = None

    @property
    def file_bytes(self) -> int:
        """The size of the file in bytes, including old bytes of a spare file."""
        return max(self._old_bytes, self.bytes)

    def append(self, lines: bytes | memoryview, records: int) -> None:
        """Append whole lines to the file. Raises OSError if a write fails; the segment is then unchanged.

        Also raises OSError if an earlier `close` failed.
        """
        self.bytes = write_at(self._descriptor(), lines, self.bytes)
        self.records += records

    def close(self) -> None:
        """Close the file. The next `append` reopens it. Raises OSError if earlier writes to the file may be lost."""
        if self._file is None:
            return
        # Even if `os.close` fails, the descriptor is closed, and its number may soon refer to another file.
        descriptor, self._file = self._file, None
        try:
            os.close(descriptor)
        except OSError as error:
            # Network file systems report some failed writes only here. The file may lack lines, so do not reopen it.
            self._close_error = error
            raise

    def seal(self) -> Segment:
        """Truncate the file to the appended lines, and close the file. Return the sealed segment. Raises OSError."""
        # Executors must not read the remaining bytes of a spare file, or of a failed write.
        os.ftruncate(self._descriptor(), self.bytes)
        self.close()
        return Segment(self.stream, self.path, self.first_record, self.records, self.bytes, self.since)

    def _descriptor(self) -> int:
        if self._close_error is not None:
            raise self._close_error
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._file


class OpenFiles:
    """Limits the number of open segment files to `max_open` by closing the least recently written file."""

    def __init__(self, max_open: int) -> None:
        self._max_open = max_open
        self._used: OrderedDict[int, OpenSegment] = OrderedDict()

    def mark_used(self, segment: OpenSegment) -> None:
        """Mark a segment as the most recently written one. Call this method before each write to the segment's file.

        If more than `max_open` files would then be open, closes the least recently written file.
        """
        self._used[id(segment)] = segment
        self._used.move_to_end(id(segment))
        if len(self._used) > self._max_open:
            self._used.popitem(last=False)[1].close()

    def close(self, segment: OpenSegment) -> None:
        """Close the file of a segment that was sealed or will be deleted."""
        self._used.pop(id(segment), None)
        segment.close()
