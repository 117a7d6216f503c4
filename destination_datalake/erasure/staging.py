"""Records that wait for Spark, in the folder `_staging/`: of syncs that died, all is deleted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.objects import delete
from destination_datalake.erasure.place import ErasedObject, Figures

if TYPE_CHECKING:
    from destination_datalake.erasure.place import Request

STAGING_FOLDER = "_staging"

_LONGEST = timedelta(hours=24)
"""A sync that has written nothing there for so long is taken for dead, as reports of syncs take one."""


class Staging:
    """What syncs have left there. Its records are of any stream, and nobody needs them once a sync is dead."""

    def __init__(self, request: Request) -> None:
        self._access = request.access
        self._folder = request.config.uri(STAGING_FOLDER)
        self._own = f"{request.scratch}/"
        self.figures = Figures()

    @property
    def name(self) -> str:
        """What the place is called in the report."""
        return "Records that wait for Spark"

    def require(self) -> None:
        """Do nothing."""

    def find(self) -> Iterator[ErasedObject]:
        """Yield all objects."""
        for uri, is_dead in self._objects():
            whose = "of a sync that died" if is_dead else "of a sync that may be running: let it end, and run again"
            yield ErasedObject(uri, -1, reason=whose)

    def erase(self) -> Iterator[ErasedObject]:
        """Delete what dead syncs have left."""
        s3 = self._access.client("s3")
        for uri, is_dead in [*self._objects()]:
            if is_dead:
                delete(s3, uri)
                yield ErasedObject(uri, -1, -1, "removed")
            else:
                reason = "it is of a sync that may be running; let it end, and run the command again"
                yield ErasedObject(uri, -1, 0, "left", reason=reason)

    def _objects(self) -> Iterator[tuple[str, bool]]:
        """Yield the objects, and whether the sync that each is of is dead."""
        address = S3Address.parse(f"{self._folder}/")
        pages = self._access.client("s3").get_paginator("list_objects_v2")
        found: dict[str, list[str]] = {}
        latest: dict[str, datetime] = {}
        for page in pages.paginate(Bucket=address.bucket, Prefix=address.key):
            for each in page.get("Contents", []):
                uri = str(S3Address(address.bucket, each["Key"]))
                if uri.startswith(self._own):
                    continue
                sync = each["Key"][len(address.key) :].partition("/")[0]
                found.setdefault(sync, []).append(uri)
                latest[sync] = max(latest.get(sync, each["LastModified"]), each["LastModified"])
        now = datetime.now(UTC)
        for sync, uris in found.items():
            for uri in uris:
                yield uri, now - latest[sync] > _LONGEST
