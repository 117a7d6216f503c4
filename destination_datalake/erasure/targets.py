"""Erase rows from objects that are not files of a table, and list all targets besides Iceberg tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import NoSuchTableError

from destination_datalake.archive.ledger import remove_hashes
from destination_datalake.archive.objects import ARCHIVE_FOLDER, table_folder
from destination_datalake.aws.errors import explain
from destination_datalake.aws.objects import S3Address, delete, folders_in, get, listed
from destination_datalake.erasure.columns import TableColumns, redirected_columns, with_zone_of
from destination_datalake.erasure.objects import Group, Objects, stored_in
from destination_datalake.erasure.place import ErasedObject, ErasureStats
from destination_datalake.erasure.tables import DroppedTableTarget, HiveTarget, as_failures, table_erasure
from destination_datalake.files.erase import Erased, NotErased, StoredObject
from destination_datalake.files.plan import KEY_CHANGED, UNKNOWN, SourceFile
from destination_datalake.records.decoded import FIELD_SIZE_LIMITATION, SERIALIZATION_ERROR
from destination_datalake.records.record import RECORD_TIME_OUT_OF_RANGE, RECORD_UNREADABLE
from destination_datalake.rejects.ledger import REJECTS_FOLDER
from destination_datalake.tables.catalog import is_iceberg
from destination_datalake.tables.iceberg.erasure.plan import NoSuchColumn, manifest_reveals_id
from destination_datalake.tables.iceberg.maintenance.references import read_concurrently
from destination_datalake.tables.naming import REBUILD_SUFFIX, REPLAY_SUFFIX
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import MultipartUploadTypeDef

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.erasure.place import ErasureTarget, Request
    from destination_datalake.files.erase import EraseResult
    from destination_datalake.schema.types import Field
    from destination_datalake.tables.iceberg.erasure.erase import TableErasure


# --- Archive and rejects ----------------------------------------------------------------------------------------------
# Erase rows from the archive (RECORD lines as received) and from the rejects (dead letters with the originals).

_REASONS = (
    SERIALIZATION_ERROR,
    FIELD_SIZE_LIMITATION,
    RECORD_TIME_OUT_OF_RANGE,
    RECORD_UNREADABLE,
    KEY_CHANGED,
)
"""The reasons of rejects. Each reason has a folder."""


class _Records(Objects):
    """Objects with records of a table's stream, searched by the table's column."""

    def __init__(self, request: Request, table: TableName, name: str) -> None:
        super().__init__(request, table, f"{name} of table {table}")

    def columns(self) -> tuple[Field, ...]:
        """Return the fields of the records that the column's values come from."""
        found = TableColumns.of(self.table, self.request).in_records(self.request.column)
        return with_zone_of(self.request.types.get(self.table), found)


