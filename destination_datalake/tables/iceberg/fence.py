"""The fence: of two commits planned on the same state of a table, a catalog accepts only one, whatever it compares."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from destination_datalake.tables.fencing import TOKEN_PROPERTY
from destination_datalake.tables.iceberg.branches import NO_EXPIRY_MS
from destination_datalake.tables.iceberg.pyiceberg_internals import OpenTransaction, apply
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

FENCE_PROPERTY = "airbyte.fence"
"""The table property with the number of the last fence tag, which may be removed. No number is used twice."""

_PREFIX = "airbyte-fence-"
_NAME = re.compile(rf"{_PREFIX}([0-9]+)")
_EXPIRES_AT_ONCE_MS = 1


def fence(table: Table, transaction: OpenTransaction, *, whole: bool) -> None:
    """Complete a transaction, so that the catalog rejects any other that was planned on the same state of the table.

    A commit can require the table's id, the ids of schema, partitions and sort order, and branches and tags (Iceberg
    REST specification: TableRequirement). It cannot require properties. It can require the absence of a branch or tag
    only by name. Therefore a commit that moves no branch replaces the tag `airbyte-fence-6` by `airbyte-fence-7`, and
    every commit requires that the tag with the next number is absent. With `whole`, the catalog compares the whole
    metadata. Then only a sync that takes the fencing token needs the tag: it fences syncs that commit through other
    kinds of catalogs. A tag needs a snapshot, so a table without snapshots gets an empty one.

    While the token is held, no engine expires the tag. Afterwards, every engine that expires snapshots removes it
    (Iceberg spec: max-ref-age-ms), and so does the next commit that moves a branch.
    """
    if not transaction.updates:
        return
    _replace_or_remove_tag(table, transaction, whole=whole)
    transaction.require(requirements(table.metadata, transaction.updates))


def _replace_or_remove_tag(table: Table, transaction: OpenTransaction, *, whole: bool) -> None:
    before, after = table.metadata, transaction.table_metadata
    token = after.properties.get(TOKEN_PROPERTY)
    taken = token is not None and token != before.properties.get(TOKEN_PROPERTY)
    if taken or not (whole or _will_conflict(before, after)):
        if not taken and after == before:
            return
        if MAIN_BRANCH not in after.refs:
            change_branch(Change([]), MAIN_BRANCH, table, transaction)
            after = transaction.table_metadata
        _replace_tag(_last_number(before) + 1, after, transaction, held=token is not None)
    elif token is None:
        apply(transaction, tuple(_removal(after)))


def _will_conflict(before: TableMetadata, after: TableMetadata) -> bool:
    """Whether a branch moves that every commit requires, so commits that were planned before are rejected anyway."""
    moved = (after.refs[name].snapshot_id != ref.snapshot_id for name, ref in before.refs.items() if name in after.refs)
    return any(moved) or (MAIN_BRANCH in after.refs and MAIN_BRANCH not in before.refs)


def _replace_tag(number: int, metadata: TableMetadata, transaction: OpenTransaction, *, held: bool) -> None:
    tag = {
        "ref-name": f"{_PREFIX}{number}",
        "type": SnapshotRefType.TAG,
        # Not a snapshot of an overwrite's branch: a tag would keep it after the rows are adopted.
        "snapshot-id": metadata.refs[MAIN_BRANCH].snapshot_id,
        "max-ref-age-ms": NO_EXPIRY_MS if held else _EXPIRES_AT_ONCE_MS,
    }
    properties = SetPropertiesUpdate(updates={FENCE_PROPERTY: str(number)})
    apply(transaction, (*_removal(metadata), SetSnapshotRefUpdate.model_validate(tag), properties))


def _removal(metadata: TableMetadata) -> Iterator[TableUpdate]:
    for name, ref in metadata.refs.items():
        if is_fence(name, ref):
            yield RemoveSnapshotRefUpdate.model_validate({"ref-name": name})


def _last_number(metadata: TableMetadata) -> int:
    """Return the highest number in use. A branch with such a name, which another writer has made, counts too."""
    recorded = metadata.properties.get(FENCE_PROPERTY, "")
    numbers = [int(match[1]) for name in metadata.refs if (match := _NAME.fullmatch(name))]
    return max([int(recorded) if recorded.isdecimal() else 0, *numbers])


def is_fence(name: str, ref: SnapshotRef) -> bool:
    """Whether a reference is a fence tag."""
    return ref.snapshot_ref_type == SnapshotRefType.TAG and _NAME.fullmatch(name) is not None


def is_unneeded_fence(name: str, ref: SnapshotRef) -> bool:
    """Whether a reference is a fence tag without a held token: it may be removed, and keeps no snapshot."""
    return is_fence(name, ref) and ref.max_ref_age_ms == _EXPIRES_AT_ONCE_MS


def requirements(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> tuple[TableRequirement, ...]:
    """Return all requirements that a commit can have for updates that were planned on this metadata."""
    refs: dict[str, int | None] = {MAIN_BRANCH: None}
    if metadata.refs:  # In a table without refs, PyIceberg can require the absence of main only, which is enough.
        refs[f"{_PREFIX}{_last_number(metadata) + 1}"] = None
        refs |= {update.ref_name: None for update in updates if isinstance(update, SetSnapshotRefUpdate)}
        refs |= {name: ref.snapshot_id for name, ref in metadata.refs.items()}
    ids = [] if metadata.last_partition_id is None else [metadata.last_partition_id]  # Format version 1 may lack it.
    last_partition = [AssertLastAssignedPartitionId.model_validate({"last-assigned-partition-id": id_}) for id_ in ids]
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": metadata.last_column_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        *last_partition,
        AssertDefaultSortOrderId.model_validate({"default-sort-order-id": metadata.default_sort_order_id}),
        *(AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": id_}) for name, id_ in refs.items()),
    )
