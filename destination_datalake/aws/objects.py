"""Objects in S3 by their URIs: read, deleted, and written by uploads that can be published later or not at all.

A large object is uploaded in parts, each while the next one is being encoded. With `deferred=True` an object stays an
incomplete multipart upload, which no reader sees, until `PendingUpload.publish` completes it (S3:
CompleteMultipartUpload). That is how files are added to a table that has no snapshots. A small one waits on the disk
instead (`HeldObject`), which the publisher must share: one request in place of three. Files that no table has are
deleted.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from gzip import BadGzipFile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.backoff import retry_on
from destination_datalake.errors import ConfigError, ConnectorError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectTypeDef

PART_BYTES = 8 * 1024 * 1024
"""S3 takes parts of at least 5 MiB, except for the last, and at most 10,000 of them: enough for an object of 80 GB. One
is filled while another is sent: twice this is the memory of an upload."""

CONCURRENT_CALLS = 8
"""Uploads that are published at the same time."""

MEMBER_BYTES = 16 * 1024 * 1024
"""Bytes of lines in a member of a gzip file. Each begins with a line, so that a reader can split the file there."""

HELD_BYTES = 1024 * 1024
"""Maximum size of an object that waits on the shared disk. Larger ones are sent while others are being encoded."""


def get(
    s3: S3Client,
    uri: str,
    begin: int = 0,
    end: int | None = None,
    etag: str | None = None,
    version: str | None = None,
    limit: int | None = None,
) -> bytes:
    """Return the bytes of an object from `begin` to before `end`, all of them by default; of a former `version`, by id.

    Raises OversizedFile for more than `limit` bytes.

    With an `etag`, raises a ClientError of status 412 if the object is another one. botocore repeats requests that
    fail; those whose answer ends early, is reset or stalls are repeated here. Raises what the last one raised.
    """
    address = S3Address.parse(uri)
    conditions: dict[str, Any] = {} if etag is None else {"IfMatch": etag}
    if version is not None:
        conditions["VersionId"] = version
    if begin or end is not None:
        conditions["Range"] = f"bytes={begin}-{'' if end is None else end - 1}"

    def read() -> bytes:
        answer = s3.get_object(Bucket=address.bucket, Key=address.key, **conditions)
        # As a context manager the body yields the stream below it, which does not detect that it ends early.
        with contextlib.closing(answer["Body"]) as body:
            content = body.read(limit and limit + 1)
            if limit is not None and len(content) > limit:
                raise OversizedFile(uri, limit)
            return content + body.read()  # Only a whole read raises for one that ends early.

    return retry_on(body_errors(), read)


def get_or_none(s3: S3Client, uri: str) -> bytes | None:
    """Return the bytes of an object; None if there is none. Raises as `get` and `is_missing` do."""
    try:
        return get(s3, uri)
    except s3.exceptions.ClientError as error:
        if is_missing(error, s3, uri):
            return None
        raise


def is_missing(error: Exception, s3: S3Client, uri: str) -> bool:
    """Whether S3 has refused a request because there is no such object. Raises what refuses the listing of its folder.

    S3 answers 403 for an object that does not exist, unless the identity may list all of the bucket: the policy that
    the connector prints allows the listing of its folders alone. Then a listing tells.
    """
    code = getattr(error, "response", {}).get("Error", {}).get("Code")
    if code in ("NoSuchKey", "404", "NotFound"):
        return True
    if _status(error) != 403:
        return False
    address = S3Address.parse(uri)
    found = s3.list_objects_v2(Bucket=address.bucket, Prefix=address.key, MaxKeys=1)
    return all(each["Key"] != address.key for each in found.get("Contents", ()))


class OversizedFile(ConfigError):
    """A file that other programs may have written is longer than what is read into memory, maybe once unpacked."""

    def __init__(self, uri: str, limit: int) -> None:
        super().__init__(
            f"{uri} has more than {limit:,} bytes, unpacked, which is the limit for a file of its kind. It is damaged, "
            "or another program has written it: restore a former state, or remove what refers to it."
        )


MAX_FILE_BYTES = 256 * 1024 * 1024
"""Bytes that a metadata file, a manifest list, a manifest or a report may have, unpacked."""


def body_errors() -> tuple[type[Exception], ...]:
    """Return what the reading of a body may raise. botocore is imported with the first client."""
    from botocore.exceptions import HTTPClientError, IncompleteReadError
    from urllib3.exceptions import HTTPError

    return HTTPClientError, IncompleteReadError, HTTPError, ConnectionError


def put(
    s3: S3Client,
    uri: str,
    content: bytes | bytearray,
    metadata: Mapping[str, str] | None = None,
    *,
    if_none_match: bool = False,
    if_match: str | None = None,
) -> str:
    """Put a small object, in one exchange with S3; return its ETag.

    With `if_none_match`, only if there is none yet; with `if_match`, only in place of the object that has this ETag.
    Otherwise raises a ClientError of which `is_changed` is true.

    Of bytes, botocore makes a file, and for files it asks S3 first whether to send them (HTTP: 100-continue), which
    takes as long as sending.
    """
    address = S3Address.parse(uri)
    body = content if isinstance(content, bytearray) else bytearray(content)
    conditions: dict[str, Any] = {"IfNoneMatch": "*"} if if_none_match else {}
    if if_match is not None:
        conditions["IfMatch"] = if_match
    answer = s3.put_object(
        Bucket=address.bucket,
        Key=address.key,
        Body=body,  # type: ignore[arg-type]  # The stubs know no bytearray.
        Metadata=metadata or {},
        **conditions,
    )
    return answer["ETag"]


def is_changed(error: Exception) -> bool:
    """Whether S3 has refused a conditional request, because the object is there, another one, or being written."""
    return _status(error) in (409, 412)


def _status(error: Exception) -> int:
    """Return the HTTP status with which AWS has answered; 0 if it has not."""
    status: int = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status


def delete(s3: S3Client, uri: str) -> None:
    """Delete an object, unless Amazon S3 Tables does. Idempotent."""
    address = S3Address.parse(uri)
    if address.is_of_s3_tables:
        return
    s3.delete_object(Bucket=address.bucket, Key=address.key)


def listed(s3: S3Client, folder: str) -> Iterator[tuple[str, ObjectTypeDef]]:
    """Yield the URI of each object in a folder, at any depth, and what S3 says of it.

    `folder` is an S3 URI without a slash at its end.
    """
    address = S3Address.parse(f"{folder}/")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=address.bucket, Prefix=address.key):
        for entry in page.get("Contents", []):
            yield str(S3Address(address.bucket, entry["Key"])), entry


def folders_in(s3: S3Client, folder: str) -> list[str]:
    """Return the names of the folders in a folder, an S3 URI without a slash at its end."""
    address = S3Address.parse(f"{folder}/")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=address.bucket, Prefix=address.key, Delimiter="/")
    return [each["Prefix"][len(address.key) : -1] for page in pages for each in page.get("CommonPrefixes", [])]


def delete_folder(s3: S3Client, uri: str) -> None:
    """Delete all objects below an S3 URI without a slash at its end. Idempotent."""
    for each, _ in listed(s3, uri):
        address = S3Address.parse(each)
        s3.delete_object(Bucket=address.bucket, Key=address.key)


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """A multipart upload whose parts are complete, of an object that is not visible yet.

    With an `if_match` it is published only in place of the object that has this ETag.
    """

    bucket: str
    key: str
    upload_id: str
    etags: tuple[str, ...]
    if_match: str | None = None

    def publish(self, s3: S3Client) -> None:
        """Make the object visible. Idempotent. Of a ClientError `is_changed` is true if another one is there."""
        conditions: dict[str, Any] = {} if self.if_match is None else {"IfMatch": self.if_match}
        parts = [{"ETag": etag, "PartNumber": number} for number, etag in enumerate(self.etags, start=1)]
        try:
            s3.complete_multipart_upload(
                Bucket=self.bucket,
                Key=self.key,
                UploadId=self.upload_id,
                MultipartUpload={"Parts": parts},  # type: ignore[typeddict-item]
                **conditions,
            )
        except s3.exceptions.NoSuchUpload:
            # A retried request whose first response was lost: the upload no longer exists because the object does.
            s3.head_object(Bucket=self.bucket, Key=self.key)

    def abort(self, s3: S3Client) -> None:
        """Abort the upload, which deletes its parts. Idempotent."""
        with contextlib.suppress(s3.exceptions.NoSuchUpload):
            s3.abort_multipart_upload(Bucket=self.bucket, Key=self.key, UploadId=self.upload_id)


@dataclass(frozen=True, slots=True)
class HeldObject:
    """A small object of which nothing is in S3 yet: a file at `path`, which is this object's alone."""

    bucket: str
    key: str
    path: str
    metadata: Mapping[str, str] = field(default_factory=dict)

    def publish(self, s3: S3Client) -> None:
        """Make the object visible. Idempotent."""
        try:
            content = Path(self.path).read_bytes()
        except FileNotFoundError:
            s3.head_object(Bucket=self.bucket, Key=self.key)  # It is published already.
            return
        put(s3, str(S3Address(self.bucket, self.key)), content, self.metadata)
        Path(self.path).unlink()

    def abort(self, s3: S3Client) -> None:  # noqa: ARG002
        """Delete the file. Idempotent."""
        Path(self.path).unlink(missing_ok=True)


