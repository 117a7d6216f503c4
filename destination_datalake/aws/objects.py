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
# Addresses of objects and folders in S3, AWS regions, and the AWS partitions in ARNs.

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
"""Prefixes of region codes, and the AWS partitions of these regions. The partition of all other regions is `aws`."""

_DIRECTIONS = frozenset(
    ("central", "east", "north", "northeast", "northwest", "south", "southeast", "southwest", "west")
)
"""The directions that can precede the number in a region code."""


def partition_of(region: str) -> str:
    """Return the AWS partition of a region, such as aws or aws-cn, as contained in the region's ARNs."""
    return next((name for prefix, name in _PARTITIONS if region.startswith(prefix)), "aws")


def is_misspelt(region: str) -> bool:
    """Return whether a text in the form of a region code cannot be a region, not even one newer than the SDK."""
    return region.split("-")[-2] not in _DIRECTIONS


def known_regions() -> Sequence[str]:
    """Return the codes of all regions that botocore knows, in all partitions."""
    from botocore.loaders import create_loader

    partitions = create_loader().load_data("partitions")["partitions"]
    return sorted(region for partition in partitions for region in partition["regions"] if "global" not in region)


def nearest_region(region: str) -> str:
    """Return the known region whose code is most similar to `region`. Letters in the wrong order count as similar."""

    def similarity(candidate: str) -> float:
        in_order = SequenceMatcher(None, region, candidate).ratio()
        return in_order + SequenceMatcher(None, sorted(region), sorted(candidate)).ratio()

    return max(known_regions(), key=similarity)


class S3Address(NamedTuple):
    """The bucket and key of an object or folder.

    The key of a folder may end with a slash. The key of a whole bucket is empty.
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
# Retry calls with exponential backoff and jitter.
#
# Most of these retries handle conflicts of optimistic concurrency: an attempt reads, plans, and writes only if nothing
# has changed since the read. botocore retries throttled and failed requests itself (`AwsAccess.attempts`).


_Result = TypeVar("_Result")

_SCHEDULE: dict[str, Any] = {
    "stop": stop_after_attempt(8),
    # The first wait takes 0.1 to 0.2 s. Each further wait is twice as long. All waits together take 13 to 25 s.
    "wait": wait_exponential(multiplier=0.1) + wait_random_exponential(multiplier=0.1),
}


def retry_on(failure: type[Exception] | tuple[type[Exception], ...], attempt: Callable[[], _Result]) -> _Result:
    """Call `attempt` and return its result. If it raises `failure`, call it again, up to eight times in total.

    After the last call, raises its failure. Raises any exception other than `failure` immediately.
    """
    return Retrying(retry=retry_if_exception_type(failure), reraise=True, **_SCHEDULE)(attempt)


def retry_until_done(attempt: Callable[[], bool]) -> bool:
    """Call `attempt` until it returns True, up to eight times. Return whether it returned True.

    If `attempt` raises an exception, raises it immediately.
    """
    is_false = retry_if_result(lambda result: not result)
    retrying = Retrying(retry=is_false, retry_error_callback=lambda _: False, **_SCHEDULE)
    return retrying(attempt)


# --- Objects ----------------------------------------------------------------------------------------------------------
# Read, write and delete objects in S3 by URI. Uploads can be published later or discarded.
#
# A large object is uploaded in parts: one part is sent while the next part is encoded. With `deferred=True`, the object
# stays an incomplete multipart upload, which readers do not see, until `PendingUpload.publish` completes the upload
# (S3: CompleteMultipartUpload). Tables without snapshots need deferred uploads, because their readers see every file in
# the table's folder. If the process that publishes an object shares the local disk, a small object is kept there until
# it is published (`DeferredUpload`), which requires one request instead of three. Files that are not committed are
# deleted.


PART_BYTES = 8 * 1024 * 1024
"""The size in bytes of the parts of an upload. S3 requires at least 5 MiB, except for the last part, and accepts at
most 10,000 parts, which is enough for 80 GB. An upload needs memory for two parts, because it fills one part while it
sends another."""

CONCURRENT_CALLS = 8
"""The maximum number of uploads that are published concurrently."""

MEMBER_BYTES = 16 * 1024 * 1024
"""The size in bytes of a gzip member before compression. A new member starts at the beginning of a line, so readers can
split a file between members."""

MAX_DEFERRED_BYTES = 1024 * 1024
"""The maximum size in bytes of an object that is kept on the shared local disk until it is published. Larger objects
are sent to S3 while other objects are encoded."""


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

    By default, returns the whole object. `version` is the ID of a version of the object. Raises OversizedFile if there
    are more than `limit` bytes. If `etag` is set and the object has a different ETag, raises a ClientError with status
    412.

    botocore retries failed requests. In addition, `get` retries if a response ends early, is reset or stalls, and
    raises the error of the last attempt.
    """
    address = S3Address.parse(uri)
    conditions: dict[str, Any] = {} if etag is None else {"IfMatch": etag}
    if version is not None:
        conditions["VersionId"] = version
    if begin or end is not None:
        conditions["Range"] = f"bytes={begin}-{'' if end is None else end - 1}"

    def read() -> bytes:
        response = s3.get_object(Bucket=address.bucket, Key=address.key, **conditions)
        # As a context manager, the body would return the underlying stream, which does not detect an early end.
        with contextlib.closing(response["Body"]) as body:
            content = body.read(limit and limit + 1)
            if limit is not None and len(content) > limit:
                raise OversizedFile(uri, limit)
            return content + body.read()  # Only this second read, up to the end, detects a truncated body.

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

    S3 returns status 403 for a missing object, unless the caller may list the whole bucket. The policy that
    `iam-policy` prints only allows listing certain folders. If the status is 403, this function therefore lists the
    object's folder to find out whether the object exists. Raises the errors of this request.
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
    """A file is too large to be read into memory, before or after decompression.

    Another program may have written the file.
    """

    def __init__(self, uri: str, limit: int) -> None:
        super().__init__(
            f"{uri} exceeds {limit:,} bytes uncompressed, the limit for a file of its kind. The file is damaged, or "
            "another program wrote it. Restore an earlier version, or remove the references to it."
        )


