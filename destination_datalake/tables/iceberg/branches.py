"""Branches that contain committed rows that are not part of the table's content yet.

The content is what readers see on the branch `main`. The platform does not send acknowledged records again. So an
unpublished branch is removed only by a commit that takes over its rows, or by an overwrite that replaces them.
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

GENERATION_PREFIX = "airbyte_generation_"
"""The prefix of the names of the branches of pending overwrites. The overwrite's generation follows the prefix."""

_OVERWRITE = re.compile(rf"{GENERATION_PREFIX}(\d+|none)")

PENDING_BRANCH = "airbyte_pending"
"""The branch with rows that are not deduplicated yet. It contains none of the rows in the table's content."""

UNPUBLISHED_PREFIXES = (GENERATION_PREFIX, PENDING_BRANCH)
"""Prefixes of the names of branches and tags that contain rows of unfinished syncs.

These branches and tags never expire.
"""

NO_EXPIRY_MS = 2**63 - 1
"""`max-ref-age-ms` of a branch or tag that never expires."""

TOTAL_ROWS = "total-records"
"""The key of the total number of rows in a snapshot's summary (Iceberg spec: Optional Snapshot Summary Fields)."""

_ORIGIN = "airbyte.files"

NEW: Final = {_ORIGIN: "new"}
"""The summary property of a snapshot that adds only newly written files, which no earlier snapshot can contain."""

ADOPTED: Final = {_ORIGIN: "adopted"}
"""The summary property of a snapshot that adds the files of an unpublished overwrite."""


def has_new_files(snapshot: Snapshot) -> bool:
    """Return whether all files that a snapshot adds were newly written for that snapshot.

    Return False for snapshots of other writers.
    """
    return summary_value(snapshot, _ORIGIN) == NEW[_ORIGIN]


def summary_value(snapshot: Snapshot | None, name: str) -> str | None:
    """Return the value of an entry in a snapshot's summary, or None if the snapshot or the entry is missing."""
    return snapshot.summary.get(name) if snapshot is not None and snapshot.summary is not None else None


def summary_number(snapshot: Snapshot | None, name: str) -> int | None:
    """Return a number in a snapshot's summary, or None if it is missing. Not every writer records totals."""
    value = summary_value(snapshot, name)
    return int(value) if value is not None and value.isdecimal() else None


def state_of(metadata: TableMetadata) -> TableFigures:
    """Return the figures of a table for the report of a sync, from the totals in the table's snapshot summaries."""
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
    """Return the names of the branches of pending overwrites. Tags with such names belong to other writers."""
    return sorted(
        name
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH and _OVERWRITE.fullmatch(name)
    )


def unpublished_branches(metadata: TableMetadata) -> list[str]:
    """Return the names of all branches with rows that are not part of the table's content yet."""
    return [*generation_branches(metadata), *([PENDING_BRANCH] if PENDING_BRANCH in metadata.refs else [])]


def history(name: str, metadata: TableMetadata) -> Iterator[Snapshot]:
    """Yield the snapshots of a branch or tag, from its head back to the oldest snapshot that still exists."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    snapshot = metadata.snapshot_by_name(name)
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        # Pop the parent. Otherwise, the loop would never end if damaged metadata contained a cycle of parents.
        snapshot = by_id.pop(parent, None) if parent is not None else None


def rows_on(branch: str, metadata: TableMetadata) -> str | None:
    """Return a clause for messages with the number of unpublished rows on a branch, or None if there are none."""
    head = metadata.snapshot_by_name(branch)
    rows = summary_value(head, TOTAL_ROWS)
    if head is None or rows == "0":
        return None
    return f"{rows or 'some'} rows that were acknowledged, and are not in its content yet, are on the branch {branch}"


def copy_hint(metadata: TableMetadata) -> str:
    """Return an instruction for users to copy the unpublished rows as well, with a leading full stop.

    Return an empty string if all rows are part of the table's content.
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
    """Remove those of the given branches that exist in the table."""
    present = [branch for branch in branches if branch in transaction.table_metadata.refs]
    if present:
        with ManageSnapshots(transaction) as snapshots:
            for branch in present:
                snapshots.remove_branch(branch)


def remove_merged_branches(branches: Collection[str], transaction: Transaction) -> None:
    """Remove branches whose files were added to another branch, and the snapshots that only these branches contain.

    The snapshots must not be left to expiry. Other engines use versions of Iceberg's library before 1.10, which delete
    the files that an expired snapshot has added, even if another branch contains the files (apache/iceberg#13568).
    """
    before = {snapshot.snapshot_id for branch in branches for snapshot in history(branch, transaction.table_metadata)}
    remove_branches(branches, transaction)
    metadata = transaction.table_metadata
    gone = before - {snapshot.snapshot_id for name in metadata.refs for snapshot in history(name, metadata)}
    if gone:
        apply(transaction, (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(gone)}),))


def disable_ref_expiry(branch: str, transaction: Transaction) -> None:
    """Exempt a branch from expiry, whatever the value of the table property `history.expire.max-ref-age-ms`.

    The retention of a branch takes precedence over that of the table (Iceberg spec: Snapshot Retention Policy).
    """
    with ManageSnapshots(transaction) as snapshots:
        head = transaction.table_metadata.refs[branch].snapshot_id
        snapshots.create_branch(head, branch, max_ref_age_ms=NO_EXPIRY_MS)


# --- the key by which the rows of a snapshot are unique ---------------------------------------------------------------


_UNIQUE_BY = "airbyte.unique-by"
"""The summary property of a snapshot whose rows are unique by a key.

It contains the field ids of the key, as a JSON list.
"""

_WITHOUT_NEW_ROWS = frozenset([Operation.DELETE, Operation.REPLACE])
"""The operations that add no rows (Iceberg spec: Snapshots)."""


def unique_property(key: Sequence[int]) -> dict[str, str]:
    """Return the snapshot property that records that all rows are unique by a key, which is given as field ids."""
    return {_UNIQUE_BY: json.dumps([*key])}


def inherited_uniqueness(branch: str, metadata: TableMetadata) -> dict[str, str]:
    """Return the property of unique rows that the next snapshot of a branch inherits if that snapshot adds no rows.

    The result is the property of the last snapshot that has one, or empty if a later snapshot has added rows.
    """
    for snapshot in history(branch, metadata):
        if (key_ids := summary_value(snapshot, _UNIQUE_BY)) is not None:
            return {_UNIQUE_BY: key_ids}
        if snapshot.summary is None or snapshot.summary.operation not in _WITHOUT_NEW_ROWS:
            break
    return {}


def last_unique(branch: str, key: Sequence[int], metadata: TableMetadata) -> Snapshot | None:
    """Return the last snapshot of a branch whose rows are recorded as unique by this key.

    Return None if the rows are recorded as unique by another key, or if no snapshot records unique rows.
    """
    for snapshot in history(branch, metadata):
        if (key_ids := summary_value(snapshot, _UNIQUE_BY)) is not None:
            return snapshot if {_UNIQUE_BY: key_ids} == unique_property(key) else None
    return None
