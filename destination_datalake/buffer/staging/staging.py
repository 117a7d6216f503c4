"""The interface of a staging, and that of executors on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from destination_datalake.files.segments import LocalFile, StagedSegment

if TYPE_CHECKING:
    from destination_datalake.buffer.segments import Segment


class Staging(Protocol):
    """Makes sealed segments readable for executors until they are released."""

    @property
    def uses_files(self) -> bool:
        """Whether executors read the segments' own files, so that these stay until the segments are released."""

    def scratch(self) -> str:
        """Return the URI of a folder for what jobs write for later jobs, `file:` or `s3:`, without a slash at its end.

        What is left there goes with the sync. May call S3, and raise what its client raises.
        """

    def on_free_file(self, call: Callable[[Segment], None]) -> None:
        """Call this, on any thread, for each segment whose file is not needed any more, unless `uses_files`."""

    def begin(self, segment: Segment) -> None:
        """Begin to make a segment readable that was just sealed. Returns at once."""

    def stage(self, segment: Segment) -> StagedSegment:
        """Return where executors read a segment. Waits until they can; raises why they never will."""

    def release(self, segments: Iterable[Segment]) -> None:
        """No executor needs these segments any more: they are committed, or will not be. Returns at once."""


class LocalStaging:
    """For executors on this machine, which read the segments' own files."""

    uses_files = True

    def __init__(self, directory: Path | None = None) -> None:
        """`directory` is the buffer's, which goes with the sync."""
        self._directory = directory or Path(tempfile.gettempdir())

    def scratch(self) -> str:
        """Return a folder on the local disk. It may not be there yet."""
        return (self._directory / "scratch").as_uri()

    def on_free_file(self, call: Callable[[Segment], None]) -> None:
        """Do nothing: files are free when the buffer releases their segments."""

    def begin(self, segment: Segment) -> None:
        """Do nothing: the file is there."""

    def stage(self, segment: Segment) -> StagedSegment:
        """Return the segment's own file."""
        return StagedSegment(LocalFile(str(segment.path)), segment.bytes)

    def release(self, segments: Iterable[Segment]) -> None:
        """Do nothing: the files are the buffer's."""
