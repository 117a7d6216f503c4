"""Objects written to S3 as they are made, and made visible only when somebody says so.

A large object goes up in parts, one of them on its way while the next is still being encoded. With `hidden=True` even
the smallest stays an unfinished multipart upload: nobody can see it until `publish` completes it (S3:
CompleteMultipartUpload), which is how files reach a table that has no snapshots of its own.
"""

from __future__ import annotations

import contextlib
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destination_datalake.aws.address import S3Address

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PART_BYTES = 16 * 1024 * 1024
"""S3 wants parts of at least 5 MiB, all but the last, and at most 10,000 of them: enough for an object of 160 GB."""


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """An object whose parts are all there and which nobody sees yet."""

    bucket: str
    key: str
    upload_id: str
    etags: tuple[str, ...]

    def publish(self, s3: S3Client) -> None:
        """Make the object visible. Harmless when it already is."""
        parts = [{"ETag": etag, "PartNumber": number} for number, etag in enumerate(self.etags, start=1)]
        try:
            s3.complete_multipart_upload(
                Bucket=self.bucket,
                Key=self.key,
                UploadId=self.upload_id,
                MultipartUpload={"Parts": parts},  # type: ignore[typeddict-item]
            )
        except s3.exceptions.NoSuchUpload:
            # A retried call whose first answer got lost: the upload is gone because the object is there.
            s3.head_object(Bucket=self.bucket, Key=self.key)

    def withdraw(self, s3: S3Client) -> None:
        """Drop the parts; nothing remains. Harmless when the upload is gone."""
        with contextlib.suppress(s3.exceptions.NoSuchUpload):
            s3.abort_multipart_upload(Bucket=self.bucket, Key=self.key, UploadId=self.upload_id)


class Upload:
    """A file-like object, write-only, that becomes one object in S3. `close` finishes it, `abort` leaves nothing."""

    def __init__(self, s3: S3Client, bucket: str, key: str, *, hidden: bool) -> None:
        """Begin; nothing is sent before there is a part to send."""
        self._s3 = s3
        self._bucket = bucket
        self._key = key
        self._hidden = hidden
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._upload_id: str | None = None
        self._etags: list[str] = []
        self._sender = ThreadPoolExecutor(1, "upload")  # Its thread starts with the first part.
        self._on_its_way: Future[None] | None = None
        self.closed = False
        self.written = 0
        self.pending_upload: PendingUpload | None = None

    @property
    def uri(self) -> str:
        """Where the object is, or will be."""
        return str(S3Address(self._bucket, self._key))

    def writable(self) -> bool:
        """Say yes, as Arrow asks."""
        return True

    def readable(self) -> bool:
        """Say no, as Arrow asks."""
        return False

    def seekable(self) -> bool:
        """Say no, as Arrow asks."""
        return False

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self.written

    def flush(self) -> None:
        """Do nothing: parts have a least size."""

    def write(self, data: bytes | memoryview) -> int:
        """Take bytes; a part goes up whenever one is full. Raises what the part before it failed of."""
        rest = memoryview(data)
        while len(rest) >= (room := PART_BYTES - self._pending_bytes):
            self._pending.append(bytes(rest[:room]))
            part = self._take()
            self._arrive()
            self._on_its_way = self._sender.submit(self._send, part)
            rest = rest[room:]
        self._pending.append(bytes(rest))
        self._pending_bytes += len(rest)
        self.written += len(data)
        return len(data)

    def close(self) -> None:
        """Send the rest. The object is then visible, or its `pending_upload` can be published."""
        if self.closed:
            return
        self.closed = True
        with self._sender:
            self._arrive()
        if self._upload_id is None and not self._hidden:
            self._s3.put_object(Bucket=self._bucket, Key=self._key, Body=self._take())
            return
        if self._pending_bytes or self._upload_id is None:
            self._send(self._take())
        assert self._upload_id is not None
        finished = PendingUpload(self._bucket, self._key, self._upload_id, tuple(self._etags))
        if self._hidden:
            self.pending_upload = finished
        else:
            finished.publish(self._s3)

    def abort(self) -> None:
        """Forget what was written; parts that went up are dropped."""
        self.closed = True
        self._take()
        self._sender.shutdown()
        if self._upload_id is not None:
            PendingUpload(self._bucket, self._key, self._upload_id, ()).withdraw(self._s3)

    def _take(self) -> bytes:
        taken = b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        return taken

    def _arrive(self) -> None:
        """Wait for the part that is on its way, if one is."""
        if self._on_its_way is not None:
            part, self._on_its_way = self._on_its_way, None
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


class GzipUpload:
    """A file-like object, write-only, that compresses with gzip into an upload."""

    def __init__(self, upload: Upload) -> None:
        self._upload = upload
        # Not gzip.GzipFile: of an upload that was aborted, its finalizer would write the rest.
        self._compressor = zlib.compressobj(level=1, wbits=31)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Compress bytes. Raises as `Upload.write` does."""
        self._upload.write(self._compressor.compress(data))

    def close(self) -> None:
        """Write the rest and close the upload."""
        self._upload.write(self._compressor.flush())
        self._upload.close()
