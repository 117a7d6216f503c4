"""Write archived lines during a sync, and read them during a replay. Both run on executors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from gzip import BadGzipFile
from typing import TYPE_CHECKING, Any

from destination_datalake.archive.objects import ArchiveLocation
from destination_datalake.aws.objects import (
    MAX_MEMBER_BYTES,
    MEMBER_BYTES,
    PIECE_BYTES,
    GzipUpload,
    Upload,
    get,
    gunzipped,
    naming_object,
)
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.plan import LineFile, UnitLines
from destination_datalake.files.segments import Content, naming_lost_object

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyroaring import BitMap

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.files.segments import StagedSegment


# --- Reader -----------------------------------------------------------------------------------------------------------
# Read archived lines during a replay, on executors.


class ArchiveObjectReplaced(ConnectorError):
    """Raised if an archived object was deleted or replaced while it was read."""

    def __init__(self, uri: str) -> None:
        message = (
            f"A lifecycle rule or another program deleted or replaced {uri} during the replay. Run the replay again: "
            "it resumes with the objects that still exist."
        )
        super().__init__(Failure(message, f"{uri} was deleted or replaced", "transient_error"))


class ArchiveObjectCorrupted(ConnectorError):
    """Raised if an archived object is damaged: its hash, its compression or its last line is wrong."""

    def __init__(self, uri: str, reason: str) -> None:
        message = (
            f"Cannot replay {uri}: another program has changed the object ({reason}). Restore the object from a copy, "
            "or delete it to replay the archive without it."
        )
        super().__init__(Failure(message, f"{uri}: {reason}", "config_error"))


@dataclass(frozen=True, slots=True)
class ArchivedLines:
    """An archived object whose lines a replay encodes.

    `size` is the object's size in bytes, and `sha256` its expected hash, or "" if unknown. `line_numbers` selects the
    lines to encode; None selects all lines.
    """

    uri: str
    etag: str
    size: int
    line_numbers: BitMap | None = None
    sha256: str = ""

    def contents(self, access: AwsAccess) -> Iterator[Content]:
        """Yield the lines of the object, in parts: one per gzip member.

        Lines that `line_numbers` does not select are empty, and so are erased lines (`files.erase`). Encoders skip
        empty lines. Raises ArchiveObjectReplaced, ArchiveObjectCorrupted, SegmentUnreadable, and errors of botocore.
        """
        import numpy as np

        from destination_datalake.protocol.json_text import line_bounds

        preceding_lines = 0
        for member in self._members(access):
            starts, ends = line_bounds(np.frombuffer(member, np.uint8))
            content = Content(member, left_out=int(np.count_nonzero(starts == ends)))
            if self.line_numbers is not None:
                numbers = range(preceding_lines, preceding_lines + len(ends))
                excluded = [number not in self.line_numbers for number in numbers]
                content = content.without(np.array(excluded, np.bool_))
            yield content
            preceding_lines += len(ends)

    def _members(self, access: AwsAccess) -> Iterator[bytearray]:
        """Yield the uncompressed gzip members of the object, which consist of whole lines.

        After the last member, compares the hash of the object with `sha256`.
        """
        s3 = access.client("s3")
        digest = hashlib.sha256()

        def pieces() -> Iterator[bytes]:
            for start in range(0, self.size, PIECE_BYTES):
                piece = get(s3, self.uri, start, min(start + PIECE_BYTES, self.size), etag=self.etag)
                digest.update(piece)
                yield piece

        with naming_lost_object(self.uri, ArchiveObjectReplaced):
            try:
                for member in filter(None, gunzipped(pieces(), MAX_MEMBER_BYTES)):
                    if not member.endswith(b"\n"):
                        raise ArchiveObjectCorrupted(self.uri, "its last line is incomplete")
                    yield member
            except (EOFError, BadGzipFile) as error:
                raise ArchiveObjectCorrupted(self.uri, str(error)) from error
        if self.sha256 and digest.hexdigest() != self.sha256:
            raise ArchiveObjectCorrupted(self.uri, "its hash differs from the journal")


# --- Writer -----------------------------------------------------------------------------------------------------------
# Archive the lines of one unit (the part of a batch that one task encodes), on the executor that encodes them.


class _HashedUpload(Upload):
    """An upload that also computes the SHA-256 hash of its bytes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Add `data` to the hash, and upload it like `Upload.write`."""
        self.sha256.update(data)
        return super().write(data)


@dataclass(frozen=True, slots=True)
class ArchiveSink:
    """Archives the lines that tasks encode. Creates one writer, and thus one archived object, per unit."""

    location: ArchiveLocation

    def open(
        self, segments: Sequence[StagedSegment], attempt: str, first_id: bytes, s3: S3Client, spool_folder: str | None
    ) -> ArchiveWriter:
        """Return a writer for the lines in `segments`, which form a unit: the part of a batch that one task encodes."""
        archived = UnitLines(
            self.location.name(attempt),
            lines=sum(segment.records for segment in segments),
            bytes=sum(segment.bytes for segment in segments),
            first_record=segments[0].first_record,
            first_id=first_id.hex(),
        )
        return ArchiveWriter(self.location, archived, s3, spool_folder)


class ArchiveWriter:
    """Writes the lines of a unit (the part of a batch that one task encodes) to a gzipped object in the archive.

    Readers see the object when the driver publishes the batch's lines. If the batch is not committed, the object is
    deleted.
    """

    def __init__(
        self, location: ArchiveLocation, archived: UnitLines, s3: S3Client, spool_folder: str | None = None
    ) -> None:
        """Prepare the upload of the object, without sending requests.

        `archived` describes the unit. If `spool_folder` is set, a small object stays in this local folder until it is
        published.
        """
        self._archived = archived
        self._upload = _HashedUpload(
            s3,
            f"{location.folder}/{archived.name}",
            deferred=True,
            spool_folder=spool_folder,
            metadata=location.metadata(archived),
        )
        self._gzip = GzipUpload(self._upload, MEMBER_BYTES)

    def write(self, lines: bytes | bytearray | memoryview) -> None:
        """Append whole lines, exactly as received. Raises ObjectFailed."""
        with self._naming_object():
            self._gzip.write(lines)

    def close(self) -> LineFile:
        """Finish the object, and return its description. Readers do not see it yet. Raises ObjectFailed."""
        with self._naming_object():
            self._gzip.close()
        assert self._upload.pending_upload is not None
        archived = replace(self._archived, sha256=self._upload.sha256.hexdigest())
        return LineFile(self._upload.uri, archived, self._upload.pending_upload)

    def abort(self) -> None:
        """Delete everything that was written, even after `close`."""
        self._upload.abort()
        if self._upload.pending_upload is not None:
            self._upload.pending_upload.abort(self._upload.s3)

    def _naming_object(self) -> AbstractContextManager[None]:
        return naming_object("archive records in", self._upload.uri)
