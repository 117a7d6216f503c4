"""The schema of an Iceberg table: column types, schema changes in a transaction, and conversion to Arrow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
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

from destination_datalake.files.parquet import FIELD_ID
from destination_datalake.schema.columns import as_column
from destination_datalake.schema.evolution import AddColumn, SchemaChange, Widen, evolve
from destination_datalake.schema.iceberg import from_iceberg, iceberg_field, iceberg_type
from destination_datalake.schema.types import ColumnType, Field


def column_types(metadata: TableMetadata) -> dict[str, ColumnType | None]:
    """Return the type of each column by the column's name, or None for a type that this connector does not write."""
    return {field.name: from_iceberg(field.field_type) for field in metadata.schema().fields}


def column_sources(metadata: TableMetadata) -> dict[str, str | None]:
    """Return the key of each column's source field by the column's lower-case name. Map each reserved name to None.

    Reserved names are the names of partition fields in present and former partition specs, because a new column must
    not have the name of a partition field (Iceberg: PartitionSpec).
    """
    fields = (field for spec in metadata.partition_specs for field in spec.fields)
    # The doc of a column is the key of its source field (see `iceberg_field`).
    columns = {field.name.lower(): field.doc or field.name for field in metadata.schema().fields}
    return {**{field.name.lower(): None for field in fields}, **columns}


def known_columns(metadata: TableMetadata) -> tuple[Field, ...]:
    """Return the columns whose type this connector writes, each with the key of the column's source field."""
    return tuple(
        as_column(field.name, field.doc or field.name, type_)
        for field in metadata.schema().fields
        if (type_ := from_iceberg(field.field_type)) is not None
    )


def shared_members(struct: StructType, parents: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of struct members that may contain values of two source fields.

    The doc of a struct member is the key of the member's source field. An earlier version of this connector could add a
    second member with the same doc, if the names of two source fields collided. When a later schema declared only one
    of the two fields, the connector wrote its values to the first member, even if they belonged in the second one.
    """
    members = [(*parents, field.name) for field in struct.fields]
    docs = [field.doc for field in struct.fields]
    if parents:
        yield from (path for n, path in enumerate(members) if docs[n] is not None and docs[n] in docs[n + 1 :])
    for path, field in zip(members, struct.fields, strict=True):
        inside = field.field_type
        while isinstance(inside, ListType):
            inside = inside.element_type
        if isinstance(inside, StructType):
            yield from shared_members(inside, path)


def missing_changes(columns: Sequence[Field], transaction: Transaction) -> tuple[SchemaChange, ...]:
    """Return the schema changes that the table needs before files with these columns can be added."""
    return evolve(column_types(transaction.table_metadata), columns).changes


def apply_changes(changes: Sequence[SchemaChange], transaction: Transaction) -> None:
    """Add schema changes to a transaction. Keep the IDs, docs and required flags of existing fields."""
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


# --- conversion to Arrow ----------------------------------------------------------------------------------------------


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
    """Return the Arrow schema for an Iceberg schema, or None if the schema contains an unsupported type.

    Every field has a field ID, and every field is nullable except the keys of maps. Strings and lists have 32-bit
    offsets, like those that Arrow reads from files. PyIceberg's own conversion uses 64-bit offsets.
    """
    try:
        return pa.schema([arrow_field(field) for field in schema.fields])
    except KeyError:
        return None


def arrow_field(field: NestedField, *, nullable: bool = True, name: str | None = None) -> pa.Field[Any]:
    """Return the Arrow field for a column or nested field, with field IDs at every level of nesting.

    Raises KeyError if the field or a field inside it has an unsupported type.
    """
    return pa.field(name or field.name, _type(field.field_type), nullable, {FIELD_ID: str(field.field_id)})


def _type(type_: IcebergType) -> pa.DataType:
    match type_:
        case StructType(fields=fields):
            if not fields:
                raise KeyError(type_)  # Parquet has no empty structs.
            return pa.struct([arrow_field(field) for field in fields])
        case ListType():
            # Iceberg names the field of list elements `element` in Parquet (Iceberg spec: Parquet).
            return pa.list_(arrow_field(type_.element_field, name="element"))
        case MapType():
            key, value = arrow_field(type_.key_field, nullable=False), arrow_field(type_.value_field)
            map_of = cast("Any", pa.map_)  # The stubs accept only types, but `pa.map_` needs fields for names and IDs.
            return cast("pa.DataType", map_of(key, value))
    return _PRIMITIVE[type(type_)](type_)
