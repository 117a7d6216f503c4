"""The live files of a snapshot, as its manifests list them."""

from __future__ import annotations

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table


def live_files(table: Table, snapshot_id: int) -> list[IcebergFile]:
    """Return the live data files of a snapshot."""
    return [
        entry.data_file
        for manifest in _live_manifests(table, snapshot_id)
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
    ]


def holds_files(table: Table, snapshot_id: int) -> bool:
    """Whether a snapshot has live files. Reads the manifest list only."""
    return bool(_live_manifests(table, snapshot_id))


def has_row_level_deletes(table: Table, snapshot_id: int) -> bool:
    """Whether a snapshot has delete files, which apply to data files by path or sequence number (Iceberg spec)."""
    return any(manifest.content == ManifestContent.DELETES for manifest in _live_manifests(table, snapshot_id))


def _live_manifests(table: Table, snapshot_id: int) -> list[ManifestFile]:
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    manifests = snapshot.manifests(table.io) if snapshot is not None else []
    return [manifest for manifest in manifests if manifest.has_added_files() or manifest.has_existing_files()]
