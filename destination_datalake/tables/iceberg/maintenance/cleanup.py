"""Expires snapshots and removes orphans.

Expiry has two steps. A commit removes snapshots from the table's metadata. Then the files that only these snapshots
referenced are deleted. PyIceberg's `expire_snapshots` does only the first step. If the process dies between the steps,
the files become orphans, which are removed later. Once a day, one of the syncs that write to a table does this work.

Orphans are unreferenced files in a table's folder, which killed writers leave. A file is removed if all of these
conditions are met:

- The file is of a kind that Iceberg tables use.
- The file's folder belongs to this table alone. Otherwise no file is removed.
- The file is older than the longest time between a writer's upload and its commit.
- No snapshot, statistics file or entry of the metadata log refers to the file, either before or after the folder is
  listed.

Metadata files that are no longer in the metadata log are also orphans.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Self, TypeVar

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.update import RemovePartitionStatisticsUpdate, RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate

from destination_datalake.aws.objects import S3Address, is_missing
from destination_datalake.tables.iceberg.branches import UNPUBLISHED_PREFIXES, history
from destination_datalake.tables.iceberg.commit import is_unneeded_fence
from destination_datalake.tables.iceberg.maintenance.references import (
    DeadlineExceeded,
    Deletion,
    File,
    MaintenanceSkipped,
    References,
    live_files,
    read_concurrently,
    require_clock,
    require_garbage_collection,
)
from destination_datalake.tables.iceberg.pyiceberg_internals import apply
from destination_datalake.tables.iceberg.snapshots.files import manifests_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectTypeDef
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from destination_datalake.tables.iceberg.commit import TableOperations


_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Expiry:
    """What an expiry has done: the expired snapshots and refs, and the deleted files.

    `data` counts the deleted data files and delete files. `metadata` counts the deleted manifests, manifest lists and
    statistics files.
    """

    expired: Expired
    data: Deletion
    metadata: Deletion


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """What one attempt of an expiry's commit removes, with the metadata before and after it.

    `metadata_location` is the location of the metadata file on which the attempt was planned.
    """

    expired: Expired
    before: TableMetadata
    after: TableMetadata
    metadata_location: str


class Expirer:
    """Expires snapshots of one table. Table properties take precedence over `max_age` and `min_snapshots`."""

    def __init__(self, operations: TableOperations, max_age: timedelta, min_snapshots: int) -> None:
        self._operations = operations
        self._s3 = operations.access.client("s3")
        self._max_age = max_age
        self._min_snapshots = min_snapshots

    def expire(self, now: datetime, should_continue: Callable[[], bool], *, dry_run: bool) -> Expiry:
        """Expire snapshots, branches and tags, and delete the files that only they referenced.

        No file is deleted if the references of the remaining snapshots cannot be read completely. Raises
        MaintenanceSkipped, DeadlineExceeded, Incomplete, Disagreement, and errors of a commit and of S3.
        """
        table = self._operations.load()
        folder = S3Address.parse(table.location().rstrip("/"))
        if dry_run:
            plan = self._plan(table, table.transaction(), now)
        else:
            require_clock(self._s3, folder)
            table, plan = self._operations.commit(lambda base, change: self._plan(base, change, now), table)
        data, metadata = (Deletion(self._s3, folder, dry_run, should_continue) for _ in range(2))
        if plan.expired and dry_run:
            _delete_unreferenced(plan, References(table.io, self._s3), data, metadata)
        elif plan.expired:
            delete_expired(plan, self._operations, data, metadata)
        return Expiry(plan.expired, data, metadata)

    def _plan(self, table: Table, transaction: Transaction, now: datetime) -> ExpiryPlan:
        require_garbage_collection(table.metadata)
        retention = Retention.from_properties(table.metadata.properties, self._max_age, self._min_snapshots)
        outdated = expired(table.metadata, retention, now)
        if outdated:
            remove_expired(outdated, table.metadata, transaction)
        return ExpiryPlan(outdated, table.metadata, transaction.table_metadata, table.metadata_location)


def remove_expired(outdated: Expired, metadata: TableMetadata, transaction: Transaction) -> None:
    """Remove expired snapshots, branches and tags from a transaction's metadata."""
    refs = [RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in outdated.refs]
    snapshot_ids = frozenset(outdated.snapshots)
    # PyIceberg removes a removed snapshot's table statistics, but not its partition statistics.
    statistics = [
        RemovePartitionStatisticsUpdate.model_validate({"snapshot-id": statistics.snapshot_id})
        for statistics in metadata.partition_statistics
        if statistics.snapshot_id in snapshot_ids
    ]
    snapshots = [RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [*outdated.snapshots]})] if snapshot_ids else []
    apply(transaction, (*refs, *statistics, *snapshots))


