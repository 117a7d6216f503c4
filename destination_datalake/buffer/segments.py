"""Segments: the record lines of one stream, appended to a file until it is sealed and handed to Spark."""

from __future__ import annotations

import os
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

    The file at `path` may be there already: what it held is overwritten, and cut off by `seal`.
    """

    def __init__(self, stream: StreamId, path: Path, first: int, since: float) -> None:
        self.stream = stream
        self.first = first
        self.since = since
        self.records = 0
        self.bytes = 0
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def append(self, lines: bytes | memoryview, records: int) -> None:
        """Add whole lines."""
        view = memoryview(lines)
        while view:
            view = view[os.write(self._file, view) :]
        self.records += records
        self.bytes += len(lines)

    def seal(self) -> Segment:
        """Close the file and hand it over."""
        os.ftruncate(self._file, self.bytes)
        os.close(self._file)
        return Segment(self.stream, self._path, self.first, self.records, self.bytes, self.since)
