"""Objects in S3: their addresses, and functions to read, write, publish and delete them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from gzip import BadGzipFile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

from tenacity import (
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    wait_exponential,
    wait_random_exponential,
)

from destination_datalake.errors import ConfigError, ConnectorError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectTypeDef


# --- Addresses --------------------------------------------------------------------------------------------------------
# Addresses of objects and folders in S3, regions, and partitions in ARNs.

_SCHEMES = ("s3", "s3a", "s3n")

_PARTITIONS = (
    ("cn-", "aws-cn"),
    ("eu-isoe-", "aws-iso-e"),
    ("eusc-", "aws-eusc"),
    ("us-gov-", "aws-us-gov"),
    ("us-iso-", "aws-iso"),
    ("us-isob-", "aws-iso-b"),
    ("us-isof-", "aws-iso-f"),
)
"""Prefixes of region codes, and the AWS partitions of these regions, if not `aws`."""

_DIRECTIONS = frozenset(
    ("central", "east", "north", "northeast", "northwest", "south", "southeast", "southwest", "west")
)
"""The directions that can precede the number in a region code."""


def partition_of(region: str) -> str:
    """Return the AWS partition of a region, which is the second part of ARNs in that region."""
    return next((name for prefix, name in _PARTITIONS if region.startswith(prefix)), "aws")


def is_misspelt(region: str) -> bool:
    """Return whether a text in the form of a region code cannot be a region, not even one newer than the SDK."""
    return region.split("-")[-2] not in _DIRECTIONS


def known_regions() -> Sequence[str]:
    """Return the regions of all partitions."""
    from botocore.loaders import create_loader

    partitions = create_loader().load_data("partitions")["partitions"]
    return sorted(region for partition in partitions for region in partition["regions"] if "global" not in region)


def nearest_region(region: str) -> str:
    """Return the known region whose code is most similar. Letters in the wrong order count as similar."""

    def similarity(candidate: str) -> float:
        in_order = SequenceMatcher(None, region, candidate).ratio()
        return in_order + SequenceMatcher(None, sorted(region), sorted(candidate)).ratio()

    return max(known_regions(), key=similarity)


class S3Address(NamedTuple):
    """The bucket and key of an object or folder.

    A folder's key may end with a slash. The key of a whole bucket is empty.
    """

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Return the bucket and key of a URI such as `s3://bucket/key`, or with Hadoop's schemes `s3a` and `s3n`.

        Keys are literal: `?`, `#` and `%` have no special meaning. Raises ValueError for any other text.
        """
        scheme, _, path = uri.partition("://")
        bucket, _, key = path.partition("/")
        if scheme.lower() not in _SCHEMES or not bucket:
            raise ValueError(f"{uri} is not an address in S3")
        return cls(bucket, key)

    @property
    def is_of_s3_tables(self) -> bool:
        """Whether the bucket belongs to a table in Amazon S3 Tables, for which AWS reserves the suffix `--table-s3`.

        Objects in such a bucket cannot be listed or deleted. The service removes those that no table references
        (https://docs.aws.amazon.com/AmazonS3/latest/API/developing-s3-tables-APIs.html).
        """
        return self.bucket.endswith("--table-s3")

    def arn(self, partition: str) -> str:
        """Return the ARN of the object or folder, without a trailing slash."""
        return f"arn:{partition}:s3:::{self.bucket}/{self.key}".rstrip("/")

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


# --- Retries ----------------------------------------------------------------------------------------------------------
# Retries with exponential backoff and jitter.
#
# Most of them handle conflicts of optimistic concurrency: read, plan, and write if nothing has changed since the read.
# botocore retries throttled and failed requests itself (`AwsAccess.attempts`).


_Result = TypeVar("_Result")

_SCHEDULE: dict[str, Any] = {
    "stop": stop_after_attempt(8),
    # The first wait is 0.1 to 0.2 s. Each further wait is twice as long: 13 to 25 s in total.
    "wait": wait_exponential(multiplier=0.1) + wait_random_exponential(multiplier=0.1),
}


