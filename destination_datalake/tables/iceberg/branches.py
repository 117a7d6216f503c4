"""Branches with committed rows that are not part of the table's content yet.

The content consists of the rows that readers see on the branch `main`. The platform does not send acknowledged records
again. So only two kinds of commits remove an unpublished branch: a commit that takes over the branch's rows, and a
commit of an overwrite that replaces these rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.table.update.snapshot import ManageSnapshots

from destination_datalake.tables.context import TableFigures
from destination_datalake.tables.iceberg.pyiceberg_internals import apply
from destination_datalake.tables.table import whole_number

GENERATION_PREFIX = "airbyte_generation_"
"""Name prefix of the branch of a pending overwrite, followed by the overwrite's generation or `none`."""

_OVERWRITE = re.compile(rf"{GENERATION_PREFIX}(\d+|none)")

PENDING_BRANCH = "airbyte_pending"
"""The branch with rows that are not deduplicated yet. The table's content contains none of these rows."""

UNPUBLISHED_PREFIXES = (GENERATION_PREFIX, PENDING_BRANCH)
"""Name prefixes of the branches and tags that contain rows of unfinished syncs. They never expire."""

# The highest value of a Java long. There is no value for "never": a ref without a maximum age follows the table's
# property.
NO_EXPIRY_MS = 2**63 - 1
"""The value of `max-ref-age-ms` for a branch or tag that never expires."""

TOTAL_ROWS = "total-records"
"""The key of the number of rows in a snapshot's summary (Iceberg spec: Optional Snapshot Summary Fields)."""

_ORIGIN = "airbyte.files"

NEW: Final = {_ORIGIN: "new"}
"""Summary property of a snapshot that adds only newly written files. No earlier snapshot can contain them."""

ADOPTED: Final = {_ORIGIN: "adopted"}
"""Summary property of a snapshot that adds the files of an unpublished overwrite."""


def has_new_files(snapshot: Snapshot) -> bool:
    """Return whether the snapshot adds only newly written files. Return False for snapshots of other writers."""
    return summary_value(snapshot, _ORIGIN) == NEW[_ORIGIN]


def summary_value(snapshot: Snapshot | None, name: str) -> str | None:
    """Return an entry of a snapshot's summary, or None if the snapshot or the entry is missing."""
    return snapshot.summary.get(name) if snapshot is not None and snapshot.summary is not None else None


def summary_number(snapshot: Snapshot | None, name: str) -> int | None:
    """Return a number from a snapshot's summary, or None if it is missing: some writers record no totals."""
    value = summary_value(snapshot, name)
    return whole_number(value) if value is not None else None


def state_of(metadata: TableMetadata) -> TableFigures:
    """Return the size of a table, as the snapshot summaries record it, for a sync's report."""
    current = metadata.current_snapshot()
    return TableFigures(
        None if current is None else current.snapshot_id,
        len(metadata.snapshots),
        summary_number(current, "total-data-files"),
        summary_number(current, "total-files-size"),
        summary_number(current, TOTAL_ROWS),
        summary_number(metadata.snapshot_by_name(PENDING_BRANCH), TOTAL_ROWS),
    )


def generation_branches(metadata: TableMetadata) -> list[str]:
    """Return the sorted names of pending overwrites' branches. Tags with such names belong to other writers."""
    return sorted(
        name
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH and _OVERWRITE.fullmatch(name)
    )


def unpublished_branches(metadata: TableMetadata) -> list[str]:
    """Return the names of all branches whose rows are not part of the table's content yet."""
    return [*generation_branches(metadata), *([PENDING_BRANCH] if PENDING_BRANCH in metadata.refs else [])]


