"""The branches of rows that are committed, and not in the table's content yet.

The platform does not send acknowledged records again, so these branches are never removed but with the commit that
takes over their rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.snapshot import ManageSnapshots

GENERATION_PREFIX = "airbyte_generation_"
"""Followed by the generation, the name of the branch of a pending overwrite."""

PENDING_BRANCH = "airbyte_pending"
"""The branch of rows that are not deduplicated yet. It has none of the table's content."""

UNPUBLISHED = (GENERATION_PREFIX, PENDING_BRANCH)
"""Beginnings of the names of branches and tags that hold rows of unfinished syncs. They never expire."""

_FOR_EVER_MS = 2**63 - 1


def generation_branches(metadata: TableMetadata) -> list[str]:
    """Return the names of the branches of pending overwrites."""
    return sorted(ref for ref in metadata.refs if ref.startswith(GENERATION_PREFIX))


def unpublished_branches(metadata: TableMetadata) -> list[str]:
    """Return the names of all branches with rows that will be in the table's content."""
    return [*generation_branches(metadata), *([PENDING_BRANCH] if PENDING_BRANCH in metadata.refs else [])]


def remove_branches(branches: Iterable[str], transaction: Transaction) -> None:
    """Remove the branches that the table has."""
    present = [branch for branch in branches if branch in transaction.table_metadata.refs]
    if present:
        with ManageSnapshots(transaction) as snapshots:
            for branch in present:
                snapshots.remove_branch(branch)


def keep_for_ever(branch: str, transaction: Transaction) -> None:
    """Let no engine expire a branch, whatever the table's property `history.expire.max-ref-age-ms` is.

    What a branch says of itself comes first (Iceberg spec: Snapshot Retention Policy).
    """
    with ManageSnapshots(transaction) as snapshots:
        head = transaction.table_metadata.refs[branch].snapshot_id
        snapshots.create_branch(head, branch, max_ref_age_ms=_FOR_EVER_MS)
