"""Engines that are not the connector, and what they find in data files."""

from __future__ import annotations

import decimal
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from destination_datalake.schema.arrow import arrow_type, widest
from destination_datalake.schema.types import (
    ColumnType,
    Decimal,
    Field,
    List,
    Struct,
    Timestamp,
)

_ANY_DIGITS = decimal.Context(prec=80)
_LONGEST_LINE = 1 << 28
"""Bytes; DuckDB refuses lines above 16 MiB otherwise."""


def by_pyarrow(paths: Sequence[Path]) -> list[dict[str, Any]]:
    return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def holds_list_of_structs(type_: ColumnType) -> bool:
    """Whether PyIceberg 0.12 reads nulls in it as empty lists (apache/iceberg-python, `list<struct>`)."""
    match type_:
        case List(element):
            return isinstance(element, Struct) or holds_list_of_structs(element)
        case Struct(fields):
            return any(holds_list_of_structs(field.type) for field in fields)
    return False


def by_duckdb(paths: Sequence[Path], columns: Sequence[Field]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        for path in paths:
            if path.suffix == ".parquet":
                relation = engine.read_parquet(str(path))
            else:
                empty = engine.from_arrow(pa.schema([(c.name, json_type(c.type)) for c in columns]).empty_table())
                types = dict(zip(empty.columns, map(str, empty.types), strict=True))
                meta = "STRUCT(sync_id BIGINT, changes STRUCT(field VARCHAR, change VARCHAR, reason VARCHAR)[])"
                own = {"_airbyte_raw_id": "VARCHAR", "_airbyte_extracted_at": "TIMESTAMP", "_airbyte_meta": meta}
                relation = engine.read_json(
                    str(path),
                    format="newline_delimited",
                    columns={**own, **types},
                    maximum_object_size=_LONGEST_LINE,
                )
            records = relation.to_arrow_table().to_pylist()
            if path.suffix != ".parquet":
                written = [json.loads(line, parse_float=decimal.Decimal) for line in path.read_bytes().splitlines()]
                records = [
                    {**row, **{c.name: with_decimals(row[c.name], text[c.name], c.type) for c in columns}}
                    for row, text in zip(records, written, strict=True)
                ]
            rows += records
    return rows


def with_decimals(value: Any, written: Any, type_: ColumnType) -> Any:
    """The value with its decimals, which were read as text, as the file spells them."""
    match type_, value:
        case _, None:
            return None
        case Decimal(), _:
            return decimal.Decimal(written)
        case Struct(fields), _:
            return {f.name: with_decimals(value[f.name], written[f.name], f.type) for f in fields}
        case List(element), _:
            return [with_decimals(item, text, element) for item, text in zip(value, written, strict=True)]
    return value


def json_type(type_: ColumnType) -> pa.DataType:
    """The type in which a reader of JSON Lines finds the values: wide numbers, clocks in UTC without a zone."""
    match type_:
        case Timestamp():
            return pa.timestamp("us")
        case Decimal():
            # DuckDB's JSON reader takes a detour over floats, on which the largest decimals become too large.
            return pa.string()
        case Struct(fields):
            return pa.struct([pa.field(f.name, json_type(f.type)) for f in fields])
        case List(element):
            return pa.list_(json_type(element))
    return arrow_type(widest(type_))


def as_typed(value: Any, type_: ColumnType) -> Any:
    """The value with what JSON Lines leave out put back: the zone, and a decimal's scale."""
    match type_, value:
        case _, None:
            return None
        case Timestamp(zoned=True), datetime(tzinfo=None):
            return value.replace(tzinfo=UTC)
        case Struct(fields), _:
            return {f.name: as_typed(value[f.name], f.type) for f in fields}
        case List(element), _:
            return [as_typed(item, element) for item in value]
        case Decimal(scale=scale), decimal.Decimal() if value == value.to_integral_value():
            # JSON Lines may have 0.0 for a decimal of scale 0.
            return value.quantize(decimal.Decimal(1).scaleb(-scale), context=_ANY_DIGITS)
    return value
