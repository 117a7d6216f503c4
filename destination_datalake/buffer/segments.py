"""Segments: record lines of one stream in a file that grows until it is sealed and read by Spark."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from destination_datalake.protocol.catalog import StreamId


@dataclass(frozen=True, slots=True)
class Segment:
    """A sealed file of RECORD lines of one stream.

    `first_record` is the number (from 0) of its first record in the stream's input, `since` the time (by the buffer's
    clock) at which that record was read.
    """

    stream: StreamId
    path: Path
    first_record: int
    records: int
    bytes: int
    since: float


class OpenSegment:
    """A segment that still grows. Lines are written to the file at once: nothing is kept in memory.

    The file at `path` may exist with `former` bytes: they are overwritten, and the rest of them is cut off by `seal`.
    """

    def __init__(self, stream: StreamId, path: Path, former: int, first_record: int, since: float) -> None:
        self.stream = stream
        self.path = path
        self.first_record = first_record
        self.since = since
        self.records = 0
        self.bytes = 0
        self._former = former
        self._file: int | None = None

    @property
    def file_bytes(self) -> int:
        """The size of the file, in bytes."""
        return max(self._former, self.bytes)

    def append(self, lines: bytes | memoryview, records: int) -> None:
        """Add whole lines: all of them or, if that raises OSError, none."""
        file = self._descriptor()
        view = memoryview(lines)
        offset = self.bytes
        while view:
            written = os.pwrite(file, view, offset)
            view = view[written:]
            offset += written
        self.records += records
        self.bytes = offset

    def close(self) -> None:
        """Close the file descriptor; the next `append` opens the file again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def seal(self) -> Segment:
        """Truncate and close the file, and return it as a segment. Raises OSError."""
        os.ftruncate(self._descriptor(), self.bytes)
        self.close()
        return Segment(self.stream, self.path, self.first_record, self.records, self.bytes, self.since)

    def _descriptor(self) -> int:
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._file


class OpenFiles:
    """Keeps the files of at most `max_open` segments open: the least recently written are closed."""

    def __init__(self, max_open: int) -> None:
        self._max_open = max_open
        self._used: OrderedDict[int, OpenSegment] = OrderedDict()

    def mark_used(self, segment: OpenSegment) -> None:
        """Call before each write to the segment. Closes the least recently written file if there are too many."""
        self._used[id(segment)] = segment
        self._used.move_to_end(id(segment))
        if len(self._used) > self._max_open:
            self._used.popitem(last=False)[1].close()

    def close(self, segment: OpenSegment) -> None:
        """Close the file of a segment that is not written again."""
        self._used.pop(id(segment), None)
        segment.close()