def delete_expired(plan: ExpiryPlan, operations: TableOperations, data: Deletion, metadata: Deletion) -> None:
    """Delete the files of expired snapshots that the table's latest state does not reference.

    Raises MaintenanceSkipped if another table has replaced this one, and the errors of `Expirer.expire`.
    """

    def delete(latest: Table) -> None:
        if latest.metadata.table_uuid != plan.before.table_uuid:
            raise MaintenanceSkipped("another table has replaced it in the meantime")
        after = replace(plan, after=latest.metadata, metadata_location=latest.metadata_location)
        _delete_unreferenced(after, References(latest.io, data.s3), data, metadata)

    operations.with_latest(delete)


def _delete_unreferenced(plan: ExpiryPlan, references: References, data: Deletion, metadata: Deletion) -> None:
    """Delete the files of expired snapshots that are not in `references`.

    Data files are deleted first and manifest lists last. If the deletion is interrupted, the remaining files can then
    still be found through their manifests.
    """
    snapshot_ids, io = frozenset(plan.expired.snapshots), references.io
    still_in_file = snapshot_ids - {snapshot.snapshot_id for snapshot in plan.after.snapshots}
    references.add_metadata(plan.after, plan.metadata_location, still_in_file)
    lists = references.unreferenced(
        File(snapshot.manifest_list, 0) for snapshot in plan.before.snapshots if snapshot.snapshot_id in snapshot_ids
    )
    manifests_of_lists = _present(lambda manifest_list: manifests_of(manifest_list.path, io), lists)
    by_path = {manifest.manifest_path: manifest for manifests in manifests_of_lists for manifest in manifests}
    manifests = [by_path[file.path] for file in references.unreferenced(File(path, 0) for path in by_path)]
    if manifests:
        references.add_files()
        deleted_paths: set[str] = set()
        for files in _present(lambda manifest: live_files(manifest, io), manifests):
            data.delete(file for file in references.unreferenced(files) if file.path not in deleted_paths)
            deleted_paths.update(file.path for file in files)
    metadata.delete(File(manifest.manifest_path, manifest.manifest_length) for manifest in manifests)
    statistics = [
        File(statistics.statistics_path, statistics.file_size_in_bytes)
        for statistics in (*plan.before.statistics, *plan.before.partition_statistics)
        if statistics.snapshot_id in snapshot_ids
    ]
    metadata.delete(references.unreferenced(statistics))
    metadata.delete(lists)


def _present(read: Callable[[_T], Sequence[_R]], items: Sequence[_T]) -> Iterator[Sequence[_R]]:
    """Yield the result of `read` for each item, or an empty one if another process has deleted the item."""

    def read_if_present(item: _T) -> Sequence[_R]:
        try:
            return read(item)
        except FileNotFoundError:
            return ()

    return read_concurrently(read_if_present, items)


# --- expired snapshots, branches and tags -----------------------------------------------------------------------------


