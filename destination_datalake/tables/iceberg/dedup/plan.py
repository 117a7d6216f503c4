"""What a merge has to do with a table as it is: the files that take part, and which of them may have its keys.

Of each file the bounds of the key's columns are kept, and no others. Manifests are immutable: what was read of one is
kept while a merge is planned again and again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any, Self

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import BinaryType, DecimalType, DoubleType, FixedType, FloatType, PrimitiveType, StringType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from destination_datalake.files.dedup.tasks import IndexPart, KeyBounds, Versions
from destination_datalake.tables.iceberg.dedup.definition import MergeScope, way_out
from destination_datalake.tables.iceberg.schema import arrow_schema
from destination_datalake.tables.iceberg.snapshots.branch_files import BranchFiles, LiveFile

_INDEX_BYTES = 32 * 1024 * 1024
"""About the largest index of a part of the keys. The task that finds its winners takes some ten times as much."""

_BYTES_OF_AN_ENTRY = 24
"""What an index has for each key besides the values of its columns: where the row is, and offsets."""

_BYTES_OF_A_VALUE = 8
_TEXTS = (StringType, BinaryType, FixedType)


class Unmergeable(Exception):
    """The table cannot be merged. The text is a clause about it, followed by the remedy, without a full stop."""


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns of a key: their field ids, and the types that they have now.

    A file may have been written with a narrower type: how long a bound is says which (Iceberg spec: Schema Evolution).
    """

    columns: tuple[tuple[int, PrimitiveType], ...]

    @classmethod
    def of(cls, key: Sequence[int], schema: Schema) -> Self:
        """Return the columns of these ids, which are of primitive types."""
        types = ((id_, schema.find_type(id_)) for id_ in key)
        return cls(tuple((id_, type_) for id_, type_ in types if isinstance(type_, PrimitiveType)))

    def may_have(self, file: IcebergFile, part: IndexPart) -> bool:
        """Whether the file may have a row of a key in this part of the index."""
        return part.rows > 0 and all(
            _may_have(file, id_, type_, bounds) for (id_, type_), bounds in zip(self.columns, part.bounds, strict=True)
        )


def _may_have(file: IcebergFile, id_: int, type_: PrimitiveType, bounds: KeyBounds) -> bool:
    """Whether a column of the file may have null, NaN, or a value between the bounds, whichever these ask for."""
    values = (file.value_counts or {}).get(id_)
    nulls, nans = (file.null_value_counts or {}).get(id_), (file.nan_value_counts or {}).get(id_)
    if (bounds.has_null and nulls != 0) or (bounds.has_nan and nans != 0):
        return True
    if bounds.lowest is None or (values is not None and nulls == values):
        return False
    lower, upper = (file.lower_bounds or {}).get(id_), (file.upper_bounds or {}).get(id_)
    try:
        return not (
            (upper is not None and from_bytes(type_, upper) < as_stored(bounds.lowest))
            or (lower is not None and from_bytes(type_, lower) > as_stored(bounds.highest))
        )
    except (TypeError, ValueError, ArithmeticError, struct.error):
        return True  # Of a type that bounds cannot be compared with, or bytes that are no value of the column's.


