"""What our snapshots of an Iceberg table say of themselves: their sync, and the generations of their rows."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from destination_datalake.protocol.catalog import Stream

_GENERATION = "airbyte.generation-id"
_LOWEST_GENERATION = "airbyte.lowest-generation-id"
_SYNC = "airbyte.sync-id"


def summary_of(metadata: TableMetadata, branch: str, stream: Stream) -> dict[str, str]:
    """Return what the branch's next snapshot, with rows of the stream, says of itself."""
    head = metadata.snapshot_by_name(branch)
    lowest = stream.generation if head is None else lowest_generation(metadata, head)
    if lowest is not None and stream.generation is not None:
        lowest = min(lowest, stream.generation)
    values = {_SYNC: stream.sync_id, _GENERATION: stream.generation, _LOWEST_GENERATION: lowest}
    return {key: str(value) for key, value in values.items() if value is not None}


def lowest_generation(metadata: TableMetadata, snapshot: Snapshot | None) -> int | None:
    """Return the lowest generation among our rows in a snapshot; None for tables that others filled.

    Snapshots of others, such as a compaction's, say nothing of it: the last of ours before them does.
    """
    while snapshot is not None:
        said = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        if _LOWEST_GENERATION in said:
            return int(said[_LOWEST_GENERATION])
        parent = snapshot.parent_snapshot_id
        snapshot = metadata.snapshot_by_id(parent) if parent is not None else None
    return None
