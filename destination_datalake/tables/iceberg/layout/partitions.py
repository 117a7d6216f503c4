"""From the partition spec of an Iceberg table to what writers do, and from a file's values to its manifest entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from pyiceberg.partitioning import PartitionField as IcebergField
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, LongType, NestedField, StructType

from destination_datalake.files.plan import DataFile
from destination_datalake.partitioning.paths import IcebergPath
from destination_datalake.partitioning.spec import PartitionField, Partitioning, Void, parse_transform
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.iceberg import from_iceberg
from destination_datalake.schema.types import Field, Struct

_INT_MAX = 2**31 - 1

Path = tuple[str, ...]
"""The names from a column down to a field inside it."""


def source_paths(schema: Schema) -> dict[int, Path]:
    """Return the paths of the columns, and of fields inside structs, by field id: of what can be partitioned by."""
    return {field.field_id: path for path, field in _inside_structs(schema.fields, ())}


def partitioning(metadata: TableMetadata, columns: Sequence[Field], max_open: int) -> Partitioning | None:
    """Return how rows of these columns are assigned to partitions of the table's default spec.

    Fields whose source column is not written are null in every row, as void ones are. None if all fields are.
    """
    schema, spec = metadata.schema(), metadata.spec()
    paths = source_paths(schema)
    fields = tuple(
        PartitionField(field.name, path, parse_transform(str(field.transform)) if is_written(path, columns) else Void())
        for field in spec.fields
        for path in [paths.get(field.source_id, (field.name,))]
    )
    if all(field.transform == Void() for field in fields):
        return None
    sources = (schema.find_type(each.source_id) if each.source_id in paths else None for each in spec.fields)
    types = tuple(None if type_ is None else from_iceberg(type_) for type_ in sources)
    return Partitioning(fields, IcebergPath(fields, types), max_open, spec.spec_id)


def is_written(path: Path, columns: Sequence[Field]) -> bool:
    """Whether the field at a path is among the stream's columns, or one of the metadata columns."""
    fields: Sequence[Field] = (*METADATA_COLUMNS, *columns)
    for depth, name in enumerate(path, start=1):
        found = next((field for field in fields if field.name == name), None)
        if found is None:
            return False
        if depth == len(path):
            return True
        fields = found.type.fields if isinstance(found.type, Struct) else ()
    return False


def outdated(file: DataFile, metadata: TableMetadata) -> str | None:
    """Return why a file's partition is none of the table's default spec, as a clause about the table; None if it is."""
    if file.partition:
        fits = file.spec_id == metadata.default_spec_id
    else:
        fits = metadata.spec().is_unpartitioned() or partitioning(metadata, file.columns, 1) is None
    return None if fits else "its partition spec was changed after the files were planned"


def partition_record(file: DataFile, metadata: TableMetadata) -> Record:
    """Return a file's partition as manifests of the table's default spec have it.

    The file may have 32-bit integers where the column is long by now: a truncated one that has wrapped around, as
    Java's int does, is no multiple of the width, and gets the value that the long has.
    """
    values = list(file.partition or [None] * len(metadata.spec().fields))
    for position, field in enumerate(metadata.spec().fields):
        value, transform = values[position], field.transform
        if isinstance(transform, TruncateTransform) and isinstance(value, int) and value % transform.width:
            is_long = value <= _INT_MAX and metadata.schema().find_type(field.source_id) == LongType()
            values[position] = value - 2**32 if is_long else value
    return Record(*values)


def too_wide(file: DataFile, metadata: TableMetadata) -> IcebergField | None:
    """Return a field of the default spec that cannot hold the file's value, or None.

    Truncation rounds down, so that -9.9 becomes -10.0, for which decimal(2, 1) has too few digits. No engine writes
    such a partition (Iceberg: DecimalUtil.toReusedFixLengthBytes).
    """
    for field, value in zip(metadata.spec().fields, file.partition, strict=False):
        if isinstance(value, Decimal) and isinstance(field.transform, TruncateTransform):
            type_ = metadata.schema().find_type(field.source_id)
            if isinstance(type_, DecimalType) and len(value.as_tuple().digits) > type_.precision:
                return field
    return None


def _inside_structs(fields: Sequence[NestedField], above: Path) -> Iterator[tuple[Path, NestedField]]:
    for field in fields:
        path = (*above, field.name)
        yield path, field
        if isinstance(field.field_type, StructType):
            yield from _inside_structs(field.field_type.fields, path)
