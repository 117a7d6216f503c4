"""Tables of columns: those of Airbyte's types, those that AWS Datalake gave them, those of nested values."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.evolution import WIDER, evolve
from destination_datalake.schema.glue import describe_type, glue_type, parse_glue_type
from destination_datalake.schema.iceberg import iceberg_type
from destination_datalake.schema.json_schema import column_type
from destination_datalake.schema.names import AWS_DATALAKE, SNAKE_CASE
from destination_datalake.schema.types import ColumnType, Nested, NumericTypes
from destination_datalake.tables.migration import inherit_types
from docs.generator.markdown import code, table

_AIRBYTE_TYPES = (
    ("string", '{"type": "string"}', "as received"),
    ("boolean", '{"type": "boolean"}', ""),
    ("date", '{"type": "string", "format": "date"}', ""),
    (
        "timestamp with timezone",
        '{"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}',
        "UTC, microseconds",
    ),
    (
        "timestamp without timezone",
        '{"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"}',
        "wall-clock time, microseconds",
    ),
    ("time with timezone", '{"type": "string", "format": "time", "airbyte_type": "time_with_timezone"}', "as received"),
    ("time without timezone", '{"type": "string", "format": "time"}', "as received"),
    ("integer", '{"type": "integer"}', "widened before a value would overflow"),
    ("big integer", '{"type": "integer", "airbyte_type": "big_integer"}', "all digits"),
    ("number", '{"type": "number"}', "widened before a value would change"),
    ("big number", '{"type": "number", "airbyte_type": "big_number"}', "all digits"),
    ("array with items", '{"type": "array", "items": {"type": "string"}}', ""),
    ("array without items", '{"type": "array"}', "JSON text as received"),
    ("object with properties", '{"type": "object", "properties": {"id": {"type": "string"}}}', ""),
    ("object without properties", '{"type": "object"}', "JSON text as received"),
    ("union", '{"oneOf": [{"type": "integer"}, {"type": "string"}]}', "JSON text as received"),
    ("unknown", "{}", "JSON text as received"),
)

_INHERITED = (
    ('{"type": "string"}', "string"),
    ('{"type": "string", "format": "date-time"}', "timestamp"),
    ('{"type": "string", "format": "date"}', "date"),
    ('{"type": "string", "format": "time"}', "string"),
    ('{"type": "boolean"}', "boolean"),
    ('{"type": "integer"}', "bigint"),
    ('{"type": "integer", "airbyte_type": "big_integer"}', "bigint"),
    ('{"type": "number"}', "double"),
    ('{"type": "number"}', "decimal(38,25)"),
    ('{"type": "number", "airbyte_type": "big_number"}', "decimal(38,25)"),
    ('{"type": "number", "airbyte_type": "big_number"}', "double"),
    ('{"type": ["string", "integer"]}', "string"),
    ('{"oneOf": [{"type": "integer"}, {"type": "null"}]}', "string"),
    ('{"$ref": "WellKnownTypes.json#/definitions/Date"}', "string"),
    ("{}", "string"),
    ('{"type": "object", "properties": {"id": {"type": "integer"}}}', "struct<id:bigint>"),
    ('{"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": true}', "string"),
    ('{"type": "object"}', "string"),
    ('{"type": "object", "properties": {"id": {"type": "integer"}, "more": {"type": "object"}}}', "string"),
    ('{"type": "array", "items": {"type": "string"}}', "array<string>"),
    ('{"type": "array", "items": {"type": "string", "format": "date"}}', "array<string>"),
    ('{"type": "array", "items": {"type": ["string", "integer"]}}', "string"),
    ('{"type": "array"}', "string"),
)
"""Schemas, and the Glue types that AWS Datalake 0.1.35 derived from them."""


def airbyte_types() -> str:
    """Return the table of Airbyte's types with their columns in both kinds of table."""

    def row(name: str, schema: str, note: str) -> list[str]:
        narrow = column_type(json.loads(schema), NumericTypes.INT_FLOAT)
        types = (narrow, WIDER[narrow]) if narrow in WIDER else (narrow,)
        return [name, " → ".join(map(_in_iceberg, types)), " → ".join(code(glue_type(type_)) for type_ in types), note]

    rows = itertools.starmap(row, _AIRBYTE_TYPES)
    return table(["Airbyte type", "Iceberg", "Hive (Parquet, JSON Lines)", ""], rows)


def inherited() -> str:
    """Return the table of columns of AWS Datalake and the types in which they are continued."""

    def row(schema: str, derived: str) -> list[str]:
        json_schema = {"properties": {"x": json.loads(schema)}}
        [new] = stream_columns(json_schema, NumericTypes.BIGINT_DOUBLE, AWS_DATALAKE)
        existing = {"x": parse_glue_type(derived)}
        [column] = evolve(existing, inherit_types([new], json_schema, existing)).columns
        beside = f", in a column {code('…' + column.name.removeprefix('x'))} beside it" if column.name != "x" else ""
        return [
            *map(code, (schema, derived)),
            f"{code(describe_type(column.type))}{beside}",
            code(describe_type(new.type)),
        ]

    header = ["JSON schema", "column of AWS Datalake", "continued as", "in a new table, with `bigint/double`"]
    return table(header, itertools.starmap(row, _INHERITED))


def _in_iceberg(type_: ColumnType) -> str:
    ids = itertools.count(1)
    outer, nested, _ = str(iceberg_type(type_, lambda: next(ids))).partition("struct<")
    return code("struct" if nested else outer)


_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
_SCHEMA: Mapping[str, Any] = {
    "properties": {
        "customer": {
            "type": "object",
            "properties": {
                "fullName": _TEXT,
                "address": {"type": "object", "properties": {"city": _TEXT, "lat": _NUMBER}},
            },
        },
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": _TEXT}}},
    }
}
_RECORD = '{"customer": {"fullName": "Ada", "address": {"city": "Rome", "lat": 41.5}}, "lines": [{"sku": "a"}]}'

_OPTIONS: Sequence[tuple[str, Nested, int]] = (
    ("struct", Nested.STRUCT, 10),
    ("json", Nested.JSON, 10),
    ("flatten", Nested.FLATTEN, 10),
    ("flatten, flatten_max_depth: 1", Nested.FLATTEN, 1),
)


def nested() -> str:
    """Return the record and the table."""
    return f"```json\n{_RECORD}\n```\n\n" + table(["`nested`", "column", "type", "value", "comment"], _rows())


def _rows() -> Iterator[Sequence[str]]:
    line = f'{{"type":"RECORD","record":{{"stream":"s","data":{_RECORD},"emitted_at":0}}}}\n'
    for option, mode, depth in _OPTIONS:
        columns = stream_columns(_SCHEMA, NumericTypes.INT_FLOAT, SNAKE_CASE, mode, depth)
        [decoded] = BlockDecoder(columns).decode(line.encode())
        for column, array in zip(columns, decoded.columns, strict=True):
            [value] = array.to_pylist()
            comment = column.origin if column.origin != column.name else ""
            shown = value if isinstance(value, str) else json.dumps(value)
            yield [
                code(option),
                code(column.name),
                code(describe_type(column.type)),
                code(shown),
                code(comment) if comment else "",
            ]
