"""Read, write, publish and delete objects in S3, and parse their addresses."""

from __future__ import annotations

import contextlib
import hashlib
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
"""Maps prefixes of region codes to AWS partitions. All other regions are in the partition `aws`."""

_DIRECTIONS = frozenset(
    ("central", "east", "north", "northeast", "northwest", "south", "southeast", "southwest", "west")
)
"""The words that can precede the number in a region code, such as `east` in `us-east-1`."""


def partition_of(region: str) -> str:
    """Return the AWS partition of a region, such as `aws` or `aws-cn`. ARNs contain this name."""
    return next((name for prefix, name in _PARTITIONS if region.startswith(prefix)), "aws")


def is_misspelt(region: str) -> bool:
    """Return whether `region` cannot be the code of an AWS region, not even of a future one.

    `region` must have the form of a region code, such as `eu-central-1`.
    """
    return region.split("-")[-2] not in _DIRECTIONS


def known_regions() -> Sequence[str]:
    """Return the codes of all regions that this version of botocore knows, in all partitions."""
    from botocore.loaders import create_loader

    partitions = create_loader().load_data("partitions")["partitions"]
    return sorted(region for partition in partitions for region in partition["regions"] if "global" not in region)


def nearest_region(region: str) -> str:
    """Return the known region code that is most similar to `region`, even if letters are swapped."""

    def similarity(candidate: str) -> float:
        in_order = SequenceMatcher(None, region, candidate).ratio()
        return in_order + SequenceMatcher(None, sorted(region), sorted(candidate)).ratio()

    return max(known_regions(), key=similarity)


