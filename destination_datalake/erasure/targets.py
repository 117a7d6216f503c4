"""List the erasure targets besides Iceberg tables, in the order of their erasure.

Two targets are defined here: the staged records of failed syncs in the folder `_staging/`, and incomplete multipart
uploads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.errors import explain
from destination_datalake.aws.objects import delete, listed
from destination_datalake.erasure.archived import Archive, Rejects
from destination_datalake.erasure.columns import redirected_columns
from destination_datalake.erasure.dropped import DroppedTableTarget
from destination_datalake.erasure.hive import HiveTarget
from destination_datalake.erasure.place import ErasedObject, ErasureStats
from destination_datalake.erasure.versions import AllVersions, TableVersions, VersionsOf
from destination_datalake.tables.catalog import is_iceberg

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import MultipartUploadTypeDef

    from destination_datalake.erasure.objects import Objects
    from destination_datalake.erasure.place import ErasureTarget, Request
    from destination_datalake.tables.table import TableName


STAGING_FOLDER = "_staging"

_MAX_SYNC_AGE = timedelta(hours=24)
"""Age of the last write after which a sync counts as dead; the same limit as in the reports of syncs."""


class Staging:
    """Staged records of all streams. They are not needed once their sync is dead."""

    name = "Staged records"

    def __init__(self, request: Request) -> None:
        self._access = request.access
        self._folder = request.config.uri(STAGING_FOLDER)
        self.figures = ErasureStats()

    def require(self) -> None:
        """Do nothing."""

    def find(self) -> Iterator[ErasedObject]:
        """Yield all objects."""
        for uri, is_dead in self._objects():
            reason = "of a dead sync" if is_dead else "of a sync that may be running: let it end and run again"
            yield ErasedObject(uri, -1, reason=reason)

    def erase(self) -> Iterator[ErasedObject]:
        """Delete the objects of dead syncs."""
        s3 = self._access.client("s3")
        for uri, is_dead in [*self._objects()]:
            if is_dead:
                delete(s3, uri)
                yield ErasedObject(uri, -1, -1, "removed")
            else:
                reason = "of a sync that may be running; let it end and run the command again"
                yield ErasedObject(uri, -1, 0, "left", reason=reason)

    def _objects(self) -> Iterator[tuple[str, bool]]:
        """Yield each object, and whether its sync is dead."""
        found: dict[str, list[str]] = {}
        latest: dict[str, datetime] = {}
        for uri, entry in listed(self._access.client("s3"), self._folder):
            sync = uri.removeprefix(f"{self._folder}/").partition("/")[0]
            found.setdefault(sync, []).append(uri)
            latest[sync] = max(latest.get(sync, entry["LastModified"]), entry["LastModified"])
        now = datetime.now(UTC)
        for sync, uris in found.items():
            yield from ((uri, now - latest[sync] > _MAX_SYNC_AGE) for uri in uris)


class Uploads:
    """Incomplete multipart uploads of killed syncs. Their content would become visible if they were completed.

    Old uploads are aborted. A recent upload may belong to a running sync; it is only reported.
    """

    name = "Incomplete uploads"

    def __init__(self, request: Request) -> None:
        self._s3 = request.access.client("s3")
        self._folder = S3Address.parse(request.config.uri(""))
        self.figures = ErasureStats()

    def require(self) -> None:
        """Do nothing."""

    def find(self) -> Iterator[ErasedObject]:
        """Yield the old uploads. S3 cannot read their content."""
        young = []
        for name, upload in self._uploads():
            if datetime.now(UTC) - upload["Initiated"] > _MAX_SYNC_AGE:
                yield ErasedObject(name, -1, reason=f"an upload started on {upload['Initiated']:%Y-%m-%d}")
            else:
                young.append(upload["Initiated"])
        if young:
            since = f"{min(young):%Y-%m-%d %H:%M} UTC"
            self.figures.note(
                f"{self._folder} has {len(young)} incomplete uploads, the oldest started at {since}: they may have "
                "rows, and may belong to running syncs. This command aborts uploads older than 24 hours; "
                "`aws s3api list-multipart-uploads` and `abort-multipart-upload` list and abort others."
            )

    def erase(self) -> Iterator[ErasedObject]:
        """Abort the old uploads."""
        for name, upload in [*self._uploads()]:
            if datetime.now(UTC) - upload["Initiated"] > _MAX_SYNC_AGE:
                id_ = upload["UploadId"]
                with suppress(self._s3.exceptions.NoSuchUpload):
                    self._s3.abort_multipart_upload(Bucket=self._folder.bucket, Key=upload["Key"], UploadId=id_)
                yield ErasedObject(name, -1, -1, "removed")

    def _uploads(self) -> Iterator[tuple[str, MultipartUploadTypeDef]]:
        pages = self._s3.get_paginator("list_multipart_uploads")
        try:
            for page in pages.paginate(Bucket=self._folder.bucket, Prefix=self._folder.key):
                for each in page.get("Uploads", []):
                    yield f"{S3Address(self._folder.bucket, each['Key'])}?uploadId={each['UploadId']}", each
        except self._s3.exceptions.ClientError as error:
            failure = explain(error, doing="list the incomplete uploads in", resource=f"{self._folder}")
            if failure is None or failure.missing is None:
                raise
            self.figures.note(f"Incomplete uploads were not searched: {failure.message}")


def requests_by_column(request: Request, table: TableName) -> list[Request]:
    """Return the request, and one for each column that its values were redirected to. Raises AWS errors."""
    return [request, *map(request.redirected_to, redirected_columns(table, request))]


def erasure_targets(request: Request, tables: Sequence[TableName]) -> Sequence[ErasureTarget]:
    """Return the targets of the tables, noncurrent versions last. Raises AWS errors."""
    targets: list[Objects] = []
    table_versions: list[TableVersions] = []
    for table, column_request in ((name, each) for name in tables for each in requests_by_column(request, name)):
        found = request.catalog.find(table)
        if not (request.config.table_type == "ICEBERG" if found is None else is_iceberg(found)):
            targets.append(HiveTarget(column_request, table))
        else:
            targets.append(DroppedTableTarget(column_request, table))
            if found is not None:
                folder = found.get("StorageDescriptor", {}).get("Location", "").rstrip("/")
                table_versions += [TableVersions(column_request, table, folder)] if folder else []
        targets += [Archive(column_request, table), Rejects(column_request, table)]
    staging_versions = AllVersions(
        request.access, [request.config.uri(STAGING_FOLDER)], f"Noncurrent versions: {Staging.name}"
    )
    versions = [VersionsOf(each.request, each) for each in targets]
    return [*targets, Staging(request), Uploads(request), *versions, *table_versions, staging_versions]
