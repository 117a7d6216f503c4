"""An Iceberg table's schema: its column types, changes of it in a transaction, and its form in Arrow.

Last, which existing tables this connector cannot write to so that every engine reads them correctly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import TruncateTransform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from destination_datalake.files.plan import DataFile
from destination_datalake.partitioning.spec import parse_transform
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.columns import CHANGE, as_column
from destination_datalake.schema.evolution import AddColumn, SchemaChange, Widen, evolve
from destination_datalake.schema.iceberg import from_iceberg, iceberg_field, iceberg_type
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.iceberg.branches import how_to_copy
from destination_datalake.tables.iceberg.layout import source_paths
from destination_datalake.tables.migration import how_to_continue
from destination_datalake.tables.table import TableConflict, TableName, table_conflict


def column_types(metadata: TableMetadata) -> dict[str, ColumnType | None]:
    """Return the types of the table's columns by name; None for a type that this connector never writes."""
    return {field.name: from_iceberg(field.field_type) for field in metadata.schema().fields}


def column_sources(metadata: TableMetadata) -> dict[str, str | None]:
    """Return the origins of the table's columns by name, in lower case; None for names that no column may get.

    Those are the names of partition fields, in former specs too (Iceberg: PartitionSpec).
    """
    fields = (field for spec in metadata.partition_specs for field in spec.fields)
    columns = {field.name.lower(): field.doc or field.name for field in metadata.schema().fields}
    return {**{field.name.lower(): None for field in fields}, **columns}


def known_columns(metadata: TableMetadata) -> tuple[Field, ...]:
    """Return the table's columns of types that this connector writes, with the keys that they were made for."""
    return tuple(
        as_column(field.name, field.doc or field.name, type_)
        for field in metadata.schema().fields
        if (type_ := from_iceberg(field.field_type)) is not None
    )


def missing_changes(columns: Sequence[Field], transaction: Transaction) -> tuple[SchemaChange, ...]:
    """Return the changes that the schema needs for files of these columns, as the transaction has it now."""
    return evolve(column_types(transaction.table_metadata), columns).changes


def apply_changes(changes: Sequence[SchemaChange], transaction: Transaction) -> None:
    """Add the changes to a transaction. Ids, docs and required flags of existing fields are kept."""
    if not changes:
        return
    placeholder_ids = itertools.count(1_000_000)  # PyIceberg assigns the real ones.
    with transaction.update_schema() as update:
        for change in changes:
            match change:
                case AddColumn(path=path, field=field):
                    new = iceberg_field(field, lambda: next(placeholder_ids))
                    update.add_column(path, new.field_type, doc=new.doc)
                case Widen(path=path, type=type_):
                    update.update_column(path, field_type=iceberg_type(type_, lambda: next(placeholder_ids)))


# --- the schema in Arrow's terms, as files are written ----------------------------------------------------------------


_PRIMITIVE: Mapping[type[IcebergType], Callable[[Any], pa.DataType]] = {
    BooleanType: lambda _: pa.bool_(),
    IntegerType: lambda _: pa.int32(),
    LongType: lambda _: pa.int64(),
    FloatType: lambda _: pa.float32(),
    DoubleType: lambda _: pa.float64(),
    DecimalType: lambda t: pa.decimal128(t.precision, t.scale),
    DateType: lambda _: pa.date32(),
    TimeType: lambda _: pa.time64("us"),
    TimestampType: lambda _: pa.timestamp("us"),
    TimestamptzType: lambda _: pa.timestamp("us", tz="UTC"),
    StringType: lambda _: pa.string(),
    FixedType: lambda t: pa.binary(len(t)),
    BinaryType: lambda _: pa.binary(),
}


def arrow_schema(schema: Schema) -> pa.Schema | None:
    """Return the schema with field ids at every level, nullable at every level; None if it has a type unknown here.

    Unlike PyIceberg's, the types have 32-bit offsets, as Arrow reads files.
    """
    try:
        return pa.schema([arrow_field(field) for field in schema.fields])
    except KeyError:
        return None


def arrow_field(field: NestedField, *, nullable: bool = True, name: str | None = None) -> pa.Field[Any]:
    """Return a column, or a field within one, with field ids at every level. Raises KeyError for unknown types."""
    metadata = {"PARQUET:field_id": str(field.field_id)}
    return pa.field(name or field.name, _type(field.field_type), nullable, metadata)


