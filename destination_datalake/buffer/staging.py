"""Staging: sealed segments are readable for executors until they are released.

Executors on this machine read the segments' own files. For those on other machines segments are uploaded to S3 as they
are sealed, and deleted when their batch is committed.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.objects import delete, delete_folder
from destination_datalake.files.segments import LocalFile, SegmentLocation, StagedObject, StagedSegment
from destination_datalake.protocol.catalog import StreamId

if TYPE_CHECKING:
    from types import TracebackType

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.protocol.frames import Frame

_logger = logging.getLogger(__name__)

CONCURRENT_CALLS = 16
"""Segments that are uploaded or deleted at the same time: S3 takes a third of a second for 16 MiB on one connection, so
eight of them would be slower than reading is."""

CLOSE_SECONDS = 5.0
"""How long the end of a sync waits until its segments are deleted. A lifecycle rule deletes what is left."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A sealed file of RECORD lines of one stream.

    `first_record` is the number (from 0) of its first record in the stream's input, `since` the time (by the buffer's
    clock) at which that record was read. `flat` of its lines have the `frame`. `places` says where its records stood in
    the input: runs of consecutive lines, as the number of the first line and how many they are.
    """

    stream: StreamId
    path: Path
    first_record: int
    records: int
    bytes: int
    since: float
    frame: Frame | None = None
    flat: int = 0
    places: Sequence[int] = field(default=(), compare=False, repr=False)

    def staged(self, location: SegmentLocation) -> StagedSegment:
        """Return the segment as it is found at a location."""
        mixed = 0 < self.flat < self.records
        return StagedSegment(location, self.bytes, self.first_record, self.frame, mixed, self.records)


class Staging(Protocol):
    """Makes sealed segments readable for executors until they are released."""

    @property
    def uses_files(self) -> bool:
        """Whether executors read the segments' own files, so that these stay until the segments are released."""

    def scratch(self) -> str:
        """Return the URI of a folder for what jobs write for later jobs, `file:` or `s3:`, without a slash at its end.

        It is deleted at the end of the sync. May call S3, and raise what its client raises.
        """

    def shared_folder(self) -> str | None:
        """Return a folder on the disk of this process and of all executors; None if they share none.

        It may not exist yet. It is deleted at the end of the sync.
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

    def shared_folder(self) -> str:
        """Return a folder on the local disk."""
        return str(self._directory / "held")

    def on_free_file(self, call: Callable[[Segment], None]) -> None:
        """Do nothing: files are free when the buffer releases their segments."""

    def begin(self, segment: Segment) -> None:
        """Do nothing: the file is there."""

    def stage(self, segment: Segment) -> StagedSegment:
        """Return the segment's own file."""
        return segment.staged(LocalFile(str(segment.path)))

    def release(self, segments: Iterable[Segment]) -> None:
        """Do nothing: the files are the buffer's."""


# --- In S3 ----------------------------------------------------------------------------------------------------------


class Pool(Protocol):
    """Runs calls on threads, in the order of their submission."""

    def submit(self, call: Callable[[], StagedSegment | None]) -> Future[StagedSegment | None]:
        """Queue a call; return the future of its result."""


