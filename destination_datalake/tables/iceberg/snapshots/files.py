"""Reads the live files of a branch from manifests, and creates the manifest entries of new files.

This module returns each live data file with the delete files that may apply to it. Manifests are immutable, so
`BranchFiles` caches their entries for callers that plan a change to the same table several times.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.exceptions import ResolveError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatsAggregator,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    read_manifest_list,
)
from pyiceberg.schema import Schema, index_by_id, index_by_name
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, PrimitiveType
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from destination_datalake.files.dedup.tasks import IndexPart, KeyBounds
from destination_datalake.files.parquet import PATH_ID, field_id
from destination_datalake.files.plan import DataFile, Rewritten, SourceFile, WrittenFile
from destination_datalake.tables.iceberg.layout import outdated, partition_record
from destination_datalake.tables.iceberg.pyiceberg_internals import delete_file, manifest_entries, referenced_data_file
from destination_datalake.tables.table import TableConflict

_Value = TypeVar("_Value")

PartitionKey = tuple[int, str]
"""The ID of a partition spec, and the `repr` of the partition values.

The values themselves cannot identify a partition, because 0.0 equals -0.0, and NaN does not equal itself.
"""

_REMEDY = (
    "If another engine can read the table, rewrite the manifests with that engine (Spark: the procedure "
    "rewrite_manifests)."
)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live data file with the delete files that may apply to it, or a live delete file.

    `entry` is the manifest entry of the file. The entry of a data file contains only the metrics that `BranchFiles`
    keeps. `sequence` is the data sequence number, or None in tables of format version 1. `manifest` is the path of the
    manifest that contains the entry.
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
        """The path of the file, followed by the sorted paths of its delete files.

        The result of a job depends on all these files, so the key of the result contains their paths.
        """
        return (self.path, *sorted(deletes.file_path for deletes in self.deletes))

    @property
    def partition(self) -> PartitionKey:
        """The partition spec and the partition values of the file, as a key."""
        return partition_key(self.entry)

    @property
    def has_equality_deletes(self) -> bool:
        """Whether equality deletes may apply to the file. This connector does not apply such deletes."""
        return any(deletes.content == DataFileContent.EQUALITY_DELETES for deletes in self.deletes)

    def source(self, metadata: TableMetadata) -> SourceFile:
        """Return the data that a job needs to read the file, such as its URI, size, row count and delete files."""
        file = self.entry
        # Delete files need not contain the columns of the partition.
        required = identity_sources(file, metadata) if file.content == DataFileContent.DATA else frozenset[int]()
        return SourceFile(
            file.file_path, file.file_size_in_bytes, file.record_count, required, as_sources(self.deletes)
        )


class BranchFiles:
    """Reads the live files of branches. Reads several manifests concurrently, and reads each manifest only once."""

    def __init__(self, metrics: Collection[int] | None = ()) -> None:
        """Choose the columns whose metrics the reader keeps, by field ID.

        With None, keep the metrics of all columns. Metrics use most of the memory of an entry.
        """
        self._metrics = frozenset(metrics) if metrics is not None else None
        self._files: dict[str, tuple[LiveFile, ...]] = {}
        """The live files in each manifest that has been read, by the path of the manifest."""
        self._last_read: frozenset[str] = frozenset()

    def on_branch(self, table: Table, branch: str) -> list[LiveFile]:
        """Return the live data files of a branch, or an empty list if the branch does not exist.

        Raises TableConflict if a manifest cannot be read completely.
        """
        return self.at(table.metadata.snapshot_by_name(branch), table.io)

    def at(self, snapshot: Snapshot | None, io: FileIO) -> list[LiveFile]:
        """Return the live data files of a snapshot, or an empty list if `snapshot` is None.

        Raises TableConflict if a manifest cannot be read completely.
        """
        manifests = live_manifests(snapshot, io)
        self._last_read = frozenset(manifest.manifest_path for manifest in manifests)
        data = self._read(ManifestContent.DATA, manifests, io)
        deletes = self.deletes_in(manifests, io)
        if not deletes:
            return data
        index = DeleteIndex(deletes)
        return [replace(file, deletes=index.applying(file.entry, file.sequence)) for file in data]

    def deletes_in(self, manifests: Sequence[ManifestFile], io: FileIO) -> list[LiveFile]:
        """Return the live delete files in the manifests, with all metrics.

        Raises TableConflict if a manifest cannot be read completely.
        """
        return self._read(ManifestContent.DELETES, manifests, io)

    def forget_unused(self) -> None:
        """Remove cached manifests that do not belong to the snapshot that was read last."""
        for path in self._files.keys() - self._last_read:
            del self._files[path]

    def _read(self, content: ManifestContent, manifests: Sequence[ManifestFile], io: FileIO) -> list[LiveFile]:
        wanted = [manifest for manifest in manifests if manifest.content == content]
        missing = [manifest for manifest in wanted if manifest.manifest_path not in self._files]
        results = ExecutorFactory.get_or_create().map(lambda manifest: self._files_in(manifest, io), missing)
        self._files |= dict(zip((manifest.manifest_path for manifest in missing), results, strict=True))
        return [file for manifest in wanted for file in self._files[manifest.manifest_path]]

    def _files_in(self, manifest: ManifestFile, io: FileIO) -> tuple[LiveFile, ...]:
        return tuple(
            LiveFile(self._lean(entry.data_file), entry.sequence_number, manifest.manifest_path)
            for entry in live_entries(manifest, io)
        )

    def _lean(self, file: IcebergFile) -> IcebergFile:
        if self._metrics is None or file.content != DataFileContent.DATA:
            return file
        return lean_entry(file, self._metrics)


class Incomplete(Exception):
    """Raised if a manifest list or manifest cannot be read completely.

    Either the file is damaged or ends too early, or the number of live files in a manifest differs from the number in
    the manifest list.
    """


def manifests_of(manifest_list: str, io: FileIO) -> list[ManifestFile]:
    """Return the manifests in a manifest list. Raises Incomplete, FileNotFoundError, and botocore's exceptions."""
    with _raising_incomplete(manifest_list):
        return [*read_manifest_list(io.new_input(manifest_list))]


