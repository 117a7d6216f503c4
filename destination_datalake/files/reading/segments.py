"""The content of segments, as executors read it: mapped into memory from the local disk, or downloaded from S3.

botocore repeats requests that fail, but not the reading of a body that ends early, is reset or stalls. Here the rest is
then requested again, as a range of bytes, as AWS advises (S3 User Guide, "Best practices design patterns": timeouts and
retries for latency-sensitive applications; byte-range fetches).
"""

from __future__ import annotations

import mmap
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from destination_datalake.aws.address import S3Address
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.segments import LocalFile, StagedObject, StagedSegment

if TYPE_CHECKING:
    from botocore.response import StreamingBody

    from destination_datalake.aws.access import AwsAccess

READ_AHEAD_BYTES = 32 * 1024 * 1024
"""A segment of at most this size is downloaded while the one before it is being encoded. Most have half of it."""

READ_BYTES = 1024 * 1024
"""How much is read from a connection at a time, at most."""

ATTEMPTS = 10
"""How often the rest of a segment is requested in a row without `PROGRESS_BYTES` more of it."""

PROGRESS_BYTES = 1024 * 1024

SLOW_SECONDS = 20.0
"""A body of which less than PROGRESS_BYTES arrive in so many seconds is given up: another connection may be faster."""

_LONGEST_PAUSE_SECONDS = 5.0


class SegmentGone(ConnectorError):
    """A staged segment is not in S3 any more, or is another object."""

    def __init__(self, uri: str) -> None:
        message = (
            f"Records that waited for Spark in {uri} are gone: a lifecycle rule of the bucket, or somebody, deleted "
            "them, or another sync took this one for dead because it had not run for an hour. Nothing that was "
            "acknowledged is lost. Run the sync again; a lifecycle rule of _staging/ needs more days than a sync takes."
        )
        super().__init__(Failure(message, f"{uri} is gone or was replaced", "transient_error"))


class SegmentUnreadable(ConnectorError):
    """The content of a staged segment did not arrive completely in any attempt."""

    def __init__(self, uri: str, reason: str) -> None:
        message = (
            f"Records that wait for Spark in {uri} cannot be read: S3's answers ended early or were slow, {ATTEMPTS} "
            "times in a row. Check the network between Spark's executors and S3, and run the sync again."
        )
        super().__init__(Failure(message, reason, "transient_error"))


def contents(segments: Sequence[StagedSegment], access: AwsAccess) -> Iterator[mmap.mmap | bytearray]:
    """Yield the content of each segment, in order. At most two downloaded segments are in memory at a time.

    Raises SegmentGone, SegmentUnreadable, and what botocore and the disk raise.
    """
    with _ReadAhead(segments, access) as downloads:
        for number, segment in enumerate(segments):
            match segment.location:
                case LocalFile(path):
                    yield _mapped(path)
                case StagedObject():
                    yield downloads.take(number)
                case _:
                    assert_never(segment.location)


def download(
    source: StagedObject,
    size: int,
    access: AwsAccess,
    is_wanted: Callable[[], bool] = lambda: True,
    pause: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bytearray:
    """Return the `size` bytes of a staged object. Gives up, with a part of them, once it is not wanted any more.

    Raises SegmentGone, SegmentUnreadable, and what botocore raises for the request.
    """
    content = bytearray(size)
    have = failures = progress = 0
    while have < size and is_wanted():
        if failures:
            pause(min(_LONGEST_PAUSE_SECONDS, 0.1 * 2**failures) * random.uniform(0.5, 1))
        reason = ""
        have, body = _request(source, have, size, access)
        try:
            for piece in _pieces(body, is_wanted, clock):
                piece = piece[: size - have]
                content[have : have + len(piece)] = piece
                have += len(piece)
        except _body_errors() as error:
            reason = f"{type(error).__name__}: {error}"
        finally:
            body.close()
        if have - progress >= PROGRESS_BYTES:
            failures, progress = 0, have
        failures += 1
        if have < size and failures >= ATTEMPTS:
            raise SegmentUnreadable(source.uri, reason or f"{have} of {size} bytes")
    return content


def _request(source: StagedObject, start: int, size: int, access: AwsAccess) -> tuple[int, StreamingBody]:
    """Request the bytes from `start` on; return where the answer begins, which is 0 from a store without ranges.

    Raises SegmentGone if the object has not `size` bytes or is another one.
    """
    address = S3Address.parse(source.uri)
    s3 = access.client("s3")
    try:
        answer = s3.get_object(
            Bucket=address.bucket, Key=address.key, Range=f"bytes={start}-{size - 1}", IfMatch=source.etag
        )
    except s3.exceptions.ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if status in (404, 412, 416) and error.response["Error"]["Code"] != "NoSuchBucket":
            raise SegmentGone(source.uri) from error
        raise
    return (start if answer.get("ContentRange") else 0), answer["Body"]


def _pieces(body: StreamingBody, is_wanted: Callable[[], bool], clock: Callable[[], float]) -> Iterator[bytes]:
    """Yield what arrives, as it arrives, to the body's end. Raises TimeoutError if too little does."""
    # `StreamingBody.read` would wait until all bytes that it is asked for have arrived, however slowly.
    raw: Any = vars(body)["_raw_stream"]
    read = getattr(raw, "read1", raw.read)
    since, arrived = clock(), 0
    while is_wanted() and (piece := read(READ_BYTES)):
        yield piece
        arrived += len(piece)
        now = clock()
        if arrived >= PROGRESS_BYTES:
            since, arrived = now, 0
        elif now - since > SLOW_SECONDS:
            raise TimeoutError(f"{arrived} bytes in {SLOW_SECONDS:.0f} s")


def _body_errors() -> tuple[type[Exception], ...]:
    """Return what the reading of a body may raise. botocore is imported with the first client."""
    from botocore.exceptions import HTTPClientError
    from urllib3.exceptions import HTTPError

    return (HTTPError, HTTPClientError, OSError)


def _mapped(path: str) -> mmap.mmap:
    with Path(path).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class _ReadAhead:
    """Downloads a segment while the one before it is in use, on a thread that starts with the first download."""

    def __init__(self, segments: Sequence[StagedSegment], access: AwsAccess) -> None:
        self._segments = segments
        self._access = access
        self._thread = ThreadPoolExecutor(1, "segments")
        self._next: Future[bytearray] | None = None
        self._given_up = threading.Event()

    def __enter__(self) -> _ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self._given_up.set()
        self._thread.shutdown(cancel_futures=True)

    def take(self, number: int) -> bytearray:
        """Return the content of a segment, and begin to download the next one if it is small enough."""
        content = self._download(number) if self._next is None else self._next.result()
        self._next = None
        following = number + 1
        if following < len(self._segments) and self._segments[following].bytes <= READ_AHEAD_BYTES:
            self._next = self._thread.submit(self._download, following)
        return content

    def _download(self, number: int) -> bytearray:
        segment = self._segments[number]
        assert isinstance(segment.location, StagedObject)
        return download(segment.location, segment.bytes, self._access, lambda: not self._given_up.is_set())
