"""Column types as Arrow stores them in a data file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

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
    # Parquet's own word for it, so that a file's paths are those of the table.
    List: lambda t: pa.list_(pa.field("element", arrow_type(t.element))),
}


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """The Arrow type of a column's array; every level takes nulls."""
    return ARROW[type(column_type)](column_type)


def arrow_field(field: Field) -> pa.Field[pa.DataType]:
    """The column or struct field under its name in the catalog, nullable."""
    return pa.field(field.name, arrow_type(field.type))
