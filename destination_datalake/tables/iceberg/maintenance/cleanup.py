"""Expires snapshots and removes orphan files.

Expiry has two steps. First, a commit removes snapshots from the table's metadata. Then this module deletes the files to
which only these snapshots referred. PyIceberg's `expire_snapshots` does only the first step. If the process dies
between the steps, the files become orphan files, which a later run removes. Once a day, one of the syncs that write to
a table does this work.

Orphan files are unreferenced files in a table's folder. Killed writers leave such files. This module removes a file if
all of these conditions are met:

- The file has a name and folder that Iceberg tables use.
- No other table has metadata in the table's folder. Otherwise, this module removes no file.
- The file is older than the longest time between a writer's upload and commit.
- The table refers to the file neither before nor after this module lists the folder. A table's snapshots, lists of
  statistics files, and metadata log can refer to files.

A metadata file that is no longer in the metadata log is also an orphan file.
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
from destination_datalake.tables.table import whole_number

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
    """The result of an expiry: the expired snapshots, branches and tags, and the numbers of deleted files.

    `data` counts the deleted data files and delete files. `metadata` counts the deleted manifests, manifest lists and
    statistics files.
    """

    expired: Expired
    data: Deletion
    metadata: Deletion


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """The snapshots, branches and tags that one attempt to commit an expiry removes.

    `before` and `after` are the table's metadata before and after the attempt. `metadata_location` is the location of
    the metadata file on which the attempt was planned.
    """

    expired: Expired
    before: TableMetadata
    after: TableMetadata
    metadata_location: str


class Expirer:
    """Expires snapshots of one table.

    `max_age` and `min_snapshots` are the defaults if no table property defines the retention of snapshots.
    """

    def __init__(self, operations: TableOperations, max_age: timedelta, min_snapshots: int) -> None:
        self._operations = operations
        self._s3 = operations.access.client("s3")
        self._max_age = max_age
        self._min_snapshots = min_snapshots

    def expire(self, now: datetime, should_continue: Callable[[], bool], *, dry_run: bool) -> Expiry:
        """Expire snapshots, branches and tags, and delete the files to which only the expired snapshots referred.

        If the references of the remaining snapshots cannot be read completely, delete no file. Raises
        MaintenanceSkipped, DeadlineExceeded, Incomplete, Disagreement, errors from the commit, and S3 errors.
        """
        table = self._operations.load()
        folder = S3Address.parse(table.location().rstrip("/"))
        if dry_run:
            plan = self._plan(table, table.transaction(), now)
        else:
            # With a wrong clock, the plan would expire snapshots that are still needed.
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
    """Add the removal of expired snapshots, branches and tags to a transaction.

    `metadata` is the table's metadata before the transaction.
    """
    refs = [RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in outdated.refs]
    snapshot_ids = frozenset(outdated.snapshots)
    # When PyIceberg removes a snapshot, it also removes the snapshot's table statistics, but not the partition
    # statistics.
    statistics = [
        RemovePartitionStatisticsUpdate.model_validate({"snapshot-id": statistics.snapshot_id})
        for statistics in metadata.partition_statistics
        if statistics.snapshot_id in snapshot_ids
    ]
    snapshots = [RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [*outdated.snapshots]})] if snapshot_ids else []
    apply(transaction, (*refs, *statistics, *snapshots))


def delete_expired(plan: ExpiryPlan, operations: TableOperations, data: Deletion, metadata: Deletion) -> None:
    """Delete files that belong to expired snapshots, unless the latest state of the table still refers to them.

    Raises MaintenanceSkipped if another table has replaced this one. Also raises DeadlineExceeded, Incomplete,
    Disagreement, and S3 errors.
    """

    def delete(latest: Table) -> None:
        if latest.metadata.table_uuid != plan.before.table_uuid:
            raise MaintenanceSkipped("another table has replaced it in the meantime")
        after = replace(plan, after=latest.metadata, metadata_location=latest.metadata_location)
        _delete_unreferenced(after, References(latest.io, data.s3), data, metadata)

    operations.with_latest(delete)


def _delete_unreferenced(plan: ExpiryPlan, references: References, data: Deletion, metadata: Deletion) -> None:
    """Delete the files of expired snapshots to which the table in state `plan.after` does not refer.

    Add the references in this state to `references`. Delete data files first and manifest lists last. If the process
    dies in between, the manifests that still exist list the remaining data files.
    """
    snapshot_ids, io = frozenset(plan.expired.snapshots), references.io
    # In a dry run, the metadata file still contains the expired snapshots, so the second reader must skip them.
    still_in_file = snapshot_ids - {snapshot.snapshot_id for snapshot in plan.after.snapshots}
    references.add_metadata(plan.after, plan.metadata_location, still_in_file)
    lists = references.unreferenced(
        File(snapshot.manifest_list, 0) for snapshot in plan.before.snapshots if snapshot.snapshot_id in snapshot_ids
    )
    manifests_of_lists = _present(lambda manifest_list: manifests_of(manifest_list.path, io), lists)
    by_path = {manifest.manifest_path: manifest for manifests in manifests_of_lists for manifest in manifests}
    manifests = [by_path[file.path] for file in references.unreferenced(File(path, 0) for path in by_path)]
    if manifests:
        # Without an expired manifest, no data file has lost its last reference, so skip this expensive step.
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
    """Yield the result of `read` for each item. If another process has deleted an item, yield an empty sequence."""

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
    """The default retention of a table's snapshots, branches and tags. A branch or tag may override these values.

    Ages are in milliseconds. If `max_ref_age_ms` is None, branches and tags without their own maximum age never expire.
    """

    max_age_ms: int
    min_snapshots: int
    max_ref_age_ms: int | None = None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], max_age: timedelta, min_snapshots: int) -> Self:
        """Return the retention that table properties define.

        If a table does not define the maximum age or the minimum number of snapshots, use `max_age` or `min_snapshots`.
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

    A snapshot that belongs to no branch expires when it exceeds the default maximum age, unless a tag refers to it.
    Rollbacks and writes that are staged for an audit leave such snapshots.
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
        # Remove an unneeded fence tag only together with its snapshot, because the tag alone does not justify a commit.
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
    """Return the value of a table property as a number, or None if the property is not set.

    Raises MaintenanceSkipped if the value is not a positive whole number.
    """
    if (text := properties.get(name)) is None:
        return None
    if not (number := whole_number(text)):
        raise MaintenanceSkipped(
            f"its property {name} is {text!r}, which is not a positive whole number. Correct the property"
        )
    return number


