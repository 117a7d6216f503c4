"""The files that take part in a merge, as manifests list them, with the bounds of the key's columns and no others.

Manifests are immutable: what was read of one is kept while a merge is planned again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.concurrent import ExecutorFactory

from destination_datalake.files.plan import SourceFile
from destination_datalake.tables.iceberg.snapshots.deletes import Deletes
from destination_datalake.tables.iceberg.snapshots.entries import identity_sources
from destination_datalake.tables.iceberg.snapshots.manifests import lean_entry, live_entries, live_manifests

_Value = TypeVar("_Value")


class EqualityDeletes(Exception):
    """Rows of a branch are deleted by equality deletes, which no merge applies."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live data file, and the files of position deletes that may apply to it.

    `entry` has the metrics of the key's columns only. `sequence` is its data sequence number, None in tables of format
    version 1; `manifest` lists it.
    """

    entry: IcebergFile
    sequence: int | None
    manifest: str
    deletes: tuple[IcebergFile, ...] = ()

    @property
    def path(self) -> str:
        """The file's URI."""
        return self.entry.file_path

    @property
    def state(self) -> tuple[str, ...]:
        """What a result for this file depends on: its path, and those of its deletes."""
        return (self.path, *sorted(each.file_path for each in self.deletes))

    def source(self, metadata: TableMetadata) -> SourceFile:
        """Return the file as jobs read it."""
        file = self.entry
        deletes = tuple(SourceFile(each.file_path, each.file_size_in_bytes, each.record_count) for each in self.deletes)
        identities = identity_sources(file, metadata)
        return SourceFile(file.file_path, file.file_size_in_bytes, file.record_count, identities, deletes)


class LiveFiles:
    """Reads the live files of branches, several manifests at a time."""

    def __init__(self, columns: Collection[int]) -> None:
        """`columns` are the field ids whose metrics are kept."""
        self._columns = frozenset(columns)
        self._data: dict[str, Sequence[LiveFile]] = {}
        self._deletes: dict[str, Sequence[ManifestEntry]] = {}

    def of(self, table: Table, branch: str) -> list[LiveFile]:
        """Return the live files of a branch, none if there is no such branch. Raises EqualityDeletes."""
        ref = table.metadata.refs.get(branch)
        return self.at(table, ref.snapshot_id) if ref is not None else []

    def at(self, table: Table, snapshot_id: int) -> list[LiveFile]:
        """Return the live files of a snapshot. Raises EqualityDeletes."""
        manifests = live_manifests(table, snapshot_id)
        data = self._read(ManifestContent.DATA, manifests, self._data, self._data_files, table.io)
        deletes = self._read(ManifestContent.DELETES, manifests, self._deletes, live_entries, table.io)
        found = Deletes(deletes)
        if not deletes:
            return data
        files = [
            LiveFile(each.entry, each.sequence, each.manifest, found.applying(each.entry, each.sequence))
            for each in data
        ]
        # Some may be left that apply to no file any more, as after a compaction.
        if any(each.content == DataFileContent.EQUALITY_DELETES for file in files for each in file.deletes):
            raise EqualityDeletes
        return files

    def manifests_of_deletes(self, table: Table, branch: str) -> frozenset[str]:
        """Return the manifests of a branch's delete files."""
        ref = table.metadata.refs.get(branch) if self._deletes else None
        manifests = live_manifests(table, ref.snapshot_id) if ref is not None else []
        return frozenset(each.manifest_path for each in manifests if each.content == ManifestContent.DELETES)

    def _read(
        self,
        content: ManifestContent,
        manifests: Sequence[ManifestFile],
        known: dict[str, Sequence[_Value]],
        read: Callable[[ManifestFile, FileIO], Sequence[_Value]],
        io: FileIO,
    ) -> list[_Value]:
        wanted = [each for each in manifests if each.content == content]
        missing = [each for each in wanted if each.manifest_path not in known]
        results = ExecutorFactory.get_or_create().map(lambda each: read(each, io), missing)
        known |= dict(zip((each.manifest_path for each in missing), results, strict=True))
        return [file for each in wanted for file in known[each.manifest_path]]

    def _data_files(self, manifest: ManifestFile, io: FileIO) -> tuple[LiveFile, ...]:
        return tuple(
            LiveFile(lean_entry(entry.data_file, self._columns), entry.sequence_number, manifest.manifest_path)
            for entry in live_entries(manifest, io)
        )
