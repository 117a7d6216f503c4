"""The live files of a snapshot, as its manifests list them."""

from __future__ import annotations

from struct import Struct
from typing import Any, Self

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import DoubleReader, Reader
from pyiceberg.avro.resolver import ReadSchemaResolver, SchemaPartnerAccessor
from pyiceberg.io import FileIO, InputFile
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    _inherit_from_manifest,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.schema import visit_with_partner
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, IcebergType

from destination_datalake.tables.table import TableConflict

_DOUBLE = Struct("<d")


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

    Raises TableConflict if there are fewer than the manifest list says. What is written in place of a manifest would
    lack the others, and PyIceberg's reader takes an incomplete or empty Avro block for the end of the file.
    """
    with _ManifestReader(io.new_input(manifest.manifest_path)) as entries:
        all_live = (entry for entry in entries if entry.status != ManifestEntryStatus.DELETED)
        live = [_inherit_from_manifest(entry, manifest) for entry in all_live]
    counts = (manifest.added_files_count, manifest.existing_files_count)  # None in old tables.
    if len(live) < (listed := sum(count or 0 for count in counts)):
        raise TableConflict(
            f"Cannot read {manifest.manifest_path}: {len(live)} of {listed} live files are found in it. Rewrite the "
            "table's manifests with another engine (Spark: the procedure rewrite_manifests), or restore that object."
        )
    return live


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


class _ManifestReader(AvroFile[ManifestEntry]):
    """Reads entries as `ManifestFile.fetch_manifest_entry` does, and doubles exactly."""

    def __init__(self, input_file: InputFile) -> None:
        super().__init__(
            input_file,
            MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION],
            read_types={-1: ManifestEntry, 2: IcebergFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        )

    def __enter__(self) -> Self:
        super().__enter__()
        resolver: Any = _ExactResolver(self.read_types, self.read_enums)
        self.reader = visit_with_partner(self.schema, self.read_schema, resolver, SchemaPartnerAccessor())
        return self


class _ExactResolver(ReadSchemaResolver):
    def visit_double(self, double_type: DoubleType, partner: IcebergType | None) -> Reader:  # noqa: ARG002
        return _ExactDoubleReader()  # type: ignore[no-untyped-call]


class _ExactDoubleReader(DoubleReader):
    """PyIceberg's compiled decoder rounds doubles to floats."""

    def read(self, decoder: BinaryDecoder) -> float:
        value: float = _DOUBLE.unpack(decoder.read(_DOUBLE.size))[0]
        return value