# --- one maintenance run a day ----------------------------------------------------------------------------------------


MAINTAINED_AT = "airbyte.maintained-at"
"""Table property with the time of the last maintenance run, in ISO 8601."""

_INTERVAL = timedelta(days=1)


def claim_daily_run(operations: TableOperations, now: datetime) -> bool:
    """Return whether this sync should run the daily maintenance of a table.

    If so, record `now` in the table as the time of the run. Return False if another sync has recorded a run within the
    last day. Raises the same errors as `TableOperations.commit`.
    """

    def build(table: Table, transaction: Transaction) -> bool:
        if is_due := _is_due(table.properties, now):
            transaction.set_properties({MAINTAINED_AT: now.isoformat(timespec="seconds")})
        return is_due

    # The claim precedes the work. If the process is killed in between, the next run follows a day later.
    return operations.commit(build)[1]


def _is_due(properties: Mapping[str, str], now: datetime) -> bool:
    try:
        last = datetime.fromisoformat(properties.get(MAINTAINED_AT, "")).astimezone(UTC)
    except (ValueError, OverflowError):
        return True
    # Ignore a recorded time in the future, because the clock of the recording machine was wrong.
    return not now - _INTERVAL < last <= now


# --- orphan files -----------------------------------------------------------------------------------------------------


_KINDS = re.compile(
    r"(data|metadata)/.*\.(parquet|orc|avro|metadata\.json|metadata\.json\.gz|gz\.metadata\.json|puffin|stats)"
)
"""A pattern for the paths of a table's files, relative to the table's location.

The folders are Iceberg's defaults of `write.data.path` and `write.metadata.path`.
"""

_METADATA = (".metadata.json", ".metadata.json.gz")
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"]+)"')
_BEGINNING = "bytes=0-65535"
"""A range request for the first 64 KiB of a metadata file. Writers put the table's ID at the beginning of the file."""
_MAX_UUID_BYTES = 65536
_GZIP = b"\x1f\x8b"
# With 16 added to the window size, zlib expects the header of a gzip file.
_OF_GZIP = 16 + zlib.MAX_WBITS

_BATCH_SIZE = 50_000
"""Number of unreferenced files after which `unreferenced_files` yields a list. The number limits the use of memory."""


