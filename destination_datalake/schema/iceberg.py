"""Convert column types to Iceberg types, and Iceberg types to column types."""

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
"""A function that returns a field ID that the table does not use yet."""

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
    # The ID of the element, and IDs inside it, come from the same counter: IDs must be unique in the table.
    List: lambda t, next_id: ListType(
        element_id=next_id(), element_type=iceberg_type(t.element, next_id), element_required=False
    ),
}

_COLUMN_TYPES: Mapping[type[IcebergType], Callable[[Any], ColumnType | None]] = {
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
    """Return the Iceberg type for a column type. All nested fields and list elements are optional."""
    return ICEBERG[type(column_type)](column_type, next_id)


def iceberg_field(field: Field, next_id: NextId) -> NestedField:
    """Return a column or struct field as an optional Iceberg field.

    The field's doc is its origin: the path of its values in the records, as a string. If the origin equals the field's
    name, the field has no doc. PyIceberg copies the doc to the column's comment in Glue, so this function truncates the
    doc to Glue's maximum length of comments.
    """
    return NestedField(
        field_id=next_id(),
        name=field.name,
        field_type=iceberg_type(field.type, next_id),
        # Records may lack any field, and Iceberg cannot add a required column without a default (Iceberg spec: Schema
        # Evolution).
        required=False,
        doc=None if field.origin == field.name else comment_of(field.origin),
    )


def from_iceberg(iceberg_type: IcebergType) -> ColumnType | None:
    """Return the column type for an Iceberg type, or None for a type that this connector never writes.

    Iceberg has the same type for `Json` and `String`, for which this function returns `String`. The source of a struct
    field is the field's doc. If the field has no doc, its source is its name.
    """
    read = _COLUMN_TYPES.get(type(iceberg_type))
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
