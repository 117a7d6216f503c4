"""Snapshots that add files to a branch of a table, or replace some of its files. Each file keeps its partition spec.

A manifest holds files of one partition spec (Iceberg spec: Manifests). PyIceberg writes all added files to one manifest
of the table's default spec, and finds the files to replace by predicates on their partitions, which it cannot build
for all values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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


class _ManifestPerSpec(_SnapshotProducer[Any]):
    """Writes added and removed files to one manifest for each partition spec."""

    def _manifests(self) -> list[ManifestFile]:
        added = [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self._snapshot_id,
                sequence_number=None,
                file_sequence_number=None,
                data_file=file,
            )
            for file in self._added_data_files
        ]
        return [*self._written(added), *self._written(self._deleted_entries()), *self._existing_manifests()]

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

    def _build_delete_files_partition_predicate(self) -> None:
        """Build none: files are found by their paths."""

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:  # noqa: ARG002
        return lambda _: True


class _Append(_ManifestPerSpec, _FastAppendFiles):
    pass


class _Replace(_ManifestPerSpec, _OverwriteFiles):
    pass


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
