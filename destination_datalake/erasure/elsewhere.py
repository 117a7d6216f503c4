"""All places of tables that are no Iceberg data files, in the order in which they are erased.

One of them is here: records that wait for Spark, in the folder `_staging/`. Those of syncs that died are deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from destination_datalake.aws.objects import delete, listed
from destination_datalake.erasure.archived import Archive, Rejects
from destination_datalake.erasure.columns import redirected_columns
from destination_datalake.erasure.hive import HiveTablePlace
from destination_datalake.erasure.place import ErasedObject, Figures
from destination_datalake.erasure.versions import AllVersions, VersionsOf
from destination_datalake.tables.catalog import is_iceberg

if TYPE_CHECKING:
    from destination_datalake.erasure.objects import Objects
    from destination_datalake.erasure.place import Place, Request
    from destination_datalake.tables.table import TableName


STAGING_FOLDER = "_staging"

_LONGEST = timedelta(hours=24)
"""A sync that has written nothing there for so long is taken for dead, as reports of syncs take one."""


class Staging:
    """What syncs have left there. Its records are of any stream, and nobody needs them once a sync is dead."""

    name = "Records that wait for Spark"

    def __init__(self, request: Request) -> None:
        self._access = request.access
        self._folder = request.config.uri(STAGING_FOLDER)
        self.figures = Figures()

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
        found: dict[str, list[str]] = {}
        latest: dict[str, datetime] = {}
        for uri, entry in listed(self._access.client("s3"), self._folder):
            sync = uri.removeprefix(f"{self._folder}/").partition("/")[0]
            found.setdefault(sync, []).append(uri)
            latest[sync] = max(latest.get(sync, entry["LastModified"]), entry["LastModified"])
        now = datetime.now(UTC)
        for sync, uris in found.items():
            yield from ((uri, now - latest[sync] > _LONGEST) for uri in uris)


def by_column(request: Request, table: TableName) -> list[Request]:
    """Return the request, and one for each column that values of its column were redirected to. Raises errors of AWS."""
    return [request, *map(request.redirected_to, redirected_columns(table, request))]


def places(request: Request, tables: Sequence[TableName]) -> Sequence[Place]:
    """Return the places of the tables, noncurrent versions last. Raises errors of AWS."""
    origins: list[Objects] = []
    locations: list[str] = []
    for table, own in ((table, each) for table in tables for each in by_column(request, table)):
        found = request.catalog.find(table)
        if not (request.config.table_type == "ICEBERG" if found is None else is_iceberg(found)):
            origins.append(HiveTablePlace(own, table))
        elif found is not None:
            locations.append(found.get("StorageDescriptor", {}).get("Location", "").rstrip("/"))
        origins += [Archive(own, table), Rejects(own, table)]
    staging = request.config.uri(STAGING_FOLDER)
    removed = AllVersions(
        request.access, [staging, *dict.fromkeys(filter(None, locations))], "Noncurrent versions of removed files"
    )
    return [*origins, Staging(request), *(VersionsOf(each.request, each) for each in origins), removed]
