"""Where executors read segments from: this machine's disk, or S3 when they run on other machines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from destination_datalake.aws.address import S3Address
from destination_datalake.buffer.segments import Segment

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess


class Staging(Protocol):
    """Makes segments reachable for executors."""

    def stage(self, segment: Segment) -> str:
        """Return the location where executors find the segment."""

    def delete(self, locations: Iterable[str]) -> None:
        """Forget places that no executor will read again."""


class LocalStaging:
    """Executors share our disk: the segment's own path will do."""

    def stage(self, segment: Segment) -> str:
        """Return the path."""
        return str(segment.path)

    def delete(self, locations: Iterable[str]) -> None:
        """Do nothing: the buffer deletes its own files."""


class RemoteStaging:
    """Executors are elsewhere: segments go to S3, under `folder` (an S3 URI of this sync's own)."""

    def __init__(self, folder: str, access: AwsAccess) -> None:
        self._folder = folder
        self._access = access

    def stage(self, segment: Segment) -> str:
        """Upload the segment."""
        uri = f"{self._folder}/{segment.path.name}"
        where = S3Address.parse(uri)
        self._access.client("s3").upload_file(str(segment.path), where.bucket, where.key)
        return uri

    def delete(self, locations: Iterable[str]) -> None:
        """Delete the objects."""
        for location in locations:
            where = S3Address.parse(location)
            self._access.client("s3").delete_object(Bucket=where.bucket, Key=where.key)