def _type(type_: IcebergType) -> pa.DataType:
    match type_:
        case StructType(fields=fields):
            if not fields:
                raise KeyError(type_)  # Parquet has no such columns.
            return pa.struct([arrow_field(field) for field in fields])
        case ListType():
            return pa.list_(arrow_field(type_.element_field, name="element"))
        case MapType():
            key, value = arrow_field(type_.key_field, nullable=False), arrow_field(type_.value_field)
            map_of = cast("Any", pa.map_)  # The stubs know types only, not fields, which have names and ids.
            return cast("pa.DataType", map_of(key, value))
    return _PRIMITIVE[type(type_)](type_)


# --- tables that cannot be written to ---------------------------------------------------------------------------------


_NEWEST_FORMAT = 2

_META = "_airbyte_meta"
_METADATA_FIELDS = frozenset(
    {_META, f"{_META}.sync_id", f"{_META}.changes", f"{_META}.changes.element"}
    | {f"{_META}.changes.element.{field.name}" for field in CHANGE.fields}
)
"""The fields of the metadata columns that are inside others, or have others inside."""

UNREADABLE = (
    "its metadata has what this connector cannot read: it writes format versions 1 and 2, without what came with later "
    "ones, such as partitions by several columns at once. Copy it to a table with the property format-version 2"
)
"""Why a table with metadata of another version cannot be written to, as `incompatibility` says it."""


def no_iceberg_table(glue_table: Mapping[str, Any], stream: Stream) -> str:
    """Return why a stream cannot be written to a table of another kind, and what to do."""
    others = "table_prefix, or another lakeformation_database_name, to begin another table"
    if stream.dedup:
        return (
            f"it exists and is not an Iceberg table, and only in those rows can be deduplicated. Set {others}, or "
            "choose a sync mode without deduplication (append, overwrite) and set table_type to HIVE to continue it."
        )
    remedy = how_to_continue(glue_table) or "table_type to HIVE to continue it"
    return f"it exists and is not an Iceberg table. Set {remedy}, or {others}."


def incompatibility(metadata: TableMetadata) -> str | None:
    """Return why the table cannot be written to, as a clause about it followed by the remedy; None if it can."""
    if metadata.format_version > _NEWEST_FORMAT:
        return (
            f"its format-version is {metadata.format_version}, and this connector writes versions 1 and 2. "
            f"Copy it to a table with the property format-version 2{how_to_copy(metadata)}"
        )
    for field in metadata.spec().fields:
        if (problem := _unknown(field, metadata.schema())) is not None:
            return f"{problem}. Remove that partition field (ALTER TABLE ... DROP PARTITION FIELD {field.name})"
    for sorted_by in metadata.sort_order().fields:
        if metadata.schema().find_column_name(sorted_by.source_id) is None:
            return (
                "its sort order has a column that was dropped. Set another one (ALTER TABLE ... WRITE ORDERED BY ...)"
            )
    if ambiguous := _names_equal_but_for_case(metadata.schema().as_struct(), ""):
        return (
            f"its columns {' and '.join(ambiguous)} differ only in upper and lower case, so Glue, Athena and Spark "
            "cannot tell them apart. Rename one of them (ALTER TABLE ... RENAME COLUMN ... TO ...)"
        )
    return None


def foreign_metadata_column(metadata: TableMetadata, written: Sequence[Field]) -> str | None:
    """Return a column with the name of a metadata column that cannot be written as one, or None."""
    types = column_types(metadata)
    for column in written:
        if column.name in types:
            evolution = evolve({column.name: types[column.name]}, [column])
            if evolution.columns != (column,) or any(isinstance(each, Widen) for each in evolution.changes):
                return column.name
    return None


def required_field_within(schema: Schema, written: Collection[str]) -> str | None:
    """Return the path of a required field whose nulls a data file does not count separately, or None.

    Those are fields inside structs and lists of the written columns, and such structs and lists themselves. Those of
    the metadata columns are always written, but for those that the platform may not send.
    """
    nested = (field for field in schema.fields if field.name in written and not field.field_type.is_primitive)
    paths = (path for field in nested for path, found in _flattened(field, "") if found.required)
    return next((path for path in paths if path not in _METADATA_FIELDS), None)


