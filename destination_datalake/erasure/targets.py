"""List all erasure targets except Iceberg tables, and erase rows from objects that are not files of a table.

These objects are archived records, rejects, noncurrent versions, staged records and incomplete uploads.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from pyiceberg.exceptions import NoSuchTableError

from destination_datalake.archive.ledger import remove_hashes
from destination_datalake.archive.objects import ARCHIVE_FOLDER, table_folder
from destination_datalake.aws.errors import explain
from destination_datalake.aws.objects import S3Address, delete, folders_in, listed
from destination_datalake.erasure.columns import TableColumns, redirected_columns, with_zone_of
from destination_datalake.erasure.dropped import UndescribedTable, replays_of, table_folders, unused_folders
from destination_datalake.erasure.model import ErasedObject, ErasureTarget
from destination_datalake.erasure.objects import Group, Objects, stored_in
from destination_datalake.erasure.tables import DroppedTableTarget, HiveTarget, as_failures, table_erasure
from destination_datalake.files.erase import NotErased, StoredObject
from destination_datalake.files.plan import KEY_CHANGED, UNKNOWN, SourceFile
from destination_datalake.records.decoded import FIELD_SIZE_LIMITATION, SERIALIZATION_ERROR
from destination_datalake.records.record import RECORD_TIME_OUT_OF_RANGE, RECORD_UNREADABLE
from destination_datalake.rejects.ledger import REJECTS_FOLDER
from destination_datalake.tables.catalog import is_iceberg
from destination_datalake.tables.iceberg.erasure.erase import NO_ROWS
from destination_datalake.tables.iceberg.erasure.plan import NoSuchColumn, manifest_reveals_id
from destination_datalake.tables.iceberg.maintenance.references import read_concurrently
from destination_datalake.tables.naming import REBUILD_SUFFIX, REPLAY_SUFFIX, is_replay_of
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import MultipartUploadTypeDef

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.erasure.model import Request
    from destination_datalake.files.erase import EraseResult
    from destination_datalake.schema.types import Field
    from destination_datalake.tables.iceberg.erasure.erase import TableErasure


# --- Archive and rejects ----------------------------------------------------------------------------------------------
# The archive contains RECORD lines as syncs received them. Rejects contain the original records that syncs rejected.

_REASONS = (
    SERIALIZATION_ERROR,
    FIELD_SIZE_LIMITATION,
    RECORD_TIME_OUT_OF_RANGE,
    RECORD_UNREADABLE,
    KEY_CHANGED,
)
"""All reasons for rejects. Each reason has a folder of the same name, which contains its rejects."""


class _Records(Objects):
    """A target whose objects contain original records of a table's stream.

    The search reads the fields of records that supply the table's column.
    """

    kind: ClassVar[str]

    def __init__(self, request: Request, table: TableName) -> None:
        super().__init__(request, table, f"{self.kind} of table {table}")

    def columns(self) -> tuple[Field, ...]:
        """Return the fields of records that supply the values of the column, now or in earlier syncs."""
        fields = TableColumns.load(self.table, self.request).in_records(self.request.column)
        return with_zone_of(self.request.types.get(self.table), fields)


class Archive(_Records):
    """The archived lines of a table, and metadata files that a `replay --replace` has left in the archive.

    The erasure deletes these metadata files, because their bounds can contain IDs.
    """

    content = "archive"
    kind = "Archive"

    @property
    def _folder(self) -> str:
        return table_folder(self.request.config.uri(ARCHIVE_FOLDER), *self.table)

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folder of the table's archive, as a tuple of one."""
        return (self._folder,)

    def includes(self, uri: str) -> bool:
        """Return whether an object contains archived lines.

        Other objects in the archive are journal entries and stream configurations, which contain no records.
        """
        return uri.removeprefix(f"{self._folder}/").startswith("dt=")

    def groups(self) -> Iterator[Group]:
        """Yield the objects that contain archived lines, each in a group of its own."""
        for day in folders_in(self.access.client("s3"), self._folder):
            if day.startswith("dt="):
                yield from ((stored,) for stored in stored_in(self.access, f"{self._folder}/{day}"))

    def _run(self, groups: Sequence[Group], *, write: bool) -> Iterator[EraseResult]:
        """Search or rewrite archived objects in a Spark job.

        Before a rewrite, removes the hashes of the objects from the journal, because these hashes will not match the
        rewritten objects.
        """
        if write:
            remove_hashes(self._folder, [stored.uri for group in groups for stored in group], self.access)
        yield from super()._run(groups, write=write)

    def metadata(self) -> Sequence[ErasedObject]:
        """Return the metadata files that completed runs of `replay --replace` have left in the archive.

        The bounds in these files may contain IDs. Returns no files while such a replay is unfinished.
        """
        rebuilt = TableName(self.table.database, f"{self.table.table}{REBUILD_SUFFIX}")
        if not self._columns or is_replay_of(self.table, self.request.catalog.find(rebuilt)):
            return []
        reason = "leftover metadata of a completed `replay --replace`"
        leftover = listed(self.access.client("s3"), f"{self._folder}/replay/metadata")
        return [ErasedObject(uri, -1, reason=reason) for uri, _ in leftover]


