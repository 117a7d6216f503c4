"""Segments: the record lines of one stream, appended to a file until it is sealed and handed to Spark."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from destination_datalake.protocol.catalog import StreamId


@dataclass(frozen=True, slots=True)
class Segment:
    """A sealed file of RECORD lines of one stream.

    `first` is the number (from 0) of its first record among all records of the stream, `since` when that was read.
    """

    stream: StreamId
    path: Path
    first: int
    records: int
    bytes: int
    since: float


class OpenSegment:
    """A segment that still grows. Lines go to the file as they come: nothing is kept in memory.

    The file at `path` may be there already, with `former` bytes: what it held is overwritten, and cut off by `seal`.
    """

    def __init__(self, stream: StreamId, path: Path, former: int, first: int, since: float) -> None:
        self.stream = stream
        self.path = path
        self.first = first
        self.since = since
        self.records = 0
        self.bytes = 0
        self._former = former
        self._file: int | None = None

    @property
    def extent(self) -> int:
        """Bytes that the file takes on disk."""
        return max(self._former, self.bytes)

    @property
    def is_open(self) -> bool:
        """Whether it holds a file descriptor."""
        return self._file is not None

    def append(self, lines: bytes | memoryview, records: int) -> None:
        """Add whole lines: all of them, or, if that raises OSError, none."""
        file = self._opened()
        view = memoryview(lines)
        place = self.bytes
        while view:
            written = os.pwrite(file, view, place)
            view = view[written:]
            place += written
        self.records += records
        self.bytes = place

    def close(self) -> None:
        """Give the file descriptor back; the next `append` opens the file again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def seal(self) -> Segment:
        """Close the file and hand it over."""
        os.ftruncate(self._opened(), self.bytes)
        self.close()
        return Segment(self.stream, self.path, self.first, self.records, self.bytes, self.since)

    def _opened(self) -> int:
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._file


class OpenFiles:
    """Keeps at most `most` segments' files open: those that were written last."""

    def __init__(self, max_open: int) -> None:
        self._max_open = max_open
        self._used: OrderedDict[int, OpenSegment] = OrderedDict()

    def mark_used(self, segment: OpenSegment) -> None:
        """Note that the segment is next; close the one that has waited longest if there are too many."""
        self._used[id(segment)] = segment
        self._used.move_to_end(id(segment))
        if len(self._used) > self._max_open:
            self._used.popitem(last=False)[1].close()

    def close(self, segment: OpenSegment) -> None:
        """Note that the segment will not be written again."""
        self._used.pop(id(segment), None)
        segment.close()