def retry_on(failure: type[Exception] | tuple[type[Exception], ...], attempt: Callable[[], _Result]) -> _Result:
    """Call `attempt` and return its result. If it raises `failure`, call it again, up to eight times in total.

    Raises the failure of the last call. Raises any other exception immediately.
    """
    return Retrying(retry=retry_if_exception_type(failure), reraise=True, **_SCHEDULE)(attempt)


def retry_until_done(attempt: Callable[[], bool]) -> bool:
    """Call `attempt` until it returns True, up to eight times. Return whether it returned True.

    Raises an exception of `attempt` immediately.
    """
    is_false = retry_if_result(lambda result: not result)
    retrying = Retrying(retry=is_false, retry_error_callback=lambda _: False, **_SCHEDULE)
    return retrying(attempt)


# --- Objects ----------------------------------------------------------------------------------------------------------
# Objects in S3 by URI: reads, deletions, and uploads that can be published later or discarded.
#
# A large object is uploaded in parts: one part is sent while the next is encoded. With `deferred=True`, the object
# stays an incomplete multipart upload, invisible to readers, until `PendingUpload.publish` completes it (S3:
# CompleteMultipartUpload). Tables without snapshots need this, because their readers see every file in their folder. If
# the publisher shares the local disk, a small object stays there instead (`DeferredUpload`), which needs one request
# instead of three. Uncommitted files are deleted.


PART_BYTES = 8 * 1024 * 1024
"""The size of a part in bytes. S3 requires at least 5 MiB, except for the last part, and accepts at most 10,000 parts,
which is enough for 80 GB. An upload uses twice this memory, because it fills one part while it sends another."""

CONCURRENT_CALLS = 8
"""The maximum number of uploads that are published concurrently."""

MEMBER_BYTES = 16 * 1024 * 1024
"""The size in bytes of a gzip member before compression. A member starts with a line, so readers can split a file
there."""

MAX_DEFERRED_BYTES = 1024 * 1024
"""The maximum size in bytes of an object that waits on the shared disk. A larger object is sent while others are
encoded."""


def get(
    s3: S3Client,
    uri: str,
    begin: int = 0,
    end: int | None = None,
    etag: str | None = None,
    version: str | None = None,
    limit: int | None = None,
) -> bytes:
    """Return the bytes of an object from offset `begin` up to, but not including, offset `end`.

    By default, returns the whole object. `version` selects a version ID. Raises OversizedFile if there are more than
    `limit` bytes. If `etag` is set and the object has a different one, raises a ClientError with status 412.

    botocore retries failed requests. This function also retries responses that end early, are reset or stall, and
    raises the last error.
    """
    address = S3Address.parse(uri)
    conditions: dict[str, Any] = {} if etag is None else {"IfMatch": etag}
    if version is not None:
        conditions["VersionId"] = version
    if begin or end is not None:
        conditions["Range"] = f"bytes={begin}-{'' if end is None else end - 1}"

    def read() -> bytes:
        response = s3.get_object(Bucket=address.bucket, Key=address.key, **conditions)
        # Used as a context manager, the body would return the underlying stream, which does not detect an early end.
        with contextlib.closing(response["Body"]) as body:
            content = body.read(limit and limit + 1)
            if limit is not None and len(content) > limit:
                raise OversizedFile(uri, limit)
            return content + body.read()  # Only a read to the end detects an early end.

    return retry_on(body_errors(), read)


def get_or_none(s3: S3Client, uri: str) -> bytes | None:
    """Return the bytes of an object, or None if it does not exist. Raises the errors of `get` and `is_missing`."""
    try:
        return get(s3, uri)
    except s3.exceptions.ClientError as error:
        if is_missing(error, s3, uri):
            return None
        raise


def is_missing(error: Exception, s3: S3Client, uri: str) -> bool:
    """Return whether a request failed because the object does not exist.

    S3 returns 403 for a missing object unless the identity may list the whole bucket. The policy that `iam-policy`
    prints only allows listing folders. For status 403, this function therefore lists the object's folder, and raises
    errors of that request.
    """
    code = getattr(error, "response", {}).get("Error", {}).get("Code")
    if code in ("NoSuchKey", "404", "NotFound"):
        return True
    if _status(error) != 403:
        return False
    address = S3Address.parse(uri)
    response = s3.list_objects_v2(Bucket=address.bucket, Prefix=address.key, MaxKeys=1)
    return all(entry["Key"] != address.key for entry in response.get("Contents", ()))