Pending = PendingUpload | HeldObject
"""An object that is not visible yet."""


def publish_all(uploads: Iterable[Pending], s3: S3Client) -> None:
    """Publish all of them, several at a time. Raises what one of them failed with; others may be published."""
    with ThreadPoolExecutor(CONCURRENT_CALLS, "publish") as pool:
        list(pool.map(lambda upload: upload.publish(s3), uploads))


def abort_all(uploads: Iterable[Pending], s3: S3Client) -> None:
    """Abort every upload, also when others fail. Raises one of the failures, if any."""
    with contextlib.ExitStack() as steps:
        for upload in uploads:
            steps.callback(upload.abort, s3)


class Uncommitted(Protocol):
    """A file that was written to S3, of which a table may know nothing yet."""

    @property
    def uri(self) -> str:
        """The S3 URI that it has, or will have."""

    @property
    def pending_upload(self) -> Pending | None:
        """What has to be published, or was; None for an object that was visible from the first."""


def delete_uncommitted(files: Iterable[Uncommitted], s3: S3Client) -> None:
    """Delete files that no table has, published or not, also when the deletion of others fails. Idempotent.

    Raises one of the failures, if any.
    """
    with contextlib.ExitStack() as steps:
        for file in files:
            steps.callback(delete, s3, file.uri)
            if file.pending_upload is not None:
                steps.callback(file.pending_upload.abort, s3)


