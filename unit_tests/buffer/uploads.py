"""Uploads that take as long as a test says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from destination_datalake.buffer.staging import Segment
from destination_datalake.files.segments import StagedObject, StagedSegment


class SlowUploads:
    """A staging whose uploads end when the test says so."""

    uses_files = False

    def __init__(self) -> None:
        self.waiting: deque[Segment] = deque()
        self.uploaded: dict[Segment, bytes] = {}
        self._free: Callable[[Segment], None] = lambda _segment: None

    def shared_folder(self) -> None:
        pass

    def scratch(self) -> str:
        return "s3://lake/scratch"

    def on_free_file(self, call: Callable[[Segment], None]) -> None:
        self._free = call

    def begin(self, segment: Segment) -> None:
        self.waiting.append(segment)

    def stage(self, segment: Segment) -> StagedSegment:
        return StagedSegment(StagedObject(f"s3://lake/{segment.path.name}", "etag"), segment.bytes)

    def release(self, segments: Iterable[Segment]) -> None:
        """Keep what is uploaded; the file of another segment is free in its turn."""

    def end_one(self, position: int = 0) -> None:
        """End one of the uploads that wait."""
        self.waiting.rotate(-position)
        segment = self.waiting.popleft()
        self.waiting.rotate(position)
        self.uploaded[segment] = segment.path.read_bytes()
        self._free(segment)
