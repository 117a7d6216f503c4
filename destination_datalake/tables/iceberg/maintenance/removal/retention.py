"""Which snapshots, branches and tags have expired.

https://iceberg.apache.org/spec/#snapshot-retention-policy: a branch keeps its head and those of its ancestors that are
young, or among the latest; a tag keeps its snapshot. What a branch or tag says of itself comes first, then the table's
properties `history.expire.*`, then the options of this connector.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType

from destination_datalake.tables.iceberg.branches import UNPUBLISHED
from destination_datalake.tables.iceberg.maintenance.removal.guard import Unmaintained

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_MAX_AGE = "history.expire.max-snapshot-age-ms"
_MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
_MAX_REF_AGE = "history.expire.max-ref-age-ms"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long snapshots are kept where a branch or tag says nothing else; refs for ever without `max_ref_age_ms`."""

    max_age_ms: int
    min_snapshots: int
    max_ref_age_ms: int | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str], max_age: timedelta, min_snapshots: int) -> Self:
        """Return a table's retention: its properties', else `max_age` and `min_snapshots`. Raises Unmaintained."""
        return cls(
            _positive(properties, _MAX_AGE) or max_age // timedelta(milliseconds=1),
            _positive(properties, _MIN_SNAPSHOTS) or min_snapshots,
            _positive(properties, _MAX_REF_AGE),
        )


@dataclass(frozen=True, slots=True)
class Expired:
    """Ids of snapshots and names of branches and tags that have expired."""

    snapshots: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything has expired."""
        return bool(self.snapshots or self.refs)


def expired(metadata: TableMetadata, retention: Retention, now: datetime) -> Expired:
    """Return what has expired at `now`.

    Snapshots that belong to no branch, as those staged for an audit or left by a rollback, expire by age.
    """
    at = int(now.timestamp() * 1000)
    kept_refs = {
        name: ref for name, ref in metadata.refs.items() if not _ref_has_expired(name, ref, metadata, retention, at)
    }
    on_main = {each.snapshot_id for each in _history(metadata, metadata.refs.get(MAIN_BRANCH))}
    kept: set[int] = set()
    of_branches: set[int] = set()
    for name, ref in kept_refs.items():
        kept.add(ref.snapshot_id)
        if ref.snapshot_ref_type == SnapshotRefType.TAG:
            continue
        history = list(_history(metadata, ref))
        of_branches.update(each.snapshot_id for each in history)
        if name.startswith(UNPUBLISHED):
            kept.update(each.snapshot_id for each in history if each.snapshot_id not in on_main)
        else:
            kept.update(_kept_of_branch(history, ref, retention, at))
    cutoff = at - retention.max_age_ms
    kept.update(
        each.snapshot_id
        for each in metadata.snapshots
        if each.snapshot_id not in of_branches and each.timestamp_ms >= cutoff
    )
    return Expired(
        tuple(each.snapshot_id for each in metadata.snapshots if each.snapshot_id not in kept),
        tuple(sorted(metadata.refs.keys() - kept_refs.keys())),
    )


def _ref_has_expired(name: str, ref: SnapshotRef, metadata: TableMetadata, retention: Retention, at: int) -> bool:
    if name == MAIN_BRANCH or name.startswith(UNPUBLISHED):
        return False
    snapshot, max_age = metadata.snapshot_by_id(ref.snapshot_id), ref.max_ref_age_ms or retention.max_ref_age_ms
    return snapshot is not None and max_age is not None and at - snapshot.timestamp_ms > max_age


def _kept_of_branch(history: list[Snapshot], ref: SnapshotRef, retention: Retention, at: int) -> Iterator[int]:
    cutoff = at - (ref.max_snapshot_age_ms or retention.max_age_ms)
    minimum = ref.min_snapshots_to_keep or retention.min_snapshots
    for number, snapshot in enumerate(history):
        if number >= minimum and snapshot.timestamp_ms < cutoff:
            return
        yield snapshot.snapshot_id


def _history(metadata: TableMetadata, ref: SnapshotRef | None) -> Iterator[Snapshot]:
    """Yield a ref's snapshot and its ancestors, the latest first, as far as the table has them."""
    by_id = {each.snapshot_id: each for each in metadata.snapshots}
    snapshot = by_id.pop(ref.snapshot_id, None) if ref is not None else None
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = by_id.pop(parent, None) if parent is not None else None


def _positive(properties: Mapping[str, str], name: str) -> int | None:
    """Return a property's value, if the table has it. Raises Unmaintained if it is no positive number."""
    if (text := properties.get(name)) is None:
        return None
    if not text.isdecimal() or int(text) == 0:
        raise Unmaintained(f"its property {name} is {text!r}, which is no positive whole number")
    return int(text)