class S3Address(NamedTuple):
    """The bucket and key of an object or folder in S3.

    The key of a folder may end with a slash. The key of a whole bucket is empty.
    """

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Split a URI such as `s3://bucket/key` into bucket and key. Also accepts Hadoop's schemes `s3a` and `s3n`.

        Keys are literal: `?`, `#` and `%` have no special meaning. Raises ValueError for any other string.
        """
        scheme, _, path = uri.partition("://")
        bucket, _, key = path.partition("/")
        if scheme.lower() not in _SCHEMES or not bucket:
            raise ValueError(f"{uri} is not an S3 URI")
        return cls(bucket, key)

    @property
    def is_in_s3_tables(self) -> bool:
        """Whether the bucket belongs to Amazon S3 Tables. AWS reserves the suffix `--table-s3` for these buckets.

        Clients can neither list nor delete the objects in these buckets. The service removes objects that no table
        references (https://docs.aws.amazon.com/AmazonS3/latest/API/developing-s3-tables-APIs.html).
        """
        return self.bucket.endswith("--table-s3")

    def arn(self, partition: str) -> str:
        """Return the ARN of the object or folder, without a trailing slash. `partition` is `aws`, for example."""
        return f"arn:{partition}:s3:::{self.bucket}/{self.key}".rstrip("/")

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


# --- Retries ----------------------------------------------------------------------------------------------------------
# Retry calls with exponential backoff and jitter.
#
# Most of these retries handle conflicts of optimistic concurrency: an attempt reads and plans, and then writes only if
# nothing has changed since the read. botocore itself retries throttled and failed requests (`AwsAccess.attempts`).


_Result = TypeVar("_Result")

_SCHEDULE: dict[str, Any] = {
    "stop": stop_after_attempt(8),
    # The first wait takes 0.1 to 0.2 s. Each further wait is twice as long. All waits together take 13 to 25 s.
    "wait": wait_exponential(multiplier=0.1) + wait_random_exponential(multiplier=0.1),
}


def retry_on(failure: type[Exception] | tuple[type[Exception], ...], attempt: Callable[[], _Result]) -> _Result:
    """Return the result of `attempt`. While `attempt` raises `failure`, call it again, up to eight times in total.

    Waits between the calls, with exponential backoff. If all calls fail, raises the last failure. Raises all other
    exceptions immediately.
    """
    return Retrying(retry=retry_if_exception_type(failure), reraise=True, **_SCHEDULE)(attempt)


def retry_until_done(attempt: Callable[[], bool]) -> bool:
    """Call `attempt` until it returns True, up to eight times. Return whether a call returned True.

    Waits between the calls, with exponential backoff. Raises exceptions of `attempt` immediately.
    """
    is_false = retry_if_result(lambda result: not result)
    retrying = Retrying(retry=is_false, retry_error_callback=lambda _: False, **_SCHEDULE)
    return retrying(attempt)


# --- Objects ----------------------------------------------------------------------------------------------------------
# Read, write and delete objects in S3 by URI. An upload can be published later, or discarded.
#
# An upload sends a large object in parts: a thread sends one part while the caller encodes the next part. With
# `deferred=True`, the upload stays incomplete until `PendingUpload.publish` (S3: CompleteMultipartUpload), so that
# readers do not see the object. Tables without snapshots need such uploads, because their readers see every file in the
# table's folder. If the publishing process shares the local disk, a small object stays on this disk until its
# publication (`DeferredUpload`). This needs one request instead of three.


PART_BYTES = 8 * 1024 * 1024
"""Size of the parts of an upload, in bytes. S3 requires at least 5 MiB, except for the last part. It allows 10,000
parts, so an object can have up to 80 GB. An upload needs memory for two parts: it fills one part while it sends the
other one."""

CONCURRENT_CALLS = 8
"""Maximum number of uploads that `publish_all` publishes at the same time."""

MEMBER_BYTES = 16 * 1024 * 1024
"""Uncompressed size of a gzip member, in bytes. Members start at the beginning of a line, so that readers can split a
file."""

MAX_MEMBER_BYTES = 512 * 1024 * 1024
"""The maximum uncompressed size, in bytes, of a line or of an archived object's gzip member that the connector reads.
It writes much smaller members: it starts a new member at 3 % of this size (`MEMBER_BYTES`)."""

MAX_DEFERRED_BYTES = 1024 * 1024
"""Maximum size in bytes of an object that an upload keeps on the local disk until the object's publication. An upload
sends larger objects to S3 while the caller encodes other objects."""


def get(
    s3: S3Client,
    uri: str,
    begin: int = 0,
    end: int | None = None,
    etag: str | None = None,
    version: str | None = None,
    limit: int | None = None,
) -> bytes:
    """Return the content of an object, from offset `begin` up to, but not including, offset `end`.

    By default, returns the whole object. `version` selects a version by its ID. If `etag` is set, but the object has
    another ETag, raises a ClientError with status 412. Raises OversizedFile if there are more than `limit` bytes.

    If the response ends early, is reset or stalls, retries the request. If all attempts fail, raises the last error.
    botocore itself retries failed requests.
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
            # One byte more than the limit shows that the object is too large. Without a limit, this reads the whole
            # body.
            content = body.read(limit and limit + 1)
            if limit is not None and len(content) > limit:
                raise OversizedFile(uri, limit)
            return content + body.read()  # Only this second read, up to the end, detects a truncated body.

    return retry_on(body_errors(), read)


def get_or_none(s3: S3Client, uri: str, limit: int | None = None) -> bytes | None:
    """Return the content of an object, or None if it does not exist. Raises the errors of `get` and `is_missing`."""
    try:
        return get(s3, uri, limit=limit)
    except s3.exceptions.ClientError as error:
        if is_missing(error, s3, uri):
            return None
        raise


def is_missing(error: Exception, s3: S3Client, uri: str) -> bool:
    """Return whether S3 returned `error` because the object at `uri` does not exist.

    If the caller may not list the whole bucket, S3 answers a request for a missing object with status 403. The policy
    that the command `iam-policy` prints only allows the caller to list some folders. For status 403, this function
    therefore lists the objects whose keys begin with the object's key. Raises errors of this request. Buckets of S3
    Tables cannot be listed, so for them, status 403 counts as a denial.
    """
    code = getattr(error, "response", {}).get("Error", {}).get("Code")
    if code in ("NoSuchKey", "404", "NotFound"):
        return True
    address = S3Address.parse(uri)
    if _status(error) != 403 or address.is_in_s3_tables:
        return False
    # S3 lists keys in the order of their bytes. Of all keys with this prefix, the key itself therefore comes first.
    response = s3.list_objects_v2(Bucket=address.bucket, Prefix=address.key, MaxKeys=1)
    return all(entry["Key"] != address.key for entry in response.get("Contents", ()))


class OversizedFile(ConfigError):
    """Raised for a file that is too large to read into memory, before or after decompression.

    Such a file is damaged, or another program wrote it.
    """

    def __init__(self, uri: str, limit: int) -> None:
        super().__init__(
            f"{uri} exceeds {limit:,} bytes uncompressed, the limit for this kind of file. The file is damaged, or "
            "another program wrote it. Restore an earlier version of the file, or remove all references to it."
        )


MAX_FILE_BYTES = 256 * 1024 * 1024
"""Maximum uncompressed size, in bytes, of a file that the connector reads into memory. Such files are metadata files,
manifest lists, manifests and reports."""


def body_errors() -> tuple[type[Exception], ...]:
    """Return the types of exceptions that reading the body of a response can raise.

    Imports botocore in this function, because the import takes time.
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
    attributes: Mapping[str, Any] | None = None,
) -> str:
    """Write an object in one request. Return its ETag.

    With `if_none_match`, the object must not exist. With `if_match`, the object must exist with this ETag. Otherwise,
    raises a ClientError for which `is_changed` returns True. `attributes` contains further arguments of PutObject, such
    as `ContentType`.

    Passes the content to botocore as a bytearray. botocore would wrap an object of type bytes in a file, and wait for
    the HTTP status 100 (Continue) before it sends the content, which doubles the time.
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
        **(attributes or {}),
        **conditions,
    )
    return response["ETag"]