def complete_entries(manifest: ManifestFile, io: FileIO) -> Iterator[ManifestEntry]:
    """Yield the live entries of a manifest. Raises Incomplete, FileNotFoundError, and botocore's exceptions."""
    live = 0
    with _raising_incomplete(manifest.manifest_path):
        for entry in manifest_entries(manifest, io):
            live += 1
            yield entry
    counts = (manifest.added_files_count, manifest.existing_files_count)  # None in old tables.
    # More entries than listed are harmless here, because no file is missed. `references.live_files` rejects them.
    if live < (listed := sum(count or 0 for count in counts)):
        raise Incomplete(f"{manifest.manifest_path} cannot be read: it contains {live} of {listed} live files")


@contextmanager
def _raising_incomplete(path: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, ResolveError, SystemError, ValueError, zlib.error) as error:
        raise Incomplete(f"{path} cannot be read: {error}") from error


def live_entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Return the live entries of a manifest.

    Raises TableConflict if the manifest cannot be read completely. If a commit wrote a new manifest with only some of
    the entries, the table would lose files.
    """
    with _raising_conflict():
        return [*complete_entries(manifest, io)]


@contextmanager
def _raising_conflict() -> Iterator[None]:
    try:
        yield
    except Incomplete as error:
        raise TableConflict(f"{error}. {_REMEDY}") from error


def lean_entry(file: IcebergFile, columns: Collection[int] = ()) -> IcebergFile:
    """Return a manifest entry with only the metrics of the columns with these field IDs.

    Metrics use most of the memory of an entry.
    """

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
        equality_ids=file.equality_ids,  # Required for equality delete files (Iceberg spec: Data File Fields).
        column_sizes=of_columns(file.column_sizes),
        value_counts=of_columns(file.value_counts),
        null_value_counts=of_columns(file.null_value_counts),
        nan_value_counts=of_columns(file.nan_value_counts),
        lower_bounds=of_columns(file.lower_bounds),
        upper_bounds=of_columns(file.upper_bounds),
    )
    # The spec ID is no field of the entry. Entries inherit it from their manifest (Iceberg spec: Manifests).
    lean.spec_id = file.spec_id
    return lean


def live_manifests(snapshot: Snapshot | None, io: FileIO) -> list[ManifestFile]:
    """Return those manifests of a snapshot that contain live data files or delete files. Empty if `snapshot` is None.

    Reads only the manifest list. Raises TableConflict if the manifest list cannot be read completely.
    """
    with _raising_conflict():
        manifests = manifests_of(snapshot.manifest_list, io) if snapshot is not None else []
    return [manifest for manifest in manifests if manifest.has_added_files() or manifest.has_existing_files()]


def has_row_level_deletes(snapshot: Snapshot | None, io: FileIO) -> bool:
    """Return whether a snapshot has delete files.

    Raises TableConflict if the manifest list cannot be read completely.
    """
    return any(manifest.content == ManifestContent.DELETES for manifest in live_manifests(snapshot, io))


# --- delete files, and the data files to which they may apply (Iceberg spec: Scan Planning) ---------------------------


def partition_key(file: IcebergFile) -> PartitionKey:
    """Return the partition spec ID and the partition values of a data file or delete file."""
    return file.spec_id, repr(file.partition)


def path_bounds(deletes: IcebergFile) -> tuple[bytes | None, bytes | None]:
    """Return the lowest and the highest data file path in a position delete file, as UTF-8.

    A bound is None if it is unknown. Both are None for a file of equality deletes.
    """
    if deletes.content != DataFileContent.POSITION_DELETES:
        return None, None
    if (path := referenced_data_file(deletes)) is not None:
        return path.encode(), path.encode()
    lower, upper = ((bounds or {}).get(PATH_ID) for bounds in (deletes.lower_bounds, deletes.upper_bounds))
    return lower, upper


def applies_only_to(deletes: IcebergFile, path: str) -> bool:
    """Return whether a delete file contains only position deletes for the data file at `path`."""
    return path_bounds(deletes) == (path.encode(), path.encode())


def as_sources(deletes: Iterable[IcebergFile]) -> tuple[SourceFile, ...]:
    """Return the data that a job needs to read delete files: their URIs, sizes and row counts."""
    return tuple(SourceFile(file.file_path, file.file_size_in_bytes, file.record_count) for file in deletes)


def unneeded_deletes(removed: Iterable[LiveFile], files: Iterable[LiveFile]) -> list[IcebergFile]:
    """Return the delete files that no live file needs after a commit removes the files in `removed`.

    `files` contains all live files before the commit, including those in `removed`.
    """
    by_path: dict[str, IcebergFile] = {}
    uses = Counter(deletes.file_path for file in files for deletes in file.deletes)
    for file in removed:
        for deletes in file.deletes:
            by_path[deletes.file_path] = deletes
            uses[deletes.file_path] -= 1
    return [deletes for path, deletes in by_path.items() if not uses[path]]


@dataclass(slots=True)
class _PartitionDeletes:
    """The delete files of one partition, by the paths of the data files to which each delete file applies.

    A delete file in `for_any_file` may apply to any path, one in `by_path` applies to one path, and one in `ranges`
    applies to paths between two bounds.
    """

    for_any_file: list[LiveFile] = field(default_factory=list)
    highest: int = -1
    """The highest data sequence number in `for_any_file`."""
    by_path: dict[bytes, list[LiveFile]] = field(default_factory=dict)
    ranges: list[tuple[bytes, bytes, LiveFile]] = field(default_factory=list)

    def add(self, deletes: LiveFile) -> None:
        lower, upper = path_bounds(deletes.entry)
        if lower is None or upper is None:
            self.highest = max(self.highest, deletes.sequence or 0)
            self.for_any_file.append(deletes)
        elif lower == upper:
            self.by_path.setdefault(lower, []).append(deletes)
        else:
            self.ranges.append((lower, upper, deletes))

    def applying(self, path: str, sequence: int) -> Iterator[LiveFile]:
        # Most data files are newer than all such deletes, so this comparison avoids the loop.
        if self.highest >= sequence:
            for deletes in self.for_any_file:
                # Equality deletes apply to rows of earlier commits. Position deletes also apply to rows of the same
                # commit.
                is_of_positions = deletes.entry.content == DataFileContent.POSITION_DELETES
                if (deletes.sequence or 0) + is_of_positions > sequence:
                    yield deletes
        yield from self._applying_by_path(path, sequence)

    def _applying_by_path(self, path: str, sequence: int) -> Iterator[LiveFile]:
        """Yield the delete files whose lowest and highest data file paths enclose `path`."""
        encoded, is_ascii = path.encode(), path.isascii()
        yield from (deletes for deletes in self.by_path.get(encoded, ()) if (deletes.sequence or 0) >= sequence)
        for lower, upper, deletes in self.ranges:
            # The order of non-ASCII bounds is unknown, because writers in Java compare UTF-16 code units.
            if (deletes.sequence or 0) >= sequence and (not is_ascii or lower <= encoded <= upper):
                yield deletes


class DeleteIndex:
    """An index of the delete files of a snapshot, by partition and by data file path."""

    def __init__(self, files: Iterable[LiveFile]) -> None:
        self._everywhere = _PartitionDeletes()
        self._by_partition: dict[PartitionKey, _PartitionDeletes] = {}
        for deletes in files:
            self._group_of(deletes.entry).add(deletes)

    def applying(self, file: IcebergFile, sequence: int | None) -> tuple[IcebergFile, ...]:
        """Return the delete files that may apply to a data file with this data sequence number."""
        groups = self._groups(file)
        return tuple(deletes.entry for group in groups for deletes in group.applying(file.file_path, sequence or 0))

    def _group_of(self, deletes: IcebergFile) -> _PartitionDeletes:
        # Equality deletes apply to all partitions if their partition spec has no fields, or only void fields.
        # A partition of nulls takes the same path. That is safe: a file may get delete files that do not apply to it.
        if all(deletes.partition[position] is None for position in range(len(deletes.partition))):
            return self._everywhere
        return self._by_partition.setdefault(partition_key(deletes), _PartitionDeletes())

    def _groups(self, file: IcebergFile) -> Iterator[_PartitionDeletes]:
        yield self._everywhere
        if self._by_partition and (group := self._by_partition.get(partition_key(file))) is not None:
            yield group


# --- manifest entries of new files, from the footers of these files ---------------------------------------------------


# A bound of four bytes was written before the promotion to double. Longer bounds already are doubles.
_FLOAT_BYTES = 4


class Entries:
    """Creates the manifest entries of new files. Computes the indexes of the table's schema only once."""

    def __init__(self, metadata: TableMetadata) -> None:
        schema = metadata.schema()
        self.entries: list[IcebergFile] = []
        self._metadata = metadata
        self._ids = index_by_name(schema)
        self._fields = index_by_id(schema)
        self._ids_of_parquet = parquet_path_to_id_mapping(schema)
        self._statistics = compute_statistics_plan(schema, metadata.properties)

    def add(self, file: DataFile, sort_order_id: int | None) -> str | None:
        """Create the entry of a file from the file's footer, without reading S3, and add the entry to `entries`.

        The file must have the table's default partition spec. If the file does not fit the table, add nothing and
        return the reason as a clause about the table. Otherwise, return None.
        """
        footer = pq.read_metadata(io.BytesIO(file.footer))
        reason = self._mismatch(footer) or outdated(file, self._metadata)
        if reason is None:
            partition = partition_record(file, self._metadata)
            entry = self._entry(file, footer, sort_order_id, partition, self._metadata.default_spec_id)
            self.entries.append(entry)
        return reason

    def of_compacted(self, file: WrittenFile, like: IcebergFile, sort_order_id: int | None) -> IcebergFile | None:
        """Return the entry of a new file that contains rows of old files.

        `like` is the entry of one of the old files. The new entry has the same partition. Return None if the new file
        no longer fits the table's schema.
        """
        footer = pq.read_metadata(io.BytesIO(file.footer))
        if self._mismatch(footer) is not None:
            return None
        return self._entry(file, footer, sort_order_id, like.partition, like.spec_id)

    def _mismatch(self, footer: pq.FileMetaData) -> str | None:
        """Return why a file does not fit the table's schema, as a clause about the table. None if the file fits.

        A file with a dropped or renamed column does not fit, because readers find columns by field ID, so the values in
        this column would be lost. A file that stores a column as float does not fit a schema with double, because some
        engines fail on the file's statistics (trinodb/trino#30544).
        """
        for path, id_, type_ in _fields(footer.schema.to_arrow_schema(), ""):
            if id_ is None or self._ids.get(path) != id_:
                return f"its column {path} was dropped or renamed after the files were planned"
            if pa.types.is_float32(type_) and self._fields[id_].field_type == DoubleType():
                return f"its column {path} was promoted to double after the files were planned"
        return None

    def _entry(
        self,
        file: DataFile | WrittenFile,
        footer: pq.FileMetaData,
        sort_order_id: int | None,
        partition: Record,
        spec_id: int,
    ) -> IcebergFile:
        """Return the manifest entry of a file.

        A column without statistics in the file's footer gets no metrics. Iceberg permits entries without metrics.
        """
        plan = dict(self._statistics)
        for id_ in {self._ids_of_parquet[path] for path in _without_statistics(footer)}:
            plan[id_] = replace(plan[id_], mode=MetricsMode(MetricModeTypes.NONE))
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer, stats_columns=plan, parquet_column_mapping=self._ids_of_parquet
        )
        for column in statistics.column_aggregates.values():
            _drop_invalid_upper_bound(column)
        entry = IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.uri,
            file_format=FileFormat.PARQUET,
            partition=partition,
            file_size_in_bytes=file.size,
            sort_order_id=sort_order_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        entry.spec_id = spec_id
        return entry


