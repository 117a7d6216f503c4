"""An implementation of PyIceberg's FileIO that uses the shared S3 client of the process.

Metadata files and manifests are small and immutable, and have unique names (Iceberg spec: file system operations). So
this FileIO reads each file with one GET request, writes each file with one PUT request, and caches manifests in memory.
The shared client provides credentials, connections and retries.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from destination_datalake.aws.objects import MAX_FILE_BYTES, S3Address, delete, get, is_missing, put, unzipped
from destination_datalake.errors import ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from mypy_boto3_s3 import S3Client
    from pyiceberg.table import Table


_ZIPPED = ".gz.metadata.json"
"""Name suffix of the metadata files that PyIceberg decompresses."""

_AVRO = ".avro"

_MAX_KEPT_BYTES = 1 << 20
"""Maximum size in bytes of a manifest that is cached after a read. Commits do not merge larger manifests by default."""


class S3FileIO(FileIO):
    """Reads and writes the metadata of Iceberg tables in S3.

    Caches the manifests and manifest lists that this process has recently written or read. `writes` can write objects
    in the background.

    Methods of this class and of its files raise FileNotFoundError for a missing object, and botocore's exceptions. They
    raise ConfigError for a location outside S3, and for a file that is too large before or after decompression.
    """

    def __init__(self, s3: S3Client, writes: BackgroundWrites | None = None) -> None:
        super().__init__()
        self.writes = writes or BackgroundWrites()
        self._s3 = s3

    def new_input(self, location: str) -> InputFile:
        """Return the object at `location` for reading, without a request to S3."""
        return _S3InputFile(location, self._s3, self.writes)

    def new_output(self, location: str) -> OutputFile:
        """Return the object at `location` for writing, without a request to S3."""
        return _S3OutputFile(location, self._s3, self.writes)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete an object. Do nothing if the object does not exist.

        Raises OSError if the request fails. PyIceberg logs this error as a warning.
        """
        uri = location if isinstance(location, str) else location.location
        # A write that is still running would create the object again after the deletion.
        self.writes.wait()
        try:
            delete(self._s3, uri)
        except (ClientError, BotoCoreError) as error:
            raise OSError(f"Cannot delete {uri}: {error}") from error


MAX_BACKGROUND_WRITES = 4
"""Maximum number of calls per commit that run in the background at the same time. More calls run in the foreground."""