@contextlib.contextmanager
def undone_on_failure(*steps: Callable[[], None]) -> Iterator[None]:
    """Take every step if the body raises, and raise the body's error; steps that fail add a note to it.

    Where S3 refuses the parts of an upload it mostly refuses to abort the upload too.
    """
    try:
        yield
    except Exception as error:
        for step in steps:
            try:
                step()
            except Exception as another:
                error.add_note(f"What it wrote could not all be removed: {type(another).__name__}")
        raise


class ObjectFailed(Exception):
    """An object could not be read or written; `__cause__` is the reason. `doing` and `uri` are what `explain` needs."""

    def __init__(self, doing: str, uri: str) -> None:
        super().__init__(uri)
        self.doing = doing
        self.uri = uri


@contextlib.contextmanager
def naming_object(doing: str, uri: str) -> Iterator[None]:
    """Raise ObjectFailed where the body fails, unless that has a message for the user already."""
    try:
        yield
    except ConnectorError:
        raise
    except Exception as error:
        raise ObjectFailed(doing, uri) from error


class Upload:
    """A write-only file object that becomes one object in S3 on `close`; after `abort` nothing remains of it."""

    def __init__(
        self,
        s3: S3Client,
        uri: str,
        *,
        deferred: bool,
        held_in: str | None = None,
        metadata: Mapping[str, str] | None = None,
        if_match: str | None = None,
    ) -> None:
        """Send nothing yet. With `deferred`, `close` leaves a `pending_upload` instead of a visible object.

        With `held_in`, a folder that need not exist, `close` leaves one for each small object, which waits there. With
        `if_match` the object takes the place of the one that has this ETag, and of no other.
        """
        self.s3 = s3
        self.uri = uri
        self._metadata = metadata or {}
        self._if_match = if_match
        self._bucket, self._key = S3Address.parse(uri)
        self._deferred = deferred
        self._held_in = held_in
        # Two buffers take turns: one is filled while the other is sent. The first grows, for most objects are small.
        self._part, self._sent = bytearray(), bytearray()
        self._filled = 0
        self._upload_id: str | None = None
        self._etags: list[str] = []
        self._sender = ThreadPoolExecutor(1, "upload")  # Its thread starts with the first part.
        self._in_flight: Future[None] | None = None
        self._may_exist = False
        self.closed = False
        self.written = 0
        self.pending_upload: Pending | None = None

    @property
    def buffered_bytes(self) -> int:
        """How many of the bytes written wait for a part to be full."""
        return self._filled

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
        rest = memoryview(data).cast("B")  # Those of Arrow's buffers are of signed bytes.
        while len(rest) >= (room := PART_BYTES - self._filled):
            self._fill(rest[:room])
            self._wait_for_part()
            self._part, self._sent = self._sent or bytearray(PART_BYTES), self._part
            self._filled = 0
            self._in_flight = self._sender.submit(self._send, self._sent)
            rest = rest[room:]
        self._fill(rest)
        self.written += len(data)
        return len(data)

    def close(self) -> None:
        """Send the rest. The object is then visible, or `pending_upload` is set."""
        if self.closed:
            return
        self.closed = True
        with self._sender:
            self._wait_for_part()
        if self._upload_id is None and self._held_in is not None and self._filled <= HELD_BYTES:
            self.pending_upload = self._held(Path(self._held_in))
            if self.pending_upload is not None:
                return
        if self._upload_id is None and not self._deferred:
            try:
                put(self.s3, self.uri, self._take(), self._metadata, if_match=self._if_match)
            except Exception as error:
                # In place of another object it is as good as that one: what is put once need not be taken back.
                self._may_exist = self._if_match is None and not 400 <= _status(error) < 500
                raise
            return
        if self._filled or self._upload_id is None:
            self._send(self._take())
        assert self._upload_id is not None
        finished = PendingUpload(self._bucket, self._key, self._upload_id, tuple(self._etags), self._if_match)
        if self._deferred:
            self.pending_upload = finished
        else:
            finished.publish(self.s3)

    def abort(self) -> None:
        """Discard what is buffered, and abort the multipart upload if one was begun.

        An object whose upload failed is deleted if S3 may have stored it, and only its answer was lost.
        """
        self.closed = True
        self._take()
        self._sender.shutdown()
        if self._may_exist:
            delete(self.s3, self.uri)
        if self._upload_id is not None:
            PendingUpload(self._bucket, self._key, self._upload_id, ()).abort(self.s3)

    def _fill(self, data: memoryview) -> None:
        begin, self._filled = self._filled, self._filled + len(data)
        if len(self._part) == begin:
            self._part += data
        else:
            with memoryview(self._part) as part:
                part[begin : self._filled] = data

    def _take(self) -> bytearray:
        """Return the bytes that wait for a part to be full, and forget them."""
        taken, self._part = self._part, bytearray()
        del taken[self._filled :]
        self._filled = 0
        return taken

    def _held(self, folder: Path) -> HeldObject | None:
        """Write the whole object to the disk; None if the disk has no room for it."""
        path = folder / secrets.token_hex(16)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._part)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        self._take()
        return HeldObject(self._bucket, self._key, str(path), self._metadata)

    def _wait_for_part(self) -> None:
        """Wait for the part in flight, if there is one; raises what it failed with."""
        if self._in_flight is not None:
            part, self._in_flight = self._in_flight, None
            part.result()

    def _send(self, part: bytearray) -> None:
        if self._upload_id is None:
            created = self.s3.create_multipart_upload(Bucket=self._bucket, Key=self._key, Metadata=self._metadata)
            self._upload_id = created["UploadId"]
        answer = self.s3.upload_part(
            Bucket=self._bucket,
            Key=self._key,
            UploadId=self._upload_id,
            PartNumber=len(self._etags) + 1,
            Body=part,  # type: ignore[arg-type]  # The stubs know no bytearray.
        )
        self._etags.append(answer["ETag"])