def identity_sources(file: IcebergFile, metadata: TableMetadata) -> frozenset[int]:
    """Return the field IDs of the columns that a file may lack, because a partition value is the column's value.

    Readers then take the value from the partition (Iceberg spec: Column Projection).
    """
    return frozenset(
        field.source_id
        for position, field in enumerate(metadata.specs()[file.spec_id].fields)
        if isinstance(field.transform, IdentityTransform) and file.partition[position] is not None
    )


def position_deletes_entry(file: WrittenFile, data_file: IcebergFile) -> IcebergFile:
    """Return the manifest entry of a position delete file that applies only to the data file `data_file`.

    Both bounds of the path column are the path of the data file, so that readers assign the delete file to this data
    file. Unlike other bounds, these bounds must not be truncated (Iceberg spec: Data File Fields, note 4).
    """
    path = {PATH_ID: data_file.file_path.encode()}
    entry = delete_file(
        content=DataFileContent.POSITION_DELETES,
        file_path=file.uri,
        file_format=FileFormat.PARQUET,
        partition=data_file.partition,
        record_count=file.rows,
        file_size_in_bytes=file.size,
        lower_bounds=path,
        upper_bounds=path,
        referenced_data_file=data_file.file_path,
    )
    entry.spec_id = data_file.spec_id
    return entry