_MAX_AGE = "history.expire.max-snapshot-age-ms"
_MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
_MAX_REF_AGE = "history.expire.max-ref-age-ms"


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of snapshots, branches and tags that do not define their own.

    If `max_ref_age_ms` is None, branches and tags without their own maximum age never expire.
    """

    max_age_ms: int
    min_snapshots: int
    max_ref_age_ms: int | None = None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], max_age: timedelta, min_snapshots: int) -> Self:
        """Return the retention that table properties define, by default `max_age` and `min_snapshots`.

        Raises MaintenanceSkipped if a property is not a positive whole number.
        """
        return cls(
            _positive(properties, _MAX_AGE) or max_age // timedelta(milliseconds=1),
            _positive(properties, _MIN_SNAPSHOTS) or min_snapshots,
            _positive(properties, _MAX_REF_AGE),
        )


@dataclass(frozen=True, slots=True)
class Expired:
    """The IDs of expired snapshots, and the names of expired branches and tags."""

    snapshots: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether any snapshot, branch or tag has expired."""
        return bool(self.snapshots or self.refs)


def expired(metadata: TableMetadata, retention: Retention, now: datetime) -> Expired:
    """Return the snapshots, branches and tags that have expired at the time `now`.

    Snapshots on no branch expire by age. Staging for an audit and rollbacks leave such snapshots.
    """
    at = int(now.timestamp() * 1000)
    kept_refs = {
        name: ref for name, ref in metadata.refs.items() if not _ref_has_expired(name, ref, metadata, retention, at)
    }
    on_main = {snapshot.snapshot_id for snapshot in history(MAIN_BRANCH, metadata)}
    kept_ids: set[int] = set()
    branch_ids: set[int] = set()
    for name, ref in kept_refs.items():
        kept_ids.add(ref.snapshot_id)
        if ref.snapshot_ref_type == SnapshotRefType.TAG:
            continue
        snapshots = list(history(name, metadata))
        branch_ids.update(snapshot.snapshot_id for snapshot in snapshots)
        if name.startswith(UNPUBLISHED_PREFIXES):
            kept_ids.update(snapshot.snapshot_id for snapshot in snapshots if snapshot.snapshot_id not in on_main)
        else:
            kept_ids.update(_kept_of_branch(snapshots, ref, retention, at))
    cutoff = at - retention.max_age_ms
    kept_ids.update(
        snapshot.snapshot_id
        for snapshot in metadata.snapshots
        if snapshot.snapshot_id not in branch_ids and snapshot.timestamp_ms >= cutoff
    )
    expired_refs = {name: ref for name, ref in metadata.refs.items() if name not in kept_refs}
    return Expired(
        tuple(snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id not in kept_ids),
        # An unneeded fence tag is removed only together with its snapshot, because it alone is not worth a commit.
        tuple(
            sorted(
                name
                for name, ref in expired_refs.items()
                if not is_unneeded_fence(name, ref) or ref.snapshot_id not in kept_ids
            )
        ),
    )


def _ref_has_expired(name: str, ref: SnapshotRef, metadata: TableMetadata, retention: Retention, at: int) -> bool:
    if name == MAIN_BRANCH or name.startswith(UNPUBLISHED_PREFIXES):
        return False
    snapshot, max_age = metadata.snapshot_by_id(ref.snapshot_id), ref.max_ref_age_ms or retention.max_ref_age_ms
    return snapshot is not None and max_age is not None and at - snapshot.timestamp_ms > max_age


def _kept_of_branch(snapshots: list[Snapshot], ref: SnapshotRef, retention: Retention, at: int) -> Iterator[int]:
    cutoff = at - (ref.max_snapshot_age_ms or retention.max_age_ms)
    minimum = ref.min_snapshots_to_keep or retention.min_snapshots
    for number, snapshot in enumerate(snapshots):
        if number >= minimum and snapshot.timestamp_ms < cutoff:
            return
        yield snapshot.snapshot_id


