"""PyIceberg's FileIO over the process's shared S3 client.

Metadata files and manifests are small, immutable, and have unique names (Iceberg spec: file system operations): each is
one GET or one PUT, and what this process will need again it keeps. Credentials, connections and retries are those of
the shared client.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.objects import MAX_FILE_BYTES, delete, get, put, unzipped
from destination_datalake.errors import ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from mypy_boto3_s3 import S3Client


_ZIPPED = ".gz.metadata.json"
"""How the names of files end that PyIceberg unpacks."""

_NOT_FOUND = ("404", "NoSuchKey", "NotFound")


class S3FileIO(FileIO):
    """Reads and writes metadata in S3. Raises FileNotFoundError for missing objects, and botocore's exceptions.

    Raises ConfigError for locations elsewhere, which are not read, and for files that are too long, unpacked.

    Manifests and manifest lists that this process has written lately are not read again.
    """

    def __init__(self, s3: S3Client) -> None:
        super().__init__()
        self._s3 = s3

    def new_input(self, location: str) -> InputFile:
        """Return the object for reading."""
        return _S3InputFile(location, self._s3)

    def new_output(self, location: str) -> OutputFile:
        """Return the object for writing."""
        return _S3OutputFile(location, self._s3)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the object; a missing one is no error. Raises OSError, which PyIceberg logs as a warning."""
        uri = location if isinstance(location, str) else location.location
        try:
            delete(self._s3, uri)
        except (ClientError, BotoCoreError) as error:
            raise OSError(f"{uri} could not be deleted: {error}") from error


class _S3InputFile(InputFile):
    def __init__(self, location: str, s3: S3Client) -> None:
        super().__init__(location)
        self._s3 = s3
        try:
            self._address = S3Address.parse(location)
        except ValueError:
            raise ConfigError(
                f"{location!r} is not an address in S3. Metadata of an Iceberg table refers to it, and the connector "
                "reads files in S3 alone. Correct the table's metadata_location, or restore its metadata."
            ) from None

    def __len__(self) -> int:
        return self._s3.head_object(Bucket=self._address.bucket, Key=self._address.key)["ContentLength"]

    def exists(self) -> bool:
        try:
            len(self)
        except ClientError as error:
            if error.response["Error"]["Code"] in _NOT_FOUND:
                return False
            raise
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002
        if (kept := MANIFESTS.get(self.location)) is not None:
            return cast("InputStream", io.BytesIO(kept))
        try:
            content = get(self._s3, self.location, limit=MAX_FILE_BYTES)
        except ClientError as error:
            if error.response["Error"]["Code"] in _NOT_FOUND:
                raise FileNotFoundError(f"{self._address} does not exist") from error
            raise
        if self.location.endswith(_ZIPPED):
            unzipped(content, self.location, MAX_FILE_BYTES)  # PyIceberg unpacks it again, without a limit.
        return cast("InputStream", io.BytesIO(content))


class _S3OutputFile(OutputFile):
    def __init__(self, location: str, s3: S3Client) -> None:
        super().__init__(location)
        self._s3 = s3
        self._written: int | None = None

    def __len__(self) -> int:
        return self._written if self._written is not None else len(self.to_input_file())

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _S3InputFile(self.location, self._s3)

    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self.exists():
            raise FileExistsError(f"{self.location} exists already")
        return cast("OutputStream", _S3OutputStream(self))

    def put(self, content: bytes) -> None:
        put(self._s3, self.location, content)
        self._written = len(content)
        if self.location.endswith(".avro"):
            MANIFESTS.put(self.location, content, len(content))


class _S3OutputStream(io.BytesIO):
    """Is put to S3 as one object when it is closed, unless its `with` block raises."""

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
        """Do not put an abandoned stream: BytesIO would close it on garbage collection."""
        super().close()


# --- what this process keeps of metadata ------------------------------------------------------------------------------


_Value = TypeVar("_Value")


class LruCache(Generic[_Value]):
    """Values by the address of their object. Beyond `budget` bytes the least recently used are forgotten."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._values: OrderedDict[str, tuple[_Value, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, address: str) -> _Value | None:
        """Return the value, or None if it is not kept."""
        with self._lock:
            if address not in self._values:
                return None
            self._values.move_to_end(address)
            return self._values[address][0]

    def put(self, address: str, value: _Value, size: int) -> None:
        """Keep the value of `size` bytes, unless it is larger than the budget."""
        with self._lock:
            self._forget(address)
            if size > self._budget:
                return
            self._values[address] = (value, size)
            self._bytes += size
            while self._bytes > self._budget:
                self._forget(next(iter(self._values)))

    def forget(self, address: str) -> None:
        """Forget the value: it will not be needed again."""
        with self._lock:
            self._forget(address)

    def _forget(self, address: str) -> None:
        if address in self._values:
            self._bytes -= self._values.pop(address)[1]


MANIFESTS: LruCache[bytes] = LruCache(8 << 20)
"""Manifests and manifest lists that this process has written, as they are stored."""
