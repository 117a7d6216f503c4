"""Map column types to Arrow types, and choose between 32 and 64 bits for numbers.

An integer or float column with 32 bits keeps its type while 32 bits represent each of its values exactly. Before a sync
stores a value that needs 64 bits, the sync widens the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

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

ARROW: Mapping[type[ColumnType], Callable[[Any], pa.DataType]] = {
    Boolean: lambda _: pa.bool_(),
    Int32: lambda _: pa.int32(),
    Int64: lambda _: pa.int64(),
    Float32: lambda _: pa.float32(),
    Float64: lambda _: pa.float64(),
    Decimal: lambda t: pa.decimal128(t.precision, t.scale),
    String: lambda _: pa.string(),
    Json: lambda _: pa.string(),
    Date: lambda _: pa.date32(),
    Timestamp: lambda t: pa.timestamp("us", tz="UTC" if t.zoned else None),
    Struct: lambda t: pa.struct([arrow_field(field) for field in t.fields]),
    # The specifications of Parquet and Iceberg both name this field `element`, so paths in files and tables are equal.
    List: lambda t: pa.list_(pa.field("element", arrow_type(t.element))),
}


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """Return the Arrow type for a column type. All nested fields and list elements are nullable."""
    return ARROW[type(column_type)](column_type)


def arrow_field(field: Field) -> pa.Field[pa.DataType]:
    """Return a nullable Arrow field with the name and type of a column or struct field."""
    return pa.field(field.name, arrow_type(field.type))


# --- Width of numbers -----------------------------------------------------------------------------------------------


_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


def widest(type_: ColumnType) -> ColumnType:
    """Return the column type with 64 bits for all integers and floats, including nested ones."""
    match type_:
        case Int32():
            return Int64()
        case Float32() | Float64():
            return Float64()
        case Struct(fields):
            return Struct(tuple(replace(field, type=widest(field.type)) for field in fields))
        case List(element):
            return List(widest(element))
        case _:
            return type_


def narrowest(array: pa.Array[Any], type_: ColumnType) -> ColumnType:
    """Return `type_`, with 64 instead of 32 bits for each number whose values in `array` need 64 bits.

    A number keeps 32 bits if 32 bits represent all of its values exactly. The type of `array` must be
    `arrow_type(widest(type_))`.
    """
    match type_:
        case Int32():
            bounds = pc.min_max(array)
            # `min_max` returns null for both if the column contains only nulls.
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
            return type_ if low is None or (low >= _INT32_MIN and high <= _INT32_MAX) else Int64()
        case Float32():
            narrow = array.cast(pa.float32(), safe=False).cast(pa.float64())
            # NaN does not equal itself, but is exact in 32 bits.
            is_exact = pc.or_(pc.equal(narrow, array), pc.is_nan(array))
            # `all` returns null if the column contains only nulls, so compare with False.
            return type_ if pc.all(is_exact).as_py() is not False else Float64()
        case Struct(fields):
            members = cast("pa.StructArray", array)
            return Struct(
                tuple(replace(field, type=narrowest(members.field(i), field.type)) for i, field in enumerate(fields))
            )
        case List(element):
            # `values` also includes elements of null lists and outside a slice. They can only widen the type
            # needlessly.
            return List(narrowest(cast("pa.ListArray[Any]", array).values, element))
        case _:
            return type_