def is_changed(error: Exception) -> bool:
    """Return whether S3 rejected a conditional request because of another write.

    Another client has created or changed the object, or is writing it at the same time.
    """
    return _status(error) in (409, 412)


def _status(error: Exception) -> int:
    """Return the HTTP status of AWS's response to a failed request, or 0 if AWS did not respond."""
    status: int = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status


def delete(s3: S3Client, uri: str) -> None:
    """Delete an object, if it exists. Do nothing in Amazon S3 Tables, which itself deletes unreferenced objects."""
    address = S3Address.parse(uri)
    if address.is_in_s3_tables:
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
    """Delete all objects in a folder and its subfolders. `uri` is an S3 URI without a trailing slash."""
    for object_uri, _ in listed(s3, uri):
        delete(s3, object_uri)


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """A multipart upload whose parts are all in S3. Readers do not see the object until `publish` completes the upload.

    If `if_match` is set, `publish` replaces the existing object only if the object has this ETag.
    """

    bucket: str
    key: str
    upload_id: str
    etags: tuple[str, ...]
    if_match: str | None = None

    def publish(self, s3: S3Client) -> None:
        """Make the object visible to readers. Without `if_match`, further calls have no effect.

        If the existing object does not have the ETag `if_match`, raises a ClientError for which `is_changed` returns
        True. This also happens, or S3 does not find the upload, if an earlier request has published the object.
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
            # With `if_match`, the existing object may be the one that this upload was meant to replace.
            if self.if_match is not None:
                raise
            # If the object exists, an earlier request has published it. Otherwise this request raises an error.
            s3.head_object(Bucket=self.bucket, Key=self.key)

    def abort(self, s3: S3Client) -> None:
        """Abort the upload, and delete its parts. Further calls have no effect."""
        with contextlib.suppress(s3.exceptions.NoSuchUpload):
            s3.abort_multipart_upload(Bucket=self.bucket, Key=self.key, UploadId=self.upload_id)


@dataclass(frozen=True, slots=True)
class DeferredUpload:
    """A small object in the local file `path`. Readers do not see the object until `publish` writes it to S3."""

    bucket: str
    key: str
    path: str
    metadata: Mapping[str, str] = field(default_factory=dict)

    def publish(self, s3: S3Client) -> None:
        """Write the object to S3, and delete the local file. Further calls have no effect."""
        try:
            content = Path(self.path).read_bytes()
        except FileNotFoundError:
            s3.head_object(Bucket=self.bucket, Key=self.key)  # If the object exists, an earlier call has published it.
            return
        put(s3, str(S3Address(self.bucket, self.key)), content, self.metadata)
        Path(self.path).unlink()

    def abort(self, s3: S3Client) -> None:  # noqa: ARG002
        """Delete the local file. Further calls have no effect."""
        Path(self.path).unlink(missing_ok=True)


Pending = PendingUpload | DeferredUpload
"""An upload of an object that readers do not see before `publish`."""


def publish_all(uploads: Iterable[Pending], s3: S3Client) -> None:
    """Publish the uploads, several at a time.

    If publications fail, raises the error of one of them. In this case, any of the other uploads may be published.
    """
    with ThreadPoolExecutor(CONCURRENT_CALLS, "publish") as pool:
        # `list` raises the first error. The end of the `with` block still waits for the other uploads.
        list(pool.map(lambda upload: upload.publish(s3), uploads))


def abort_all(uploads: Iterable[Pending], s3: S3Client) -> None:
    """Abort all uploads. If some of them cannot be aborted, abort the others, and then raise one of the errors."""
    with contextlib.ExitStack() as steps:
        for upload in uploads:
            # An ExitStack runs all callbacks, even if some of them raise errors.
            steps.callback(upload.abort, s3)


class Uncommitted(Protocol):
    """A file that a task has written for a table, but that no commit has added to the table yet."""

    @property
    def uri(self) -> str:
        """The S3 URI of the file. Readers may not see the file yet."""

    @property
    def pending_upload(self) -> Pending | None:
        """The upload of the file, or None if the task made the file visible to readers immediately."""


def pending_uploads(files: Iterable[Uncommitted]) -> list[Pending]:
    """Return the uploads of those files that readers do not see before their publication."""
    return [file.pending_upload for file in files if file.pending_upload is not None]


def delete_uncommitted(files: Iterable[Uncommitted], s3: S3Client) -> None:
    """Delete files that no table references, even if they are published. Further calls have no effect.

    If some files cannot be deleted, deletes the others, and then raises one of the errors.
    """
    with contextlib.ExitStack() as steps:
        for file in files:
            # The stack runs callbacks in reverse order: it aborts the upload before it deletes the object. After the
            # abort, no late request can publish the object again.
            steps.callback(delete, s3, file.uri)
            if file.pending_upload is not None:
                steps.callback(file.pending_upload.abort, s3)


@contextlib.contextmanager
def rollback_on_error(*steps: Callable[[], None]) -> Iterator[None]:
    """If the `with` block raises an exception, run all steps, and then raise the exception again.

    If a step fails, adds a note to the exception. The step often fails for the same reason as the block: if S3 rejects
    the parts of an upload, S3 usually also rejects the request to abort the upload.
    """
    try:
        yield
    except Exception as error:
        for step in steps:
            try:
                step()
            except Exception as step_error:
                error.add_note(f"Cannot delete all written files: {type(step_error).__name__}")
        raise


class ObjectFailed(Exception):
    """Raised if an object cannot be read or written. The attribute `__cause__` contains the original error.

    `doing` and `uri` are arguments for `aws.errors.explain`.
    """

    def __init__(self, doing: str, uri: str) -> None:
        super().__init__(uri)
        self.doing = doing
        self.uri = uri


@contextlib.contextmanager
def naming_object(doing: str, uri: str) -> Iterator[None]:
    """Convert an exception of the `with` block to ObjectFailed. Raise a ConnectorError unchanged."""
    try:
        yield
    except ConnectorError:
        raise
    except Exception as error:
        raise ObjectFailed(doing, uri) from error


class Upload:
    """A write-only file object. `close` stores the written bytes as an object in S3, and `abort` discards these bytes.

    A background thread sends the bytes in parts of PART_BYTES.
    """

    def __init__(
        self,
        s3: S3Client,
        uri: str,
        *,
        deferred: bool,
        spool_folder: str | None = None,
        metadata: Mapping[str, str] | None = None,
        if_match: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Create an upload. It sends its first request when the first part is full, or when `close` is called.

        With `deferred`, `close` leaves the object invisible, and sets `pending_upload`, which can publish the object
        later. If `spool_folder`, a local folder, is set, `close` writes a small object to this folder and not to S3,
        and also sets `pending_upload`. If `if_match` is set, the upload replaces the existing object only if the object
        has this ETag. `attributes` contains further arguments of PutObject and CreateMultipartUpload, such as
        `ContentType`. Do not combine them with `spool_folder`.
        """
        self.s3 = s3
        self.uri = uri
        self._metadata = metadata or {}
        self._attributes = attributes or {}
        self._if_match = if_match
        self._bucket, self._key = S3Address.parse(uri)
        self._deferred = deferred
        self._spool_folder = spool_folder
        # Two buffers alternate: callers fill one while the background thread sends the other. The first buffer grows on
        # demand, because most objects are small.
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
        """The number of bytes that the caller has written, but that do not fill a part yet."""
        return self._filled

    def writable(self) -> bool:
        """Return True. Arrow calls this method."""
        return True

    def readable(self) -> bool:
        """Return False. Arrow calls this method."""
        return False

    def seekable(self) -> bool:
        """Return False. Arrow calls this method."""
        return False

    def tell(self) -> int:
        """Return the number of bytes that the caller has written so far."""
        return self.written

    def flush(self) -> None:
        """Do nothing: S3 does not accept parts that are too small."""

    def write(self, data: bytes | memoryview) -> int:
        """Buffer `data`, and send full parts in the background. If an earlier part failed, raise its error."""
        remaining = memoryview(data).cast("B")  # Arrow's buffers consist of signed bytes.
        while len(remaining) >= (space := PART_BYTES - self._filled):
            self._fill(remaining[:space])
            self._wait_for_part()
            # Reuse the buffer that has been sent. Before the first part, there is none.
            self._part, self._sent = self._sent or bytearray(PART_BYTES), self._part
            self._filled = 0
            # Only one part is in flight, so parts keep their order, and `_etags` needs no lock.
            self._in_flight = self._sender.submit(self._send, self._sent)
            remaining = remaining[space:]
        self._fill(remaining)
        self.written += len(data)
        return len(data)

    def close(self) -> None:
        """Send the remaining bytes. Afterwards, either readers see the object, or `pending_upload` is set."""
        if self.closed:
            return
        self.closed = True
        with self._sender:
            self._wait_for_part()
        if self._upload_id is None and self._spool_folder is not None and self._filled <= MAX_DEFERRED_BYTES:
            self.pending_upload = self._write_to_disk(Path(self._spool_folder))
            if self.pending_upload is not None:
                return
        if self._upload_id is None and not self._deferred:
            try:
                content = self._take()
                put(self.s3, self.uri, content, self._metadata, if_match=self._if_match, attributes=self._attributes)
            except Exception as error:
                # Even if the request failed, S3 may have stored the object. `abort` then deletes the object, but does
                # not restore an object that this one has replaced.
                self._may_exist = self._if_match is None and not 400 <= _status(error) < 500
                raise
            return
        # A multipart upload needs at least one part, even if the object is empty.
        if self._filled or self._upload_id is None:
            self._send(self._take())
        assert self._upload_id is not None
        finished = PendingUpload(self._bucket, self._key, self._upload_id, tuple(self._etags), self._if_match)
        if self._deferred:
            self.pending_upload = finished
        else:
            finished.publish(self.s3)

    def abort(self) -> None:
        """Discard the written bytes. If a multipart upload has started, abort it.

        If `close` failed, but S3 may have stored the object nevertheless, also deletes the object.
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
        # The first buffer grows. A reused buffer already has its full size, so the bytes replace old ones.
        if len(self._part) == begin:
            self._part += data
        else:
            # Release the view at the end, because `_take` cannot shorten a bytearray with a view.
            with memoryview(self._part) as part:
                part[begin : self._filled] = data

    def _take(self) -> bytearray:
        """Return the buffered bytes, and empty the buffer."""
        taken, self._part = self._part, bytearray()
        del taken[self._filled :]
        self._filled = 0
        return taken

    def _write_to_disk(self, folder: Path) -> DeferredUpload | None:
        """Write the whole object to a local file. Return None if the write fails, for example if the disk is full."""
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
        """Wait until the background thread has sent the current part, if any. If it failed, raise its error."""
        if self._in_flight is not None:
            part, self._in_flight = self._in_flight, None
            part.result()

    def _send(self, part: bytearray) -> None:
        if self._upload_id is None:
            created = self.s3.create_multipart_upload(
                Bucket=self._bucket, Key=self._key, Metadata=self._metadata, **self._attributes
            )
            self._upload_id = created["UploadId"]
        response = self.s3.upload_part(
            Bucket=self._bucket,
            Key=self._key,
            UploadId=self._upload_id,
            PartNumber=len(self._etags) + 1,
            Body=part,  # type: ignore[arg-type]  # The stubs do not accept a bytearray.
        )
        self._etags.append(response["ETag"])


class HashedUpload(Upload):
    """An upload that also computes the SHA-256 hash of the uploaded bytes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Update the hash with `data`, and upload `data` like `Upload.write`."""
        self.sha256.update(data)
        return super().write(data)


class GzipUpload:
    """A write-only file object that compresses bytes with gzip, and writes them to an upload.

    With `member_bytes`, starts a new gzip member (RFC 1952, 2.2) after this number of uncompressed bytes. This class
    does not use gzip.GzipFile, because the finaliser of GzipFile would write the remaining bytes of an aborted upload.
    """

    def __init__(self, upload: Upload, member_bytes: int | None = None) -> None:
        self._upload = upload
        self._member_bytes = member_bytes
        self._member = 0
        self._compressor: Any = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Compress `data`, and write it to the upload. Raises the errors of `Upload.write`."""
        if self._member_bytes is not None and self._member >= self._member_bytes:
            self.finish()
        if self._compressor is None:
            self._compressor = _gzip().compressobj(1, wbits=_GZIP_WBITS)
            self._member = 0
        self._upload.write(self._compressor.compress(data))
        self._member += len(data)

    def finish(self) -> None:
        """End the current gzip member. The next write starts a new member (RFC 1952, 2.2). The upload stays open."""
        if self._compressor is not None:
            self._upload.write(self._compressor.flush())
            self._compressor = None

    def close(self) -> None:
        """End the gzip member, and close the upload."""
        self.finish()
        self._upload.close()