def rewritten_entry(old: IcebergFile, new: Rewritten, to_double: Collection[int]) -> IcebergFile:
    """Return the manifest entry of a rewritten file, with the partition and the metrics of the old file.

    The bounds of the fields in `to_double` become doubles. The entry omits column sizes and split offsets, because
    those of the old file do not apply to the new file. If the new file has fewer rows, the entry also omits bounds and
    value counts, and all counts of nulls and NaNs except counts of zero. A bound of the old file may be a value of a
    deleted row. If the entry kept this bound, `delete-rows` could not erase the value.
    """
    has_all = new.rows == old.record_count
    entry = IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=new.uri,
        file_format=FileFormat.PARQUET,
        partition=old.partition,
        record_count=new.rows,
        file_size_in_bytes=new.size,
        value_counts=old.value_counts if has_all else None,
        null_value_counts=old.null_value_counts if has_all else _zeros(old.null_value_counts),
        nan_value_counts=old.nan_value_counts if has_all else _zeros(old.nan_value_counts),
        lower_bounds=_as_doubles(old.lower_bounds, to_double) if has_all else None,
        upper_bounds=_as_doubles(old.upper_bounds, to_double) if has_all else None,
        sort_order_id=old.sort_order_id,
    )
    entry.spec_id = old.spec_id
    return entry