def as_stored(value: Any) -> Any:
    """Return a value as bounds in manifests have it."""
    match value:
        case datetime():
            return datetime_to_micros(value)
        case date():
            return date_to_days(value)
        case time():
            return time_to_micros(value)
    return value


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The files of a merge, as `table` has them.

    The rows in `pending` are merged among themselves, and into those in `stored`, which are unique. The last `arriving`
    of the pending files are on another branch than the stored ones; the others stay in the table unless rows are
    removed from them: they are there because somebody has appended to the table, or replaced its content.
    """

    table: Table
    scope: MergeScope
    versions: Versions
    schema: pa.Schema
    pending: tuple[LiveFile, ...]
    arriving: int
    stored: tuple[LiveFile, ...]
    manifests_of_deletes: frozenset[str]
    """The manifests that list delete files of the stored files' branch."""

    @property
    def metadata(self) -> TableMetadata:
        """The table's metadata."""
        return self.table.metadata

    @property
    def paths(self) -> frozenset[str]:
        """The URIs of all files that jobs may read."""
        return frozenset(path for each in (*self.pending, *self.stored) for path in each.state)

    @property
    def columns(self) -> pa.Schema:
        """The columns of the versions, in the types that the table has now."""
        wanted = {str(id_).encode() for id_ in self.versions.columns}
        return pa.schema([field for field in self.schema if (field.metadata or {})[b"PARQUET:field_id"] in wanted])

    @property
    def pooled(self) -> int:
        """How many of the pending files, the first, are on the branch of the stored ones."""
        return len(self.pending) - self.arriving

    def arrives(self, number: int) -> bool:
        """Whether a pending file, by its number, is on another branch than the stored files."""
        return number >= self.pooled

    @property
    def texts(self) -> frozenset[int]:
        """The columns of the versions whose values are of any length, but for the one that is the last to decide."""
        ids = (id_ for id_ in self.versions.columns if id_ != self.versions.raw_id)
        return frozenset(id_ for id_ in ids if isinstance(_type(id_, self.metadata.schema()), _TEXTS))

    def parts(self, expansion: float) -> int:
        """Return into how many parts to divide the keys, so that an index of one is not too large.

        `expansion` is how many times as large as in files texts are in memory.
        """
        schema = self.metadata.schema()
        size = sum(
            each.entry.record_count * _BYTES_OF_AN_ENTRY
            + sum(
                _size(each.entry, id_, schema, expansion)
                for id_ in self.versions.columns
                if id_ != self.versions.raw_id
            )
            for each in self.pending
        )
        return max(1, -(-size // _INDEX_BYTES))

    def touched(self, index: Sequence[IndexPart]) -> Iterator[tuple[LiveFile, tuple[IndexPart, ...]]]:
        """Yield the stored files that may have rows of the keys in an index, and its parts that have those keys."""
        key = KeyColumns.of(self.versions.key, self.metadata.schema())
        partitions = self._partitions()
        for file in self.stored:
            is_of_their_spec = file.entry.spec_id == self.pending[0].entry.spec_id
            if partitions is not None and is_of_their_spec and file.partition not in partitions:
                continue
            if parts := tuple(part for part in index if key.may_have(file.entry, part)):
                yield file, parts

    def _partitions(self) -> set[tuple[int, str]] | None:
        """Return the partitions of all rows of the pending keys, in files of their spec; None if they may be in any.

        Rows with the same key are in the same partition if this is made of nothing but the key.
        """
        metadata = self.metadata
        specs = {each.entry.spec_id for each in self.pending}
        if len(specs) != 1:
            return None
        fields = metadata.specs()[specs.pop()].fields
        for field in fields:
            if isinstance(field.transform, VoidTransform):
                continue
            # As values 0.0 and -0.0 are the same key, and they are different partitions.
            is_exact = not isinstance(_type(field.source_id, metadata.schema()), FloatType | DoubleType)
            if field.source_id not in self.versions.key or not is_exact:
                return None
        return {each.partition for each in self.pending}


def plan_merge(table: Table, scope: MergeScope, files: BranchFiles) -> MergePlan | None:
    """Return what to do; None if no rows are pending. Raises Unmergeable."""
    schema, versions = table.schema(), scope.definition.versions(table.schema())
    if versions is None:
        raise Unmergeable(
            f"its rows are to be unique by ({scope.definition.key_names(schema)}), and a column of that key or one of "
            f"the connector's own was dropped: {way_out(scope.definition, table.metadata)}"
        )
    if (arrow := arrow_schema(schema)) is None:
        raise Unmergeable(
            "it has columns of types that this connector does not write, so its files cannot be written again. Drop "
            "those columns"
        )
    arriving = files.of(table, scope.pending) if scope.pending is not None else []
    content = files.of(table, scope.target)
    # Some deletes may be left that apply to no file any more, as after a compaction.
    if any(each.has_equality_deletes for each in (*arriving, *content)):
        raise Unmergeable(
            "another engine has deleted rows from it by equality deletes, which this connector does not apply. "
            "Compact the table (in Athena OPTIMIZE, in Spark rewrite_data_files with delete-file-threshold 1), and "
            "sync again"
        )
    if any(each.entry.file_format != FileFormat.PARQUET for each in (*arriving, *content)):
        raise Unmergeable(
            "some of its files are no Parquet files. Set its property write.format.default to parquet and rewrite them "
            "(in Spark rewrite_data_files with rewrite-all)"
        )
    # A removal, which is by path, would remove all of them, and a file's rows are looked at once for each.
    if len({each.path for each in (*arriving, *content)}) < len(arriving) + len(content):
        raise Unmergeable(
            "it lists a file more than once, so that its rows are there more than once. Write its files again (in "
            "Spark rewrite_data_files with rewrite-all), and sync again"
        )
    unique = _unique(content, table, scope, files)
    pending = [*(file for file in content if file.path not in unique), *arriving]
    if not pending:
        return None
    stored = tuple(file for file in content if file.path in unique)
    listed_in = files.manifests_of_deletes(table, scope.target)
    return MergePlan(table, scope, versions, arrow, tuple(pending), len(arriving), stored, listed_in)


def _unique(content: Sequence[LiveFile], table: Table, scope: MergeScope, files: BranchFiles) -> frozenset[str]:
    """Return the paths of files of the content no two rows of which, in all of them, have the same key.

    Those are the files of the last snapshot that was unique, unless rows that were deleted from them are back.
    """
    if scope.is_unique(table.metadata):
        return frozenset(file.path for file in content)
    if (snapshot := scope.last_unique(table.metadata)) is None:
        return frozenset()
    deletes = {file.path: set(file.state) for file in files.at(snapshot, table.io)}
    return frozenset(file.path for file in content if file.path in deletes and deletes[file.path] <= set(file.state))


def _size(file: IcebergFile, id_: int, schema: Schema, expansion: float) -> int:
    """Return about how many bytes the values of a column take in memory."""
    match _type(id_, schema):
        case StringType() | BinaryType() | FixedType():
            known: Mapping[int, int] = file.column_sizes or {}
            return round(known.get(id_, file.file_size_in_bytes) * expansion)
        case DecimalType():
            return file.record_count * 2 * _BYTES_OF_A_VALUE
    return file.record_count * _BYTES_OF_A_VALUE


def _type(id_: int, schema: Schema) -> object:
    return schema.find_type(id_) if schema.find_column_name(id_) is not None else None