class GzipUpload:
    """A write-only file object that compresses with gzip into an upload.

    With `member_bytes`, what is written after so many bytes begins another member of the file (RFC 1952, 2.2).
    Not gzip.GzipFile: the finalizer of one whose upload was aborted would write the rest.
    """

    def __init__(self, upload: Upload, member_bytes: int | None = None) -> None:
        self._upload = upload
        self._member_bytes = member_bytes
        self._member = 0
        self._compressor: Any = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Compress bytes. Raises as `Upload.write` does."""
        if self._member_bytes is not None and self._member >= self._member_bytes:
            self.finish()
        if self._compressor is None:
            self._compressor = _gzip().compressobj(1, wbits=_GZIP_WBITS)
            self._member = 0
        self._upload.write(self._compressor.compress(data))
        self._member += len(data)

    def finish(self) -> None:
        """End the member: what is written after it begins another one (RFC 1952, 2.2). The upload stays open."""
        if self._compressor is not None:
            self._upload.write(self._compressor.flush())
            self._compressor = None

    def close(self) -> None:
        """Write the rest and close the upload."""
        self.finish()
        self._upload.close()


_GZIP_WBITS = 31

_INFLATED_AT_ONCE = 256 * 1024
"""Bytes of a gzip file: what becomes of them stays in the processor's cache until it is copied."""


