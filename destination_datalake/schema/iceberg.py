"""Column types as Iceberg's, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from destination_datalake.schema.names import comment_of
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Field,
    Float32,
    Float64,
    Int32,
    Int64,
    Json,
    List,
    String,
    Struct,
    Timestamp,
)

NextId = Callable[[], int]

ICEBERG: Mapping[type[ColumnType], Callable[[Any, NextId], IcebergType]] = {
    Boolean: lambda _, __: BooleanType(),
    Int32: lambda _, __: IntegerType(),
    Int64: lambda _, __: LongType(),
    Float32: lambda _, __: FloatType(),
    Float64: lambda _, __: DoubleType(),
    Decimal: lambda t, _: DecimalType(t.precision, t.scale),
    String: lambda _, __: StringType(),
    Json: lambda _, __: StringType(),
    Date: lambda _, __: DateType(),
    Timestamp: lambda t, _: TimestamptzType() if t.zoned else TimestampType(),
    Struct: lambda t, next_id: StructType(*(iceberg_field(field, next_id) for field in t.fields)),
    List: lambda t, next_id: ListType(
        element_id=next_id(), element_type=iceberg_type(t.element, next_id), element_required=False
    ),
}

COLUMN: Mapping[type[IcebergType], Callable[[Any], ColumnType | None]] = {
    BooleanType: lambda _: Boolean(),
    IntegerType: lambda _: Int32(),
    LongType: lambda _: Int64(),
    FloatType: lambda _: Float32(),
    DoubleType: lambda _: Float64(),
    DecimalType: lambda t: Decimal(t.precision, t.scale),
    StringType: lambda _: String(),
    DateType: lambda _: Date(),
    TimestamptzType: lambda _: Timestamp(zoned=True),
    TimestampType: lambda _: Timestamp(zoned=False),
    StructType: lambda t: _struct(t),
    ListType: lambda t: _list(t),
}


def iceberg_type(column_type: ColumnType, next_id: NextId) -> IcebergType:
    """The Iceberg type; `next_id` gives each field inside it an id that no other field of the table has."""
    return ICEBERG[type(column_type)](column_type, next_id)


def iceberg_field(field: Field, next_id: NextId) -> NestedField:
    """The column or struct field, optional; its doc is the key in the record where that is spelled differently.

    PyIceberg makes the doc Glue's comment, so it is no longer than that can be.
    """
    return NestedField(
        field_id=next_id(),
        name=field.name,
        field_type=iceberg_type(field.type, next_id),
        required=False,
        doc=None if field.source == field.name else comment_of(field.source),
    )


def from_iceberg(iceberg_type: IcebergType) -> ColumnType | None:
    """The column type behind an Iceberg type, or None if this connector never writes it.

    `Json` is stored as a string and comes back as `String`; a struct's fields come back with their doc, or else their
    name, as source.
    """
    read = COLUMN.get(type(iceberg_type))
    return read(iceberg_type) if read else None


def _struct(struct: StructType) -> ColumnType | None:
    fields = []
    for nested in struct.fields:
        inner = from_iceberg(nested.field_type)
        if inner is None:
            return None
        fields.append(Field(nested.name, nested.doc or nested.name, inner))
    return Struct(tuple(fields))


def _list(array: ListType) -> ColumnType | None:
    element = from_iceberg(array.element_type)
    return None if element is None else List(element)