def _positive(properties: Mapping[str, str], name: str) -> int | None:
    """Return the number in a table property, or None if the property is not set.

    Raises MaintenanceSkipped if the value is not a positive whole number.
    """
    if (text := properties.get(name)) is None:
        return None
    if not text.isdecimal() or int(text) == 0:
        raise MaintenanceSkipped(
            f"its property {name} is {text!r}, which is not a positive whole number. Correct the property"
        )
    return int(text)


# --- one maintenance run a day ----------------------------------------------------------------------------------------


MAINTAINED_AT = "airbyte.maintained-at"
"""Table property with the time of the last maintenance run, in ISO 8601."""

_INTERVAL = timedelta(days=1)


def claim_daily_run(operations: TableOperations, now: datetime) -> bool:
    """Return whether this sync should run a table's daily maintenance. If so, record `now` as the time of the run.

    Return False if another sync has recorded a run within the last day. Raises the errors of `TableOperations.commit`.
    """

    def build(table: Table, transaction: Transaction) -> bool:
        if is_due := _is_due(table.properties, now):
            transaction.set_properties({MAINTAINED_AT: now.isoformat(timespec="seconds")})
        return is_due

    return operations.commit(build)[1]


def _is_due(properties: Mapping[str, str], now: datetime) -> bool:
    try:
        last = datetime.fromisoformat(properties.get(MAINTAINED_AT, "")).astimezone(UTC)
    except ValueError:
        return True
    # Ignore a time in the future: the clock that recorded it was wrong.
    return not now - _INTERVAL < last <= now


# --- orphans ----------------------------------------------------------------------------------------------------------


_KINDS = re.compile(
    r"(data|metadata)/.*\.(parquet|orc|avro|metadata\.json|metadata\.json\.gz|gz\.metadata\.json|puffin|stats)"
)
"""Matches a table's files below its location (Iceberg: defaults of `write.data.path` and `write.metadata.path`)."""

_METADATA = (".metadata.json", ".metadata.json.gz")
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"]+)"')
_BEGINNING = "bytes=0-65535"
"""The first 64 KiB of a metadata file, which may be large. Writers put the table's ID at the beginning."""
_MAX_UUID_BYTES = 65536
_GZIP = b"\x1f\x8b"
_OF_GZIP = 16 + zlib.MAX_WBITS

_BATCH_SIZE = 50_000
"""Number of unreferenced files that are collected before they are used. The number limits the use of memory."""


@dataclass(frozen=True, slots=True)
class Orphans:
    """The removed orphans. `old_metadata` counts metadata files that are no longer in the metadata log."""

    files: Deletion
    old_metadata: Deletion


