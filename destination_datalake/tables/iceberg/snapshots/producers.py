"""Snapshots that add files to a branch of a table, or replace some of its files. Each file keeps its partition spec.

A manifest holds files of one partition spec (Iceberg spec: Manifests). PyIceberg writes all added files to one manifest
of the table's default spec. It finds those to replace by predicates on their partitions, which it cannot build for all
values.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pydantic import PrivateAttr
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update.snapshot import _FastAppendFiles, _OverwriteFiles, _SnapshotProducer
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import IcebergType, NestedField, StructType, UnknownType
from pyiceberg.utils.concurrent import ExecutorFactory

from destination_datalake.tables.iceberg.metadata.kept import MANIFESTS, UNMERGED
from destination_datalake.tables.iceberg.snapshots.manifests import live_entries
from destination_datalake.tables.iceberg.snapshots.merging import MergePolicy

_logger = logging.getLogger(__name__)

_CHANGED_PARTITIONS = "changed-partition-count"


def add_files(
    files: Iterable[IcebergFile], branch: str, table: Table, transaction: Transaction, properties: Mapping[str, str]
) -> None:
    """Add files of any of the table's partition specs to a branch, in one snapshot with these properties."""
    with _Append(Operation.APPEND, transaction, table.io, None, dict(properties), branch) as append:
        for file in files:
            append.append_data_file(file)


def replace_files(
    pairs: Iterable[tuple[IcebergFile, IcebergFile]], branch: str, table: Table, transaction: Transaction
) -> None:
    """Replace live files of a branch, the first of each pair, by others, in one snapshot."""
    with _Replace(Operation.OVERWRITE, transaction, table.io, None, {}, branch) as overwrite:
        for old, new in pairs:
            overwrite.delete_data_file(old)
            overwrite.append_data_file(new)


@dataclass(frozen=True, slots=True)
class Compaction:
    """Live files and the manifests that list them, and the one file that has their rows now.

    `sequence` is its data sequence number, None in tables of format version 1: delete files with higher ones apply to
    it (Iceberg spec: Scan Planning).
    """

    old: tuple[IcebergFile, ...]
    manifests: frozenset[str]
    new: IcebergFile
    sequence: int | None


def compact_files(compactions: Iterable[Compaction], branch: str, table: Table, transaction: Transaction) -> None:
    """Replace files of a branch by others with the same rows, in one snapshot, which incremental readers skip."""
    with _Compact(Operation.OVERWRITE, transaction, table.io, None, {}, branch) as compact:
        for each in compactions:
            for old in each.old:
                compact.delete_data_file(old)
            compact.append_data_file(each.new)
            compact.sequences[each.new.file_path] = each.sequence
            compact.manifests |= each.manifests


class _ManifestPerSpec(_SnapshotProducer[Any]):
    """Writes added and removed files to one manifest for each partition spec."""

    def _merged(self, existing: list[ManifestFile]) -> list[ManifestFile]:
        """Return the manifests to keep in place of the existing ones."""
        return existing

    sequences: Mapping[str, int | None] = EMPTY_DICT
    """The data sequence numbers of added files by path; without one, a file gets the snapshot's."""

    def _manifests(self) -> list[ManifestFile]:
        added = [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self._snapshot_id,
                sequence_number=self.sequences.get(file.file_path),
                file_sequence_number=None,
                data_file=file,
            )
            for file in self._added_data_files
        ]
        # The former manifest list is read while the new manifests are written.
        existing = ExecutorFactory.get_or_create().submit(self._existing_manifests)
        return [*self._written(added), *self._written(self._deleted_entries()), *self._merged(existing.result())]

    def _written(self, entries: Iterable[ManifestEntry]) -> Iterator[ManifestFile]:
        ordered = sorted(entries, key=_spec_id)
        for spec_id, of_spec in groupby(ordered, _spec_id):
            with self.new_manifest_writer(self.spec(spec_id)) as writer:
                for entry in of_spec:
                    writer.add_entry(entry)
            yield writer.to_manifest_file()

    def spec(self, spec_id: int) -> PartitionSpec:
        metadata = self._transaction.table_metadata
        spec = metadata.specs()[spec_id]
        return _TypedSpec.of(spec, partition_type(spec, metadata))

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        # PyIceberg would make a path of each file's partition, by the default spec.
        metadata, collector = self._transaction.table_metadata, SnapshotSummaryCollector()
        for file in self._added_data_files:
            collector.metrics.add_file(file)
        for file in self._deleted_data_files:
            collector.metrics.remove_file(file)
        partitioned = [file for file in (*self._added_data_files, *self._deleted_data_files) if len(file.partition)]
        changed = len({(file.spec_id, repr(file.partition)) for file in partitioned})
        counts = {_CHANGED_PARTITIONS: str(changed)} if changed else {}
        previous = metadata.snapshot_by_id(self._parent_snapshot_id) if self._parent_snapshot_id is not None else None
        return update_snapshot_summaries(
            Summary(operation=self._operation, **collector.build(), **counts, **snapshot_properties),
            previous.summary if previous is not None else None,
        )


