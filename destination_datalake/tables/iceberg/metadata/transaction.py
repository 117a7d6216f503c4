"""Changes of a table's metadata at a cost that does not grow with the table's snapshots.

PyIceberg copies the whole metadata, snapshot by snapshot, whenever a transaction's is looked at. Nothing changes
metadata in place, so what an update leaves as it was can be shared.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate, TableUpdate

from destination_datalake.tables.iceberg.pyiceberg_internals import OpenTransaction, with_updates


class SharingTransaction(OpenTransaction):
    """A transaction that applies its updates once, and shares with the table's metadata what they do not change."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._applied: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with all updates so far."""
        base, updates = self.base, self.updates
        if self._applied is None or self._applied[0] is not base or self._applied[1] is not updates:
            self._applied = (base, updates, updated(base, updates))
        return self._applied[2]


def updated(
    base: TableMetadata, updates: tuple[TableUpdate, ...], metadata_location: str | None = None
) -> TableMetadata:
    """Return the metadata with the updates, as PyIceberg's `update_table_metadata` does, sharing what is unchanged.

    With `metadata_location`, that of `base`, it becomes the last entry of the metadata log.
    """
    metadata = _without_gaps(base, with_updates(base, tuple(_with_retention(base, updates)), metadata_location))
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return metadata


def _with_retention(base: TableMetadata, updates: tuple[TableUpdate, ...]) -> Iterator[TableUpdate]:
    """Yield the updates; a branch that moves keeps how long it and its snapshots are kept.

    As in Iceberg's own library. PyIceberg sets the branch anew, without what its owner has set for it.
    """
    refs: dict[str, SnapshotRef | SetSnapshotRefUpdate] = {**base.refs}
    for update in updates:
        moved = update
        match update:
            case SetSnapshotRefUpdate(min_snapshots_to_keep=None, max_snapshot_age_ms=None, max_ref_age_ms=None):
                if (before := refs.get(update.ref_name)) is not None:
                    retention = ("min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")
                    moved = update.model_copy(update={name: getattr(before, name) for name in retention})
            case RemoveSnapshotRefUpdate():
                refs.pop(update.ref_name, None)
        if isinstance(moved, SetSnapshotRefUpdate):
            refs[moved.ref_name] = moved
        yield moved


def _without_gaps(base: TableMetadata, metadata: TableMetadata) -> TableMetadata:
    """Return metadata whose snapshot log begins after the last of the base's snapshots that was removed.

    Otherwise a query of the table as of a time in between would find an older snapshot, which a tag has kept, in place
    of the one that was current (Iceberg spec: snapshot-log). PyIceberg takes out the removed snapshots alone.
    """
    if len(metadata.snapshots) >= len(base.snapshots):
        return metadata
    there = {each.snapshot_id for each in metadata.snapshots}
    gone = [number for number, entry in enumerate(base.snapshot_log) if entry.snapshot_id not in there]
    if not gone:
        return metadata
    rest = len(base.snapshot_log) - gone[-1] - 1
    since = len(metadata.snapshot_log) - sum(entry.snapshot_id in there for entry in base.snapshot_log)
    log = metadata.snapshot_log[len(metadata.snapshot_log) - rest - since :]
    return metadata.model_copy(update={"snapshot_log": log})
