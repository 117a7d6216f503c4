"""Segments as executors find them: on this machine's disk, mapped into memory, or in S3, staged or archived."""

from __future__ import annotations

import hashlib
import mmap
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from gzip import BadGzipFile
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from destination_datalake.aws.objects import body_errors, get, gunzipped
from destination_datalake.errors import ConnectorError, Failure

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyroaring import BitMap

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


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Records that are left out: those with one of some ids in a column, a name or the dotted path of a field.

    The salted hashes of the ids are the object at `uri`, which executors read themselves: tasks stay small.
    """

    column: str
    uri: str
    salt: bytes


@dataclass(frozen=True, slots=True)
class ArchivedLines:
    """An object of the archive, of `size` bytes, which is encoded again.

    `first_id` is the id that its line 0 had: 16 octets. Rows are made of `only` these lines, by their numbers. `sha256`
    is the hash that the object's bytes must have; empty if it is not known.
    """

    uri: str
    etag: str
    size: int
    first_id: bytes
    only: BitMap | None = None
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class StagedSegment:
    """A segment that executors can read: where it is, its size in bytes, the number of its first record, and how many.

    Its lines are flat if there is a `frame`; if it is `mixed`, some of them.
    """

    location: LocalFile | StagedObject | ArchivedLines
    bytes: int
    first_record: int = 0
    frame: Frame | None = None
    mixed: bool = False
    records: int = 0


class SegmentGone(ConnectorError):
    """A staged segment is not in S3 any more, or is another object."""

    def __init__(self, uri: str) -> None:
        message = (
            f"Records that waited for Spark in {uri} are gone: a lifecycle rule of the bucket, or somebody, deleted "
            "them. Nothing that was acknowledged is lost. Run the sync again; a lifecycle rule of _staging/ needs more "
            "days than a sync takes."
        )
        super().__init__(Failure(message, f"{uri} is gone or was replaced", "transient_error"))


class ArchiveGone(ConnectorError):
    """An object of the archive is not in S3 any more, or is another one."""

    def __init__(self, uri: str) -> None:
        message = (
            f"{uri} was deleted or replaced while it was read: a lifecycle rule of the bucket, or somebody, did so. "
            "Run the replay again: it goes on with what is there then."
        )
        super().__init__(Failure(message, f"{uri} is gone or was replaced", "transient_error"))


class ArchiveDamaged(ConnectorError):
    """An object of the archive is not as it was written."""

    def __init__(self, uri: str, reason: str) -> None:
        message = (
            f"{uri} cannot be replayed: another program has changed it ({reason}). Restore it from a copy, or delete "
            "it to replay the other objects without it."
        )
        super().__init__(Failure(message, f"{uri}: {reason}", "config_error"))


class SegmentUnreadable(ConnectorError):
    """The content of a staged segment did not arrive completely in any attempt."""

    def __init__(self, uri: str, reason: str) -> None:
        message = (
            f"Records that wait for Spark in {uri} cannot be read: S3's answers ended early or stalled, several times "
            "in a row. Check the network between Spark's executors and S3, and run the sync again."
        )
        super().__init__(Failure(message, reason, "transient_error"))


@dataclass(frozen=True, slots=True)
class Places:
    """The numbers, among all lines, of the lines that are left. `before` counts those left before them."""

    before: int
    numbers: NDArray[np.int64]

    def of(self, lines: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers, of all lines, of those with these numbers among the ones that are left."""
        return self.numbers[lines - self.before]


@dataclass(frozen=True, slots=True)
class Content:
    """Whole lines of a segment. They are flat if there is a `frame`; if they are `mixed`, some of them.

    Of archived lines `erased` are empty, and left out. Then `places` says which the others are; None if none before
    them was.
    """

    lines: mmap.mmap | bytes | bytearray
    frame: Frame | None
    mixed: bool
    erased: int = 0
    places: Places | None = None

    def received(self, lines: mmap.mmap | bytes | bytearray | memoryview) -> Any:
        """Return whole lines of the content as they were received; without a frame, they are."""
        if self.frame is None:
            return lines
        text = memoryview(lines)
        return self.frame.restored(text) if self.mixed else self.frame.all_restored(text)