# A window of 15 bits, plus 16 for the header and trailer of gzip (zlib: deflateInit2).
_GZIP_WBITS = 31

_INPUT_BYTES = 256 * 1024
"""The number of compressed bytes that one call decompresses. With so few bytes, the output stays in the processor's
cache until the caller copies it."""


_MAX_INFLATED = 16 * 1024 * 1024
"""Maximum number of uncompressed bytes that one call returns. A gzip file can expand to a thousand times its size."""


def _gzip() -> Any:
    """Return the compression library: ISA-L if it is installed, otherwise zlib. ISA-L is four times as fast."""
    try:
        from isal import isal_zlib
    except ImportError:
        import zlib

        return zlib
    return isal_zlib


def gunzipped(pieces: Iterable[bytes], limit: int | None = None) -> Iterator[bytearray]:
    """Yield the members of a gzip file, uncompressed. `pieces` yields the bytes of the file.

    Raises BadGzipFile if a member has more than `limit` uncompressed bytes, and the errors of `inflated`.
    """
    member = bytearray()
    for part, is_end in _inflated(pieces):
        member += part
        if limit is not None and len(member) > limit:
            raise BadGzipFile(f"a gzip member exceeds {limit:,} bytes")
        if is_end:
            yield member
            member = bytearray()


def inflated(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the uncompressed content of a gzip file, in parts of up to 16 MiB. `pieces` yields the bytes of the file.

    Raises EOFError if the file is incomplete, and BadGzipFile if it is damaged or not a gzip file.
    """
    return (part for part, _ in _inflated(pieces) if part)


PIECE_BYTES = 8 * 1024 * 1024
"""Size, in bytes, of the pieces in which the connector requests and processes JSON Lines files. A piece that contains a
longer line is larger."""


def whole_lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Combine the parts of a file into pieces that end with a whole line. The last line may lack its newline.

    Raises BadGzipFile if a line has more than `MAX_MEMBER_BYTES` bytes.
    """
    buffer = bytearray()
    for part in parts:
        searched = len(buffer) if len(buffer) >= PIECE_BYTES else 0  # A longer buffer contains no newline.
        buffer += part
        if len(buffer) >= PIECE_BYTES and (end := buffer.rfind(b"\n", searched) + 1):
            yield bytes(buffer[:end])
            del buffer[:end]
        if len(buffer) > MAX_MEMBER_BYTES:
            raise BadGzipFile(f"has a line of more than {MAX_MEMBER_BYTES:,} bytes")
    if buffer:
        yield bytes(buffer)


def unzipped(content: bytes, uri: str, limit: int) -> bytes:
    """Return the uncompressed content of a gzip file. Return any other content unchanged.

    Raises OversizedFile if a gzip file has more than `limit` uncompressed bytes, and the errors of `inflated`. The
    message of OversizedFile names `uri`.
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
    """Yield the uncompressed parts of a gzip file. Each part comes with a flag that is true at the end of a member."""
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
                # If the output is full, the same input may contain more of it.
                part, is_full = inflate.unconsumed_tail, len(content) == _MAX_INFLATED
                yield content, inflate.eof
            # At the end of a member, `unused_data` contains the beginning of the next member.
            remaining = remaining[consumed - len(inflate.unused_data) :]
            if inflate.eof:
                inflate = library.decompressobj(wbits=_GZIP_WBITS)
                is_open = False
    if is_open:
        raise EOFError("the file ends within a gzip member")