class RemoteStaging:
    """Uploads segments to a folder of this sync's own in S3. Thread-safe.

    What is being uploaded is on the local disk, so it takes no memory. An upload that fails is kept as the answer of
    `stage`, so that batches before it are committed first.
    """

    uses_files = False

    def __init__(
        self, root: str, sync: str, access: AwsAccess, pool: Pool, close_seconds: float = CLOSE_SECONDS
    ) -> None:
        """`root` is the S3 URI of the folder of all syncs; `sync` names this one. Calls go to the pool."""
        self._folder = f"{root}/{sync}"
        self._access = access
        self._pool = pool
        self._close_seconds = close_seconds
        self._numbers = itertools.count(1)
        self._free_file: Callable[[Segment], None] = lambda _segment: None
        self._lock = threading.Lock()
        self._staged: dict[Segment, _Staged] = {}
        self._deletions: set[Future[StagedSegment | None]] = set()
        self._has_ended = False
        self._is_clean = True
        self._has_scratch = False

    def __enter__(self) -> RemoteStaging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete all that is staged, as far as that is possible in time.

        After SIGTERM jobs may still run: what they seal is not uploaded, and what they release is already.
        """
        with self._lock:
            self._has_ended = True
            staged = [*self._staged]
        self.release(staged)
        with self._lock:
            deletions = [*self._deletions]
        if self._has_scratch:
            deletions.append(self._pool.submit(self._delete_scratch))
        _, late = wait(deletions, self._close_seconds)
        if late or not self._is_clean:
            _logger.warning(
                "Objects under %s are left. A lifecycle rule of the bucket deletes them (docs/permissions.md).",
                self._folder,
            )

    def scratch(self) -> str:
        """Return a folder of the sync's own, which is deleted with it."""
        self._has_scratch = True
        return f"{self._folder}/scratch"

    def shared_folder(self) -> None:
        """Return None: executors have disks of their own."""

    def on_free_file(self, call: Callable[[Segment], None]) -> None:
        """Call this for each segment once it is uploaded, or never will be."""
        self._free_file = call

    def begin(self, segment: Segment) -> None:
        """Queue the upload of a segment."""
        staged = _Staged(segment, f"{self._folder}/{next(self._numbers):08d}.jsonl")
        with self._lock:
            staged.is_wanted = not self._has_ended
            self._staged[segment] = staged
            staged.upload = self._pool.submit(lambda: self._upload(staged))

    def stage(self, segment: Segment) -> StagedSegment:
        """Wait until a segment is uploaded."""
        with self._lock:
            staged = self._staged[segment]
        uploaded = staged.upload.result()
        assert uploaded is not None, "no segment is staged that was released"
        return uploaded

    def release(self, segments: Iterable[Segment]) -> None:
        """Queue the deletion of segments; those that are not uploaded yet never will be."""
        with self._lock:
            for segment in segments:
                staged = self._staged.pop(segment, None)
                if staged is None:
                    continue  # The end of the sync has released it.
                staged.is_wanted = False
                deletion = self._pool.submit(lambda staged=staged: self._delete(staged))  # type: ignore[misc]
                self._deletions.add(deletion)
                deletion.add_done_callback(self._deletions.discard)

    def _upload(self, staged: _Staged) -> StagedSegment | None:
        try:
            if not staged.is_wanted:
                return None
            address = S3Address.parse(staged.uri)
            with staged.segment.path.open("rb") as file:
                answer = self._access.client("s3").put_object(Bucket=address.bucket, Key=address.key, Body=file)
            return staged.segment.staged(StagedObject(staged.uri, answer["ETag"]))
        finally:
            self._free_file(staged.segment)

    def _delete(self, staged: _Staged) -> None:
        """Delete what was uploaded, and what may have been, because only S3's answer was lost."""
        wait([staged.upload])  # It runs on another thread of the pool, if it still does.
        if staged.upload.exception() is None and staged.upload.result() is None:
            return
        try:
            delete(self._access.client("s3"), staged.uri)
        except Exception:
            self._is_clean = False
            _logger.debug("Segment %s could not be deleted.", staged.uri, exc_info=True)

    def _delete_scratch(self) -> None:
        """Delete what jobs have left that failed or were given up."""
        try:
            delete_folder(self._access.client("s3"), f"{self._folder}/scratch")
        except Exception:
            self._is_clean = False
            _logger.debug("Indexes could not be deleted.", exc_info=True)


@dataclass(eq=False)
class _Staged:
    segment: Segment
    uri: str
    is_wanted: bool = True
    upload: Future[StagedSegment | None] = field(default_factory=Future)