def history(name: str, metadata: TableMetadata) -> Iterator[Snapshot]:
    """Yield the snapshots of a branch or tag, from its head back to the oldest one that still exists."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    snapshot = metadata.snapshot_by_name(name)
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        # Pop the parent, so that the loop ends even if damaged metadata contains a cycle of parents.
        snapshot = by_id.pop(parent, None) if parent is not None else None


def rows_on(branch: str, metadata: TableMetadata) -> str | None:
    """Return a clause for messages about the unpublished rows on a branch, or None if the branch has no such rows."""
    head = metadata.snapshot_by_name(branch)
    rows = summary_value(head, TOTAL_ROWS)
    if head is None or rows == "0":
        return None
    return f"{rows or 'some'} acknowledged rows on the branch {branch} are not in the table's content yet"


def copy_hint(metadata: TableMetadata) -> str:
    """Return an instruction for users to copy the unpublished rows too, with a leading full stop.

    Return an empty string if the table has no unpublished rows.
    """
    pending = rows_on(PENDING_BRANCH, metadata)
    overwrites = [clause for branch in generation_branches(metadata) if (clause := rows_on(branch, metadata))]
    hint = ""
    if pending is not None:
        hint += (
            f". Copy the pending rows too: {pending} (in Spark INSERT INTO ... SELECT * FROM ... VERSION AS OF "
            f"'{PENDING_BRANCH}')"
        )
    if overwrites:
        hint += f". Refresh the stream afterwards: {' and '.join(overwrites)}"
    return hint


def remove_branches(branches: Iterable[str], transaction: Transaction) -> None:
    """Remove the given branches. Ignore those that do not exist."""
    present = [branch for branch in branches if branch in transaction.table_metadata.refs]
    if present:
        with ManageSnapshots(transaction) as snapshots:
            for branch in present:
                snapshots.remove_branch(branch)


def remove_merged_branches(branches: Collection[str], transaction: Transaction) -> None:
    """Remove branches whose files another branch has taken over. Also remove snapshots that no other branch contains.

    An engine must not expire these snapshots later. Iceberg's library before version 1.10, which some engines use,
    deletes the files that an expired snapshot has added, even if another branch contains them (apache/iceberg#13568).
    """
    # Collect the snapshots first: after the removal of the refs, nothing leads to them.
    before = {snapshot.snapshot_id for branch in branches for snapshot in history(branch, transaction.table_metadata)}
    remove_branches(branches, transaction)
    metadata = transaction.table_metadata
    unreachable_ids = before - {snapshot.snapshot_id for name in metadata.refs for snapshot in history(name, metadata)}
    if unreachable_ids:
        apply(transaction, (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(unreachable_ids)}),))


def disable_ref_expiry(branch: str, transaction: Transaction) -> None:
    """Exempt a branch from expiry, whatever the value of the table property `history.expire.max-ref-age-ms`.

    A branch's own retention takes precedence over the table's (Iceberg spec: Snapshot Retention Policy).
    """
    with ManageSnapshots(transaction) as snapshots:
        head = transaction.table_metadata.refs[branch].snapshot_id
        # PyIceberg has no method that changes the retention of a branch, but this update replaces an existing branch
        # too.
        snapshots.create_branch(head, branch, max_ref_age_ms=NO_EXPIRY_MS)


# --- the key by which the rows of a snapshot are unique ---------------------------------------------------------------


_UNIQUE_BY = "airbyte.unique-by"
"""Summary property of a snapshot whose rows are unique by a key. Its value is a JSON list of the key's field IDs."""

_WITHOUT_NEW_ROWS = frozenset([Operation.DELETE, Operation.REPLACE])
"""The operations of snapshots that add no rows (Iceberg spec: Snapshots)."""


def unique_property(key: Sequence[int]) -> dict[str, str]:
    """Return the summary property which records that all rows are unique by the key. `key` contains field IDs."""
    return {_UNIQUE_BY: json.dumps([*key])}


def inherited_uniqueness(branch: str, metadata: TableMetadata) -> dict[str, str]:
    """Return the summary property about unique rows for the branch's next snapshot, if that snapshot adds no rows.

    The result is the property of the branch's last snapshot that has one. It is empty if a later snapshot has added
    rows.
    """
    for snapshot in history(branch, metadata):
        if (key_ids := summary_value(snapshot, _UNIQUE_BY)) is not None:
            return {_UNIQUE_BY: key_ids}
        if snapshot.summary is None or snapshot.summary.operation not in _WITHOUT_NEW_ROWS:
            break
    return {}


def last_unique(branch: str, key: Sequence[int], metadata: TableMetadata) -> Snapshot | None:
    """Return the last snapshot of a branch whose rows are recorded as unique, if they are unique by `key`.

    Return None if the key differs, or if no snapshot records unique rows.
    """
    for snapshot in history(branch, metadata):
        if (key_ids := summary_value(snapshot, _UNIQUE_BY)) is not None:
            return snapshot if {_UNIQUE_BY: key_ids} == unique_property(key) else None
    return None
