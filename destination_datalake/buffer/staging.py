"""Makes segments readable for executors: on this machine's disk, or in S3 for executors on other machines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from destination_datalake.aws.address import S3Address
from destination_datalake.buffer.segments import Segment
from destination_datalake.files.segments import LocalFile, StagedObject, StagedSegment

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess


class Staging(Protocol):
    """Makes segments readable for executors."""

    def stage(self, segment: Segment) -> StagedSegment:
        """Return where executors read the segment from."""

    def delete(self, segments: Iterable[StagedSegment]) -> None:
        """Delete what `stage` has made."""


class LocalStaging:
    """For executors on this machine, which read the segment's own file."""

    def stage(self, segment: Segment) -> StagedSegment:
        """Return the segment's own file."""
        return StagedSegment(LocalFile(str(segment.path)), segment.bytes)

    def delete(self, segments: Iterable[StagedSegment]) -> None:
        """Do nothing: the file is the buffer's."""


class RemoteStaging:
    """For executors on other machines: segments are uploaded to `folder`, the S3 URI of a folder for this sync only."""

    def __init__(self, folder: str, access: AwsAccess) -> None:
        self._folder = folder
        self._access = access

    def stage(self, segment: Segment) -> StagedSegment:
        """Upload the segment."""
        uri = f"{self._folder}/{segment.path.name}"
        address = S3Address.parse(uri)
        with segment.path.open("rb") as file:
            answer = self._access.client("s3").put_object(Bucket=address.bucket, Key=address.key, Body=file)
        return StagedSegment(StagedObject(uri, answer["ETag"]), segment.bytes)

    def delete(self, segments: Iterable[StagedSegment]) -> None:
        """Delete the objects."""
        for segment in segments:
            if isinstance(segment.location, StagedObject):
                address = S3Address.parse(segment.location.uri)
                self._access.client("s3").delete_object(Bucket=address.bucket, Key=address.key)
