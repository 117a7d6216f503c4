"""All places of tables that are no Iceberg data files, in the order in which they are erased.

One of them is here: records that wait for Spark, in the folder `_staging/`. Those of syncs that died are deleted.
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
from destination_datalake.erasure.dropped import DroppedTablePlace
from destination_datalake.erasure.hive import HiveTablePlace
from destination_datalake.erasure.place import ErasedObject, Figures
from destination_datalake.erasure.versions import AllVersions, TableVersions, VersionsOf
from destination_datalake.tables.catalog import is_iceberg

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import MultipartUploadTypeDef

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


class Uploads:
    """Multipart uploads that were begun and not completed, as killed syncs leave them: completed, one is a file.

    Old ones are aborted. A sync that runs may own a young one: it is noted.
    """

    name = "Uploads that are not complete"

    def __init__(self, request: Request) -> None:
        self._s3 = request.access.client("s3")
        self._folder = S3Address.parse(request.config.uri(""))
        self.figures = Figures()

    def require(self) -> None:
        """Do nothing."""

    def find(self) -> Iterator[ErasedObject]:
        """Yield the old ones: whether they have rows of the ids cannot be read."""
        young = []
        for name, upload in self._uploads():
            if datetime.now(UTC) - upload["Initiated"] > _LONGEST:
                yield ErasedObject(name, -1, reason=f"an upload that was begun on {upload['Initiated']:%Y-%m-%d}")
            else:
                young.append(upload["Initiated"])
        if young:
            since = f"{min(young):%Y-%m-%d %H:%M} UTC"
            self.figures.note(
                f"{len(young)} uploads below {self._folder} are not complete, the oldest begun at {since}: they may "
                "have rows, and may be of syncs that run. This command aborts those that are older than 24 hours; "
                "`aws s3api list-multipart-uploads` and `abort-multipart-upload` list and abort others."
            )

    def erase(self) -> Iterator[ErasedObject]:
        """Abort the old ones."""
        for name, upload in [*self._uploads()]:
            if datetime.now(UTC) - upload["Initiated"] > _LONGEST:
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
            failure = explain(error, doing="list the uploads that are not complete in", resource=f"{self._folder}")
            if failure is None or failure.missing is None:
                raise
            self.figures.note(f"Uploads that are not complete were not looked for: {failure.message}")


def by_column(request: Request, table: TableName) -> list[Request]:
    """Return the request, and one for each column that its values were redirected to. Raises errors of AWS."""
    return [request, *map(request.redirected_to, redirected_columns(table, request))]


def places(request: Request, tables: Sequence[TableName]) -> Sequence[Place]:
    """Return the places of the tables, noncurrent versions last. Raises errors of AWS."""
    origins: list[Objects] = []
    of_tables: list[TableVersions] = []
    for table, own in ((name, each) for name in tables for each in by_column(request, name)):
        found = request.catalog.find(table)
        if not (request.config.table_type == "ICEBERG" if found is None else is_iceberg(found)):
            origins.append(HiveTablePlace(own, table))
        else:
            origins.append(DroppedTablePlace(own, table))
            if found is not None:
                folder = found.get("StorageDescriptor", {}).get("Location", "").rstrip("/")
                of_tables += [TableVersions(own, table, folder)] if folder else []
        origins += [Archive(own, table), Rejects(own, table)]
    staged = AllVersions(request.access, [request.config.uri(STAGING_FOLDER)], f"Noncurrent versions: {Staging.name}")
    versions = [VersionsOf(each.request, each) for each in origins]
    return [*origins, Staging(request), Uploads(request), *versions, *of_tables, staged]
