"""Write archived lines during a sync, and read them during a replay. Both run on executors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from gzip import BadGzipFile
from typing import TYPE_CHECKING

from destination_datalake.archive.objects import ArchiveLocation
from destination_datalake.aws.objects import (
    MAX_MEMBER_BYTES,
    MEMBER_BYTES,
    PIECE_BYTES,
    GzipUpload,
    HashedUpload,
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
# Executors read archived lines during a replay.


class ArchiveObjectReplaced(ConnectorError):
    """Raised if a lifecycle rule or another program deleted or replaced an archived object during a replay."""

    def __init__(self, uri: str) -> None:
        message = (
            f"A lifecycle rule or another program deleted or replaced {uri} during the replay. Run the replay again: "
            "it resumes with the objects that still exist."
        )
        super().__init__(Failure(message, f"{uri} was deleted or replaced", "transient_error"))


class ArchiveObjectCorrupted(ConnectorError):
    """Raised if an archived object is damaged.

    The object's hash differs from the journal, its gzip data is invalid, or its last line is incomplete.
    """

    def __init__(self, uri: str, reason: str) -> None:
        message = (
            f"Cannot replay {uri}: another program has changed the object ({reason}). Restore the object from a copy, "
            "or delete it to replay the archive without it."
        )
        super().__init__(Failure(message, f"{uri}: {reason}", "config_error"))


@dataclass(frozen=True, slots=True)
class ArchivedLines:
    """An archived object whose lines a replay encodes.

    `size` is the object's size in bytes. `sha256` is the expected hash of the object, or "" if it is unknown.
    `line_numbers` selects the lines to encode, and starts at 0. None selects all lines.
    """

    uri: str
    etag: str
    size: int
    line_numbers: BitMap | None = None
    sha256: str = ""

    def contents(self, access: AwsAccess) -> Iterator[Content]:
        """Yield the lines of the object, one gzip member at a time.

        Returns an empty line in place of each line that `line_numbers` does not select. Lines that an erasure removed
        (`files.erase`) are empty, too. Encoders skip empty lines. Raises ArchiveObjectReplaced, ArchiveObjectCorrupted,
        SegmentUnreadable, and errors of botocore.
        """
        import numpy as np

        from destination_datalake.protocol.json_text import line_bounds

        preceding_lines = 0
        for member in self._members(access):
            # Positions of each line's first byte and of its newline. They are equal for an empty line.
            starts, ends = line_bounds(np.frombuffer(member, np.uint8))
            content = Content(member, left_out=int(np.count_nonzero(starts == ends)))
            if self.line_numbers is not None:
                # Line numbers count through the whole object, not from the start of a member.
                numbers = range(preceding_lines, preceding_lines + len(ends))
                excluded = [number not in self.line_numbers for number in numbers]
                content = content.without(np.array(excluded, np.bool_))
            yield content
            preceding_lines += len(ends)

    def _members(self, access: AwsAccess) -> Iterator[bytearray]:
        """Yield the object's gzip members, uncompressed. Each member consists of whole lines.

        After the last member, compares the object's hash with `sha256`.
        """
        s3 = access.client("s3")
        digest = hashlib.sha256()

        def pieces() -> Iterator[bytes]:
            for start in range(0, self.size, PIECE_BYTES):
                # With the ETag, S3 rejects the request if another program has replaced the object since the last piece.
                piece = get(s3, self.uri, start, min(start + PIECE_BYTES, self.size), etag=self.etag)
                digest.update(piece)
                yield piece

        with naming_lost_object(self.uri, s3, ArchiveObjectReplaced):
            try:
                # An empty gzip member is valid, but has no last line to check.
                for member in filter(None, gunzipped(pieces(), MAX_MEMBER_BYTES)):
                    if not member.endswith(b"\n"):
                        raise ArchiveObjectCorrupted(self.uri, "its last line is incomplete")
                    yield member
            except (EOFError, BadGzipFile) as error:
                raise ArchiveObjectCorrupted(self.uri, str(error)) from error
        # The caller has already encoded the lines, but this error fails the whole unit, so the replay commits none of
        # them.
        if self.sha256 and digest.hexdigest() != self.sha256:
            raise ArchiveObjectCorrupted(self.uri, "its hash differs from the journal")


# --- Writer -----------------------------------------------------------------------------------------------------------
# The executor that encodes a unit also archives the unit's lines. A unit is the part of a batch that one task encodes.


@dataclass(frozen=True, slots=True)
class ArchiveSink:
    """Archives the lines that tasks encode, in one archived object per unit.

    A unit is the part of a batch that one task encodes.
    """

    location: ArchiveLocation

    def open(
        self, segments: Sequence[StagedSegment], attempt: str, first_id: bytes, s3: S3Client, spool_folder: str | None
    ) -> ArchiveWriter:
        """Return a writer for the lines in `segments`, which together form one unit.

        `attempt` names the attempt of the task, so that a retried task writes another object. `first_id` is the raw ID
        of the first line.
        """
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

    Readers see the object when the driver publishes the batch's lines. If the driver does not commit the batch, it
    deletes the object.
    """

    def __init__(
        self, location: ArchiveLocation, archived: UnitLines, s3: S3Client, spool_folder: str | None = None
    ) -> None:
        """Prepare the upload of the object, without sending requests.

        `archived` describes the unit. If `spool_folder` is set, the writer keeps a small object in this local folder
        until the driver publishes it.
        """
        self._archived = archived
        self._upload = HashedUpload(
            s3,
            f"{location.folder}/{archived.name}",
            deferred=True,
            spool_folder=spool_folder,
            metadata=location.metadata(archived),
        )
        # The upload receives compressed bytes, so its hash is that of the object, not of the lines.
        self._gzip = GzipUpload(self._upload, MEMBER_BYTES)

    def write(self, lines: bytes | bytearray | memoryview) -> None:
        """Append whole lines, exactly as received. Raises ObjectFailed."""
        with self._naming_object():
            self._gzip.write(lines)

    def close(self) -> LineFile:
        """Finish the object, and return its description. Readers do not see the object yet. Raises ObjectFailed."""
        with self._naming_object():
            self._gzip.close()
        assert self._upload.pending_upload is not None
        archived = replace(self._archived, sha256=self._upload.sha256.hexdigest())
        return LineFile(self._upload.uri, archived, self._upload.pending_upload)

    def abort(self) -> None:
        """Delete everything that this writer has written, even after `close`."""
        # `Upload.abort` aborts a multipart upload, but keeps the local file of a deferred upload. The second call below
        # deletes the file, and has no effect on an aborted multipart upload.
        self._upload.abort()
        if self._upload.pending_upload is not None:
            self._upload.pending_upload.abort(self._upload.s3)

    def _naming_object(self) -> AbstractContextManager[None]:
        return naming_object("archive records in", self._upload.uri)
