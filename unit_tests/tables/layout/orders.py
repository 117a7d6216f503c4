"""The stream `shop.orders` in a layout: from values that a source sends to the keys of the files with their rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from destination_datalake.config.options import Config
from destination_datalake.partitioning.transforms import transformed
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.columns import METADATA_COLUMNS, stream_columns
from destination_datalake.schema.names import EXTRACTED_AT
from destination_datalake.schema.types import Field, NumericTypes
from destination_datalake.tables.layout import TableLayout
from destination_datalake.tables.naming import TableLocation, TableNaming
from unit_tests.config.examples import options
from unit_tests.records.values.coercion import coerce_value

SCHEMA: Mapping[str, Any] = {
    "properties": {
        "id": {"type": "integer"},
        "country": {"type": ["null", "string"]},
        "created_at": {"type": ["null", "string"], "format": "date-time"},
        "day": {"type": ["null", "string"], "format": "date"},
    }
}
ORDERS = StreamId("shop", "orders")


def config(**given: Any) -> Config:
    return Config.parse(options(table_type="HIVE", **given))


def layout(given: Config, stream: StreamId = ORDERS, schema: Mapping[str, Any] = SCHEMA) -> TableLayout:
    """Return the layout of a stream whose cursor is `created_at`."""
    naming = TableNaming.from_config(given)
    configured = Stream(stream, schema, False, None, None, None, ("created_at",))
    return TableLayout(
        configured, given, TableLocation.for_stream(given, stream, naming.table_of(stream), naming.naming)
    )


def columns(given: Config, schema: Mapping[str, Any] = SCHEMA) -> tuple[Field, ...]:
    return stream_columns(schema, NumericTypes(given.numeric_types), TableNaming.from_config(given).naming)


def keys(
    given: Config,
    rows: Sequence[Mapping[str, Any]],
    stream: StreamId = ORDERS,
    schema: Mapping[str, Any] = SCHEMA,
) -> list[str]:
    """Return the key of the folder of each row: of a record's values, and of the time at which it was extracted."""
    table = layout(given, stream, schema)
    root = table.location.folder.removeprefix(f"s3://{given.bucket_name}/")
    folders = table.hive_folders(columns(given, schema))
    if folders is None or not folders.keys:
        return [root] * len(rows)
    values = []
    for key in folders.keys:
        [name] = key.field.source
        [column] = [candidate for candidate in (*METADATA_COLUMNS, *columns(given, schema)) if candidate.name == name]
        source = [row.get(name if name == EXTRACTED_AT else column.source) for row in rows]
        sent = [None if value is None else coerce_value(json.dumps(value).encode(), column.type)[0] for value in source]
        values.append(transformed(pa.array(sent, arrow_type(column.type)), key.field.transform).to_pylist())
    return [f"{root}/{folders.folder(row_values)}" for row_values in zip(*values, strict=True)]
