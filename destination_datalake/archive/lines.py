"""Archived lines as replays encode them again, on executors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from gzip import BadGzipFile
from typing import TYPE_CHECKING

from destination_datalake.aws.objects import PIECE_BYTES, get, gunzipped
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.segments import Content, naming_lost_object

if TYPE_CHECKING:
    from pyroaring import BitMap

    from destination_datalake.aws.access import AwsAccess

MAX_MEMBER_BYTES = 512 * 1024 * 1024
"""Bytes that a member of an archived object may have. It is written with a hundredth of that, and one record."""


class ArchiveGone(ConnectorError):
    """An object of the archive is not in S3 any more, or is another one."""

    def __init__(self, uri: str) -> None:
        message = (
            f"{uri} was deleted or replaced while it was read: a lifecycle rule of the bucket, or somebody, did so. "
            "Run the replay again: it goes on with what is there then."
        )
        super().__init__(Failure(message, f"{uri} is gone or was replaced", "transient_error"))


class ArchiveDamaged(ConnectorError):
    """An object of the archive is not as it was written."""

    def __init__(self, uri: str, reason: str) -> None:
        message = (
            f"{uri} cannot be replayed: another program has changed it ({reason}). Restore it from a copy, or delete "
            "it to replay the other objects without it."
        )
        super().__init__(Failure(message, f"{uri}: {reason}", "config_error"))


@dataclass(frozen=True, slots=True)
class ArchivedLines:
    """An object of the archive, of `size` bytes, which is encoded again: a SegmentSource.

    Rows are made of `only` these lines, by their numbers. `sha256` is the hash that the object's bytes must have; empty
    if it is not known.
    """

    uri: str
    etag: str
    size: int
    only: BitMap | None = None
    sha256: str = ""

    def contents(self, access: AwsAccess) -> Iterator[Content]:
        """Yield the members, flattened as lines are when they are received: that saves parsing.

        Lines that are empty were erased (`files.erase`). Raises ArchiveGone, ArchiveDamaged, SegmentUnreadable, and
        what botocore raises.
        """
        import numpy as np

        from destination_datalake.protocol.frames import Frame, line_bounds

        frame: Frame | None = None
        lines = 0
        for member in self._members(access):
            octets = np.frombuffer(member, np.uint8)
            starts, ends = line_bounds(octets)
            is_erased = starts == ends
            first = int(np.argmin(is_erased))
            frame = frame or Frame.of(bytes(member[starts[first] : ends[first]]))
            fits = np.zeros(len(ends), np.bool_) if frame is None else frame.fits(octets, starts, ends)
            if frame is not None:
                frame.flatten(octets, starts[fits], ends[fits])
            fit_all = bool((fits | is_erased).all())
            content = Content(
                member, frame if fits.any() else None, mixed=not fits.all(), left_out=int(np.count_nonzero(is_erased))
            )
            if self.only is not None:
                numbers = range(lines, lines + len(ends))
                content = content.without(np.array([number not in self.only for number in numbers], np.bool_))
            yield content
            lines += len(ends)
            if not fit_all:
                frame = None  # The next member's first line may tell a better one.

    def _members(self, access: AwsAccess) -> Iterator[bytearray]:
        """Yield the members of the object, each of whole lines."""
        s3 = access.client("s3")
        hashed = hashlib.sha256()

        def pieces() -> Iterator[bytes]:
            for start in range(0, self.size, PIECE_BYTES):
                piece = get(s3, self.uri, start, min(start + PIECE_BYTES, self.size), etag=self.etag)
                hashed.update(piece)
                yield piece

        with naming_lost_object(self.uri, ArchiveGone):
            try:
                for member in filter(None, gunzipped(pieces(), MAX_MEMBER_BYTES)):
                    if not member.endswith(b"\n"):
                        raise ArchiveDamaged(self.uri, "its last line has no end")
                    yield member
            except (EOFError, BadGzipFile) as error:
                raise ArchiveDamaged(self.uri, str(error)) from error
        if self.sha256 and hashed.hexdigest() != self.sha256:
            raise ArchiveDamaged(self.uri, "its hash is not that of the journal")