class OrphanRemover:
    """Removes a table's orphans: unreferenced files that are older than `age`."""

    def __init__(self, operations: TableOperations, age: timedelta) -> None:
        self._operations = operations
        self._s3 = operations.access.client("s3")
        self._age = age

    def remove(self, now: datetime, should_continue: Callable[[], bool], *, dry_run: bool) -> Orphans:
        """Remove the orphans. Raises MaintenanceSkipped, DeadlineExceeded, and errors of reading metadata and of S3."""
        table = self._operations.load()
        require_garbage_collection(table.metadata)
        folder = table_folder(table)
        require_clock(self._s3, folder)
        references = References(table.io, self._s3)
        add_latest(references, table, self._operations)
        self._require_own_folder(table, references, folder, should_continue)
        removed = Orphans(*(Deletion(self._s3, folder, dry_run, should_continue) for _ in range(2)))
        pages = list_pages(self._s3, folder, should_continue)
        for files in unreferenced_files(pages, folder, references):
            if old := [file for file in files if file.modified < now - self._age]:
                self._remove(old, table, references, removed)
        return removed

    def _remove(self, files: list[File], table: Table, references: References, removed: Orphans) -> None:
        """Remove those of `files` that the table's latest state does not reference."""
        add_latest(references, table, self._operations)
        dead = references.unreferenced(files)
        removed.old_metadata.delete(file for file in dead if file.path.endswith(_METADATA))
        removed.files.delete(file for file in dead if not file.path.endswith(_METADATA))

    def _require_own_folder(
        self, table: Table, references: References, folder: S3Address, should_continue: Callable[[], bool]
    ) -> None:
        """Raise MaintenanceSkipped if the folder contains metadata of another table, perhaps of another catalog."""
        for page in list_pages(self._s3, folder, should_continue):
            keys = [object_["Key"] for object_ in page if object_["Key"].endswith(_METADATA)]
            files = [File(str(S3Address(folder.bucket, key)), 0) for key in keys]
            for file in references.unreferenced(files):
                if (uuid := self._uuid(S3Address.parse(file.path))) not in (None, str(table.metadata.table_uuid)):
                    raise MaintenanceSkipped(
                        f"its folder {folder} also contains another table: {file.path} is a metadata file of table "
                        f"{uuid}. If you do not need that table, delete its metadata files"
                    )

    def _uuid(self, address: S3Address) -> str | None:
        """Return the table ID in a metadata file, or "unknown" if the file contains none.

        Return None if another process has just deleted the file.
        """
        try:
            answer = self._s3.get_object(Bucket=address.bucket, Key=address.key, Range=_BEGINNING)
        except self._s3.exceptions.ClientError as error:
            if is_missing(error, self._s3, str(address)):
                return None
            raise
        content = answer["Body"].read()
        match = _UUID.search(
            zlib.decompressobj(_OF_GZIP).decompress(content, _MAX_UUID_BYTES) if content[:2] == _GZIP else content
        )
        return match[1].decode() if match else "unknown"


def list_pages(
    s3: S3Client, folder: S3Address, should_continue: Callable[[], bool] = lambda: True
) -> Iterator[list[ObjectTypeDef]]:
    """Yield the objects in a folder, page by page. Raises DeadlineExceeded when `should_continue` returns False."""
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=folder.bucket, Prefix=f"{folder.key}/"):
        if not should_continue():
            raise DeadlineExceeded
        yield page.get("Contents", [])


def unreferenced_files(
    pages: Iterable[list[ObjectTypeDef]], folder: S3Address, references: References
) -> Iterator[list[File]]:
    """Yield the unreferenced files of a table in large lists. `pages` contains the objects in the table's folder."""
    batch: list[File] = []
    for page in pages:
        batch += references.unreferenced(
            File(str(S3Address(folder.bucket, object_["Key"])), object_["Size"], object_["LastModified"])
            for object_ in page
            if is_of_a_table(object_["Key"], folder)
        )
        if len(batch) >= _BATCH_SIZE:
            yield batch
            batch = []
    if batch:
        yield batch


def add_latest(references: References, table: Table, operations: TableOperations) -> None:
    """Add the references in the table's latest state to `references`.

    Raises MaintenanceSkipped if another table has replaced this one, or if the table has moved.
    """

    def add(latest: Table) -> None:
        if latest.metadata.table_uuid != table.metadata.table_uuid or latest.location() != table.location():
            raise MaintenanceSkipped("another table has replaced it in the meantime, or its location has changed")
        references.add_metadata(latest.metadata, latest.metadata_location)
        references.add_files()

    operations.with_latest(add)


def table_folder(table: Table) -> S3Address:
    """Return the table's folder. Raises MaintenanceSkipped if it is not in S3, or is a whole bucket."""
    try:
        folder = S3Address.parse(table.location().rstrip("/"))
    except ValueError:
        raise MaintenanceSkipped(f"its location {table.location()} is not in S3") from None
    if not folder.key:
        raise MaintenanceSkipped(f"its location {table.location()} is a whole bucket")
    return folder


def is_of_a_table(key: str, folder: S3Address) -> bool:
    """Return whether an object's key in a table's folder is that of a possible file of the table.

    Files and folders whose names begin with `_` or `.` have other uses.
    """
    path = key[len(folder.key) + 1 :]
    return _KINDS.fullmatch(path) is not None and not any(part[:1] in ("_", ".") for part in path.split("/"))