class Archive(_Records):
    """The archived lines of a table, and leftover metadata of a `replay --replace`, whose bounds can contain IDs."""

    content = "archive"

    def __init__(self, request: Request, table: TableName) -> None:
        super().__init__(request, table, "Archive")
        self._folder = table_folder(request.config.uri(ARCHIVE_FOLDER), *table)

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folder of the present and former objects."""
        return (self._folder,)

    def takes(self, uri: str) -> bool:
        """Return whether an object has lines; the others are journal entries and catalogs."""
        return uri.removeprefix(f"{self._folder}/").startswith("dt=")

    def groups(self) -> Iterator[Group]:
        """Yield the archived objects, one per group."""
        for day in folders_in(self.access.client("s3"), self._folder):
            if day.startswith("dt="):
                yield from ((each,) for each in stored_in(self.access, f"{self._folder}/{day}"))

    def find(self) -> Iterator[ErasedObject]:
        """Yield each object with lines of the IDs, and metadata with bounds of values."""
        yield from super().find()
        for uri in self._leftover_metadata():
            yield ErasedObject(uri, -1, reason="leftover metadata of a completed `replay --replace`")

    def erase(self) -> Iterator[ErasedObject]:
        """Rewrite archived objects without the rows, and delete the metadata."""
        yield from super().erase()
        s3 = self.access.client("s3")
        for uri in self._leftover_metadata():
            delete(s3, uri)
            yield ErasedObject(uri, -1, -1, "removed")

    def _run(self, groups: Sequence[Group], *, write: bool) -> Iterator[EraseResult]:
        """Run the job. Remove the hashes of objects from the journal first, as a rewrite changes them."""
        if write:
            remove_hashes(self._folder, [each.uri for group in groups for each in group], self.access)
        yield from super()._run(groups, write=write)

    def _leftover_metadata(self) -> list[str]:
        """Return the metadata of replaced tables (`replay --replace`) that no table references."""
        rebuilt = TableName(self.table.database, f"{self.table.table}{REBUILD_SUFFIX}")
        if not self._columns or self.request.catalog.find(rebuilt) is not None:
            return []
        return [uri for uri, _ in listed(self.access.client("s3"), f"{self._folder}/replay/metadata")]


class Rejects(_Records):
    """The dead letters of a table, and of the tables that replays made from it."""

    content = "rejects"

    def __init__(self, request: Request, table: TableName) -> None:
        super().__init__(request, table, "Rejects")

    def groups(self) -> Iterator[Group]:
        """Yield the objects of each attempt at a unit, of all reasons together."""
        yield from by_attempt(each for folder in self.folders for each in stored_in(self.access, folder))

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders of the present and former objects: one for each reason and table."""
        root = self.request.config.uri(REJECTS_FOLDER)
        tables = [f"{self.table}{suffix}" for suffix in ("", REPLAY_SUFFIX, REBUILD_SUFFIX)]
        # A reason without current objects can have noncurrent versions, so include all known reasons.
        reasons = dict.fromkeys((*_REASONS, *folders_in(self.access.client("s3"), root)))
        return tuple(f"{root}/{reason}/{table}" for reason in reasons for table in tables)


def by_attempt(rejects: Iterable[StoredObject]) -> Iterator[Group]:
    """Yield the objects of each attempt at a unit as a group: they differ only in the folder of the reason."""
    attempts: dict[tuple[str, ...], list[StoredObject]] = defaultdict(list)
    for each in rejects:
        attempts[tuple(each.uri.rsplit("/", 3)[1:])].append(each)
    return (tuple(group) for group in attempts.values())


# --- Versions of objects ----------------------------------------------------------------------------------------------
# Erase rows from noncurrent versions, which a bucket with versioning keeps of replaced and deleted objects.
#
# Versions with rows of the IDs are deleted. All versions in the staging folder are deleted: no sync needs them. A
# version is left if it cannot be read, or if a policy or a lock denies its deletion; the report then has the day on
# which a lifecycle rule deletes it.


@dataclass(frozen=True, slots=True)
class Version:
    """A noncurrent version, the time it became noncurrent, and whether it is a delete marker (without content)."""

    stored: StoredObject
    since: datetime
    is_marker: bool = False


class VersionsOf(Objects):
    """The noncurrent versions of a target's objects, searched like its objects."""

    def __init__(self, request: Request, origin: Objects) -> None:
        super().__init__(request, origin.table, f"Noncurrent versions: {origin.title}")
        self._origin = origin
        self._bucket = _Bucket(origin.access)
        self.content = origin.content

    @property
    def access(self) -> AwsAccess:
        """Return the access to the objects."""
        return self._origin.access

    @property
    def folders(self) -> Sequence[str]:
        """Return the folders of present and former objects."""
        return self._origin.folders

    def columns(self) -> tuple[Field, ...]:
        """Return the column as in the objects."""
        return self._origin.columns()

    def groups(self) -> Iterator[Group]:
        """Yield the versions, grouped like the objects."""
        found = (each for each in self._versions() if self._origin.takes(each.uri))
        return by_attempt(found) if self.content == "rejects" else ((each,) for each in found)

    def find(self) -> Iterator[ErasedObject]:
        """Yield each version with rows of the IDs, and each folder whose versions cannot be listed."""
        for result in self._searched():
            if isinstance(result, NotErased):
                note = f"a noncurrent version that cannot be read: {result.failure.message}"
                yield ErasedObject(result.object.uri, -1, reason=note)
            elif result.found:
                yield ErasedObject(result.object.uri, result.found, reason="a noncurrent version")
        for each in self._revealing_objects():
            yield ErasedObject(each.uri, -1, reason="a noncurrent version of metadata")
        yield from self._bucket.unlisted_folders()

    def erase(self) -> Iterator[ErasedObject]:
        """Delete the versions with such rows, then the delete markers of keys without any other version."""
        for result in [*self._searched()]:
            if isinstance(result, NotErased):
                yield ErasedObject(result.object.uri, -1, 0, "left", reason=result.failure.message)
            elif isinstance(result, Erased) and result.found:
                yield self._bucket.deleted(result.object, result.found)
        for each in self._revealing_objects():
            yield self._bucket.deleted(each, -1)
        self._bucket.delete_lone_markers(self.folders)

    def _versions(self) -> Iterator[StoredObject]:
        found = (each.stored for folder in self.folders for each in self._bucket.noncurrent(folder))
        return (each for each in found if each.size)

    def _revealing_objects(self) -> list[StoredObject]:
        return [each for each in self._versions() if self._origin.tells(each)] if self._origin.has_metadata else []


