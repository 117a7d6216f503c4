"""The table on nested values: the columns and values that one record gets with each value of the option `nested`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.glue import describe_type
from destination_datalake.schema.names import SNAKE_CASE
from destination_datalake.schema.types import Nested, NumericTypes
from docs.generator.markdown import code, table

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