class OversizedFile(ConfigError):
    """A file is larger than the limit for reads into memory, possibly when uncompressed.

    Another program may have written it.
    """

    def __init__(self, uri: str, limit: int) -> None:
        super().__init__(
            f"{uri} exceeds {limit:,} bytes uncompressed, the limit for a file of its kind. The file is damaged, or "
            "another program wrote it. Restore an earlier version, or remove the references to it."
        )


MAX_FILE_BYTES = 256 * 1024 * 1024
"""The maximum uncompressed size in bytes of a metadata file, a manifest list, a manifest or a report."""


def body_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that reading a response's body can raise.

    They are imported on the first call, because botocore is imported only with the first client.
    """
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
    """Write a small object with one request, and return its ETag.

    With `if_none_match`, write only if the object does not exist. With `if_match`, write only if the existing object
    has this ETag. If the condition fails, raise a ClientError for which `is_changed` returns True.

    The body is sent as a bytearray. botocore would convert bytes to a file, and wait for HTTP status 100 (Continue)
    before it sends a file, which doubles the time.
    """
    address = S3Address.parse(uri)
    body = content if isinstance(content, bytearray) else bytearray(content)
    conditions: dict[str, Any] = {"IfNoneMatch": "*"} if if_none_match else {}
    if if_match is not None:
        conditions["IfMatch"] = if_match
    response = s3.put_object(
        Bucket=address.bucket,
        Key=address.key,
        Body=body,  # type: ignore[arg-type]  # The stubs do not accept a bytearray.
        Metadata=metadata or {},
        **conditions,
    )
    return response["ETag"]


def is_changed(error: Exception) -> bool:
    """Return whether a conditional request failed because the object exists, was changed, or is being written."""
    return _status(error) in (409, 412)


def _status(error: Exception) -> int:
    """Return the HTTP status of AWS's response, or 0 if the error has no response."""
    status: int = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status


def delete(s3: S3Client, uri: str) -> None:
    """Delete an object. Does nothing in Amazon S3 Tables, which deletes unreferenced objects itself. Idempotent."""
    address = S3Address.parse(uri)
    if address.is_of_s3_tables:
        return
    s3.delete_object(Bucket=address.bucket, Key=address.key)


def listed(s3: S3Client, folder: str) -> Iterator[tuple[str, ObjectTypeDef]]:
    """Yield each object in a folder and its subfolders: its URI and its entry in S3's listing.

    `folder` is an S3 URI without a trailing slash.
    """
    address = S3Address.parse(f"{folder}/")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=address.bucket, Prefix=address.key):
        for entry in page.get("Contents", []):
            yield str(S3Address(address.bucket, entry["Key"])), entry


def folders_in(s3: S3Client, folder: str) -> list[str]:
    """Return the names of the direct subfolders of `folder`, an S3 URI without a trailing slash."""
    address = S3Address.parse(f"{folder}/")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=address.bucket, Prefix=address.key, Delimiter="/")
    return [entry["Prefix"][len(address.key) : -1] for page in pages for entry in page.get("CommonPrefixes", [])]


def delete_folder(s3: S3Client, uri: str) -> None:
    """Delete all objects in a folder, given as an S3 URI without a trailing slash. Idempotent."""
    for object_uri, _ in listed(s3, uri):
        address = S3Address.parse(object_uri)
        s3.delete_object(Bucket=address.bucket, Key=address.key)


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """A multipart upload whose parts are complete, but whose object is not visible yet.

    With `if_match`, the upload is published only if the existing object has this ETag.
    """

    bucket: str
    key: str
    upload_id: str
    etags: tuple[str, ...]
    if_match: str | None = None

    def publish(self, s3: S3Client) -> None:
        """Make the object visible. Idempotent.

        Raises a ClientError for which `is_changed` returns True if the existing object does not match `if_match`.
        """
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
            # The response to an earlier attempt was lost: the upload no longer exists because its object does.
            s3.head_object(Bucket=self.bucket, Key=self.key)

    def abort(self, s3: S3Client) -> None:
        """Abort the upload, which deletes its parts. Idempotent."""
        with contextlib.suppress(s3.exceptions.NoSuchUpload):
            s3.abort_multipart_upload(Bucket=self.bucket, Key=self.key, UploadId=self.upload_id)


