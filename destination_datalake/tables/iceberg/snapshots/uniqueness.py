"""By which key the rows of a snapshot are unique: each that this connector makes so says it, in its own summary.

A property of the table would outlive the content that it speaks of: main is rolled back, replaced, moved to another
branch, or another engine appends to it. What a snapshot says of itself stays true of it, and goes where it goes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

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
        if (found := _property(snapshot)) is not None:
            return {_PROPERTY: found}
        if snapshot.summary is None or snapshot.summary.operation not in _KEEPING:
            break
    return {}


def last_unique(branch: str, key: Sequence[int], metadata: TableMetadata) -> Snapshot | None:
    """Return the last snapshot in a branch's history that says of what its rows are unique by, if that is the key."""
    for snapshot in history(branch, metadata):
        if (found := _property(snapshot)) is not None:
            return snapshot if {_PROPERTY: found} == says_unique(key) else None
    return None


def history(branch: str, metadata: TableMetadata) -> Iterator[Snapshot]:
    """Yield the snapshots of a branch, from its head to the first that has not expired."""
    by_id = {each.snapshot_id: each for each in metadata.snapshots}
    each = metadata.snapshot_by_name(branch)
    while each is not None:
        yield each
        each = by_id.pop(each.parent_snapshot_id, None) if each.parent_snapshot_id is not None else None


def _property(snapshot: Snapshot) -> str | None:
    return snapshot.summary.additional_properties.get(_PROPERTY) if snapshot.summary is not None else None
