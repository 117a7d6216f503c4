"""Make sealed segments (files of record lines) readable for executors until the segments are released.

Executors on this machine read the files of the segments. For executors on other machines, segments are uploaded to S3
when they are sealed, and deleted from S3 after their batch is committed.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from destination_datalake.aws.objects import S3Address, delete, delete_folder
from destination_datalake.files.segments import LocalFile, SegmentLocation, StagedObject, StagedSegment
from destination_datalake.protocol.catalog import StreamId

if TYPE_CHECKING:
    from types import TracebackType

    from destination_datalake.aws.access import AwsAccess

_logger = logging.getLogger(__name__)

CONCURRENT_CALLS = 16
"""Maximum number of concurrent uploads and deletions. S3 takes a third of a second for 16 MiB on one connection, so
eight connections would be slower than reading stdin."""

CLOSE_SECONDS = 5.0
"""Maximum seconds that the end of a sync waits for deletions. A lifecycle rule deletes the remaining objects."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A sealed file of RECORD lines of one stream.

    `first_record` is the number, from 0, of its first record in the stream's input. `since` is the time, by the
    buffer's clock, at which that record was read.
    """

    stream: StreamId
    path: Path
    first_record: int
    records: int
    bytes: int
    since: float

    def staged(self, location: SegmentLocation) -> StagedSegment:
        """Return this segment as a staged segment at the given location."""
        return StagedSegment(location, self.bytes, self.first_record, self.records)


class Staging(Protocol):
    """Makes sealed segments readable for executors until their release."""

    @property
    def uses_files(self) -> bool:
        """Whether executors read the buffer's files directly.

        The files must then exist until their segments are released.
        """

    def scratch(self) -> str:
        """Return the URI (`file:` or `s3:`) of a folder for intermediate files of jobs, without a trailing slash.

        The folder is deleted at the end of the sync. May call S3, and raises the errors of its client.
        """

    def shared_folder(self) -> str | None:
        """Return a folder on a disk that this process and all executors share, or None without a shared disk.

        The folder may not exist yet. It is deleted at the end of the sync.
        """

    def on_free_file(self, call: Callable[[Segment], None]) -> None:
        """Set the callback for segments whose file is no longer needed.

        The callback may run on any thread. It is never called if `uses_files` is true.
        """

    def begin(self, segment: Segment) -> None:
        """Start to make a sealed segment readable. Returns immediately."""

    def stage(self, segment: Segment) -> StagedSegment:
        """Wait until executors can read a segment. Return its location. Raises the error of its upload."""

    def release(self, segments: Iterable[Segment]) -> None:
        """Release segments whose batch was committed or discarded. Executors no longer need them.

        Returns immediately.
        """


class LocalStaging:
    """The staging for executors on this machine, which read the segments' own files."""

    uses_files = True

    def __init__(self, directory: Path | None = None) -> None:
        """Use the buffer's `directory`, which is deleted at the end of the sync."""
        self._directory = directory or Path(tempfile.gettempdir())

    def scratch(self) -> str:
        """Return a folder on the local disk, which may not exist yet."""
        return (self._directory / "scratch").as_uri()

    def shared_folder(self) -> str:
        """Return a folder on the local disk."""
        return str(self._directory / "held")

    def on_free_file(self, call: Callable[[Segment], None]) -> None:
        """Do nothing: the buffer frees files when it releases their segments."""

    def begin(self, segment: Segment) -> None:
        """Do nothing: executors can already read the file."""

    def stage(self, segment: Segment) -> StagedSegment:
        """Return the location of the segment's own file, which executors can already read."""
        return segment.staged(LocalFile(str(segment.path)))

    def release(self, segments: Iterable[Segment]) -> None:
        """Do nothing: the buffer owns the files."""


# --- In S3 ----------------------------------------------------------------------------------------------------------


class Pool(Protocol):
    """Runs calls on threads, in the order of their submission."""

    def submit(self, call: Callable[[], StagedSegment | None]) -> Future[StagedSegment | None]:
        """Queue a call. Return the future of its result."""


