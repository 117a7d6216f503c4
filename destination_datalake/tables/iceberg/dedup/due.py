"""Whether so much is pending that it is merged before the end of the stream."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from destination_datalake.tables.iceberg.branches import PENDING_BRANCH

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

MOST_BYTES = 2 * 1024**3
LONGEST = timedelta(minutes=30)
AFTER_FAILURE = timedelta(minutes=10)
"""How long a merge that has failed is not due again: what it was due to is still there with each batch."""

_BYTES = "total-files-size"


def is_merge_due(metadata: TableMetadata, now: datetime) -> bool:
    """Whether more than 2 GiB of files are pending, or any for more than half an hour."""
    head = metadata.snapshot_by_name(PENDING_BRANCH) if PENDING_BRANCH in metadata.refs else None
    if head is None:
        return False
    size = head.summary.get(_BYTES) if head.summary is not None else None
    if size is not None and int(size) > MOST_BYTES:
        return True
    by_id = {each.snapshot_id: each for each in metadata.snapshots}
    oldest = head
    while oldest.parent_snapshot_id is not None and (parent := by_id.pop(oldest.parent_snapshot_id, None)) is not None:
        oldest = parent
    return now - datetime.fromtimestamp(oldest.timestamp_ms / 1000, now.tzinfo) > LONGEST