class TableVersions:
    """The noncurrent versions in the folder of a present Iceberg table, searched by field IDs."""

    def __init__(self, request: Request, table: TableName, folder: str) -> None:
        self._request = request
        self._table = table
        self._folder = folder
        self.name = request.of(f"Noncurrent versions: Iceberg table {table}")
        self.figures = ErasureStats()
        self._bucket = _Bucket(request.access)

    def require(self) -> None:
        """Do nothing: the table's own target checks the preconditions."""

    def find(self) -> Iterator[ErasedObject]:
        """Yield each version that has rows, reveals an ID, or cannot be read."""
        for stored, rows in self._searched():
            yield ErasedObject(stored.uri, rows or -1, reason="a noncurrent version" if rows else _UNREADABLE)
        yield from self._bucket.unlisted_folders()

    def erase(self) -> Iterator[ErasedObject]:
        """Delete the versions that have rows or reveal an ID; leave those that cannot be read."""
        for stored, rows in [*self._searched()]:
            if rows:
                yield self._bucket.deleted(stored, rows)
            else:
                yield ErasedObject(stored.uri, -1, 0, "left", reason=_UNREADABLE)
        self._bucket.delete_lone_markers([self._folder])

    def _searched(self) -> Iterator[tuple[StoredObject, int]]:
        """Yield versions with their rows: -1 for a manifest that reveals an ID, 0 for an unreadable version."""
        try:
            with as_failures(self._table):
                erasure = table_erasure(self._table, self._request)
        except (NoSuchTableError, NoSuchColumn):
            return
        self.figures.objects = self.figures.objects_read = 0
        found = (each.stored for each in self._bucket.noncurrent(self._folder))
        rest = (each for each in found if each.size and not each.uri.endswith(_NO_ROWS))
        while batch := [*islice(rest, _MAX_BATCH)]:
            self.figures.objects += len(batch)
            manifests = [each for each in batch if each.uri.endswith(".avro")]
            yield from ((each, -1) for each in self._revealing_objects(manifests, erasure))
            for files in _by_distinct_uri(each for each in batch if not each.uri.endswith(".avro")):
                yield from self._located(files, erasure)

    def _revealing_objects(self, manifests: Sequence[StoredObject], erasure: TableErasure) -> list[StoredObject]:
        s3, column = self._request.access.client("s3"), erasure.column.field
        self.figures.objects_read += len(manifests)

        def tells(stored: StoredObject) -> bool:
            try:
                content = get(s3, stored.uri, version=stored.version)
            except s3.exceptions.ClientError as error:
                if error.response["Error"]["Code"] in ("NoSuchKey", "NoSuchVersion"):
                    return False  # A lifecycle rule has just deleted it.
                raise
            return manifest_reveals_id(content, [column.field_type], erasure.request.ids, column.field_id)

        return [each for each, is_told in zip(manifests, read_concurrently(tells, manifests), strict=True) if is_told]

    def _located(self, files: Mapping[str, StoredObject], erasure: TableErasure) -> Iterator[tuple[StoredObject, int]]:
        sources = [SourceFile(uri, each.size, UNKNOWN, version=each.version) for uri, each in files.items()]
        with as_failures(self._table):
            found = erasure.located(sources)
        self.figures.objects_read += found.searched
        yield from ((files[uri], rows.count) for uri, rows in found.files.items())
        yield from ((files[uri], 0) for uri in found.unreadable)


