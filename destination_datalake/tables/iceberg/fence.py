"""The fence: what tells a state of a table from another where a catalog compares branches and tags alone.

A commit names what must still be as it was planned on: the table's id, the ids of schema, partitions and sort order,
branches and tags (Iceberg REST specification: TableRequirement). Of properties it can say nothing, and of branches that
it does not know, only that one of a certain name must not be there. So what no branch tells is told by a tag, called
`airbyte-fence-7`: a commit that moves no branch removes that tag and adds the one of the next number, and every commit
says that the next one must not be there. Then of two commits that were planned on the same state only one is accepted,
as where the whole metadata is compared.

Whoever takes the fencing token adds the next tag wherever the table is, so that a sync which commits through another
kind of catalog is fenced as well. It is there as long as the token is held, and no engine expires it. One that nobody
needs any more keeps no snapshot: every engine that expires snapshots removes it (Iceberg spec: max-ref-age-ms).
"""

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
from destination_datalake.tables.iceberg.branches import FOR_EVER_MS
from destination_datalake.tables.iceberg.pyiceberg_internals import OpenTransaction, apply
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

FENCE_PROPERTY = "airbyte.fence"
"""The table property with the number of the last tag, which may be gone. No number is used twice."""

_PREFIX = "airbyte-fence-"
_NAME = re.compile(rf"{_PREFIX}([0-9]+)")
_UNTIL_EXPIRY_MS = 1


def fence(table: Table, transaction: OpenTransaction, *, whole: bool) -> None:
    """Complete a transaction: have it require all that it was planned on, and tell what it changes.

    It adds the next tag if it takes the fencing token, or if no branch tells of it and the catalog does not compare the
    `whole` metadata. A table without snapshots can have no tag, and gets an empty one. A tag goes with the token, or
    when a branch has told.
    """
    if not transaction.updates:
        return
    _tell(table, transaction, whole=whole)
    transaction.require(requirements(table.metadata, transaction.updates))


def _tell(table: Table, transaction: OpenTransaction, *, whole: bool) -> None:
    before, after = table.metadata, transaction.table_metadata
    token = after.properties.get(TOKEN_PROPERTY)
    taken = token is not None and token != before.properties.get(TOKEN_PROPERTY)
    if taken or not (whole or _is_told(before, after)):
        if not taken and after == before:
            return
        if MAIN_BRANCH not in after.refs:
            change_branch(Change([]), MAIN_BRANCH, table, transaction)
            after = transaction.table_metadata
        _replace_tag(_last(before) + 1, after, transaction, held=token is not None)
    elif token is None:
        apply(transaction, tuple(_removal(after)))


def _is_told(before: TableMetadata, after: TableMetadata) -> bool:
    """Whether a branch has moved that every commit names, so that no commit planned before is accepted any more."""
    moved = (after.refs[name].snapshot_id != ref.snapshot_id for name, ref in before.refs.items() if name in after.refs)
    return any(moved) or (MAIN_BRANCH in after.refs and MAIN_BRANCH not in before.refs)


def _replace_tag(number: int, metadata: TableMetadata, transaction: OpenTransaction, *, held: bool) -> None:
    tag = {
        "ref-name": f"{_PREFIX}{number}",
        "type": SnapshotRefType.TAG,
        # Not one of an overwrite's branch: these are forgotten when its rows are adopted, unless a tag has them.
        "snapshot-id": metadata.refs[MAIN_BRANCH].snapshot_id,
        "max-ref-age-ms": FOR_EVER_MS if held else _UNTIL_EXPIRY_MS,
    }
    properties = SetPropertiesUpdate(updates={FENCE_PROPERTY: str(number)})
    apply(transaction, (*_removal(metadata), SetSnapshotRefUpdate.model_validate(tag), properties))


def _removal(metadata: TableMetadata) -> Iterator[TableUpdate]:
    for name, ref in metadata.refs.items():
        if is_fence(name, ref):
            yield RemoveSnapshotRefUpdate.model_validate({"ref-name": name})


def _last(metadata: TableMetadata) -> int:
    """Return the highest number that was used. A branch of that name, which is of others, counts too."""
    said = metadata.properties.get(FENCE_PROPERTY, "")
    found = [int(match[1]) for name in metadata.refs if (match := _NAME.fullmatch(name))]
    return max([int(said) if said.isdecimal() else 0, *found])


def is_fence(name: str, ref: SnapshotRef) -> bool:
    """Whether a reference is one of these tags."""
    return ref.snapshot_ref_type == SnapshotRefType.TAG and _NAME.fullmatch(name) is not None


def is_spent(name: str, ref: SnapshotRef) -> bool:
    """Whether a reference is a tag of ours that nobody needs: it may be removed, and keeps no snapshot."""
    return is_fence(name, ref) and ref.max_ref_age_ms == _UNTIL_EXPIRY_MS


def requirements(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> tuple[TableRequirement, ...]:
    """Return all that can be required of a table for updates that were planned on this metadata."""
    refs: dict[str, int | None] = {MAIN_BRANCH: None}
    if metadata.refs:  # Of a table without any, PyIceberg answers for main alone; and no commit leaves it without main.
        refs[f"{_PREFIX}{_last(metadata) + 1}"] = None
        refs |= {update.ref_name: None for update in updates if isinstance(update, SetSnapshotRefUpdate)}
        refs |= {name: ref.snapshot_id for name, ref in metadata.refs.items()}
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": metadata.last_column_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        *_last_partition(metadata),
        AssertDefaultSortOrderId.model_validate({"default-sort-order-id": metadata.default_sort_order_id}),
        *(AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": id_}) for name, id_ in refs.items()),
    )


def _last_partition(metadata: TableMetadata) -> Iterator[TableRequirement]:
    # Tables of format version 1 may not say it.
    if metadata.last_partition_id is not None:
        yield AssertLastAssignedPartitionId.model_validate({"last-assigned-partition-id": metadata.last_partition_id})