class BackgroundWrites:
    """Writes the files of a commit to S3 concurrently. The commit waits for all writes before it calls the catalog.

    The order of the writes does not matter: the files have unique names, and no reader opens a file before the catalog
    has accepted the commit. Outside a `with begun()` block, calls run in the foreground. Not thread-safe.
    """

    def __init__(self) -> None:
        self._is_active = False
        self._running: list[Future[None]] = []
        self._contents: dict[str, bytes] = {}

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Run calls in the background inside the block.

        At the end of the block, wait for all calls, even if the block raises an exception.
        """
        self._is_active = True
        try:
            yield
            self.wait()
        finally:
            self._is_active = False
            # Also after an exception: a cleanup of the failed commit must not delete a file that a thread then writes.
            futures.wait(self._running)
            self._running = []
            self._contents = {}

    def run(self, call: Callable[[], None]) -> bool:
        """Start a call, and return whether the call runs in the background.

        If a background call fails, `wait` raises the exception. If a foreground call fails, this method raises the
        exception.
        """
        if self._is_active and len(self._running) < MAX_BACKGROUND_WRITES:
            future: Future[None] = Future()
            # A daemon thread does not keep a terminated process waiting for S3.
            thread = threading.Thread(target=_complete, args=(future, call), name="metadata", daemon=True)
            with suppress(RuntimeError):  # RuntimeError: the system cannot start more threads.
                thread.start()
                self._running.append(future)
                return True
        call()
        return False

    def put(self, location: str, content: bytes, call: Callable[[], None]) -> None:
        """Run `call`, which writes `content` to a location.

        If the call runs in the background, the method `content` returns `content` for this location until `wait`.
        """
        if self.run(call):
            self._contents[location] = content

    def content(self, location: str) -> bytes | None:
        """Return the content that a background call is writing to a location. None if no such call is running."""
        return self._contents.get(location)

    def wait(self) -> None:
        """Wait for all background calls. If any call failed, raise the exception of the first such call."""
        # S3 returns an object as soon as its write has succeeded, so reads no longer need the content.
        running, self._running, self._contents = self._running, [], {}
        futures.wait(running)
        for future in running:
            future.result()


def background_writes(table: Table) -> BackgroundWrites:
    """Return the `BackgroundWrites` of a table's FileIO.

    If the FileIO is not an `S3FileIO`, return a new object, which runs all calls in the foreground.
    """
    return table.io.writes if isinstance(table.io, S3FileIO) else BackgroundWrites()


def _complete(future: Future[None], call: Callable[[], None]) -> None:
    try:
        call()
    # The future passes even SystemExit to the thread that waits. Otherwise that thread would wait forever.
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(None)


class _S3InputFile(InputFile):
    def __init__(self, location: str, s3: S3Client, writes: BackgroundWrites) -> None:
        super().__init__(location)
        self._s3 = s3
        self._writes = writes
        try:
            self._address = S3Address.parse(location)
        except ValueError:
            raise ConfigError(
                f"An Iceberg table refers to {location!r}, which is not an S3 address. The connector reads files only "
                "from S3. Correct the table's metadata_location, or restore the table's metadata."
            ) from None

    def __len__(self) -> int:
        return self._s3.head_object(Bucket=self._address.bucket, Key=self._address.key)["ContentLength"]

    def exists(self) -> bool:
        try:
            len(self)
        except ClientError as error:
            if is_missing(error, self._s3, str(self._address)):
                return False
            raise
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002
        cached = MANIFESTS.get(self.location)
        if cached is None:
            # A commit may read a file that it is still writing. Only Avro files are in the cache.
            cached = self._writes.content(self.location)
        if cached is not None:
            return cast("InputStream", io.BytesIO(cached))
        try:
            content = get(self._s3, self.location, limit=MAX_FILE_BYTES)
        except ClientError as error:
            if is_missing(error, self._s3, str(self._address)):
                raise FileNotFoundError(f"{self._address} does not exist") from error
            raise
        if self.location.endswith(_ZIPPED):
            unzipped(
                content, self.location, MAX_FILE_BYTES
            )  # Only checks the size: PyIceberg decompresses the file again, without a limit.
        if self.location.endswith(_AVRO) and len(content) <= _MAX_KEPT_BYTES:
            MANIFESTS.put(self.location, bytes(content), len(content))
        return cast("InputStream", io.BytesIO(content))


class _S3OutputFile(OutputFile):
    def __init__(self, location: str, s3: S3Client, writes: BackgroundWrites) -> None:
        super().__init__(location)
        self._s3 = s3
        self._writes = writes
        self._written: int | None = None

    def __len__(self) -> int:
        return self._written if self._written is not None else len(self.to_input_file())

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _S3InputFile(self.location, self._s3, self._writes)

    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self.exists():
            raise FileExistsError(f"{self.location} already exists")
        return cast("OutputStream", _S3OutputStream(self))

    def put(self, content: bytes) -> None:
        self._writes.put(self.location, content, partial(self._put, content))
        self._written = len(content)
        # If the write fails, nothing refers to the cached name, which is unique.
        if self.location.endswith(_AVRO):
            MANIFESTS.put(self.location, content, len(content))

    def _put(self, content: bytes) -> None:
        put(self._s3, self.location, content)


class _S3OutputStream(io.BytesIO):
    """Buffers an object in memory, and writes the object to S3 when the stream is closed.

    If the `with` block of the stream raises an exception, the stream writes nothing.
    """

    def __init__(self, target: _S3OutputFile) -> None:
        super().__init__()
        self._target = target

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._target.put(content)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            super().close()

    def __del__(self) -> None:
        """Write nothing to S3 if the stream was never closed. Without this method, BytesIO would call `close`."""
        super().close()


# --- the cache of manifests -------------------------------------------------------------------------------------------


_Value = TypeVar("_Value")


class LruCache(Generic[_Value]):
    """Caches values by the address of the S3 object to which each value belongs. Thread-safe.

    If all values together exceed `budget` bytes, the cache removes the least recently used values.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._values: OrderedDict[str, tuple[_Value, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, address: str) -> _Value | None:
        """Return the value for an address and mark the value as recently used. None if no value is cached."""
        with self._lock:
            if address not in self._values:
                return None
            self._values.move_to_end(address)
            return self._values[address][0]

    def put(self, address: str, value: _Value, size: int) -> None:
        """Cache a value of `size` bytes. Remove the earlier value for this address.

        Do not cache a value that alone exceeds the budget.
        """
        with self._lock:
            self._forget(address)
            if size > self._budget:
                return
            self._values[address] = (value, size)
            self._bytes += size
            while self._bytes > self._budget:
                self._forget(next(iter(self._values)))

    def forget(self, address: str) -> None:
        """Remove the value for an address from the cache. Do nothing if no value is cached."""
        with self._lock:
            self._forget(address)

    def _forget(self, address: str) -> None:
        if address in self._values:
            self._bytes -= self._values.pop(address)[1]


MANIFESTS_BYTES = 8 << 20

MANIFESTS: LruCache[bytes] = LruCache(MANIFESTS_BYTES)
"""A cache of at most 8 MiB, with the content of manifests and manifest lists that this process has written or read."""