@dataclass(frozen=True, slots=True)
class Orphans:
    """The numbers of removed orphan files.

    `old_metadata` counts the metadata files that are no longer in the metadata log. `files` counts all other files.
    """

    files: Deletion
    old_metadata: Deletion


class OrphanRemover:
    """Removes a table's orphan files: the unreferenced files in its folder that are older than `age`."""

    def __init__(self, operations: TableOperations, age: timedelta) -> None:
        self._operations = operations
        self._s3 = operations.access.client("s3")
        self._age = age

    def remove(self, now: datetime, should_continue: Callable[[], bool], *, dry_run: bool) -> Orphans:
        """Remove the orphan files. A dry run only counts and lists the files.

        Raises MaintenanceSkipped, DeadlineExceeded, errors from reading metadata, and S3 errors.
        """
        table = self._operations.load()
        require_garbage_collection(table.metadata)
        folder = table_folder(table)
        require_clock(self._s3, folder)
        references = References(table.io, self._s3)
        add_latest(references, table, self._operations)
        # Another table's files look like orphans of this table, so first search the whole folder for foreign metadata.
        self._require_own_folder(table, references, folder, should_continue)
        removed = Orphans(*(Deletion(self._s3, folder, dry_run, should_continue) for _ in range(2)))
        pages = list_pages(self._s3, folder, should_continue)
        for files in unreferenced_files(pages, folder, references):
            if old := [file for file in files if file.modified < now - self._age]:
                self._remove(old, table, references, removed)
        return removed

    def _remove(self, files: list[File], table: Table, references: References, removed: Orphans) -> None:
        """Remove those of `files` to which the latest state of the table does not refer."""
        # A writer may have committed files since the references were read. References are only ever added, so files
        # that were referenced at either time stay.
        add_latest(references, table, self._operations)
        dead = references.unreferenced(files)
        removed.old_metadata.delete(file for file in dead if file.path.endswith(_METADATA))
        removed.files.delete(file for file in dead if not file.path.endswith(_METADATA))

    def _require_own_folder(
        self, table: Table, references: References, folder: S3Address, should_continue: Callable[[], bool]
    ) -> None:
        """Raise MaintenanceSkipped if the folder contains a metadata file of another table, in this or any catalog."""
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
        """Return the table ID in a metadata file. "unknown" if the beginning of the file contains no table ID.

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
    """Yield the objects in a folder as pages of the S3 listing.

    Raises DeadlineExceeded if `should_continue` returns False.
    """
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=folder.bucket, Prefix=f"{folder.key}/"):
        if not should_continue():
            raise DeadlineExceeded
        yield page.get("Contents", [])


def unreferenced_files(
    pages: Iterable[list[ObjectTypeDef]], folder: S3Address, references: References
) -> Iterator[list[File]]:
    """Yield the unreferenced files of a table as lists of about 50,000 files.

    `pages` contains the objects in the table's folder. Skips objects that cannot be files of a table.
    """
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
    """Load the latest state of the table, and add the references in this state to `references`.

    Raises MaintenanceSkipped if another table has replaced this one, or if the location of the table has changed.
    """

    def add(latest: Table) -> None:
        if latest.metadata.table_uuid != table.metadata.table_uuid or latest.location() != table.location():
            raise MaintenanceSkipped("another table has replaced it in the meantime, or its location has changed")
        references.add_metadata(latest.metadata, latest.metadata_location)
        references.add_files()

    operations.with_latest(add)


def table_folder(table: Table) -> S3Address:
    """Return the folder at the table's location.

    Raises MaintenanceSkipped if the location is not in S3, or is a whole bucket.
    """
    try:
        folder = S3Address.parse(table.location().rstrip("/"))
    except ValueError:
        raise MaintenanceSkipped(f"its location {table.location()} is not in S3") from None
    if not folder.key:
        raise MaintenanceSkipped(f"its location {table.location()} is a whole bucket")
    return folder


def is_of_a_table(key: str, folder: S3Address) -> bool:
    """Return whether an object in a table's folder can be a file of the table, according to its key.

    Return False if the name of the object, or of a folder around it inside the table's folder, begins with `_` or `.`.
    Such files and folders have other uses.
    """
    path = key[len(folder.key) + 1 :]
    return _KINDS.fullmatch(path) is not None and not any(part[:1] in ("_", ".") for part in path.split("/"))