_NO_ROWS = (".metadata.json", ".metadata.json.gz", ".puffin", ".stats", "version-hint.text")
"""Suffixes of metadata files without rows and bounds."""

_UNREADABLE = (
    "a noncurrent version that is neither Parquet nor Avro, or is corrupted: cannot determine whether it has such "
    "rows. Delete the version if it is not needed, and run the command again"
)

_MAX_BATCH = 5_000
"""Maximum number of versions per search, which limits memory."""


def _by_distinct_uri(stored: Iterable[StoredObject]) -> list[dict[str, StoredObject]]:
    """Return versions in groups that have at most one version of an object."""
    groups: list[dict[str, StoredObject]] = []
    for each in stored:
        group = next((group for group in groups if each.uri not in group), None)
        if group is None:
            groups.append(group := {})
        group[each.uri] = each
    return groups


class AllVersions:
    """All noncurrent versions of folders with temporary objects."""

    def __init__(self, access: AwsAccess, folders: Sequence[str], name: str) -> None:
        self._access = access
        self._folders = folders
        self.name = name
        self.figures = ErasureStats()
        self._bucket = _Bucket(access)

    def require(self) -> None:
        """Do nothing: versions that cannot be deleted are reported as left."""

    def find(self) -> Iterator[ErasedObject]:
        """Yield all versions, without searching them."""
        for folder in self._folders:
            for each in self._bucket.noncurrent(folder):
                yield ErasedObject(each.stored.uri, -1, reason="a noncurrent version")
        yield from self._bucket.unlisted_folders()

    def erase(self) -> Iterator[ErasedObject]:
        """Delete all versions."""
        for folder in self._folders:
            for each in [*self._bucket.noncurrent(folder)]:
                yield self._bucket.deleted(each.stored, -1)
        self._bucket.delete_lone_markers(self._folders)


