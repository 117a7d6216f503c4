"""Manifest entries of data files: made from footers of new files, and searched for files that may have a key."""

from __future__ import annotations

import io
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatsAggregator,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema, index_by_id, index_by_name
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, PrimitiveType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from destination_datalake.files.dedup.tasks import IndexPart, KeyBounds
from destination_datalake.files.parquet import PATH_ID, field_id
from destination_datalake.files.plan import DataFile, Rewritten, WrittenFile
from destination_datalake.tables.iceberg.layout import outdated, partition_record
from destination_datalake.tables.iceberg.pyiceberg_internals import delete_file

_FLOAT_BYTES = 4


class Entries:
    """Manifest entries of new files of the table's default spec. Prepares once what all entries need of the schema."""

    def __init__(self, metadata: TableMetadata) -> None:
        schema = metadata.schema()
        self.entries: list[IcebergFile] = []
        self._metadata = metadata
        self._ids = index_by_name(schema)
        self._fields = index_by_id(schema)
        self._ids_of_parquet = parquet_path_to_id_mapping(schema)
        self._statistics = compute_statistics_plan(schema, metadata.properties)

    def add(self, file: DataFile, sort_order_id: int | None) -> str | None:
        """Add a file's entry, made from its footer, without reading S3. Return why it does not fit, see `_mismatch`."""
        footer = pq.read_metadata(io.BytesIO(file.footer))
        reason = self._mismatch(footer) or outdated(file, self._metadata)
        if reason is None:
            partition = partition_record(file, self._metadata)
            entry = self._entry(file, footer, sort_order_id, partition, self._metadata.default_spec_id)
            self.entries.append(entry)
        return reason

    def of_compacted(self, file: WrittenFile, like: IcebergFile, sort_order_id: int | None) -> IcebergFile | None:
        """Return the entry of a file with rows of old files of one partition, that of `like`.

        None if the schema has changed since the file was planned, see `_mismatch`.
        """
        footer = pq.read_metadata(io.BytesIO(file.footer))
        if self._mismatch(footer) is not None:
            return None
        return self._entry(file, footer, sort_order_id, like.partition, like.spec_id)

    def _mismatch(self, footer: pq.FileMetaData) -> str | None:
        """Return why a file cannot be added to the table, as a clause about the table; None if it can.

        Readers find columns by field id, so values of a dropped or renamed column would be lost. If the schema has a
        float column of the file as double, some engines do not read the file correctly (trinodb/trino#30544).
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
        """Return the manifest entry. Columns without statistics in the footer get no metrics, which Iceberg permits."""
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
    """Return the columns that a file may lack, as their values are those of its partition.

    Iceberg spec: Column Projection.
    """
    return frozenset(
        field.source_id
        for position, field in enumerate(metadata.specs()[file.spec_id].fields)
        if isinstance(field.transform, IdentityTransform) and file.partition[position] is not None
    )


def position_deletes_entry(file: WrittenFile, of: IcebergFile) -> IcebergFile:
    """Return the manifest entry of a file of position deletes for one data file.

    Readers assign it to the data file by the bounds of the path, which are equal. They must not be truncated, unlike
    bounds of values (Iceberg spec: Data File Fields, note 4).
    """
    path = {PATH_ID: of.file_path.encode()}
    entry = delete_file(
        content=DataFileContent.POSITION_DELETES,
        file_path=file.uri,
        file_format=FileFormat.PARQUET,
        partition=of.partition,
        record_count=file.rows,
        file_size_in_bytes=file.size,
        lower_bounds=path,
        upper_bounds=path,
        referenced_data_file=of.file_path,
    )
    entry.spec_id = of.spec_id
    return entry


def rewritten_entry(old: IcebergFile, new: Rewritten, to_double: Collection[int]) -> IcebergFile:
    """Return the manifest entry of a rewritten file: the partition and metrics of the old one, with bounds as doubles.

    `to_double` are field ids. Column sizes and split offsets do not apply to the new file, and are omitted. If rows
    were omitted, counts of values are too, except zeros. Bounds need not be tight (Iceberg spec: Data File Fields).
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
        lower_bounds=_as_doubles(old.lower_bounds, to_double),
        upper_bounds=_as_doubles(old.upper_bounds, to_double),
        sort_order_id=old.sort_order_id,
    )
    entry.spec_id = old.spec_id
    return entry


def _zeros(counts: Mapping[int, int] | None) -> dict[int, int] | None:
    return None if counts is None else {id_: count for id_, count in counts.items() if count == 0}


def promoted_to_double(before: Schema, after: Schema) -> frozenset[int]:
    """Return the ids of fields that are float in one schema and double in the other."""
    now = index_by_id(after)
    return frozenset(
        id_
        for id_, field in index_by_id(before).items()
        if field.field_type == FloatType() and id_ in now and now[id_].field_type == DoubleType()
    )


def _without_statistics(metadata: pq.FileMetaData) -> Iterator[str]:
    """Yield the paths of columns that lack statistics in some row group."""
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            if not chunk.is_stats_set:
                yield chunk.path_in_schema


def _drop_invalid_upper_bound(column: StatsAggregator) -> None:
    """Remove the upper bound of a column if PyIceberg truncates it to an invalid text.

    PyIceberg takes the first 16 characters of the highest text and increments the last one: U+D7FF becomes half of a
    surrogate pair. Iceberg permits columns without bounds.
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
    """Yield every field's dotted path, id and type; `fields` is an Arrow schema or struct type."""
    for field in fields:
        path = f"{above}{field.name}"
        yield path, field_id(field), field.type
        if pa.types.is_list(field.type):
            yield from _fields([field.type.value_field], f"{path}.")
        elif pa.types.is_struct(field.type):
            yield from _fields(field.type, f"{path}.")


# --- files that may have a key, by the bounds of their columns -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns of a key: their field ids and present types.

    The bounds of a file may be of a narrower type, which their length shows (Iceberg spec: Schema Evolution).
    """

    columns: tuple[tuple[int, PrimitiveType], ...]

    @classmethod
    def of(cls, key: Sequence[int], schema: Schema) -> Self:
        """Return the columns of these ids, which are of primitive types."""
        types = ((id_, schema.find_type(id_)) for id_ in key)
        return cls(tuple((id_, type_) for id_, type_ in types if isinstance(type_, PrimitiveType)))

    def may_have(self, file: IcebergFile, part: IndexPart) -> bool:
        """Whether the file may have a row with a key in this part of the index."""
        return part.rows > 0 and all(
            _may_have(file, id_, type_, bounds) for (id_, type_), bounds in zip(self.columns, part.bounds, strict=True)
        )


def _may_have(file: IcebergFile, id_: int, type_: PrimitiveType, bounds: KeyBounds) -> bool:
    """Whether a column of the file may have a value within the bounds, or null or NaN if the bounds include them."""
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
        return True  # The bounds cannot be compared with values of this type, or cannot be decoded.


def as_stored(value: Any) -> Any:
    """Return a value in the representation of bounds in manifests."""
    match value:
        case datetime():
            return datetime_to_micros(value)
        case date():
            return date_to_days(value)
        case time():
            return time_to_micros(value)
    return value