class Rejects(_Records):
    """The dead letters (rejected records) of a table, and of the tables that replays created from it."""

    content = "rejects"
    kind = "Rejects"

    def groups(self) -> Iterator[Group]:
        """Yield the objects that hold rejects, grouped by the attempt that wrote them (see `by_attempt`)."""
        yield from by_attempt(stored for folder in self.folders for stored in stored_in(self.access, folder))

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders that contain, or have contained, rejects of the table: one for each reason and table.

        Includes the folders of the tables that replays created from this table.
        """
        config = self.request.config
        root = config.uri(REJECTS_FOLDER)
        own = [f"{self.table}{suffix}" for suffix in ("", REPLAY_SUFFIX, REBUILD_SUFFIX)]
        tables = dict.fromkeys((*own, *map(str, replays_of(config, self.access, self.table))))
        # Include all known reasons, because a folder without current objects can contain noncurrent versions.
        reasons = dict.fromkeys((*_REASONS, *folders_in(self.access.client("s3"), root)))
        return tuple(f"{root}/{reason}/{table}" for reason in reasons for table in tables)


def by_attempt(rejects: Iterable[StoredObject]) -> Iterator[Group]:
    """Group the objects that hold rejected records by the attempt that wrote them.

    Each attempt encodes one unit, which is the part of a batch that one task handles. The URIs in a group differ only
    in the folder of the reason.
    """
    attempts: dict[tuple[str, ...], list[StoredObject]] = defaultdict(list)
    for stored in rejects:
        attempts[tuple(stored.uri.rsplit("/", 3)[1:])].append(stored)
    return (tuple(group) for group in attempts.values())


# --- Versions of objects ----------------------------------------------------------------------------------------------
# If a client replaces or deletes an object in a bucket with versioning, S3 keeps a noncurrent version of the object.
#
# The erasure deletes versions that contain rows with one of the IDs. In the staging folder, it deletes all versions,
# because no sync needs them. A version is "left" if it is unreadable, or if a policy or a lock denies its deletion. The
# report then states the day on which a lifecycle rule deletes the version, if this day is known.


@dataclass(frozen=True, slots=True)
class Version:
    """A noncurrent version of an object in a bucket with versioning.

    `since` is the time at which the version became noncurrent. `is_marker` is true for a delete marker, which is a
    version without content.
    """

    stored: StoredObject
    since: datetime
    is_marker: bool = False


class TargetVersions(Objects):
    """The noncurrent versions of the objects of another target, `origin`.

    The search treats them like the current objects of that target.
    """

    def __init__(self, request: Request, origin: Objects) -> None:
        super().__init__(request, origin.table, f"Noncurrent versions: {origin.title}")
        self._origin = origin
        self._bucket = _Bucket(origin.access)
        self.content = origin.content

    @property
    def access(self) -> AwsAccess:
        """Return the access to AWS that the other target uses for its objects."""
        return self._origin.access

    @property
    def folders(self) -> Sequence[str]:
        """Return the folders of the other target."""
        return self._origin.folders

    def columns(self) -> tuple[Field, ...]:
        """Return the column under all names that it has in the objects of the other target."""
        return self._origin.columns()

    def groups(self) -> Iterator[Group]:
        """Yield the noncurrent versions, grouped like the current objects of the other target."""
        versions = (stored for stored in self._versions() if self._origin.includes(stored.uri))
        return by_attempt(versions) if self.content == "rejects" else ((stored,) for stored in versions)

    def find(self) -> Iterator[ErasedObject]:
        """Yield each version that contains rows with one of the IDs, reveals an ID, or is unreadable.

        Also yields each folder whose versions the caller may not list.
        """
        return self._bucket.find(self._hits())

    def erase(self) -> Iterator[ErasedObject]:
        """Delete the versions that contain rows with one of the IDs or reveal an ID. Yield each with its outcome.

        Yields unreadable versions as "left".
        """
        return self._bucket.erase(self._hits(), self.folders)

    def _hits(self) -> Iterator[_Hit]:
        for result in self._searched():
            if isinstance(result, NotErased):
                message = result.failure.message
                yield _Hit(result.object, -1, f"a noncurrent version that cannot be read: {message}", message)
            elif result.matches:
                yield _Hit(result.object, result.matches)
        for stored, is_readable in self._origin.revealing(self._versions()):
            if is_readable:
                yield _Hit(stored, -1, "a noncurrent version of metadata that contains an ID")
            else:
                yield _Hit(stored, -1, _UNREADABLE, _UNREADABLE)

    def _versions(self) -> Iterator[StoredObject]:
        versions = (stored for folder in self.folders for stored in self._bucket.noncurrent(folder))
        return (stored for stored in versions if stored.size)


class TableVersions(ErasureTarget):
    """The noncurrent versions in the folder of an existing Iceberg table.

    The search identifies the column by its Iceberg field ID.
    """

    def __init__(self, request: Request, table: TableName, folder: str) -> None:
        super().__init__(request.display_name(f"Noncurrent versions: Iceberg table {table}"))
        self._request = request
        self._table = table
        self._folder = folder
        self._bucket = _Bucket(request.access)

    def find(self) -> Iterator[ErasedObject]:
        """Yield each version that contains rows with one of the IDs, reveals an ID, or is unreadable.

        Also yields the table's folder if the caller may not list the versions in this folder.
        """
        return self._bucket.find(self._hits())

    def erase(self) -> Iterator[ErasedObject]:
        """Delete the versions that contain rows with one of the IDs or reveal an ID. Yield each with its outcome.

        Yields unreadable versions as "left".
        """
        return self._bucket.erase(self._hits(), [self._folder])

    def _hits(self) -> Iterator[_Hit]:
        try:
            with as_failures(self._table):
                erasure = table_erasure(self._table, self._request)
        except (NoSuchTableError, NoSuchColumn):
            return
        self.stats.objects = self.stats.objects_read = 0
        versions = self._bucket.noncurrent(self._folder)
        searchable = (stored for stored in versions if stored.size and not stored.uri.endswith(NO_ROWS))
        while batch := [*islice(searchable, _MAX_BATCH)]:
            self.stats.objects += len(batch)
            manifests = [stored for stored in batch if stored.uri.endswith(".avro")]
            yield from self._revealing(manifests, erasure)
            for files in _by_distinct_uri(stored for stored in batch if not stored.uri.endswith(".avro")):
                yield from self._search_files(files, erasure)

    def _revealing(self, manifests: Sequence[StoredObject], erasure: TableErasure) -> Iterator[_Hit]:
        s3, column = self._request.access.client("s3"), erasure.column.field
        self.stats.objects_read += len(manifests)

        def reveals_id(stored: StoredObject) -> bool | None:
            types, ids = [column.field_type], erasure.request.ids
            return manifest_reveals_id(s3, stored.uri, types, ids, column.field_id, stored.version)

        for stored, is_revealing in zip(manifests, read_concurrently(reveals_id, manifests), strict=True):
            if is_revealing is not False:
                yield _Hit(stored) if is_revealing else _Hit(stored, -1, _UNREADABLE, _UNREADABLE)

    def _search_files(self, files: Mapping[str, StoredObject], erasure: TableErasure) -> Iterator[_Hit]:
        sources = [SourceFile(uri, stored.size, UNKNOWN, version=stored.version) for uri, stored in files.items()]
        with as_failures(self._table):
            result = erasure.located(sources)
        self.stats.objects_read += result.searched
        yield from (_Hit(files[uri], rows.count) for uri, rows in result.files.items())
        yield from (_Hit(files[uri], -1, _UNREADABLE, _UNREADABLE) for uri in result.unreadable)


_UNREADABLE = (
    "a noncurrent version that is neither Parquet nor an Iceberg manifest, or is corrupted, so the connector cannot "
    "determine whether the version contains rows to erase. If you do not need the version, delete it. Then run the "
    "command again"
)

_MAX_BATCH = 5_000
"""Maximum number of versions per search. The limit bounds the memory that a search needs."""


def _by_distinct_uri(versions: Iterable[StoredObject]) -> list[dict[str, StoredObject]]:
    """Group versions so that no group contains two versions of the same object.

    The result of a search identifies a version only by its URI, and all versions of an object have the same URI.
    """
    groups: list[dict[str, StoredObject]] = []
    for version in versions:
        group = next((group for group in groups if version.uri not in group), None)
        if group is None:
            groups.append(group := {})
        group[version.uri] = version
    return groups


class AllVersions(ErasureTarget):
    """All noncurrent versions in folders of temporary objects. The erasure deletes these versions without a search."""

    def __init__(self, access: AwsAccess, folders: Sequence[str], name: str) -> None:
        super().__init__(name)
        self._folders = folders
        self._bucket = _Bucket(access)

    def find(self) -> Iterator[ErasedObject]:
        """Yield all noncurrent versions in the folders, without searching their content.

        Also yields each folder whose versions the caller may not list.
        """
        return self._bucket.find(self._hits())

    def erase(self) -> Iterator[ErasedObject]:
        """Delete all noncurrent versions in the folders. Yield each with its outcome."""
        return self._bucket.erase(self._hits(), self._folders)

    def _hits(self) -> Iterator[_Hit]:
        return (_Hit(stored) for folder in self._folders for stored in self._bucket.noncurrent(folder))


@dataclass(frozen=True, slots=True)
class _Hit:
    """A noncurrent version to delete.

    `rows` is the number of rows to erase in the version, or -1 if this number is unknown. `reason` explains why `find`
    yields the version. If the version is unreadable, `unreadable` is a clause that explains the problem, and the
    erasure keeps the version.
    """

    stored: StoredObject
    rows: int = -1
    reason: str = "a noncurrent version"
    unreadable: str = ""


class _Bucket:
    """Lists and deletes noncurrent versions of objects."""

    def __init__(self, access: AwsAccess) -> None:
        self._access = access
        self._unlisted: dict[str, str] = {}
        """The folders whose versions the caller may not list, each with an explanation."""
        self._since: dict[tuple[str, str | None], datetime] = {}
        self._emptied: set[str] = set()
        self._lifecycle: dict[str, Sequence[Any]] = {}

    @property
    def _s3(self) -> S3Client:
        return self._access.client("s3")

    def find(self, hits: Iterable[_Hit]) -> Iterator[ErasedObject]:
        """Yield these versions, and the folders whose versions the caller may not list, each with the reason."""
        for hit in hits:
            yield ErasedObject(hit.stored.uri, hit.rows, reason=hit.reason)
        for folder, reason in self._unlisted.items():
            yield ErasedObject(folder, -1, reason=reason)

    def erase(self, hits: Iterable[_Hit], folders: Sequence[str]) -> Iterator[ErasedObject]:
        """Delete these versions, which are in `folders`. Yield each with its outcome.

        Afterwards, deletes the delete markers of keys whose last other version this instance has deleted.
        """
        for hit in [*hits]:
            if hit.unreadable:
                yield ErasedObject(hit.stored.uri, -1, 0, "left", reason=hit.unreadable)
            else:
                yield self.delete(hit.stored, hit.rows)
        self.delete_lone_markers(folders)

    def noncurrent(self, folder: str) -> Iterator[StoredObject]:
        """Yield the noncurrent versions in a folder, without delete markers.

        If the caller may not list the versions, adds the folder to `_unlisted`.
        """
        for version in self._versions(folder):
            if not version.is_marker:
                self._since[version.stored.uri, version.stored.version] = version.since
                yield version.stored

    def delete(self, stored: StoredObject, rows: int) -> ErasedObject:
        """Delete a noncurrent version. Return it with its outcome, which is "left" if S3 rejects the deletion.

        `rows` is the number of rows to erase in the version, or -1 if this number is unknown.
        """
        try:
            self._s3.delete_object(**_version_parameters(stored))
        except self._s3.exceptions.ClientError as error:
            code = error.response["Error"]["Code"]
            since = self._since.get((stored.uri, stored.version))
            expiry = self._expiry_clause(S3Address.parse(stored.uri), since)
            reason = f"S3 did not delete this noncurrent version ({code}{self._lock_clause(stored)}). {expiry}"
            return ErasedObject(stored.uri, rows, 0, "left", reason=reason)
        self._emptied.add(stored.uri)
        return ErasedObject(stored.uri, rows, max(rows, 0), "removed", versions_deleted=1)

    def delete_lone_markers(self, folders: Sequence[str]) -> None:
        """Delete the delete markers of keys whose last other version this instance has deleted."""
        if not self._emptied:
            return
        markers: dict[str, list[StoredObject]] = {}
        with_content: set[str] = set()
        for folder in folders:
            for version in self._versions(folder, with_current=True):
                if version.stored.uri in self._emptied:
                    if version.is_marker:
                        markers.setdefault(version.stored.uri, []).append(version.stored)
                    else:
                        with_content.add(version.stored.uri)
        for uri in markers.keys() - with_content:
            for stored in markers[uri]:
                self._s3.delete_object(**_version_parameters(stored))

    def _versions(self, folder: str, *, with_current: bool = False) -> Iterator[Version]:
        """Yield the noncurrent versions and delete markers in a folder. With `with_current`, also yield current ones.

        If the caller may not list the versions, adds the folder to `_unlisted`.
        """
        address = S3Address.parse(f"{folder}/")
        pages = self._s3.get_paginator("list_object_versions")
        newer_key, newer_since = "", datetime.now(UTC)
        try:
            for page in pages.paginate(Bucket=address.bucket, Prefix=address.key):
                entries: list[Any] = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
                # S3 lists versions and delete markers separately, each in order. Merge them, newest first.
                entries.sort(
                    key=lambda entry: (entry["Key"], not entry["IsLatest"], -entry["LastModified"].timestamp())
                )
                for entry in entries:
                    # A version becomes noncurrent when the next newer version of its key is written.
                    since = newer_since if newer_key == entry["Key"] else entry["LastModified"]
                    newer_key, newer_since = entry["Key"], entry["LastModified"]
                    if entry["IsLatest"] and not with_current:
                        continue
                    uri = str(S3Address(address.bucket, entry["Key"]))
                    stored = StoredObject(uri, entry.get("ETag", ""), entry.get("Size", 0), entry["VersionId"])
                    yield Version(stored, since, is_marker="ETag" not in entry)
        except self._s3.exceptions.ClientError as error:
            failure = explain(error, doing="list the versions of objects in", resource=f"{folder}/")
            if failure is None or failure.missing is None:
                raise
            if self._has_versions(address.bucket):
                self._unlisted[f"{folder}/"] = (
                    f"the noncurrent versions in this folder could not be listed: {failure.message}"
                )

    def _has_versions(self, bucket: str) -> bool:
        """Return whether a bucket may contain noncurrent versions, because versioning is or was enabled.

        Returns True if S3 rejects the request.
        """
        try:
            return "Status" in self._s3.get_bucket_versioning(Bucket=bucket)
        except self._s3.exceptions.ClientError:
            return True

    def _lock_clause(self, stored: StoredObject) -> str:
        """Return a clause about the Object Lock retention and the legal hold of a version.

        Returns an empty string if the version has neither, or if S3 rejects the request.
        """
        try:
            head = self._s3.head_object(**_version_parameters(stored))
        except self._s3.exceptions.ClientError:
            return ""
        until = head.get("ObjectLockRetainUntilDate")
        hold = ", a legal hold protects it" if head.get("ObjectLockLegalHoldStatus") == "ON" else ""
        return (f", Object Lock protects it until {until:%Y-%m-%d}" if until is not None else "") + hold

    def _expiry_clause(self, address: S3Address, since: datetime | None) -> str:
        """Return a clause about the day on which a lifecycle rule deletes a version, or that no such rule is known.

        `since` is the time at which the version became noncurrent, or None if it is unknown.
        """
        days = [
            rule["NoncurrentVersionExpiration"]["NoncurrentDays"]
            for rule in self._rules(address.bucket)
            if "NoncurrentDays" in rule.get("NoncurrentVersionExpiration", {})
            and address.key.startswith(_prefix_of(rule) or "")
            and _prefix_of(rule) is not None
        ]
        if not days or since is None:
            return "No known lifecycle rule deletes the version"
        # S3 rounds the time up to the next midnight in UTC.
        end = (since + timedelta(days=min(days) + 1)).date()
        return f"A lifecycle rule deletes the version on {end.isoformat()}"

    def _rules(self, bucket: str) -> Sequence[Any]:
        if bucket not in self._lifecycle:
            try:
                rules: Sequence[Any] = self._s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
            except self._s3.exceptions.ClientError:
                rules = ()
            self._lifecycle[bucket] = [rule for rule in rules if rule["Status"] == "Enabled"]
        return self._lifecycle[bucket]


def _version_parameters(stored: StoredObject) -> dict[str, Any]:
    """Return the parameters that identify a version of an object in a request to S3."""
    address = S3Address.parse(stored.uri)
    return {"Bucket": address.bucket, "Key": address.key, "VersionId": stored.version}


def _prefix_of(rule: Any) -> str | None:
    """Return the key prefix to which a lifecycle rule applies, or None if the rule also filters by other properties."""
    if "Filter" not in rule:
        prefix: str = rule.get("Prefix", "")
        return prefix
    conditions = rule["Filter"]
    return conditions.get("Prefix", "") if conditions.keys() <= {"Prefix"} else None


# --- List of targets --------------------------------------------------------------------------------------------------
# `erasure_targets` lists all erasure targets except Iceberg tables, in the order of their erasure.
#
# This section also defines two targets: the records that failed syncs have left in the folder `_staging/`, and
# incomplete multipart uploads.


STAGING_FOLDER = "_staging"
_STAGED = "Staged records"

_MAX_SYNC_AGE = timedelta(hours=24)
"""The time after the last write of a sync during which the sync may still be running. The reports of syncs use the same
limit."""

_MAY_BE_RUNNING = "written by a sync that may still be running. Wait until the sync ends, and run the command again"


@dataclass(frozen=True, slots=True)
class _Remnant:
    """An object or upload that a sync has left. `delete` deletes it, and is None if the sync may still be running."""

    uri: str
    reason: str
    delete: Callable[[], object] | None


class _Remnants(ErasureTarget):
    """Objects or uploads that failed syncs have left under the prefix, and that no later sync uses.

    The erasure deletes these remnants without searching their content.
    """

    def __init__(self, request: Request, name: str) -> None:
        super().__init__(name)
        self._s3 = request.access.client("s3")

    @abstractmethod
    def _remnants(self) -> Iterator[_Remnant]:
        """Yield all remnants. Raises AWS errors."""

    def find(self) -> Iterator[ErasedObject]:
        """Yield all remnants."""
        for remnant in self._remnants():
            yield ErasedObject(remnant.uri, -1, reason=remnant.reason)

    def erase(self) -> Iterator[ErasedObject]:
        """Delete the remnants of dead syncs. Yield each remnant with its outcome.

        If a sync may still be running, yields its remnants as "left".
        """
        for remnant in [*self._remnants()]:
            if remnant.delete is None:
                yield ErasedObject(remnant.uri, -1, 0, "left", reason=remnant.reason)
            else:
                remnant.delete()
                yield ErasedObject(remnant.uri, -1, -1, "removed")


class Staging(_Remnants):
    """The records that syncs staged in S3 for executors. After a sync has ended, nothing needs its staged records."""

    def __init__(self, request: Request) -> None:
        super().__init__(request, _STAGED)
        self._folder = request.config.uri(STAGING_FOLDER)

    def _remnants(self) -> Iterator[_Remnant]:
        """Yield each staged object. A sync counts as dead if it has staged nothing for 24 hours."""
        uris_by_sync: dict[str, list[str]] = {}
        latest: dict[str, datetime] = {}
        for uri, entry in listed(self._s3, self._folder):
            sync = uri.removeprefix(f"{self._folder}/").partition("/")[0]
            uris_by_sync.setdefault(sync, []).append(uri)
            latest[sync] = max(latest.get(sync, entry["LastModified"]), entry["LastModified"])
        for sync, uris in uris_by_sync.items():
            is_dead = _is_dead(latest[sync])
            for uri in uris:
                reason = "written by a sync that no longer runs" if is_dead else _MAY_BE_RUNNING
                yield _Remnant(uri, reason, partial(delete, self._s3, uri) if is_dead else None)


class Uploads(_Remnants):
    """Incomplete multipart uploads of killed syncs. Their content would become visible if a client completed them.

    The erasure aborts old uploads. A recent upload is "left", because it may belong to a running sync.
    """

    def __init__(self, request: Request) -> None:
        super().__init__(request, "Incomplete uploads")
        self._folder = S3Address.parse(request.config.uri(""))

    def _remnants(self) -> Iterator[_Remnant]:
        """Yield each upload, without searching its content, which S3 does not return."""
        pages = self._s3.get_paginator("list_multipart_uploads")
        try:
            for page in pages.paginate(Bucket=self._folder.bucket, Prefix=self._folder.key):
                for upload in page.get("Uploads", []):
                    yield self._remnant(upload)
        except self._s3.exceptions.ClientError as error:
            failure = explain(error, doing="list the incomplete uploads in", resource=f"{self._folder}")
            if failure is None or failure.missing is None:
                raise
            self.stats.note(f"Incomplete uploads were not searched: {failure.message}")

    def _remnant(self, upload: MultipartUploadTypeDef) -> _Remnant:
        # Do not use an equals sign, because `Mask` would take the text before it for the name of a partition field.
        name = f"{S3Address(self._folder.bucket, upload['Key'])} (upload {upload['UploadId']})"
        started = f"an upload started at {upload['Initiated']:%Y-%m-%d %H:%M} UTC"
        if _is_dead(upload["Initiated"]):
            return _Remnant(name, started, partial(self._abort, upload))
        hours = _MAX_SYNC_AGE // timedelta(hours=1)
        return _Remnant(name, f"{started}, {_MAY_BE_RUNNING}. Uploads are aborted after {hours} hours", None)

    def _abort(self, upload: MultipartUploadTypeDef) -> None:
        with suppress(self._s3.exceptions.NoSuchUpload):
            self._s3.abort_multipart_upload(Bucket=self._folder.bucket, Key=upload["Key"], UploadId=upload["UploadId"])


def _is_dead(last_write: datetime) -> bool:
    """Return whether a sync whose last write was at this time has certainly ended."""
    return datetime.now(UTC) - last_write > _MAX_SYNC_AGE


def requests_by_column(request: Request, table: TableName) -> list[Request]:
    """Return the request, and one more request for each column to which syncs redirected values of its column.

    Raises AWS errors.
    """
    return [request, *map(request.redirected_to, redirected_columns(table, request))]


def erasure_targets(request: Request, tables: Sequence[TableName]) -> Sequence[ErasureTarget]:
    """Return all erasure targets for these tables, except the existing Iceberg tables. Raises AWS errors.

    The targets with noncurrent versions come last, because erasing the other targets creates noncurrent versions.
    """
    targets: list[Objects] = []
    table_versions: list[TableVersions] = []
    undescribed: list[UndescribedTable] = []
    for table in tables:
        entry = request.catalog.find(table)
        has_iceberg = request.config.table_type == "ICEBERG" if entry is None else is_iceberg(entry)
        if entry is None and not TableColumns.load(table, request).are_known:
            folders = unused_folders(request.catalog, table.database, table_folders(request.config, table))
            archive, rejects = Archive(request, table), Rejects(request, table)
            days = {group[0].uri.rpartition("/")[0] for group in archive.groups()}
            undescribed.append(UndescribedTable(request, table, [*folders, *sorted(days), *rejects.folders]))
            continue
        folder = "" if entry is None else entry.get("StorageDescriptor", {}).get("Location", "").rstrip("/")
        for column_request in requests_by_column(request, table):
            targets.append((DroppedTableTarget if has_iceberg else HiveTarget)(column_request, table))
            targets += [Archive(column_request, table), Rejects(column_request, table)]
            if has_iceberg and folder:
                table_versions.append(TableVersions(column_request, table, folder))
    staging_versions = AllVersions(
        request.access, [request.config.uri(STAGING_FOLDER)], f"Noncurrent versions: {_STAGED}"
    )
    versions = [TargetVersions(target.request, target) for target in targets]
    return [*targets, *undescribed, Staging(request), Uploads(request), *versions, *table_versions, staging_versions]