def _zeros(counts: Mapping[int, int] | None) -> dict[int, int] | None:
    return None if counts is None else {id_: count for id_, count in counts.items() if count == 0}


def promoted_to_double(before: Schema, after: Schema) -> frozenset[int]:
    """Return the IDs of the fields that are float in `before` and double in `after`."""
    now = index_by_id(after)
    return frozenset(
        id_
        for id_, field in index_by_id(before).items()
        if field.field_type == FloatType() and id_ in now and now[id_].field_type == DoubleType()
    )


def _without_statistics(metadata: pq.FileMetaData) -> Iterator[str]:
    """Yield the path of each Parquet column without statistics, once per row group that lacks the statistics."""
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            if not chunk.is_stats_set:
                yield chunk.path_in_schema


def _drop_invalid_upper_bound(column: StatsAggregator) -> None:
    """Remove a column's upper bound if PyIceberg would truncate the bound to an invalid string.

    PyIceberg truncates the highest string to 16 characters and increments the last character. If this character is
    U+D7FF, the result ends with half of a surrogate pair. Iceberg permits columns without bounds.
    """
    try:
        column.max_as_bytes()
    except UnicodeEncodeError:
        column.current_max = None


def _as_doubles(bounds: Mapping[int, bytes] | None, ids: Collection[int]) -> dict[int, bytes] | None:
    if bounds is None:
        return None
    return {
        id_: to_bytes(DoubleType(), from_bytes(FloatType(), bound))
        if id_ in ids and len(bound) == _FLOAT_BYTES
        else bound
        for id_, bound in bounds.items()
    }