class _Append(_ManifestPerSpec, _FastAppendFiles):
    """Adds files; merges manifests that earlier commits have written, if there are many (`MergePolicy`)."""

    def _merged(self, existing: list[ManifestFile]) -> list[ManifestFile]:
        self._forget_replaced_list()
        mergeable = [manifest for manifest in existing if UNMERGED.get(manifest.manifest_path) is None]
        chosen = MergePolicy.of(self._transaction.table_metadata.properties).choose(mergeable)
        if not chosen:
            return existing
        own = len(self._written_manifests)
        try:
            merged = self._one_of(chosen)
        except Exception as error:
            # To append needs none of them, and other writers may have made what cannot be read, or not by us.
            _logger.info("%d manifests are not merged: %s: %s", len(chosen), type(error).__name__, error)
            for manifest in chosen:
                UNMERGED.keep(manifest.manifest_path, True, 1)
            self._withdraw_manifests(own)
            return existing
        for manifest in chosen:
            MANIFESTS.forget(manifest.manifest_path)
        replaced = set(chosen)
        return [*merged, *(manifest for manifest in existing if manifest not in replaced)]

    def _one_of(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        read = ExecutorFactory.get_or_create().map(lambda manifest: live_entries(manifest, self._io), manifests)
        entries = (
            _with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id) for each in read for entry in each
        )
        return list(self._written(entries))

    def _withdraw_manifests(self, own: int) -> None:
        """Delete all manifests that this commit has written but the first `own` ones."""
        withdrawn, self._written_manifests = self._written_manifests[own:], self._written_manifests[:own]
        for path in withdrawn:
            with suppress(OSError):
                self._io.delete(path)

    def _forget_replaced_list(self) -> None:
        """Forget the list that this commit replaces: the next commit reads its own."""
        metadata = self._transaction.table_metadata
        parent = metadata.snapshot_by_id(self._parent_snapshot_id) if self._parent_snapshot_id is not None else None
        if parent is not None:
            MANIFESTS.forget(parent.manifest_list)


class _Replace(_ManifestPerSpec, _OverwriteFiles):
    def _manifests(self) -> list[ManifestFile]:
        self._kept: list[ManifestFile] = []
        self._removed: list[ManifestEntry] = []
        snapshot = self._transaction.table_metadata.snapshot_by_name(self._target_branch)
        for manifest in snapshot.manifests(self._io) if snapshot is not None else ():
            if not (manifest.has_added_files() or manifest.has_existing_files()):
                continue  # What an earlier snapshot has removed.
            if not self._may_list_removed(manifest):
                self._kept.append(manifest)
                continue
            entries = live_entries(manifest, self._io)
            removed = [entry for entry in entries if entry.data_file in self._deleted_data_files]
            if not removed:
                self._kept.append(manifest)
                continue
            self._removed += [_with_status(entry, ManifestEntryStatus.DELETED, self._snapshot_id) for entry in removed]
            existing = [entry for entry in entries if entry.data_file not in self._deleted_data_files]
            self._kept += self._written(
                _with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id) for entry in existing
            )
        self._validate_required_deletes(self._removed)
        return super()._manifests()

    def _may_list_removed(self, manifest: ManifestFile) -> bool:  # noqa: ARG002
        return True

    def _existing_manifests(self) -> list[ManifestFile]:
        return self._kept

    def _deleted_entries(self) -> list[ManifestEntry]:
        return self._removed


class _Compact(_Replace):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sequences: dict[str, int | None] = {}
        self.manifests: set[str] = set()

    def _may_list_removed(self, manifest: ManifestFile) -> bool:
        return manifest.manifest_path in self.manifests

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        # PyIceberg cannot sum up snapshots of this operation.
        summary = super()._summary(snapshot_properties)
        return Summary(operation=Operation.REPLACE, **summary.additional_properties)


def _with_status(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


class _TypedSpec(PartitionSpec):
    """A partition spec whose partition type was found out before."""

    _type: StructType = PrivateAttr()

    @classmethod
    def of(cls, spec: PartitionSpec, type_: StructType) -> _TypedSpec:
        typed = cls.model_validate({"spec-id": spec.spec_id, "fields": spec.fields})
        typed._type = type_
        return typed

    def partition_type(self, schema: Schema) -> StructType:  # noqa: ARG002
        return self._type


def partition_type(spec: PartitionSpec, metadata: TableMetadata) -> StructType:
    """Return the type of partitions in manifests: all fields are optional, as Iceberg's own library has them.

    The source column of a former spec may have been dropped: then its type is taken from a former schema.
    """
    return StructType(
        *(
            NestedField(field.field_id, field.name, field.transform.result_type(type_), required=False)
            if (type_ := _source_type(field.source_id, metadata)) is not None
            else NestedField(field.field_id, field.name, UnknownType(), required=False)
            for field in spec.fields
        )
    )


def _source_type(source_id: int, metadata: TableMetadata) -> IcebergType | None:
    for schema in (metadata.schema(), *reversed(metadata.schemas)):
        try:
            return schema.find_type(source_id)
        except ValueError:
            continue
    return None


def _spec_id(entry: ManifestEntry) -> int:
    return entry.data_file.spec_id
