"""All places of tables that are no Iceberg data files, in the order in which they are erased."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from destination_datalake.erasure.archived import Archive, Rejects
from destination_datalake.erasure.hive import HiveTablePlace
from destination_datalake.erasure.staging import STAGING_FOLDER, Staging
from destination_datalake.erasure.versions import AllVersions, VersionsOf
from destination_datalake.tables.catalog import is_iceberg

if TYPE_CHECKING:
    from destination_datalake.erasure.objects import Objects
    from destination_datalake.erasure.place import Place, Request
    from destination_datalake.tables.table import TableName


def places(request: Request, tables: Sequence[TableName]) -> Sequence[Place]:
    """Return the places of the tables, noncurrent versions last. Raises errors of AWS."""
    origins: list[Objects] = []
    locations: list[str] = []
    for table in tables:
        found = request.catalog.find(table)
        if not (request.config.table_type == "ICEBERG" if found is None else is_iceberg(found)):
            origins.append(HiveTablePlace(request, table))
        elif found is not None:
            locations.append(found.get("StorageDescriptor", {}).get("Location", "").rstrip("/"))
        origins += [Archive(request, table), Rejects(request, table)]
    staging = request.config.uri(STAGING_FOLDER)
    removed = AllVersions(request.access, [staging, *filter(None, locations)], "Noncurrent versions of removed files")
    return [*origins, Staging(request), *(VersionsOf(request, each) for each in origins), removed]