def _fields(fields: Any, above: str) -> Iterator[tuple[str, int | None, pa.DataType]]:
    """Yield the dotted path, the field ID and the Arrow type of every field, including nested fields at any depth.

    `fields` is an Arrow schema, a struct type or a list of fields. `above` is a prefix for the paths.
    """
    for child in fields:
        path = f"{above}{child.name}"
        yield path, field_id(child), child.type
        if pa.types.is_list(child.type):
            yield from _fields([child.type.value_field], f"{path}.")
        elif pa.types.is_struct(child.type):
            yield from _fields(child.type, f"{path}.")


# --- the files that may contain a key, according to column bounds -----------------------------------------------------


BOUND_ERRORS = (ValueError, ArithmeticError, struct.error)
"""The errors that `from_bytes` raises if a bound is not a value of the column's type, as other engines may write it."""


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The field IDs and the present types of the columns of a key.

    The bounds in the entry of an old file may have a narrower type than the column has now. Readers recognise the type
    by the length of the bound (Iceberg spec: Schema Evolution).
    """

    columns: tuple[tuple[int, PrimitiveType], ...]

    @classmethod
    def for_fields(cls, key: Sequence[int], schema: Schema) -> Self:
        """Return the columns with the field IDs in `key`. All these columns must have primitive types."""
        types = ((id_, schema.find_type(id_)) for id_ in key)
        return cls(tuple((id_, type_) for id_, type_ in types if isinstance(type_, PrimitiveType)))

    def may_have(self, file: IcebergFile, part: IndexPart) -> bool:
        """Return whether a file may contain a row with a key in this part of the index, according to its bounds."""
        return part.rows > 0 and all(
            _may_have(file, id_, type_, bounds) for (id_, type_), bounds in zip(self.columns, part.bounds, strict=True)
        )


def _may_have(file: IcebergFile, id_: int, type_: PrimitiveType, bounds: KeyBounds) -> bool:
    """Return whether a column of a file may contain a value within the bounds of the key values in this column.

    Also return True if the key values include null or NaN, and the file's column may contain null or NaN, respectively.
    """
    values = (file.value_counts or {}).get(id_)
    nulls, nans = (file.null_value_counts or {}).get(id_), (file.nan_value_counts or {}).get(id_)
    if (bounds.has_null and nulls != 0) or (bounds.has_nan and nans != 0):
        return True
    if bounds.lowest is None or (values is not None and nulls == values):
        return False
    lower, upper = (file.lower_bounds or {}).get(id_), (file.upper_bounds or {}).get(id_)
    try:
        # A comparison with NaN is False, so a file with NaN as a bound counts as a candidate. An UNKNOWN bound raises
        # TypeError.
        return not (
            (upper is not None and from_bytes(type_, upper) < as_stored(bounds.lowest))
            or (lower is not None and from_bytes(type_, lower) > as_stored(bounds.highest))
        )
    except (TypeError, *BOUND_ERRORS):
        return True  # The bounds cannot be decoded, or cannot be compared with values of this type.


def as_stored(value: Any) -> Any:
    """Return a value in the form in which `from_bytes` decodes bounds: convert dates and times to integers."""
    match value:
        case datetime():
            return datetime_to_micros(value)
        case date():
            return date_to_days(value)
        case time():
            return time_to_micros(value)
    return value