class RemoteStaging:
    """Uploads segments to this sync's folder in S3. Thread-safe.

    Uploads read directly from the local files, so segments are not copied to memory. `stage` raises the error of a
    failed upload only when the segment is needed, so that earlier batches can still be committed.
    """

    uses_files = False

    def __init__(
        self, root: str, sync: str, access: AwsAccess, pool: Pool, close_seconds: float = CLOSE_SECONDS
    ) -> None:
        """Use the folder `sync` under `root`, the S3 URI for all syncs. Uploads and deletions run in the pool."""
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
        """Delete all staged objects, within the time limit.

        After SIGTERM, jobs may still be running. Segments that they begin now are not uploaded, and releasing segments
        has no effect.
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
                "Some objects under %s were not deleted. A lifecycle rule of the bucket deletes them "
                "(docs/permissions.md).",
                self._folder,
            )

    def scratch(self) -> str:
        """Return a folder of this sync. The folder is deleted at the end of the sync."""
        self._has_scratch = True
        return f"{self._folder}/scratch"

    def shared_folder(self) -> None:
        """Return None: executors on other machines do not share a disk."""

    def on_free_file(self, call: Callable[[Segment], None]) -> None:
        """Set the callback for segments whose upload has finished or was discarded."""
        self._free_file = call

    def begin(self, segment: Segment) -> None:
        """Queue the upload of a segment."""
        staged = _Staged(segment, f"{self._folder}/{next(self._numbers):08d}.jsonl")
        with self._lock:
            staged.is_needed = not self._has_ended
            self._staged[segment] = staged
            staged.upload = self._pool.submit(lambda: self._upload(staged))

    def stage(self, segment: Segment) -> StagedSegment:
        """Wait until a segment is uploaded. Return its location in S3."""
        with self._lock:
            staged = self._staged[segment]
        uploaded = staged.upload.result()
        assert uploaded is not None, "no segment is staged that was released"
        return uploaded

    def release(self, segments: Iterable[Segment]) -> None:
        """Queue the deletion of segments. Uploads that have not started are discarded."""
        with self._lock:
            for segment in segments:
                staged = self._staged.pop(segment, None)
                if staged is None:
                    continue  # Already released at the end of the sync.
                staged.is_needed = False
                deletion = self._pool.submit(lambda staged=staged: self._delete(staged))  # type: ignore[misc]
                self._deletions.add(deletion)
                deletion.add_done_callback(self._deletions.discard)

    def _upload(self, staged: _Staged) -> StagedSegment | None:
        try:
            if not staged.is_needed:
                return None
            address = S3Address.parse(staged.uri)
            with staged.segment.path.open("rb") as file:
                answer = self._access.client("s3").put_object(Bucket=address.bucket, Key=address.key, Body=file)
            return staged.segment.staged(StagedObject(staged.uri, answer["ETag"]))
        finally:
            self._free_file(staged.segment)

    def _delete(self, staged: _Staged) -> None:
        """Delete the object of a segment, even if its upload failed.

        S3 may have stored the object although its response to the upload was lost.
        """
        wait([staged.upload])  # The upload may still run on another thread of the pool.
        if staged.upload.exception() is None and staged.upload.result() is None:
            return
        try:
            delete(self._access.client("s3"), staged.uri)
        except Exception:
            self._is_clean = False
            _logger.debug("Segment %s could not be deleted.", staged.uri, exc_info=True)

    def _delete_scratch(self) -> None:
        """Delete the intermediate files of failed and abandoned jobs."""
        try:
            delete_folder(self._access.client("s3"), f"{self._folder}/scratch")
        except Exception:
            self._is_clean = False
            _logger.debug("The scratch folder could not be deleted.", exc_info=True)


@dataclass(eq=False)
class _Staged:
    segment: Segment
    uri: str
    is_needed: bool = True
    upload: Future[StagedSegment | None] = field(default_factory=Future)