def require_all_written(
    stream: Stream, table: TableName, metadata: TableMetadata, written: Collection[str], changes: Sequence[SchemaChange]
) -> None:
    """Raise TableConflict if rows of the written columns cannot be added to a table, whatever their values are.

    That is so if it requires a value that they may lack, or if one of the changes adds a column with the name of a
    partition field: those must differ (Iceberg's PartitionSpec), in former specs too.
    """
    schema = metadata.schema()

    def require(column: str | None, why: str) -> None:
        if column is not None:
            raise _required_conflict(stream.id, table, column, why, schema)

    besides = (field.name for field in schema.fields if field.required and field.name not in written)
    require(next(besides, None), "the stream has no such field")
    required = {path for field in schema.fields for path, found in _flattened(field, "") if found.required}
    unsent = {f"{_META}.sync_id": stream.sync_id, "_airbyte_generation_id": stream.generation}
    absent = (path for path, value in unsent.items() if value is None and path in required)
    require(next(absent, None), "the platform sends none")
    require(required_field_within(schema, written), "whether nested records have a value for it would not be noticed")
    new = {".".join(change.path).lower() for change in changes if isinstance(change, AddColumn)}
    names = (field.name for spec in metadata.partition_specs for field in spec.fields)
    if (name := next((name for name in names if name.lower() in new), None)) is not None:
        raise table_conflict(
            stream.id,
            table,
            f"its partition field {name} has the name of a field of the stream, which needs a column of that name, "
            "and no engine reads tables with both. Rename the stream's field, or choose another table_prefix",
        )


def require_values_fit(stream: StreamId, table: TableName, file: DataFile, metadata: TableMetadata) -> None:
    """Raise TableConflict if a file has nulls in a required column, or a value that its partition field cannot hold.

    Truncation rounds down, so that -9.9 becomes -10.0, for which decimal(2, 1) has too few digits. No engine writes
    such a partition (Iceberg: DecimalUtil.toReusedFixLengthBytes).
    """
    schema = metadata.schema()
    required = {field.name for field in schema.fields if field.required and field.field_type.is_primitive}
    if (column := min(required & file.with_nulls, default=None)) is not None:
        raise _required_conflict(stream, table, column, "records have no value for it", schema)
    for field, value in zip(metadata.spec().fields, file.partition, strict=False):
        if isinstance(value, Decimal) and isinstance(field.transform, TruncateTransform):
            type_ = schema.find_type(field.source_id)
            if isinstance(type_, DecimalType) and len(value.as_tuple().digits) > type_.precision:
                raise table_conflict(
                    stream,
                    table,
                    f"a value below zero, rounded down for its partition field {field.name}, has more digits than its "
                    "type. Partition by another transform, such as bucket[16] (partition_by, or ALTER TABLE ... "
                    f"REPLACE PARTITION FIELD {field.name} WITH ...)",
                )


def _required_conflict(stream: StreamId, table: TableName, column: str, why: str, schema: Schema) -> TableConflict:
    """Return the conflict that a column is required; `why` is a clause that says what is missing."""
    statement = f"ALTER TABLE ... ALTER COLUMN {column} DROP NOT NULL"
    if schema.find_field(column).field_id in schema.identifier_field_ids:
        # Iceberg spec, Identifier Field IDs: they are required.
        statement = f"ALTER TABLE ... DROP IDENTIFIER FIELDS {column}, then {statement}"
    problem = f"its column {column} is required, and {why}. Make the column optional ({statement})"
    return table_conflict(stream, table, problem)


def _unknown(field: PartitionField, schema: Schema) -> str | None:
    """Return why no file can be written for a partition field, as a clause about the table; None if files can."""
    if isinstance(field.transform, VoidTransform):
        return None
    try:
        parse_transform(str(field.transform))
    except ValueError:
        return f"its partition field {field.name} has a transform that this connector does not know"
    if field.source_id in source_paths(schema):
        return None
    if schema.find_column_name(field.source_id) is None:
        return f"its partition field {field.name} is of a column that was dropped"
    return f"its partition field {field.name} is of a value inside a list or a map"


def _names_equal_but_for_case(type_: IcebergType, above: str) -> tuple[str, str] | None:
    """Return the paths of two fields of the same struct whose names differ only in case, at any depth."""
    fields = _children(type_)
    spellings: dict[str, str] = {}
    for field in fields:
        if (other := spellings.setdefault(field.name.lower(), field.name)) != field.name:
            return f"{above}{other}", f"{above}{field.name}"
    found = (_names_equal_but_for_case(field.field_type, f"{above}{field.name}.") for field in fields)
    return next((paths for paths in found if paths is not None), None)


def _flattened(field: NestedField, above: str) -> Iterator[tuple[str, NestedField]]:
    path = f"{above}{field.name}"
    yield path, field
    children = _children(field.field_type)
    # A map's keys are always required (Iceberg spec: nested types).
    for child in children[1:] if isinstance(field.field_type, MapType) else children:
        yield from _flattened(child, f"{path}.")


def _children(type_: IcebergType) -> tuple[NestedField, ...]:
    match type_:
        case StructType(fields=fields):
            return fields
        case ListType():
            return (type_.element_field,)
        case MapType():
            return (type_.key_field, type_.value_field)
    return ()
