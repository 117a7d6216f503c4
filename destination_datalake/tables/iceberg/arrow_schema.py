"""The schema of an Iceberg table in Arrow's terms, as files of it are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pyarrow as pa
from pyiceberg.schema import Schema
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
        return pa.schema([_field(field) for field in schema.fields])
    except KeyError:
        return None


def _field(field: NestedField, *, nullable: bool = True, name: str | None = None) -> pa.Field[Any]:
    metadata = {"PARQUET:field_id": str(field.field_id)}
    return pa.field(name or field.name, _type(field.field_type), nullable, metadata)


def _type(type_: IcebergType) -> pa.DataType:
    match type_:
        case StructType(fields=fields):
            if not fields:
                raise KeyError(type_)  # Parquet has no such columns.
            return pa.struct([_field(field) for field in fields])
        case ListType():
            return pa.list_(_field(type_.element_field, name="element"))
        case MapType():
            key, value = _field(type_.key_field, nullable=False), _field(type_.value_field)
            map_of = cast("Any", pa.map_)  # The stubs know types only, not fields, which have names and ids.
            return cast("pa.DataType", map_of(key, value))
    return _PRIMITIVE[type(type_)](type_)
