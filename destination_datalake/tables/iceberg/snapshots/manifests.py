"""The live files of a snapshot, as its manifests list them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table

from destination_datalake.tables.iceberg.pyiceberg_internals import manifest_entries
from destination_datalake.tables.table import TableConflict

_Value = TypeVar("_Value")

_REMEDY = (
    "If other engines can read the table, let them write its manifests again (Spark: the procedure rewrite_manifests)."
)


def live_files(table: Table, snapshot_id: int) -> list[IcebergFile]:
    """Return the live data files of a snapshot."""
    return [
        entry.data_file
        for manifest in live_manifests(table, snapshot_id)
        if manifest.content == ManifestContent.DATA
        for entry in live_entries(manifest, table.io)
    ]


def live_entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Return the entries of a manifest without those of deleted files.

    Raises TableConflict if there are fewer than the manifest list says, or if a block has more than its entries. What
    is written in place of a manifest would lack the others, and PyIceberg's reader takes an incomplete or empty Avro
    block for the end of the file.
    """
    try:
        live = manifest_entries(manifest, io)
    except ValueError as error:
        raise TableConflict(f"Cannot read {manifest.manifest_path}: {error}. {_REMEDY}") from error
    counts = (manifest.added_files_count, manifest.existing_files_count)  # None in old tables.
    if len(live) < (listed := sum(count or 0 for count in counts)):
        raise TableConflict(
            f"Cannot read {manifest.manifest_path}: {len(live)} of {listed} live files are found in it. {_REMEDY}"
        )
    return live


def lean_entry(file: IcebergFile, columns: Collection[int] = ()) -> IcebergFile:
    """Return a data file's entry without its metrics, which are most of its memory, but for those of some field ids."""

    def of_columns(values: Mapping[int, _Value] | None) -> dict[int, _Value]:
        return {id_: value for id_, value in (values or {}).items() if id_ in columns}

    lean = IcebergFile.from_args(
        content=file.content,
        file_path=file.file_path,
        file_format=file.file_format,
        partition=file.partition,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        sort_order_id=file.sort_order_id,
        column_sizes=of_columns(file.column_sizes),
        value_counts=of_columns(file.value_counts),
        null_value_counts=of_columns(file.null_value_counts),
        nan_value_counts=of_columns(file.nan_value_counts),
        lower_bounds=of_columns(file.lower_bounds),
        upper_bounds=of_columns(file.upper_bounds),
    )
    lean.spec_id = file.spec_id
    return lean


def holds_files(table: Table, snapshot_id: int) -> bool:
    """Whether a snapshot has live files. Reads the manifest list only."""
    return bool(live_manifests(table, snapshot_id))


def has_row_level_deletes(table: Table, snapshot_id: int) -> bool:
    """Whether a snapshot has delete files, which apply to data files by path or sequence number (Iceberg spec)."""
    return any(manifest.content == ManifestContent.DELETES for manifest in live_manifests(table, snapshot_id))


def live_manifests(table: Table, snapshot_id: int) -> list[ManifestFile]:
    """Return the manifests of a snapshot that have live files, data files or delete files."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    manifests = snapshot.manifests(table.io) if snapshot is not None else []
    return [manifest for manifest in manifests if manifest.has_added_files() or manifest.has_existing_files()]
