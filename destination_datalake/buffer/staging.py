"""Makes segments readable for executors: on this machine's disk, or in S3 for executors on other machines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from destination_datalake.aws.address import S3Address
from destination_datalake.buffer.segments import Segment

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess


class Staging(Protocol):
    """Makes segments readable for executors."""

    def stage(self, segment: Segment) -> str:
        """Return the location that executors read the segment from."""

    def delete(self, locations: Iterable[str]) -> None:
        """Delete what `stage` has made at these locations."""


class LocalStaging:
    """For executors on this machine, which read the segment's own file."""

    def stage(self, segment: Segment) -> str:
        """Return the segment's path."""
        return str(segment.path)

    def delete(self, locations: Iterable[str]) -> None:
        """Do nothing: the file is the buffer's."""


class RemoteStaging:
    """For executors on other machines: segments are uploaded to `folder`, the S3 URI of a folder for this sync only."""

    def __init__(self, folder: str, access: AwsAccess) -> None:
        self._folder = folder
        self._access = access

    def stage(self, segment: Segment) -> str:
        """Upload the segment and return its S3 URI."""
        uri = f"{self._folder}/{segment.path.name}"
        address = S3Address.parse(uri)
        self._access.client("s3").upload_file(str(segment.path), address.bucket, address.key)
        return uri

    def delete(self, locations: Iterable[str]) -> None:
        """Delete the objects."""
        for location in locations:
            address = S3Address.parse(location)
            self._access.client("s3").delete_object(Bucket=address.bucket, Key=address.key)
