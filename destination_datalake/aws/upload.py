"""Uploads to S3 that start before the object is complete, and that can be published later or not at all.

A large object is uploaded in parts, each while the next one is being encoded. With `deferred=True` even the smallest
object stays an incomplete multipart upload, which no reader sees, until `PendingUpload.publish` completes it (S3:
CompleteMultipartUpload). That is how files are added to a table that has no snapshots.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destination_datalake.aws.address import S3Address

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PART_BYTES = 16 * 1024 * 1024
"""S3 takes parts of at least 5 MiB, except for the last, and at most 10,000 of them: enough for an object of 160 GB."""

CONCURRENT_CALLS = 8
"""Uploads that are published at the same time."""


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """A multipart upload whose parts are complete, of an object that is not visible yet."""

    bucket: str
    key: str
    upload_id: str
    etags: tuple[str, ...]

    def publish(self, s3: S3Client) -> None:
        """Make the object visible. Idempotent."""
        parts = [{"ETag": etag, "PartNumber": number} for number, etag in enumerate(self.etags, start=1)]
        try:
            s3.complete_multipart_upload(
                Bucket=self.bucket,
                Key=self.key,
                UploadId=self.upload_id,
                MultipartUpload={"Parts": parts},  # type: ignore[typeddict-item]
            )
        except s3.exceptions.NoSuchUpload:
            # A retried request whose first response was lost: the upload no longer exists because the object does.
            s3.head_object(Bucket=self.bucket, Key=self.key)

    def withdraw(self, s3: S3Client) -> None:
        """Abort the upload, which deletes its parts. Idempotent."""
        with contextlib.suppress(s3.exceptions.NoSuchUpload):
            s3.abort_multipart_upload(Bucket=self.bucket, Key=self.key, UploadId=self.upload_id)


def publish_all(uploads: Iterable[PendingUpload], s3: S3Client) -> None:
    """Publish all of them, several at a time. Raises what one of them failed with; others may be published."""
    with ThreadPoolExecutor(CONCURRENT_CALLS, "publish") as pool:
        list(pool.map(lambda upload: upload.publish(s3), uploads))


class Upload:
    """A write-only file object that becomes one object in S3 on `close`; after `abort` nothing remains of it."""

    def __init__(self, s3: S3Client, bucket: str, key: str, *, deferred: bool) -> None:
        """Send nothing yet. With `deferred`, `close` leaves a `pending_upload` instead of a visible object."""
        self._s3 = s3
        self._bucket = bucket
        self._key = key
        self._deferred = deferred
        self._buffer: list[bytes] = []
        self._buffered_bytes = 0
        self._upload_id: str | None = None
        self._etags: list[str] = []
        self._sender = ThreadPoolExecutor(1, "upload")  # Its thread starts with the first part.
        self._in_flight: Future[None] | None = None
        self._may_exist = False
        self.closed = False
        self.written = 0
        self.pending_upload: PendingUpload | None = None

    @property
    def uri(self) -> str:
        """The object's S3 URI."""
        return str(S3Address(self._bucket, self._key))

    @property
    def buffered_bytes(self) -> int:
        """How many of the bytes written wait for a part to be full."""
        return self._buffered_bytes

    def writable(self) -> bool:
        """Return True (Arrow asks)."""
        return True

    def readable(self) -> bool:
        """Return False (Arrow asks)."""
        return False

    def seekable(self) -> bool:
        """Return False (Arrow asks)."""
        return False

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self.written

    def flush(self) -> None:
        """Do nothing: parts have a minimum size."""

    def write(self, data: bytes | memoryview) -> int:
        """Buffer bytes and send each full part in the background. Raises what the previous part failed with."""
        rest = memoryview(data)
        while len(rest) >= (room := PART_BYTES - self._buffered_bytes):
            self._buffer.append(bytes(rest[:room]))
            part = self._take()
            self._wait_for_part()
            self._in_flight = self._sender.submit(self._send, part)
            rest = rest[room:]
        self._buffer.append(bytes(rest))
        self._buffered_bytes += len(rest)
        self.written += len(data)
        return len(data)

    def close(self) -> None:
        """Send the rest. The object is then visible, or `pending_upload` is set."""
        if self.closed:
            return
        self.closed = True
        with self._sender:
            self._wait_for_part()
        if self._upload_id is None and not self._deferred:
            try:
                self._s3.put_object(Bucket=self._bucket, Key=self._key, Body=self._take())
            except Exception as error:
                self._may_exist = not _is_refusal(error)
                raise
            return
        if self._buffered_bytes or self._upload_id is None:
            self._send(self._take())
        assert self._upload_id is not None
        finished = PendingUpload(self._bucket, self._key, self._upload_id, tuple(self._etags))
        if self._deferred:
            self.pending_upload = finished
        else:
            finished.publish(self._s3)

    def abort(self) -> None:
        """Discard what is buffered, and abort the multipart upload if one was begun.

        An object whose upload failed is deleted if S3 may have stored it, and only its answer was lost.
        """
        self.closed = True
        self._take()
        self._sender.shutdown()
        if self._may_exist:
            self._s3.delete_object(Bucket=self._bucket, Key=self._key)
        if self._upload_id is not None:
            PendingUpload(self._bucket, self._key, self._upload_id, ()).withdraw(self._s3)

    def _take(self) -> bytes:
        taken = b"".join(self._buffer)
        self._buffer.clear()
        self._buffered_bytes = 0
        return taken

    def _wait_for_part(self) -> None:
        """Wait for the part in flight, if there is one; raises what it failed with."""
        if self._in_flight is not None:
            part, self._in_flight = self._in_flight, None
            part.result()

    def _send(self, part: bytes) -> None:
        if self._upload_id is None:
            created = self._s3.create_multipart_upload(Bucket=self._bucket, Key=self._key)
            self._upload_id = created["UploadId"]
        answer = self._s3.upload_part(
            Bucket=self._bucket,
            Key=self._key,
            UploadId=self._upload_id,
            PartNumber=len(self._etags) + 1,
            Body=part,
        )
        self._etags.append(answer["ETag"])


def _is_refusal(error: Exception) -> bool:
    """Return whether S3 has answered that it does not store the object."""
    answer = getattr(error, "response", {}).get("ResponseMetadata", {})
    status: int = answer.get("HTTPStatusCode", 0)
    return 400 <= status < 500


class GzipUpload:
    """A write-only file object that compresses with gzip into an upload."""

    def __init__(self, upload: Upload) -> None:
        self._upload = upload
        # Not gzip.GzipFile: the finalizer of one whose upload was aborted would write the rest.
        self._compressor = zlib.compressobj(level=1, wbits=31)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Compress bytes. Raises as `Upload.write` does."""
        self._upload.write(self._compressor.compress(data))

    def finish(self) -> None:
        """Write the rest; the upload stays open."""
        self._upload.write(self._compressor.flush())

    def close(self) -> None:
        """Write the rest and close the upload."""
        self.finish()
        self._upload.close()
