"""Iceberg's metadata on S3 as PyIceberg reads and writes it, through the client that the whole process shares.

Those files are small and never change: each is one GET or one PUT. The client renews credentials, keeps connections and
tries again as all of ours do.
"""

from __future__ import annotations

import io
from contextlib import closing
from typing import TYPE_CHECKING, cast

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.retries import attempts

if TYPE_CHECKING:
    from types import TracebackType

    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client

_NOT_THERE = ("404", "NoSuchKey", "NotFound")


class S3FileIO(FileIO):
    """All files of one commit. Raises what botocore raises; of an object that is not there FileNotFoundError."""

    def __init__(self, s3: S3Client) -> None:
        super().__init__()
        self._s3 = s3

    def new_input(self, location: str) -> InputFile:
        """The object, to be read."""
        return _Object(location, self._s3)

    def new_output(self, location: str) -> OutputFile:
        """The object, to be written."""
        return _NewObject(location, self._s3)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the object; one that is not there is no error. Raises OSError, which PyIceberg takes as a warning."""
        where = S3Address.parse(location if isinstance(location, str) else location.location)
        try:
            self._s3.delete_object(Bucket=where.bucket, Key=where.key)
        except (ClientError, BotoCoreError) as error:
            raise OSError(f"{where} could not be deleted: {error}") from error


class _Object(InputFile):
    def __init__(self, location: str, s3: S3Client) -> None:
        super().__init__(location)
        self._s3 = s3
        self._where = S3Address.parse(location)

    def __len__(self) -> int:
        return self._s3.head_object(Bucket=self._where.bucket, Key=self._where.key)["ContentLength"]

    def exists(self) -> bool:
        try:
            len(self)
        except ClientError as error:
            if error.response["Error"]["Code"] in _NOT_THERE:
                return False
            raise
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002
        for last in attempts():
            try:
                # Entered itself, a body gives out the stream below it, which does not notice that something is missing.
                with closing(self._body()) as body:
                    return cast("InputStream", io.BytesIO(body.read()))
            except BotoCoreError:
                # A body that ends too soon: botocore tries requests again, but not what it has begun to hand over.
                if last:
                    raise
        raise AssertionError("every attempt returns or raises")

    def _body(self) -> StreamingBody:
        try:
            return self._s3.get_object(Bucket=self._where.bucket, Key=self._where.key)["Body"]
        except ClientError as error:
            if error.response["Error"]["Code"] in _NOT_THERE:
                raise FileNotFoundError(f"{self._where} is not there") from error
            raise


class _NewObject(OutputFile):
    def __init__(self, location: str, s3: S3Client) -> None:
        super().__init__(location)
        self._s3 = s3
        self._written: int | None = None

    def __len__(self) -> int:
        return self._written if self._written is not None else len(self.to_input_file())

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _Object(self.location, self._s3)

    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self.exists():
            raise FileExistsError(f"{self.location} is there already")
        return cast("OutputStream", _Upload(self))

    def put(self, content: bytes) -> None:
        where = S3Address.parse(self.location)
        self._s3.put_object(Bucket=where.bucket, Key=where.key, Body=content)
        self._written = len(content)


class _Upload(io.BytesIO):
    """Becomes the object when it is closed, unless the block that writes it fails."""

    def __init__(self, target: _NewObject) -> None:
        super().__init__()
        self._target = target

    def close(self) -> None:
        content, closed = (b"", True) if self.closed else (self.getvalue(), False)
        super().close()
        if not closed:
            self._target.put(content)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            super().close()

    def __del__(self) -> None:
        """Leave an upload that was given up as it is: garbage collection is no reason to send it."""
        super().close()