@dataclass(frozen=True, slots=True)
class DeferredUpload:
    """A small object that is not in S3 yet. Its content is the local file at `path`, which nothing else uses."""

    bucket: str
    key: str
    path: str
    metadata: Mapping[str, str] = field(default_factory=dict)

    def publish(self, s3: S3Client) -> None:
        """Make the object visible. Idempotent."""
        try:
            content = Path(self.path).read_bytes()
        except FileNotFoundError:
            s3.head_object(Bucket=self.bucket, Key=self.key)  # It was already published.
            return
        put(s3, str(S3Address(self.bucket, self.key)), content, self.metadata)
        Path(self.path).unlink()

    def abort(self, s3: S3Client) -> None:  # noqa: ARG002
        """Delete the local file. Idempotent."""
        Path(self.path).unlink(missing_ok=True)


Pending = PendingUpload | DeferredUpload
"""An object that is not visible yet."""


def publish_all(uploads: Iterable[Pending], s3: S3Client) -> None:
    """Publish all uploads, several at a time.

    If some fail, raises one of the failures; other uploads may be published.
    """
    with ThreadPoolExecutor(CONCURRENT_CALLS, "publish") as pool:
        list(pool.map(lambda upload: upload.publish(s3), uploads))


def abort_all(uploads: Iterable[Pending], s3: S3Client) -> None:
    """Abort every upload, even if aborting another one fails. Raises one of the failures, if any."""
    with contextlib.ExitStack() as steps:
        for upload in uploads:
            steps.callback(upload.abort, s3)


class Uncommitted(Protocol):
    """A file written to S3 that a table may not reference yet."""

    @property
    def uri(self) -> str:
        """The S3 URI of the file, which readers may not see yet."""

    @property
    def pending_upload(self) -> Pending | None:
        """The upload of the file, published or not, or None if the object was visible immediately."""


def pending_uploads(files: Iterable[Uncommitted]) -> list[Pending]:
    """Return the uploads of the files that were not visible immediately."""
    return [file.pending_upload for file in files if file.pending_upload is not None]


def delete_uncommitted(files: Iterable[Uncommitted], s3: S3Client) -> None:
    """Delete files that no table references, published or not. Continue if a deletion fails. Idempotent.

    Raises one of the failures, if any.
    """
    with contextlib.ExitStack() as steps:
        for file in files:
            steps.callback(delete, s3, file.uri)
            if file.pending_upload is not None:
                steps.callback(file.pending_upload.abort, s3)


@contextlib.contextmanager
def rollback_on_error(*steps: Callable[[], None]) -> Iterator[None]:
    """If the body raises, run every step and re-raise the body's error. Add a note to that error for each failed step.

    A failed step does not replace the error: if S3 rejects the parts of an upload, it usually also rejects the request
    to abort the upload.
    """
    try:
        yield
    except Exception as error:
        for step in steps:
            try:
                step()
            except Exception as step_error:
                error.add_note(f"Not all written files could be removed: {type(step_error).__name__}")
        raise


class ObjectFailed(Exception):
    """A failed read or write of an object. `__cause__` is the error; `doing` and `uri` are arguments for `explain`."""

    def __init__(self, doing: str, uri: str) -> None:
        super().__init__(uri)
        self.doing = doing
        self.uri = uri


@contextlib.contextmanager
def naming_object(doing: str, uri: str) -> Iterator[None]:
    """Convert an error of the body to ObjectFailed, unless the error already has a user-facing message."""
    try:
        yield
    except ConnectorError:
        raise
    except Exception as error:
        raise ObjectFailed(doing, uri) from error


