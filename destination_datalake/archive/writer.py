"""Writes the lines of one unit to the archive, on the executor, beside their encoding."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from destination_datalake.archive.objects import ArchivedObject, ArchiveFile, ArchiveLocation
from destination_datalake.aws.objects import GzipUpload, Upload, naming_object

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MEMBER_BYTES = 16 * 1024 * 1024
"""Bytes of lines in a member of a gzip file. Each begins with a line, so that a reader can split the file there."""


class _HashedUpload(Upload):
    """An upload that hashes what is written."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Hash and send bytes, as `Upload.write`."""
        self.sha256.update(data)
        return super().write(data)


class ArchiveWriter:
    """Writes an object of gzipped lines, which is published or deleted with the unit's batch."""

    def __init__(
        self, location: ArchiveLocation, archived: ArchivedObject, s3: S3Client, held_in: str | None = None
    ) -> None:
        """Write nothing yet. `archived` says what the unit's lines are; a small object is held in this folder."""
        self._archived = archived
        self._upload = _HashedUpload(
            s3,
            f"{location.folder}/{archived.name}",
            deferred=True,
            held_in=held_in,
            metadata=location.metadata(archived),
        )
        self._gzip = GzipUpload(self._upload, MEMBER_BYTES)

    def write(self, lines: bytes | bytearray | memoryview) -> None:
        """Append whole lines as they were received. Raises ObjectFailed."""
        with self._named():
            self._gzip.write(lines)

    def close(self) -> ArchiveFile:
        """Upload the rest; return the object, which is durable and not visible. Raises ObjectFailed."""
        with self._named():
            self._gzip.close()
        assert self._upload.pending_upload is not None
        archived = replace(self._archived, sha256=self._upload.sha256.hexdigest())
        return ArchiveFile(self._upload.uri, archived, self._upload.pending_upload)

    def abort(self) -> None:
        """Delete what was written, also after `close`."""
        self._upload.abort()
        if self._upload.pending_upload is not None:
            self._upload.pending_upload.abort(self._upload.s3)

    def _named(self) -> AbstractContextManager[None]:
        return naming_object("archive records in", self._upload.uri)
