"""Column types as Arrow types, as data files have them."""

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
    # `element` as in Parquet's specification, so that paths in a file equal those in the table.
    List: lambda t: pa.list_(pa.field("element", arrow_type(t.element))),
}


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """Return the Arrow type of a column, nullable at every level."""
    return ARROW[type(column_type)](column_type)


def arrow_field(field: Field) -> pa.Field[pa.DataType]:
    """Return a column or a field of a struct under its name in the catalog, nullable."""
    return pa.field(field.name, arrow_type(field.type))
