"""Segments as executors find them: on this machine's disk, mapped into memory, or staged in S3."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from destination_datalake.aws.objects import body_errors, get
from destination_datalake.errors import ConnectorError, Failure

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.protocol.frames import Frame

READ_AHEAD_BYTES = 32 * 1024 * 1024
"""A segment of at most this size is downloaded while the one before it is being encoded. Most have half of it."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file on the driver's disk: only executors on the same machine can read it."""

    path: str


@dataclass(frozen=True, slots=True)
class StagedObject:
    """An object in S3, which executors anywhere can read.

    `etag` is what S3 answered when it was written: another object under the same key is not read in its place.
    """

    uri: str
    etag: str


class SegmentSource(Protocol):
    """Another place of a segment's lines. It reads them itself, on the executor: it is a small value."""

    def contents(self, access: AwsAccess) -> Iterator[Content]:
        """Yield the lines in pieces, in order. Raises ConnectorError, and what botocore raises."""


RowId: TypeAlias = bytes
"""The id of a row, `_airbyte_raw_id`: 16 octets."""

SegmentLocation: TypeAlias = LocalFile | StagedObject | SegmentSource


@dataclass(frozen=True, slots=True)
class StagedSegment:
    """A segment that executors can read: where it is, its size in bytes, the number of its first record, and how many.

    Its lines are flat if there is a `frame`; if it is `mixed`, some of them. With a `first_id` its lines have ids
    already, which their rows keep: line 0 has this one, of 16 octets.
    """

    location: SegmentLocation
    bytes: int
    first_record: int = 0
    frame: Frame | None = None
    mixed: bool = False
    records: int = 0
    first_id: RowId | None = None


class SegmentGone(ConnectorError):
    """A staged segment is not in S3 any more, or is another object."""

    def __init__(self, uri: str) -> None:
        message = (
            f"The staged records in {uri} no longer exist. A lifecycle rule of the bucket, or another process, deleted "
            "them. No acknowledged record is lost. Run the sync again; a lifecycle rule of _staging/ needs more days "
            "than a sync takes."
        )
        super().__init__(Failure(message, f"{uri} is gone or was replaced", "transient_error"))


class SegmentUnreadable(ConnectorError):
    """The content of a staged segment did not arrive completely in any attempt."""

    def __init__(self, uri: str, reason: str) -> None:
        message = (
            f"The staged records in {uri} cannot be read: S3's responses ended early or stalled, several times in a "
            "row. Check the network between Spark's executors and S3, and run the sync again."
        )
        super().__init__(Failure(message, reason, "transient_error"))


@dataclass(frozen=True, slots=True)
class Content:
    """Whole lines of a segment. They are flat if there is a `frame`; if they are `mixed`, some of them.

    `left_out` of the lines are empty: no rows are made of them. They still count as lines, which number rows.
    """

    lines: mmap.mmap | bytes | bytearray
    frame: Frame | None
    mixed: bool
    left_out: int = 0

    def received(self, lines: mmap.mmap | bytes | bytearray | memoryview) -> Any:
        """Return whole lines of the content as they were received; without a frame, they are."""
        if self.frame is None:
            return lines
        text = memoryview(lines)
        return self.frame.restored(text) if self.mixed else self.frame.all_restored(text)

    def without(self, is_left_out: NDArray[np.bool_]) -> Content:
        """Return the content with these lines empty, given as a mask of its lines."""
        import numpy as np

        from destination_datalake.protocol.frames import line_bounds

        if not is_left_out.any():
            return self
        octets = np.frombuffer(self.lines, np.uint8)
        starts, ends = line_bounds(octets)
        kept = np.repeat(~is_left_out, ends - starts + 1)
        kept[ends] = True
        emptied = int(np.count_nonzero(is_left_out & (starts < ends)))
        # Flat lines are recognized one by one: an empty one is not flat.
        mixed = self.frame is not None
        return Content(octets[kept].tobytes(), self.frame, mixed, self.left_out + emptied)


def contents(segments: Sequence[StagedSegment], access: AwsAccess) -> Iterator[Content]:
    """Yield the content of each segment, in order. At most two downloaded segments are in memory at a time.

    Raises SegmentGone, SegmentUnreadable, what a SegmentSource raises, and what botocore and the disk raise.
    """
    with _ReadAhead(segments, access) as downloads:
        for number, segment in enumerate(segments):
            match segment.location:
                case LocalFile(path):
                    yield Content(_mapped(path), segment.frame, segment.mixed)
                case StagedObject():
                    yield Content(downloads.take(number), segment.frame, segment.mixed)
                case source:
                    yield from source.contents(access)


def _downloaded(source: StagedObject, size: int, access: AwsAccess) -> bytes:
    """Return a staged object of `size` bytes. Raises SegmentGone, SegmentUnreadable, and what the request raises."""
    with naming_lost_object(source.uri, SegmentGone):
        content = get(access.client("s3"), source.uri, etag=source.etag)
    if len(content) != size:
        raise SegmentGone(source.uri)
    return content


@contextmanager
def naming_lost_object(uri: str, gone: Callable[[str], ConnectorError]) -> Iterator[None]:
    """Raise `gone` if the object is not the one that was asked for, SegmentUnreadable if answers end early."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if status in (404, 412) and error.response["Error"]["Code"] != "NoSuchBucket":
            raise gone(uri) from error
        raise
    except body_errors() as error:
        raise SegmentUnreadable(uri, f"{type(error).__name__}: {error}") from error


def _mapped(path: str) -> mmap.mmap:
    with Path(path).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class _ReadAhead:
    """Downloads a segment while the one before it is in use, on a thread that starts with the first download."""

    def __init__(self, segments: Sequence[StagedSegment], access: AwsAccess) -> None:
        self._segments = segments
        self._access = access
        self._thread = ThreadPoolExecutor(1, "segments")
        self._next: Future[bytes] | None = None
        self._given_up = threading.Event()

    def __enter__(self) -> _ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self._given_up.set()
        self._thread.shutdown(cancel_futures=True)

    def take(self, number: int) -> bytes:
        """Return the content of a segment, and begin to download the next one if it is small enough."""
        content = self._download(number) if self._next is None else self._next.result()
        self._next = None
        following = number + 1
        if following < len(self._segments) and self._segments[following].bytes <= READ_AHEAD_BYTES:
            self._next = self._thread.submit(self._download, following)
        return content

    def _download(self, number: int) -> bytes:
        segment = self._segments[number]
        assert isinstance(segment.location, StagedObject)
        return b"" if self._given_up.is_set() else _downloaded(segment.location, segment.bytes, self._access)
