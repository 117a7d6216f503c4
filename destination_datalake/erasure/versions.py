"""Noncurrent versions: what a bucket with versioning keeps of objects that were replaced or deleted.

Those that have rows of the ids are deleted. In the folder of an Iceberg table that is in the catalog, and of what waits
for Spark, all are: no object is ever replaced there, so a noncurrent version is one of a file that was removed. A
version that may not be deleted, for a policy or a lock, is left, with the day at which a lifecycle rule ends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.errors import explain
from destination_datalake.erasure.archived import by_attempt
from destination_datalake.erasure.objects import Group, Objects
from destination_datalake.erasure.place import ErasedObject, Figures
from destination_datalake.files.erase import Erased, NotErased, StoredObject

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.erasure.place import Request
    from destination_datalake.schema.types import Field


@dataclass(frozen=True, slots=True)
class Version:
    """A noncurrent version, since when it is one, and whether it is a delete marker, which has no content."""

    stored: StoredObject
    since: datetime
    is_marker: bool = False


class VersionsOf(Objects):
    """The noncurrent versions of a place's objects, searched as these are."""

    def __init__(self, request: Request, origin: Objects) -> None:
        super().__init__(request, origin.table, f"Noncurrent versions: {origin.title}")
        self._origin = origin
        self._bucket = _Bucket(origin.access)
        self.content = origin.content

    @property
    def access(self) -> AwsAccess:
        """The access to the objects."""
        return self._origin.access

    @property
    def folders(self) -> Sequence[str]:
        """The folders that the objects are in, or were."""
        return self._origin.folders

    def columns(self) -> tuple[Field, ...]:
        """Return the column as the objects have it."""
        return self._origin.columns()

    def groups(self) -> Iterator[Group]:
        """Yield the versions, as the objects are."""
        found = (each for each in self._versions() if self._origin.takes(each.uri))
        return by_attempt(found) if self.content == "rejects" else ((each,) for each in found)

    def find(self) -> Iterator[ErasedObject]:
        """Yield each version that has rows of the ids, with what keeps it."""
        for result in self._searched():
            if isinstance(result, NotErased):
                note = f"a noncurrent version, which cannot be read: {result.failure.message}"
                yield ErasedObject(result.object.uri, -1, reason=note)
            elif result.found:
                yield ErasedObject(result.object.uri, result.found, reason="a noncurrent version")
        for each in self._telling():
            yield ErasedObject(each.uri, -1, reason="a noncurrent version of metadata")
        yield from self._bucket.not_looked_at()

    def erase(self) -> Iterator[ErasedObject]:
        """Delete the versions that have such rows, and the delete markers of keys that have no version then."""
        for result in [*self._searched()]:
            if isinstance(result, NotErased):
                yield ErasedObject(result.object.uri, -1, 0, "left", reason=result.failure.message)
            elif isinstance(result, Erased) and result.found:
                yield self._bucket.deleted(result.object, result.found)
        for each in self._telling():
            yield self._bucket.deleted(each, -1)
        self._bucket.delete_lone_markers(self.folders)

    def _versions(self) -> Iterator[StoredObject]:
        found = (each.stored for folder in self.folders for each in self._bucket.noncurrent(folder))
        return (each for each in found if each.size)

    def _telling(self) -> list[StoredObject]:
        return [each for each in self._versions() if self._origin.tells(each)] if self._origin.has_metadata else []


class AllVersions:
    """The noncurrent versions of folders in which no object is replaced by another."""

    def __init__(self, access: AwsAccess, folders: Sequence[str], name: str) -> None:
        self._access = access
        self._folders = folders
        self.name = name
        self.figures = Figures()
        self._bucket = _Bucket(access)

    def require(self) -> None:
        """Do nothing: what may not be deleted is left, and listed."""

    def find(self) -> Iterator[ErasedObject]:
        """Yield all versions: whether they have rows of the ids is not looked at."""
        for folder in self._folders:
            for each in self._bucket.noncurrent(folder):
                yield ErasedObject(each.stored.uri, -1, reason="a noncurrent version")
        yield from self._bucket.not_looked_at()

    def erase(self) -> Iterator[ErasedObject]:
        """Delete them."""
        for folder in self._folders:
            for each in [*self._bucket.noncurrent(folder)]:
                yield self._bucket.deleted(each.stored, -1)
        self._bucket.delete_lone_markers(self._folders)


