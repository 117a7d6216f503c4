"""The branches of rows that are committed, and not in the table's content yet.

The platform does not send acknowledged records again, so these branches are never removed but with the commit that
takes over their rows.
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
"""Followed by the generation, the name of the branch of a pending overwrite."""

_OVERWRITE = re.compile(rf"{GENERATION_PREFIX}(\d+|none)")

PENDING_BRANCH = "airbyte_pending"
"""The branch of rows that are not deduplicated yet. It has none of the table's content."""

UNPUBLISHED = (GENERATION_PREFIX, PENDING_BRANCH)
"""Beginnings of the names of branches and tags that hold rows of unfinished syncs. They never expire."""

FOR_EVER_MS = 2**63 - 1
"""How long a branch or tag is kept that no engine may expire, in milliseconds."""

TOTAL_ROWS = "total-records"
"""In the summary of a snapshot, as all names of totals (Iceberg spec: Optional Snapshot Summary Fields)."""

_ORIGIN = "airbyte.files"

NEW: Final = {_ORIGIN: "new"}
"""The property of snapshots whose files were written for them: no earlier snapshot can have them."""

ADOPTED: Final = {_ORIGIN: "adopted"}
"""The property of snapshots whose files are those of an overwrite that was not published."""


def has_new_files(snapshot: Snapshot) -> bool:
    """Whether the files that a snapshot adds were written for it. False if that is unknown, as of other writers'."""
    return summary_value(snapshot, _ORIGIN) == NEW[_ORIGIN]


def summary_value(snapshot: Snapshot | None, name: str) -> str | None:
    """Return what the summary of a snapshot says; None if it does not, or there is no snapshot."""
    return snapshot.summary.get(name) if snapshot is not None and snapshot.summary is not None else None


def summary_number(snapshot: Snapshot | None, name: str) -> int | None:
    """Return a number of a snapshot's summary; None if it has none: not every writer gives totals."""
    value = summary_value(snapshot, name)
    return int(value) if value is not None and value.isdecimal() else None


def state_of(metadata: TableMetadata) -> TableFigures:
    """Return what a sync's report tells of a table, by the totals of its snapshots."""
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
    """Return the names of the branches of pending overwrites. What others named alike is theirs."""
    return sorted(
        name
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH and _OVERWRITE.fullmatch(name)
    )


def unpublished_branches(metadata: TableMetadata) -> list[str]:
    """Return the names of all branches with rows that will be in the table's content."""
    return [*generation_branches(metadata), *([PENDING_BRANCH] if PENDING_BRANCH in metadata.refs else [])]


def history(name: str, metadata: TableMetadata) -> Iterator[Snapshot]:
    """Yield the snapshots of a branch or tag, from its head to the first that the table has; none if there is none."""
    by_id = {each.snapshot_id: each for each in metadata.snapshots}
    each = metadata.snapshot_by_name(name)
    while each is not None:
        yield each
        each = by_id.pop(each.parent_snapshot_id, None) if each.parent_snapshot_id is not None else None


def rows_on(branch: str, metadata: TableMetadata) -> str | None:
    """Return a clause that says how many rows a branch has that are not in the content; None if it has none."""
    head = metadata.snapshot_by_name(branch)
    rows = summary_value(head, TOTAL_ROWS)
    if head is None or rows == "0":
        return None
    return f"{rows or 'some'} rows that were acknowledged, and are not in its content yet, are on the branch {branch}"


def how_to_copy(metadata: TableMetadata) -> str:
    """Return what belongs to a copy of the table besides its content, as a sentence after a space, or nothing."""
    pending = rows_on(PENDING_BRANCH, metadata)
    overwrites = [clause for branch in generation_branches(metadata) if (clause := rows_on(branch, metadata))]
    told = ""
    if pending is not None:
        told += (
            f". Copy what is pending too: {pending} (in Spark INSERT INTO ... SELECT * FROM ... VERSION AS OF "
            f"'{PENDING_BRANCH}')"
        )
    if overwrites:
        told += f". Refresh the stream afterwards: {' and '.join(overwrites)}"
    return told


def remove_branches(branches: Iterable[str], transaction: Transaction) -> None:
    """Remove the branches that the table has."""
    present = [branch for branch in branches if branch in transaction.table_metadata.refs]
    if present:
        with ManageSnapshots(transaction) as snapshots:
            for branch in present:
                snapshots.remove_branch(branch)


def forget_branches(branches: Collection[str], transaction: Transaction) -> None:
    """Remove branches whose files another one has now, with the snapshots that no other branch or tag has.

    Iceberg's library before 1.10, which other engines expire snapshots with, takes the files that such a snapshot has
    added for nobody's: once it expires they are deleted, wherever else they are (apache/iceberg#13568).
    """
    before = {each.snapshot_id for branch in branches for each in history(branch, transaction.table_metadata)}
    remove_branches(branches, transaction)
    metadata = transaction.table_metadata
    gone = before - {each.snapshot_id for name in metadata.refs for each in history(name, metadata)}
    if gone:
        apply(transaction, (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(gone)}),))


def keep_for_ever(branch: str, transaction: Transaction) -> None:
    """Let no engine expire a branch, whatever the table's property `history.expire.max-ref-age-ms` is.

    What a branch says of itself comes first (Iceberg spec: Snapshot Retention Policy).
    """
    with ManageSnapshots(transaction) as snapshots:
        head = transaction.table_metadata.refs[branch].snapshot_id
        snapshots.create_branch(head, branch, max_ref_age_ms=FOR_EVER_MS)


# --- by which key the rows of a snapshot are unique -------------------------------------------------------------------


_PROPERTY = "airbyte.unique-by"
"""The property of a snapshot: the field ids of the key, as a JSON list."""

_KEEPING = frozenset([Operation.DELETE, Operation.REPLACE])
"""The operations that add no rows to those of the snapshot before (Iceberg spec: Snapshots)."""


def says_unique(key: Sequence[int]) -> dict[str, str]:
    """Return the property of a snapshot whose rows are unique by the key."""
    return {_PROPERTY: json.dumps([*key])}


def still_unique(branch: str, metadata: TableMetadata) -> dict[str, str]:
    """Return what the head of a branch says, or a snapshot before it does if only rows were removed since."""
    for snapshot in history(branch, metadata):
        if (found := summary_value(snapshot, _PROPERTY)) is not None:
            return {_PROPERTY: found}
        if snapshot.summary is None or snapshot.summary.operation not in _KEEPING:
            break
    return {}


def last_unique(branch: str, key: Sequence[int], metadata: TableMetadata) -> Snapshot | None:
    """Return the last snapshot in a branch's history that says of what its rows are unique by, if that is the key."""
    for snapshot in history(branch, metadata):
        if (found := summary_value(snapshot, _PROPERTY)) is not None:
            return snapshot if {_PROPERTY: found} == says_unique(key) else None
    return None
