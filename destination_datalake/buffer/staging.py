"""Make segments (files of record lines) readable for Spark's executors.

Executors on this machine read the files directly. For executors on other machines, this module uploads each segment to
S3 when the buffer seals the segment, and deletes the object when the batch of the segment has been committed or
discarded.
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
"""Maximum number of concurrent uploads and deletions. One connection uploads 16 MiB in a third of a second, so uploads
on only eight connections would be slower than reading stdin."""

CLOSE_SECONDS = 5.0
"""Maximum time, in seconds, that the end of a sync waits for deletions from S3. A lifecycle rule of the bucket deletes
the remaining objects."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A complete file of RECORD lines of one stream.

    `first_record` is the number of the file's first record among the stream's records, from 0. `since` is the time, by
    the buffer's clock, at which the sync read this record.
    """

    stream: StreamId
    path: Path
    first_record: int
    records: int
    bytes: int
    since: float

    def staged(self, location: SegmentLocation) -> StagedSegment:
        """Return a description of this segment for executors, which read the segment at `location`."""
        return StagedSegment(location, self.bytes, self.first_record, self.records)


class SegmentAccess(Protocol):
    """The interface that provides the locations of a batch's segments to executors."""

    def shared_folder(self) -> str | None:
        """Return a folder on a disk that this process shares with all executors, or None if there is none.

        The folder may not exist yet. The sync deletes the folder at its end.
        """

    def stage(self, segment: Segment) -> StagedSegment:
        """Wait until executors can read a segment. Return the segment with its location.

        If the upload of the segment failed, raises its error.
        """


class Staging(SegmentAccess, Protocol):
    """The interface that makes segments readable for executors, from the call of `begin` to the call of `release`."""

    @property
    def uses_files(self) -> bool:
        """Whether executors read the buffer's files. If they do, each file must exist until its segment is released."""

    def scratch(self) -> str:
        """Return the URI of a folder for intermediate files of Spark jobs (`file:` or `s3:`, no trailing slash).

        The sync deletes the folder at its end. Raises errors of the S3 client.
        """

    def on_free_file(self, call: Callable[[Segment], None]) -> None:
        """Set the function to call when the staging no longer needs the local file of a segment.

        Any thread may call the function. If `uses_files` is true, the function is never called.
        """

    def begin(self, segment: Segment) -> None:
        """Start to make a sealed segment readable for executors. Returns immediately."""

    def release(self, segments: Iterable[Segment]) -> None:
        """Release segments that executors no longer need, because the sync has committed or discarded their batch.

        Returns immediately.
        """


class LocalStaging:
    """The staging for executors on this machine, which read the buffer's files directly."""

    uses_files = True

    def __init__(self, directory: Path | None = None) -> None:
        """Place all folders in `directory`, which the caller deletes at the end of the sync."""
        self._directory = directory or Path(tempfile.gettempdir())

    def scratch(self) -> str:
        """Return the URI of a folder on the local disk. The folder may not exist yet."""
        return (self._directory / "scratch").as_uri()

    def shared_folder(self) -> str:
        """Return a folder on the local disk. The folder may not exist yet."""
        return str(self._directory / "spool")

    def on_free_file(self, call: Callable[[Segment], None]) -> None:
        """Do nothing, because the buffer itself frees a segment's file when the segment is released."""

    def begin(self, segment: Segment) -> None:
        """Do nothing, because executors can already read the file."""

    def stage(self, segment: Segment) -> StagedSegment:
        """Return the segment with the location of its file."""
        return segment.staged(LocalFile(str(segment.path)))

    def release(self, segments: Iterable[Segment]) -> None:
        """Do nothing, because the buffer frees the files."""


# --- In S3 ----------------------------------------------------------------------------------------------------------


class Pool(Protocol):
    """The interface of a pool of threads that runs calls in the order in which they were submitted."""

    def submit(self, call: Callable[[], StagedSegment | None]) -> Future[StagedSegment | None]:
        """Queue a call. Return a future with the call's result or exception."""


class RemoteStaging:
    """The staging for executors on other machines. Uploads segments to this sync's folder in S3. Thread-safe.

    Uploads read the local files directly, without a copy in memory. If an upload fails, only `stage` raises its error,
    so that the sync can still commit earlier batches.
    """

    uses_files = False

    def __init__(
        self, root: str, sync: str, access: AwsAccess, pool: Pool, close_seconds: float = CLOSE_SECONDS
    ) -> None:
        """Use the folder `{root}/{sync}` in S3. Run uploads and deletions in `pool`."""
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
        """Delete all staged objects. Wait for the deletions, for at most `close_seconds`.

        Jobs may still be running after SIGTERM, so other threads may still call this object. From now on, `begin`
        uploads nothing, and `release` ignores the segments whose deletion is already queued.
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
                "Cannot delete all staged objects under %s. Let a lifecycle rule of the bucket delete them "
                "(docs/permissions.md).",
                self._folder,
            )

    def scratch(self) -> str:
        """Return the S3 URI of the sync's folder for intermediate files. The end of the sync deletes the folder."""
        self._has_scratch = True
        return f"{self._folder}/scratch"

    def shared_folder(self) -> None:
        """Return None, because remote executors do not share a disk with this process."""

    def on_free_file(self, call: Callable[[Segment], None]) -> None:
        """Set the function to call when the upload of a segment has finished or was cancelled."""
        self._free_file = call

    def begin(self, segment: Segment) -> None:
        """Queue the upload of a segment. Returns immediately."""
        staged = _Staged(segment, f"{self._folder}/{next(self._numbers):08d}.jsonl")
        with self._lock:
            staged.is_needed = not self._has_ended
            self._staged[segment] = staged
            staged.upload = self._pool.submit(lambda: self._upload(staged))

    def stage(self, segment: Segment) -> StagedSegment:
        """Wait until a segment is uploaded. Return the segment with its location in S3. Raises the upload's error."""
        with self._lock:
            staged = self._staged[segment]
        uploaded = staged.upload.result()
        assert uploaded is not None, "the segment was released before it was uploaded"
        return uploaded

    def release(self, segments: Iterable[Segment]) -> None:
        """Queue the deletion of segments from S3. Cancel those of their uploads that have not started."""
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
        """Delete the object of a segment from S3, after its upload has ended.

        Even if the upload failed, the object may exist, because S3's response may have been lost.
        """
        wait([staged.upload])  # The upload may still run on another thread of the pool.
        if staged.upload.exception() is None and staged.upload.result() is None:
            return
        try:
            delete(self._access.client("s3"), staged.uri)
        except Exception:
            self._is_clean = False
            _logger.debug("Cannot delete segment %s.", staged.uri, exc_info=True)

    def _delete_scratch(self) -> None:
        """Delete the folder of intermediate files, including files that failed or abandoned jobs have left."""
        try:
            delete_folder(self._access.client("s3"), f"{self._folder}/scratch")
        except Exception:
            self._is_clean = False
            _logger.debug("Cannot delete the scratch folder.", exc_info=True)


@dataclass(eq=False)
class _Staged:
    segment: Segment
    uri: str
    is_needed: bool = True
    upload: Future[StagedSegment | None] = field(default_factory=Future)