class _Bucket:
    """Versions of a bucket's objects."""

    def __init__(self, access: AwsAccess) -> None:
        self._access = access
        self.unlisted: dict[str, str] = {}
        """Folders whose versions may not be listed, and why."""
        self._since: dict[tuple[str, str | None], datetime] = {}
        self._emptied: set[str] = set()
        self._lifecycle: dict[str, Sequence[Any]] = {}

    @property
    def _s3(self) -> S3Client:
        return self._access.client("s3")

    def noncurrent(self, folder: str) -> Iterator[Version]:
        """Yield the noncurrent versions in a folder that have content; none in a bucket without versioning.

        A folder whose versions may not be listed is `unlisted` then.
        """
        for each in self._versions(folder):
            if not each.is_marker:
                self._since[each.stored.uri, each.stored.version] = each.since
                yield each

    def deleted(self, stored: StoredObject, found: int) -> ErasedObject:
        """Delete a version, or say why it is left."""
        try:
            self._s3.delete_object(**_named(stored))
        except self._s3.exceptions.ClientError as error:
            code = error.response["Error"]["Code"]
            ends = self._end(S3Address.parse(stored.uri), self._since.get((stored.uri, stored.version)))
            reason = f"this noncurrent version may not be deleted ({code}{self._lock(stored)}); {ends}"
            return ErasedObject(stored.uri, found, 0, "left", reason=reason)
        self._emptied.add(stored.uri)
        return ErasedObject(stored.uri, found, max(found, 0), "removed", versions_deleted=1)

    def not_looked_at(self) -> Iterator[ErasedObject]:
        """Yield the folders whose versions may not be listed: whether one has rows cannot be told."""
        return (ErasedObject(folder, -1, reason=reason) for folder, reason in self.unlisted.items())

    def delete_lone_markers(self, folders: Sequence[str]) -> None:
        """Delete the delete markers of keys whose versions were deleted here, if they have no other."""
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
                # S3 has a key's versions in order, but versions and markers apart.
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
        """Whether a bucket may have noncurrent versions: it has, or had, versioning, or that may not be asked."""
        try:
            return "Status" in self._s3.get_bucket_versioning(Bucket=bucket)
        except self._s3.exceptions.ClientError:
            return True

    def _lock(self, stored: StoredObject) -> str:
        """Return until when Object Lock keeps a version, as a part of a sentence."""
        try:
            head = self._s3.head_object(**_named(stored))
        except self._s3.exceptions.ClientError:
            return ""
        until = head.get("ObjectLockRetainUntilDate")
        hold = ", and has a legal hold" if head.get("ObjectLockLegalHoldStatus") == "ON" else ""
        return (f", Object Lock keeps it until {until:%Y-%m-%d}" if until is not None else "") + hold

    def _end(self, address: S3Address, since: datetime | None) -> str:
        """Return when a lifecycle rule ends a version, as a clause."""
        days = [
            rule["NoncurrentVersionExpiration"]["NoncurrentDays"]
            for rule in self._rules(address.bucket)
            if "NoncurrentDays" in rule.get("NoncurrentVersionExpiration", {})
            and address.key.startswith(_prefix_of(rule) or "")
            and _prefix_of(rule) is not None
        ]
        if not days or since is None:
            return "no lifecycle rule that is known ends it"
        # S3 rounds up to the next midnight in UTC.
        end = (since + timedelta(days=min(days) + 1)).date()
        return f"a lifecycle rule ends it on {end.isoformat()}"

    def _rules(self, bucket: str) -> Sequence[Any]:
        if bucket not in self._lifecycle:
            try:
                rules: Sequence[Any] = self._s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
            except self._s3.exceptions.ClientError:
                rules = ()
            self._lifecycle[bucket] = [rule for rule in rules if rule["Status"] == "Enabled"]
        return self._lifecycle[bucket]


def _named(stored: StoredObject) -> dict[str, Any]:
    """Return the parameters by which S3 knows a version."""
    address = S3Address.parse(stored.uri)
    return {"Bucket": address.bucket, "Key": address.key, "VersionId": stored.version}


def _prefix_of(rule: Any) -> str | None:
    """Return the keys that a lifecycle rule is for, by what they begin with; None if it asks for more."""
    if "Filter" not in rule:
        prefix: str = rule.get("Prefix", "")
        return prefix
    found = rule["Filter"]
    return found.get("Prefix", "") if found.keys() <= {"Prefix"} else None
