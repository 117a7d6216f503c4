"""Read segments (files of record lines) on executors, from the local disk or from the staging folder in S3.

This module maps segments on the local disk into memory, and downloads segments in S3.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from destination_datalake.aws.objects import body_errors, get, is_changed, is_missing
from destination_datalake.errors import ConnectorError, Failure

if TYPE_CHECKING:
    import numpy as np
    from mypy_boto3_s3 import S3Client
    from numpy.typing import NDArray

    from destination_datalake.aws.access import AwsAccess

READ_AHEAD_BYTES = 32 * 1024 * 1024
"""Maximum size, in bytes, of a segment to download while the previous segment is being encoded. Most segments are half
as large."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A segment in a file on the driver's disk. Only executors on the driver's machine can read it."""

    path: str


@dataclass(frozen=True, slots=True)
class StagedObject:
    """A segment in an S3 object, which all executors can read.

    `etag` is the ETag that S3 returned when the driver wrote the object. If the object at `uri` now has a different
    ETag, a read raises SegmentGone.
    """

    uri: str
    etag: str


class SegmentSource(Protocol):
    """A source of a segment's lines that is neither a local file nor a staged object. An example is the archive.

    The source is a small value. The driver sends the source to an executor, and the executor calls `contents`.
    """

    def contents(self, access: AwsAccess) -> Iterator[Content]:
        """Yield the segment's lines in order, in one or more pieces. Raises ConnectorError and botocore's errors."""


RowId: TypeAlias = bytes
"""A row ID (`_airbyte_raw_id`), as 16 bytes."""

SegmentLocation: TypeAlias = LocalFile | StagedObject | SegmentSource


@dataclass(frozen=True, slots=True)
class StagedSegment:
    """A segment (a file of record lines of one stream) that executors can read.

    `bytes` is the size of the segment. `records` is the number of records in the segment. `first_record` is the number
    of the first one among the stream's records, from 0.

    In a replay of the archive, `first_id` is the row ID that line 0 already has, as 16 bytes, and all rows keep their
    IDs. Otherwise, `first_id` is None, and the rows get new IDs.
    """

    location: SegmentLocation
    bytes: int
    first_record: int = 0
    records: int = 0
    first_id: RowId | None = None


class SegmentGone(ConnectorError):
    """Raised if a staged segment was deleted or replaced before an executor read it."""

    def __init__(self, uri: str) -> None:
        message = (
            f"The staged records in {uri} no longer exist. A lifecycle rule of the bucket, or another process, deleted "
            "them. No acknowledged record is lost. Run the sync again. If a lifecycle rule deletes objects in "
            "_staging/, set it to more days than a sync takes."
        )
        super().__init__(Failure(message, f"{uri} was deleted or replaced", "transient_error"))


class SegmentUnreadable(ConnectorError):
    """Raised if a staged segment could not be downloaded completely, even after retries."""

    def __init__(self, uri: str, reason: str) -> None:
        message = (
            f"Cannot read the staged records in {uri}: S3's responses ended early or stalled several times in a row. "
            "Check the network between Spark's executors and S3, and run the sync again."
        )
        super().__init__(Failure(message, reason, "transient_error"))


@dataclass(frozen=True, slots=True)
class Content:
    """Whole lines of a segment, as the Airbyte source sent them.

    `left_out` is the number of omitted lines. In `lines`, an empty line replaces each omitted line. The empty line does
    not become a row. It keeps the line numbers of the later lines unchanged, because row IDs contain line numbers.
    """

    lines: mmap.mmap | bytes | bytearray
    left_out: int = 0

    def without(self, is_left_out: NDArray[np.bool_]) -> Content:
        """Return the content with an empty line in place of each line that the mask `is_left_out` selects."""
        import numpy as np

        from destination_datalake.protocol.json_text import line_bounds

        if not is_left_out.any():
            return self
        octets = np.frombuffer(self.lines, np.uint8)
        starts, ends = line_bounds(octets)
        # A line has `ends - starts` bytes and a newline. The newlines stay, because line numbers depend on them.
        kept = np.repeat(~is_left_out, ends - starts + 1)
        kept[ends] = True
        emptied = int(np.count_nonzero(is_left_out & (starts < ends)))
        return Content(octets[kept].tobytes(), self.left_out + emptied)


def contents(segments: Sequence[StagedSegment], access: AwsAccess) -> Iterator[Content]:
    """Yield the lines of the segments, in order. At most two downloaded segments are in memory at a time.

    A SegmentSource may yield its lines in several pieces. All other segments are yielded as a whole. Raises
    SegmentGone, SegmentUnreadable, botocore's errors, the errors of `SegmentSource.contents`, and OSError.
    """
    staged = [segment for segment in segments if isinstance(segment.location, StagedObject)]
    with closing(_downloads(staged, access)) as downloads:
        for segment in segments:
            match segment.location:
                case LocalFile(path):
                    yield Content(_mapped(path))
                case StagedObject():
                    yield Content(next(downloads))
                case source:
                    yield from source.contents(access)


def _downloads(segments: Sequence[StagedSegment], access: AwsAccess) -> Generator[bytes]:
    """Yield the content of each staged segment, in order.

    While the caller processes a segment, downloads the next one if its size is at most READ_AHEAD_BYTES.
    """
    waiting: Future[bytes] | None = None
    with ThreadPoolExecutor(1, "segments") as thread:
        for segment, following in zip_longest(segments, segments[1:]):
            # Only one segment is read ahead, so that at most two are in memory.
            content = _downloaded(segment, access) if waiting is None else waiting.result()
            waiting = None
            if following is not None and following.bytes <= READ_AHEAD_BYTES:
                waiting = thread.submit(_downloaded, following, access)
            yield content


def _downloaded(segment: StagedSegment, access: AwsAccess) -> bytes:
    """Download a staged segment. Raises SegmentGone, SegmentUnreadable and botocore's errors."""
    source = segment.location
    assert isinstance(source, StagedObject)
    s3 = access.client("s3")
    with naming_lost_object(source.uri, s3, SegmentGone):
        content = get(s3, source.uri, etag=source.etag)
    # A response that ends early raises an error, so a different length means a different object.
    if len(content) != segment.bytes:
        raise SegmentGone(source.uri)
    return content


@contextmanager
def naming_lost_object(uri: str, s3: S3Client, gone: Callable[[str], ConnectorError]) -> Iterator[None]:
    """Convert errors of the `with` block, which reads the object at `uri`.

    Raises `gone(uri)` if the object was deleted or replaced, and SegmentUnreadable if S3's responses ended early or
    stalled. Does not convert other errors.
    """
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        if is_changed(error) or is_missing(error, s3, uri):
            raise gone(uri) from error
        raise
    except body_errors() as error:
        raise SegmentUnreadable(uri, f"{type(error).__name__}: {error}") from error


def _mapped(path: str) -> mmap.mmap:
    # The mapping stays valid after the file is closed.
    with Path(path).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