MAX_FILE_BYTES = 256 * 1024 * 1024
"""The maximum uncompressed size in bytes of metadata files, manifest lists, manifests and reports that are read into
memory."""


def body_errors() -> tuple[type[Exception], ...]:
    """Return the types of exceptions that reading the body of a response can raise.

    The types are imported on the first call, because botocore is only imported when the first client is created.
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
    has this ETag. If the condition is not met, raise a ClientError for which `is_changed` returns True.

    The body is sent as a bytearray. botocore would convert a bytes object to a file, and wait for HTTP status 100
    (Continue) before it sends the file, which doubles the time.
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
    """Return the HTTP status of the AWS response in an error, or 0 if the error contains no response."""
    status: int = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status


def delete(s3: S3Client, uri: str) -> None:
    """Delete an object. Do nothing in Amazon S3 Tables, which deletes unreferenced objects itself. Idempotent."""
    address = S3Address.parse(uri)
    if address.is_of_s3_tables:
        return
    s3.delete_object(Bucket=address.bucket, Key=address.key)


def listed(s3: S3Client, folder: str) -> Iterator[tuple[str, ObjectTypeDef]]:
    """Yield the URI of each object in a folder and its subfolders, and the object's entry in S3's listing.

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

    If `if_match` is set, the upload is only published if the existing object has this ETag.
    """

    bucket: str
    key: str
    upload_id: str
    etags: tuple[str, ...]
    if_match: str | None = None

    def publish(self, s3: S3Client) -> None:
        """Make the object visible to readers. Idempotent.

        If the existing object does not have the ETag `if_match`, raises a ClientError for which `is_changed` returns
        True.
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
            # If the object exists, the upload no longer exists because an earlier request has published it.
            s3.head_object(Bucket=self.bucket, Key=self.key)

    def abort(self, s3: S3Client) -> None:
        """Abort the upload, which deletes its parts. Idempotent."""
        with contextlib.suppress(s3.exceptions.NoSuchUpload):
            s3.abort_multipart_upload(Bucket=self.bucket, Key=self.key, UploadId=self.upload_id)


@dataclass(frozen=True, slots=True)
class DeferredUpload:
    """A small object that is not in S3 yet. Its content is in the local file at `path`, which nothing else uses."""

    bucket: str
    key: str
    path: str
    metadata: Mapping[str, str] = field(default_factory=dict)

    def publish(self, s3: S3Client) -> None:
        """Make the object visible to readers. Idempotent."""
        try:
            content = Path(self.path).read_bytes()
        except FileNotFoundError:
            s3.head_object(Bucket=self.bucket, Key=self.key)  # If the object exists, it was already published.
            return
        put(s3, str(S3Address(self.bucket, self.key)), content, self.metadata)
        Path(self.path).unlink()

    def abort(self, s3: S3Client) -> None:  # noqa: ARG002
        """Delete the local file. Idempotent."""
        Path(self.path).unlink(missing_ok=True)


Pending = PendingUpload | DeferredUpload
"""An upload whose object readers do not see yet."""


def publish_all(uploads: Iterable[Pending], s3: S3Client) -> None:
    """Publish all uploads, several at a time.

    If some publications fail, raises one of the failures. The other uploads may have been published.
    """
    with ThreadPoolExecutor(CONCURRENT_CALLS, "publish") as pool:
        list(pool.map(lambda upload: upload.publish(s3), uploads))


def abort_all(uploads: Iterable[Pending], s3: S3Client) -> None:
    """Abort all uploads. If some cannot be aborted, still abort the others, and then raise one of the failures."""
    with contextlib.ExitStack() as steps:
        for upload in uploads:
            steps.callback(upload.abort, s3)


class Uncommitted(Protocol):
    """A file in S3 that a task has written, but that no table may reference yet."""

    @property
    def uri(self) -> str:
        """The S3 URI of the file, which readers may not see yet."""

    @property
    def pending_upload(self) -> Pending | None:
        """The upload of the file, published or not, or None if the file was visible as soon as it was written."""