class Upload:
    """A write-only file object. `close` stores its content as one object in S3, and `abort` discards it."""

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
        """Create an upload without sending requests.

        With `deferred`, `close` does not make the object visible, and sets `pending_upload`. With `held_in`, a local
        folder that need not exist, `close` keeps a small object in that folder and sets `pending_upload`. With
        `if_match`, the upload only replaces an object that has this ETag.
        """
        self.s3 = s3
        self.uri = uri
        self._metadata = metadata or {}
        self._if_match = if_match
        self._bucket, self._key = S3Address.parse(uri)
        self._deferred = deferred
        self._held_in = held_in
        # Two buffers alternate: one is filled while the other is sent. The first grows on demand, as most objects are
        # small.
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
        """The number of written bytes that are buffered for the next part."""
        return self._filled

    def writable(self) -> bool:
        """Return True. Arrow calls this."""
        return True

    def readable(self) -> bool:
        """Return False. Arrow calls this."""
        return False

    def seekable(self) -> bool:
        """Return False. Arrow calls this."""
        return False

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self.written

    def flush(self) -> None:
        """Do nothing, because the parts of an upload have a minimum size."""

    def write(self, data: bytes | memoryview) -> int:
        """Buffer `data`, and send each full part in the background. Raises the error of the part sent before."""
        remaining = memoryview(data).cast("B")  # Arrow's buffers consist of signed bytes.
        while len(remaining) >= (space := PART_BYTES - self._filled):
            self._fill(remaining[:space])
            self._wait_for_part()
            self._part, self._sent = self._sent or bytearray(PART_BYTES), self._part
            self._filled = 0
            self._in_flight = self._sender.submit(self._send, self._sent)
            remaining = remaining[space:]
        self._fill(remaining)
        self.written += len(data)
        return len(data)

    def close(self) -> None:
        """Send the remaining bytes. Afterwards, the object is visible or `pending_upload` is set."""
        if self.closed:
            return
        self.closed = True
        with self._sender:
            self._wait_for_part()
        if self._upload_id is None and self._held_in is not None and self._filled <= MAX_DEFERRED_BYTES:
            self.pending_upload = self._write_to_disk(Path(self._held_in))
            if self.pending_upload is not None:
                return
        if self._upload_id is None and not self._deferred:
            try:
                put(self.s3, self.uri, self._take(), self._metadata, if_match=self._if_match)
            except Exception as error:
                # A replaced object need not be restored. A new object may exist although the request failed.
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
        """Discard the buffered bytes, and abort the multipart upload if it was started.

        If the request to store the object failed but S3 may have stored it, deletes the object.
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
        """Return and clear the buffered bytes."""
        taken, self._part = self._part, bytearray()
        del taken[self._filled :]
        self._filled = 0
        return taken

    def _write_to_disk(self, folder: Path) -> DeferredUpload | None:
        """Write the whole object to the local disk. Return None if that fails, for example because the disk is full."""
        path = folder / secrets.token_hex(16)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._part)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        self._take()
        return DeferredUpload(self._bucket, self._key, str(path), self._metadata)

    def _wait_for_part(self) -> None:
        """Wait until the part in flight is sent, if there is one. Raises the error of sending it."""
        if self._in_flight is not None:
            part, self._in_flight = self._in_flight, None
            part.result()

    def _send(self, part: bytearray) -> None:
        if self._upload_id is None:
            created = self.s3.create_multipart_upload(Bucket=self._bucket, Key=self._key, Metadata=self._metadata)
            self._upload_id = created["UploadId"]
        response = self.s3.upload_part(
            Bucket=self._bucket,
            Key=self._key,
            UploadId=self._upload_id,
            PartNumber=len(self._etags) + 1,
            Body=part,  # type: ignore[arg-type]  # The stubs do not accept a bytearray.
        )
        self._etags.append(response["ETag"])


class GzipUpload:
    """A write-only file object that compresses its input with gzip and writes the result to an upload.

    With `member_bytes`, starts a new gzip member after this number of uncompressed bytes (RFC 1952, 2.2). gzip.GzipFile
    is not used because its finaliser would write the rest of an aborted upload.
    """

    def __init__(self, upload: Upload, member_bytes: int | None = None) -> None:
        self._upload = upload
        self._member_bytes = member_bytes
        self._member = 0
        self._compressor: Any = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Compress `data` into the upload. Raises the errors of `Upload.write`."""
        if self._member_bytes is not None and self._member >= self._member_bytes:
            self.finish()
        if self._compressor is None:
            self._compressor = _gzip().compressobj(1, wbits=_GZIP_WBITS)
            self._member = 0
        self._upload.write(self._compressor.compress(data))
        self._member += len(data)

    def finish(self) -> None:
        """End the current gzip member. Further bytes start a new one (RFC 1952, 2.2). The upload stays open."""
        if self._compressor is not None:
            self._upload.write(self._compressor.flush())
            self._compressor = None

    def close(self) -> None:
        """Write the remaining compressed bytes and close the upload."""
        self.finish()
        self._upload.close()


