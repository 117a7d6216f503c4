"""Write the lines of one unit to the archive, on the executor, while they are encoded."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from destination_datalake.archive.objects import ArchiveLocation
from destination_datalake.aws.objects import MEMBER_BYTES, GzipUpload, Upload, naming_object
from destination_datalake.files.plan import LineFile, UnitLines

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.files.segments import StagedSegment


class _HashedUpload(Upload):
    """An upload that computes the hash of its content."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Hash and send bytes, as `Upload.write`."""
        self.sha256.update(data)
        return super().write(data)


@dataclass(frozen=True, slots=True)
class ArchiveSink:
    """Archives the lines of units: a LineSink."""

    location: ArchiveLocation

    def open(
        self, segments: Sequence[StagedSegment], attempt: str, first_id: bytes, s3: S3Client, held_in: str | None
    ) -> ArchiveWriter:
        """Return the writer of a unit's object."""
        archived = UnitLines(
            self.location.name(attempt),
            lines=sum(segment.records for segment in segments),
            bytes=sum(segment.bytes for segment in segments),
            first_record=segments[0].first_record,
            first_id=first_id.hex(),
        )
        return ArchiveWriter(self.location, archived, s3, held_in)


class ArchiveWriter:
    """Writes an object of gzipped lines. It is published or deleted with the unit's batch."""

    def __init__(
        self, location: ArchiveLocation, archived: UnitLines, s3: S3Client, held_in: str | None = None
    ) -> None:
        """Prepare the upload. `archived` describes the unit's lines; a small object is held in the folder `held_in`."""
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
        """Append complete lines as received. Raises ObjectFailed."""
        with self._named():
            self._gzip.write(lines)

    def close(self) -> LineFile:
        """Upload the rest and return the object: durable, not yet visible. Raises ObjectFailed."""
        with self._named():
            self._gzip.close()
        assert self._upload.pending_upload is not None
        archived = replace(self._archived, sha256=self._upload.sha256.hexdigest())
        return LineFile(self._upload.uri, archived, self._upload.pending_upload)

    def abort(self) -> None:
        """Delete the written content, also after `close`."""
        self._upload.abort()
        if self._upload.pending_upload is not None:
            self._upload.pending_upload.abort(self._upload.s3)

    def _named(self) -> AbstractContextManager[None]:
        return naming_object("archive records in", self._upload.uri)