def pending_uploads(files: Iterable[Uncommitted]) -> list[Pending]:
    """Return the uploads of those files that must be published to become visible."""
    return [file.pending_upload for file in files if file.pending_upload is not None]


def delete_uncommitted(files: Iterable[Uncommitted], s3: S3Client) -> None:
    """Delete files that no table references, whether published or not. Idempotent.

    If some files cannot be deleted, still delete the others, and then raise one of the failures.
    """
    with contextlib.ExitStack() as steps:
        for file in files:
            steps.callback(delete, s3, file.uri)
            if file.pending_upload is not None:
                steps.callback(file.pending_upload.abort, s3)


@contextlib.contextmanager
def rollback_on_error(*steps: Callable[[], None]) -> Iterator[None]:
    """If the body of the `with` block raises an error, run every step, and then raise this error again.

    If a step fails, a note about its failure is added to the error of the body. The failure does not replace this
    error, because it often has the same cause: if S3 rejects the parts of an upload, S3 usually rejects the request to
    abort the upload too.
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
    """An object could not be read or written. `__cause__` is the error. `explain` accepts `doing` and `uri`."""

    def __init__(self, doing: str, uri: str) -> None:
        super().__init__(uri)
        self.doing = doing
        self.uri = uri


@contextlib.contextmanager
def naming_object(doing: str, uri: str) -> Iterator[None]:
    """Convert an error in the body of the `with` block to ObjectFailed, unless it already has a user-facing message."""
    try:
        yield
    except ConnectorError:
        raise
    except Exception as error:
        raise ObjectFailed(doing, uri) from error


class Upload:
    """A write-only file object. `close` stores the written bytes as one object in S3, and `abort` discards them."""

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

        With `deferred`, `close` does not make the object visible. It sets `pending_upload`, with which the object can
        be published later. If `held_in` is set to a local folder, `close` keeps a small object in this folder and sets
        `pending_upload`. The folder is created if necessary. If `if_match` is set, the upload only replaces an object
        that has this ETag.
        """
        self.s3 = s3
        self.uri = uri
        self._metadata = metadata or {}
        self._if_match = if_match
        self._bucket, self._key = S3Address.parse(uri)
        self._deferred = deferred
        self._held_in = held_in
        # Two buffers alternate: one is filled while the other is sent. The first buffer grows on demand, because most
        # objects are small.
        self._part, self._sent = bytearray(), bytearray()
        self._filled = 0
        self._upload_id: str | None = None
        self._etags: list[str] = []
        self._sender = ThreadPoolExecutor(1, "upload")  # The thread starts when the first part is sent.
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
        """Return True. Arrow calls `writable`."""
        return True

    def readable(self) -> bool:
        """Return False. Arrow calls this method."""
        return False

    def seekable(self) -> bool:
        """Return False. Arrow calls this method."""
        return False

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self.written

    def flush(self) -> None:
        """Do nothing, because the parts of an upload have a minimum size."""

    def write(self, data: bytes | memoryview) -> int:
        """Buffer `data`, and send each full part in the background. Raises the error of sending the previous part."""
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
        """Send the remaining bytes. Afterwards, either the object is visible or `pending_upload` is set."""
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
                # A new object may exist even if the request failed, and must then be deleted. A replaced object need
                # not be restored.
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

        If the request to store the object failed, but S3 may have stored the object nevertheless, deletes the object.
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
        """Write the whole object to the local disk. Return None if that fails, for example if the disk is full."""
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
        """Wait until the part that is being sent, if any, is complete. Raises the error of sending the part."""
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
    """A write-only file object that compresses bytes with gzip, and writes the compressed bytes to an upload.

    If `member_bytes` is set, a new gzip member starts after this number of uncompressed bytes (RFC 1952, 2.2).
    gzip.GzipFile is not used, because its finaliser would write the remaining bytes of an aborted upload.
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
        """End the current gzip member. Later bytes start a new member (RFC 1952, 2.2). The upload stays open."""
        if self._compressor is not None:
            self._upload.write(self._compressor.flush())
            self._compressor = None

    def close(self) -> None:
        """Write the remaining compressed bytes and close the upload."""
        self.finish()
        self._upload.close()


_GZIP_WBITS = 31

_INPUT_BYTES = 256 * 1024
"""The number of compressed bytes that one call decompresses. It is small enough that the output of a call stays in the
processor's cache until it is copied."""


_MAX_INFLATED = 16 * 1024 * 1024
"""The maximum number of bytes that one call returns. The limit is needed because a gzip file may expand to a thousand
times its size."""


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

    Raises BadGzipFile if a member has more than `limit` uncompressed bytes. Also raises the errors of `inflated`.
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
"""The size in bytes of the pieces in which the lines of a file are requested and processed. If a single line is longer,
its piece is larger."""


def whole_lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Combine parts of a file into pieces that end with a whole line. The newline at the file's end may be missing."""
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

    Raises OversizedFile if the uncompressed content of a gzip file has more than `limit` bytes. Also raises the errors
    of `inflated`.
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
    """Yield the uncompressed parts of a gzip file, and for each part whether it is the last of its gzip member."""
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