_GZIP_WBITS = 31

_INPUT_BYTES = 256 * 1024
"""The number of compressed bytes per call. The output of a call stays in the processor's cache until it is copied."""


_MAX_INFLATED = 16 * 1024 * 1024
"""The maximum number of bytes that a call returns. A gzip file may expand to a thousand times its size."""


def _gzip() -> Any:
    """Return the compression library: ISA-L, which is four times as fast as zlib, or zlib if ISA-L is not installed."""
    try:
        from isal import isal_zlib
    except ImportError:
        import zlib

        return zlib
    return isal_zlib


def gunzipped(pieces: Iterable[bytes], limit: int | None = None) -> Iterator[bytearray]:
    """Yield the uncompressed content of each member of a gzip file. `pieces` are the bytes of the file.

    Raises BadGzipFile if a member has more than `limit` bytes. Raises the errors of `inflated`.
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
    """Yield the uncompressed content of a gzip file, in parts of at most 16 MiB. `pieces` are the bytes of the file.

    Raises EOFError if the file ends early, and BadGzipFile if it is damaged or not a gzip file.
    """
    return (part for part, _ in _inflated(pieces) if part)


PIECE_BYTES = 8 * 1024 * 1024
"""The size in bytes of the pieces in which lines are requested and processed. A piece is larger if a line is longer."""


def whole_lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Combine parts of a file into pieces that end with a whole line. The file's last newline may be missing."""
    buffer = bytearray()
    for part in parts:
        searched = len(buffer)
        buffer += part
        if len(buffer) >= PIECE_BYTES and (end := buffer.rfind(b"\n", searched) + 1):
            yield bytes(buffer[:end])
            del buffer[:end]
    if buffer:
        yield bytes(buffer)


def unzipped(content: bytes, uri: str, limit: int) -> bytes:
    """Return the uncompressed content of a gzip file. Content that is not gzip is returned unchanged.

    Raises OversizedFile if the uncompressed content of a gzip file has more than `limit` bytes. Raises the errors of
    `inflated`.
    """
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
    """Yield parts of the uncompressed content, and whether each part is the last of its member."""
    library = _gzip()
    inflate = library.decompressobj(wbits=_GZIP_WBITS)
    is_open = False
    for piece in pieces:
        remaining = memoryview(piece)
        while remaining:
            is_open = True
            part: bytes | memoryview = remaining[:_INPUT_BYTES]
            consumed, is_full = len(part), True
            while is_full and not inflate.eof:
                try:
                    content = inflate.decompress(part, _MAX_INFLATED)
                except library.error as error:
                    raise BadGzipFile(f"{error}") from error
                part, is_full = inflate.unconsumed_tail, len(content) == _MAX_INFLATED
                yield content, inflate.eof
            remaining = remaining[consumed - len(inflate.unused_data) :]
            if inflate.eof:
                inflate = library.decompressobj(wbits=_GZIP_WBITS)
                is_open = False
    if is_open:
        raise EOFError("the file ends within a member")