def contents(segments: Sequence[StagedSegment], access: AwsAccess) -> Iterator[Content]:
    """Yield the content of each segment, in order. At most two downloaded segments are in memory at a time.

    Raises SegmentGone, ArchiveGone, ArchiveDamaged, SegmentUnreadable, and what botocore and the disk raise.
    """
    with _ReadAhead(segments, access) as downloads:
        for number, segment in enumerate(segments):
            match segment.location:
                case LocalFile(path):
                    yield Content(_mapped(path), segment.frame, segment.mixed)
                case StagedObject():
                    yield Content(downloads.take(number), segment.frame, segment.mixed)
                case ArchivedLines():
                    yield from _archived(segment.location, access)
                case _:
                    assert_never(segment.location)


def _downloaded(source: StagedObject, size: int, access: AwsAccess) -> bytes:
    """Return a staged object of `size` bytes. Raises SegmentGone, SegmentUnreadable, and what the request raises."""
    with _explained(source.uri, SegmentGone):
        content = get(access.client("s3"), source.uri, etag=source.etag)
    if len(content) != size:
        raise SegmentGone(source.uri)
    return content


@contextmanager
def _explained(uri: str, gone: type[SegmentGone | ArchiveGone]) -> Iterator[None]:
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


_PIECE_BYTES = 8 * 1024 * 1024
"""Bytes of an archived object in one request."""

MAX_MEMBER_BYTES = 512 * 1024 * 1024
"""Bytes that a member of an archived object may have. It is written with a hundredth of that, and one record."""


def _members(source: ArchivedLines, access: AwsAccess) -> Iterator[bytearray]:
    """Yield the members of an archived object, each of whole lines. Raises ArchiveDamaged, and as `_downloaded`."""
    s3 = access.client("s3")
    starts = range(0, source.size, _PIECE_BYTES)
    ranges = ((start, min(start + _PIECE_BYTES, source.size)) for start in starts)
    hashed = hashlib.sha256()

    def pieces() -> Iterator[bytes]:
        for each in ranges:
            piece = get(s3, source.uri, *each, etag=source.etag)
            hashed.update(piece)
            yield piece

    with _explained(source.uri, ArchiveGone):
        try:
            for member in filter(None, gunzipped(pieces(), MAX_MEMBER_BYTES)):
                if not member.endswith(b"\n"):
                    raise ArchiveDamaged(source.uri, "its last line has no end")
                yield member
        except (EOFError, BadGzipFile) as error:
            raise ArchiveDamaged(source.uri, str(error)) from error
    if source.sha256 and hashed.hexdigest() != source.sha256:
        raise ArchiveDamaged(source.uri, "its hash is not that of the journal")


def _archived(source: ArchivedLines, access: AwsAccess) -> Iterator[Content]:
    """Yield the members of an archived object, flattened as lines are when they are received: that saves parsing.

    Empty lines were erased (`files.erase`), and are left out. Raises as `_members`.
    """
    import numpy as np

    from destination_datalake.protocol.frames import Frame, line_bounds

    frame: Frame | None = None
    left = erased = 0
    for received in _members(source, access):
        octets = np.frombuffer(received, np.uint8)
        line_starts, ends = line_bounds(octets)
        is_left = ends > line_starts
        places = Places(left, left + erased + np.flatnonzero(is_left))
        own = len(ends) - len(places.numbers)
        left, erased = left + len(places.numbers), erased + own
        member = received
        if own:
            member = bytearray(np.delete(octets, ends[~is_left]).tobytes())
            if not member:
                yield Content(b"", None, mixed=False, erased=own)
                continue
            octets = np.frombuffer(member, np.uint8)
            line_starts, ends = line_bounds(octets)
        content = partial(Content, member, erased=own, places=places if erased else None)
        frame = frame or Frame.of(bytes(member[: ends[0]]))
        if frame is None:
            yield content(None, mixed=False)
            continue
        fits = frame.fits(octets, line_starts, ends)
        frame.flatten(octets, line_starts[fits], ends[fits])
        yield content(frame if fits.any() else None, mixed=not fits.all())
        if not fits.all():
            frame = None  # The next member's first line may tell a better one.


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
