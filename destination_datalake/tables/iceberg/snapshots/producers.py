"""Snapshots that add files to a branch of a table. Each file keeps its partition spec.

A manifest holds files of one partition spec, and either data files or delete files (Iceberg spec: Manifests). PyIceberg
writes all added files to one manifest of the table's default spec.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.utils.concurrent import ExecutorFactory

from destination_datalake.tables.iceberg.metadata.kept import MANIFESTS, UNMERGED
from destination_datalake.tables.iceberg.pyiceberg_internals import SnapshotProducer, summary_of
from destination_datalake.tables.iceberg.snapshots.manifests import live_entries
from destination_datalake.tables.iceberg.snapshots.merging import MergePolicy
from destination_datalake.tables.iceberg.snapshots.specs import TypedSpec, partition_type

_logger = logging.getLogger(__name__)

_CHANGED_PARTITIONS = "changed-partition-count"


def add_files(
    files: Iterable[IcebergFile], branch: str, table: Table, transaction: Transaction, properties: Mapping[str, str]
) -> None:
    """Add files of any of the table's partition specs to a branch, in one snapshot with these properties."""
    with Append(Operation.APPEND, branch, table, transaction, properties) as append:
        append.added.extend(files)


class ManifestPerSpec(SnapshotProducer):
    """Writes the files that it adds to one manifest for each partition spec, data files and delete files apart."""

    def __init__(
        self,
        operation: Operation,
        branch: str,
        table: Table,
        transaction: Transaction,
        properties: Mapping[str, str] = EMPTY_DICT,
    ) -> None:
        super().__init__(operation, branch, table, transaction, properties)
        self.operation = operation
        self.added: list[IcebergFile] = []
        self.removed: set[IcebergFile] = set()
        self.sequences: dict[str, int | None] = {}
        """The data sequence numbers of added files by path; without one, a file gets the snapshot's."""

    def manifests(self) -> list[ManifestFile]:
        """Return the manifests of added files, and those to keep."""
        # The former manifest list is read while the new manifests are written.
        previous = ExecutorFactory.get_or_create().submit(self.previous_manifests)
        return [*self.by_spec(self.added_entries()), *self.kept(previous.result())]

    def kept(self, previous: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Return the manifests to keep in place of the previous ones, and those of what is removed."""
        return [*previous]

    def by_spec(self, entries: Iterable[ManifestEntry]) -> Iterator[ManifestFile]:
        """Write entries of any partition spec and content; yield the manifests."""
        ordered = sorted(entries, key=_manifest_of)
        for (content, spec_id), of_spec in groupby(ordered, _manifest_of):
            yield self.written(content, spec_id, of_spec)

    def spec(self, spec_id: int) -> PartitionSpec:
        """Return a spec of the table, with types."""
        spec = super().spec(spec_id)
        return TypedSpec.of(spec, partition_type(spec, self.metadata))

    def summary(self, previous: Mapping[str, str] | None) -> Summary:
        """Return the summary, with the number of partitions that the snapshot changes."""
        changed = {(file.spec_id, repr(file.partition)) for file in (*self.added, *self.removed) if len(file.partition)}
        counts = {_CHANGED_PARTITIONS: str(len(changed))} if changed else {}
        return summary_of(self.operation, self.added, self.removed, counts, previous)

    def added_entries(self) -> Iterator[ManifestEntry]:
        """Yield the entries of added files."""
        for file in self.added:
            yield ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self.snapshot_id,
                sequence_number=self.sequences.get(file.file_path),
                file_sequence_number=None,
                data_file=file,
            )


class Append(ManifestPerSpec):
    """Adds files; merges manifests that earlier commits have written, if there are many (`MergePolicy`)."""

    def kept(self, previous: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Return the previous manifests, some of which may be merged."""
        if (replaced_list := self.previous_list()) is not None:
            MANIFESTS.forget(replaced_list)  # The next commit reads its own.
        mergeable = [manifest for manifest in previous if UNMERGED.get(manifest.manifest_path) is None]
        chosen = MergePolicy.of(self.metadata.properties).choose(mergeable)
        if not chosen:
            return [*previous]
        own = len(self.written_manifests)
        try:
            merged = self._one_of(chosen)
        except Exception as error:
            # To append needs none of them, and other writers may have made what cannot be read, or not by us.
            _logger.info("%d manifests are not merged: %s: %s", len(chosen), type(error).__name__, error)
            for manifest in chosen:
                UNMERGED.keep(manifest.manifest_path, True, 1)
            self._withdraw_manifests(own)
            return [*previous]
        for manifest in chosen:
            MANIFESTS.forget(manifest.manifest_path)
        replaced = set(chosen)
        return [*merged, *(manifest for manifest in previous if manifest not in replaced)]

    def _one_of(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        read = ExecutorFactory.get_or_create().map(lambda manifest: live_entries(manifest, self.io), manifests)
        entries = (
            with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id) for each in read for entry in each
        )
        return list(self.by_spec(entries))

    def _withdraw_manifests(self, own: int) -> None:
        """Delete all manifests that this commit has written but the first `own` ones."""
        withdrawn = self.written_manifests[own:]
        del self.written_manifests[own:]
        for path in withdrawn:
            with suppress(OSError):
                self.io.delete(path)


def with_status(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    """Return the entry with another status, which `snapshot_id` has given it."""
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def _manifest_of(entry: ManifestEntry) -> tuple[ManifestContent, int]:
    is_data = entry.data_file.content == DataFileContent.DATA
    return ManifestContent.DATA if is_data else ManifestContent.DELETES, entry.data_file.spec_id