_MAX_INFLATED = 16 * 1024 * 1024
"""Bytes that are inflated at once. A gzip file may unpack to a thousand times its size."""


def _gzip() -> Any:
    """Return the library that compresses: ISA-L takes a quarter of zlib's time. An executor may not have it."""
    try:
        from isal import isal_zlib
    except ImportError:
        import zlib

        return zlib
    return isal_zlib


def gunzipped(pieces: Iterable[bytes], limit: int | None = None) -> Iterator[bytearray]:
    """Yield each member of a gzip file, whole, of which `pieces` are the bytes. Raises as `inflated` does.

    Raises BadGzipFile for a member of more than `limit` bytes.
    """
    member = bytearray()
    for part, is_end in _inflated(pieces):
        member += part
        if limit is not None and len(member) > limit:
            raise BadGzipFile(f"a member has more than {limit:,} bytes")
        if is_end:
            yield member
            member = bytearray()


def inflated(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content of a gzip file, 16 MiB at a time at most, of which `pieces` are the bytes.

    Raises EOFError if it ends early, and BadGzipFile if it is damaged, or none.
    """
    return (part for part, _ in _inflated(pieces) if part)


PIECE_BYTES = 8 * 1024 * 1024
"""What is requested of lines, and looked at, at once. A longer line makes a longer piece."""


def whole_lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces of whole lines; the last may lack its newline."""
    waiting = bytearray()
    for part in parts:
        searched = len(waiting)
        waiting += part
        if len(waiting) >= PIECE_BYTES and (end := waiting.rfind(b"\n", searched) + 1):
            yield bytes(waiting[:end])
            del waiting[:end]
    if waiting:
        yield bytes(waiting)


def unzipped(content: bytes, uri: str, limit: int) -> bytes:
    """Return the content of a gzip file; other content as it is. Raises OversizedFile, and as `inflated` does."""
    if content[:2] != _GZIP_MAGIC:
        return content
    whole = bytearray()
    for part in inflated([content]):
        whole += part
        if len(whole) > limit:
            raise OversizedFile(uri, limit)
    return bytes(whole)


_GZIP_MAGIC = b"\x1f\x8b"


def _inflated(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield parts of the content, and whether a member ends with them."""
    library = _gzip()
    inflate = library.decompressobj(wbits=_GZIP_WBITS)
    is_open = False
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            is_open = True
            part: bytes | memoryview = rest[:_INFLATED_AT_ONCE]
            taken, is_full = len(part), True
            while is_full and not inflate.eof:
                try:
                    content = inflate.decompress(part, _MAX_INFLATED)
                except library.error as error:
                    raise BadGzipFile(f"{error}") from error
                part, is_full = inflate.unconsumed_tail, len(content) == _MAX_INFLATED
                yield content, inflate.eof
            rest = rest[taken - len(inflate.unused_data) :]
            if inflate.eof:
                inflate = library.decompressobj(wbits=_GZIP_WBITS)
                is_open = False
    if is_open:
        raise EOFError("the file ends within a member")
