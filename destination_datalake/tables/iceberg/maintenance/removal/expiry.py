"""Expiry of snapshots: a commit removes them from the table's metadata, then files that only they had are deleted.

PyIceberg's `expire_snapshots` does the former alone. Whoever dies in between leaves orphans, which are removed later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from pyiceberg.table.update import RemovePartitionStatisticsUpdate, RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate

from destination_datalake.aws.address import S3Address
from destination_datalake.tables.iceberg.maintenance.removal.deletion import Deletion
from destination_datalake.tables.iceberg.maintenance.removal.guard import (
    Unmaintained,
    require_clock,
    require_garbage_collection,
)
from destination_datalake.tables.iceberg.maintenance.removal.latest import with_latest
from destination_datalake.tables.iceberg.maintenance.removal.paths import File, live_files, manifests_of
from destination_datalake.tables.iceberg.maintenance.removal.references import References, read_concurrently
from destination_datalake.tables.iceberg.maintenance.removal.retention import Expired, Retention, expired
from destination_datalake.tables.iceberg.pyiceberg_internals import apply

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from mypy_boto3_s3 import S3Client
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata

    from destination_datalake.tables.iceberg.metadata.operations import TableOperations

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Expiry:
    """What has expired, and the files that were deleted: data files and delete files, and those of metadata."""

    expired: Expired
    data: Deletion
    metadata: Deletion


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an attempt of the commit decided, and the metadata before and after it."""

    expired: Expired
    before: TableMetadata
    after: TableMetadata
    metadata_location: str


class Expirer:
    """Expires snapshots of one table. `max_age` and `min_snapshots` are the options."""

    def __init__(self, operations: TableOperations, s3: S3Client, max_age: timedelta, min_snapshots: int) -> None:
        self._operations = operations
        self._s3 = s3
        self._max_age = max_age
        self._min_snapshots = min_snapshots

    def is_due(self, now: datetime) -> bool:
        """Whether anything has expired. Reads the table's metadata only; raises as `expire`."""
        return bool(self._plan(self._operations.load(), None, now).expired)

    def expire(self, now: datetime, goes_on: Callable[[], bool], *, dry_run: bool) -> Expiry:
        """Expire snapshots, branches and tags, and delete what nothing refers to afterwards.

        Raises Unmaintained, Stopped, what a commit raises, Incomplete, Disagreement (nothing is deleted then), and what
        S3 raises.
        """
        table = self._operations.load()
        folder = S3Address.parse(table.location().rstrip("/"))
        if dry_run:
            plan = self._plan(table, table.transaction(), now)
        else:
            require_clock(self._s3, folder)
            table, plan = self._operations.commit(lambda base, change: self._plan(base, change, now), table)
        data, metadata = (Deletion(self._s3, folder, dry_run, goes_on) for _ in range(2))
        if plan.expired and dry_run:
            _delete_unreferenced(plan, References(table.io, self._s3), data, metadata)
        elif plan.expired:

            def delete(latest: Table) -> None:
                # Whatever was committed since: it decides what is referred to.
                if latest.metadata.table_uuid != plan.before.table_uuid:
                    raise Unmaintained("another table has taken its place meanwhile")
                after = replace(plan, after=latest.metadata, metadata_location=latest.metadata_location)
                _delete_unreferenced(after, References(latest.io, self._s3), data, metadata)

            with_latest(self._operations, delete)
        return Expiry(plan.expired, data, metadata)

    def _plan(self, table: Table, transaction: Transaction | None, now: datetime) -> _Plan:
        require_garbage_collection(table.metadata)
        retention = Retention.of(table.metadata.properties, self._max_age, self._min_snapshots)
        found = expired(table.metadata, retention, now)
        if transaction is not None and found:
            _remove(found, table.metadata, transaction)
            return _Plan(found, table.metadata, transaction.table_metadata, table.metadata_location)
        return _Plan(found, table.metadata, table.metadata, table.metadata_location)


def _remove(found: Expired, metadata: TableMetadata, transaction: Transaction) -> None:
    refs = [RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in found.refs]
    gone = frozenset(found.snapshots)
    # PyIceberg removes a snapshot's table statistics with it, and leaves its partition statistics.
    statistics = [
        RemovePartitionStatisticsUpdate.model_validate({"snapshot-id": each.snapshot_id})
        for each in metadata.partition_statistics
        if each.snapshot_id in gone
    ]
    snapshots = [RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [*found.snapshots]})] if gone else []
    apply(transaction, (*refs, *statistics, *snapshots))


def _delete_unreferenced(plan: _Plan, references: References, data: Deletion, metadata: Deletion) -> None:
    """Delete what the expired snapshots referred to and `plan.after` does not: data first, manifest lists last.

    In this order whoever is interrupted leaves manifests that still say which files there were.
    """
    gone, io = frozenset(plan.expired.snapshots), references.io
    expired = gone - {each.snapshot_id for each in plan.after.snapshots}
    references.add_metadata(plan.after, plan.metadata_location, expired)
    lists = references.unreferenced(
        File(each.manifest_list, 0) for each in plan.before.snapshots if each.snapshot_id in gone
    )
    found = _present(lambda manifest_list: manifests_of(manifest_list.path, io), lists)
    by_path = {manifest.path: manifest for manifests in found for manifest in manifests}
    manifests = [by_path[file.path] for file in references.unreferenced(File(path, 0) for path in by_path)]
    if manifests:
        references.add_files()
        seen: set[str] = set()
        for files in _present(lambda manifest: live_files(manifest, io), manifests):
            data.delete(file for file in references.unreferenced(files) if file.path not in seen)
            seen.update(file.path for file in files)
    metadata.delete(File(manifest.path, manifest.size) for manifest in manifests)
    statistics = [
        File(each.statistics_path, each.file_size_in_bytes)
        for each in (*plan.before.statistics, *plan.before.partition_statistics)
        if each.snapshot_id in gone
    ]
    metadata.delete(references.unreferenced(statistics))
    metadata.delete(lists)


def _present(read: Callable[[_T], Sequence[_R]], items: Sequence[_T]) -> Iterator[Sequence[_R]]:
    """Yield what `read` returns for each item, nothing for those that someone else has deleted meanwhile."""

    def read_if_present(item: _T) -> Sequence[_R]:
        try:
            return read(item)
        except FileNotFoundError:
            return ()

    return read_concurrently(read_if_present, items)