class _Bucket:
    """Lists and deletes versions of a bucket's objects."""

    def __init__(self, access: AwsAccess) -> None:
        self._access = access
        self.unlisted: dict[str, str] = {}
        """Folders without permission to list versions, with the reason."""
        self._since: dict[tuple[str, str | None], datetime] = {}
        self._emptied: set[str] = set()
        self._lifecycle: dict[str, Sequence[Any]] = {}

    @property
    def _s3(self) -> S3Client:
        return self._access.client("s3")

    def noncurrent(self, folder: str) -> Iterator[Version]:
        """Yield the noncurrent versions with content in a folder; none in a bucket without versioning.

        Adds the folder to `unlisted` if the permission to list versions is missing.
        """
        for each in self._versions(folder):
            if not each.is_marker:
                self._since[each.stored.uri, each.stored.version] = each.since
                yield each

    def deleted(self, stored: StoredObject, found: int) -> ErasedObject:
        """Delete a version, or return why it is left."""
        try:
            self._s3.delete_object(**_named(stored))
        except self._s3.exceptions.ClientError as error:
            code = error.response["Error"]["Code"]
            ends = self._end(S3Address.parse(stored.uri), self._since.get((stored.uri, stored.version)))
            reason = f"cannot delete this noncurrent version ({code}{self._lock(stored)}); {ends}"
            return ErasedObject(stored.uri, found, 0, "left", reason=reason)
        self._emptied.add(stored.uri)
        return ErasedObject(stored.uri, found, max(found, 0), "removed", versions_deleted=1)

    def unlisted_folders(self) -> Iterator[ErasedObject]:
        """Yield the folders whose versions could not be listed and therefore not searched."""
        return (ErasedObject(folder, -1, reason=reason) for folder, reason in self.unlisted.items())

    def delete_lone_markers(self, folders: Sequence[str]) -> None:
        """Delete the delete markers of keys whose last versions were deleted here."""
        if not self._emptied:
            return
        markers: dict[str, list[StoredObject]] = {}
        others: set[str] = set()
        for folder in folders:
            for each in self._versions(folder, current=True):
                if each.stored.uri in self._emptied:
                    if each.is_marker:
                        markers.setdefault(each.stored.uri, []).append(each.stored)
                    else:
                        others.add(each.stored.uri)
        for uri in markers.keys() - others:
            for stored in markers[uri]:
                self._s3.delete_object(**_named(stored))

    def _versions(self, folder: str, *, current: bool = False) -> Iterator[Version]:
        address = S3Address.parse(f"{folder}/")
        pages = self._s3.get_paginator("list_object_versions")
        newer: tuple[str, datetime] = ("", datetime.now(UTC))
        try:
            for page in pages.paginate(Bucket=address.bucket, Prefix=address.key):
                entries: list[Any] = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
                # S3 lists versions and delete markers separately, each in order: merge them, newest first.
                entries.sort(key=lambda each: (each["Key"], not each["IsLatest"], -each["LastModified"].timestamp()))
                for each in entries:
                    since = newer[1] if newer[0] == each["Key"] else each["LastModified"]
                    newer = (each["Key"], each["LastModified"])
                    if each["IsLatest"] and not current:
                        continue
                    uri = str(S3Address(address.bucket, each["Key"]))
                    stored = StoredObject(uri, each.get("ETag", ""), each.get("Size", 0), each["VersionId"])
                    yield Version(stored, since, is_marker="ETag" not in each)
        except self._s3.exceptions.ClientError as error:
            failure = explain(error, doing="list the versions of objects in", resource=f"{folder}/")
            if failure is None or failure.missing is None:
                raise
            if self._has_versions(address.bucket):
                self.unlisted[f"{folder}/"] = f"its noncurrent versions could not be listed: {failure.message}"

    def _has_versions(self, bucket: str) -> bool:
        """Return whether a bucket may have noncurrent versions: it has or had versioning, or the check is denied."""
        try:
            return "Status" in self._s3.get_bucket_versioning(Bucket=bucket)
        except self._s3.exceptions.ClientError:
            return True

    def _lock(self, stored: StoredObject) -> str:
        """Return the end of a version's Object Lock, as part of a sentence."""
        try:
            head = self._s3.head_object(**_named(stored))
        except self._s3.exceptions.ClientError:
            return ""
        until = head.get("ObjectLockRetainUntilDate")
        hold = ", and has a legal hold" if head.get("ObjectLockLegalHoldStatus") == "ON" else ""
        return (f", Object Lock keeps it until {until:%Y-%m-%d}" if until is not None else "") + hold

    def _end(self, address: S3Address, since: datetime | None) -> str:
        """Return the day on which a lifecycle rule deletes a version, as a clause."""
        days = [
            rule["NoncurrentVersionExpiration"]["NoncurrentDays"]
            for rule in self._rules(address.bucket)
            if "NoncurrentDays" in rule.get("NoncurrentVersionExpiration", {})
            and address.key.startswith(_prefix_of(rule) or "")
            and _prefix_of(rule) is not None
        ]
        if not days or since is None:
            return "no known lifecycle rule deletes it"
        # S3 rounds up to the next midnight in UTC.
        end = (since + timedelta(days=min(days) + 1)).date()
        return f"a lifecycle rule deletes it on {end.isoformat()}"

    def _rules(self, bucket: str) -> Sequence[Any]:
        if bucket not in self._lifecycle:
            try:
                rules: Sequence[Any] = self._s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
            except self._s3.exceptions.ClientError:
                rules = ()
            self._lifecycle[bucket] = [rule for rule in rules if rule["Status"] == "Enabled"]
        return self._lifecycle[bucket]


def _named(stored: StoredObject) -> dict[str, Any]:
    """Return the S3 parameters that identify a version."""
    address = S3Address.parse(stored.uri)
    return {"Bucket": address.bucket, "Key": address.key, "VersionId": stored.version}


def _prefix_of(rule: Any) -> str | None:
    """Return the key prefix of a lifecycle rule; None if the rule also filters by other properties."""
    if "Filter" not in rule:
        prefix: str = rule.get("Prefix", "")
        return prefix
    found = rule["Filter"]
    return found.get("Prefix", "") if found.keys() <= {"Prefix"} else None


# --- List of targets --------------------------------------------------------------------------------------------------
# List the erasure targets besides Iceberg tables, in the order of their erasure.
#
# Two targets are defined here: the staged records of failed syncs in the folder `_staging/`, and incomplete multipart
# uploads.


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
