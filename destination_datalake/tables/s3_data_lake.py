"""Recognises and continues tables that Airbyte's S3 Data Lake destination created in the Glue Data Catalog.

These tables record neither an owner nor a stream, so this module recognises them by their metadata columns. S3 Data
Lake stores numbers as long and double from the start. It stores objects, unions, and arrays without a declared item
type as JSON text, even inside arrays (Airbyte's bulk CDK: AirbyteTypeToIcebergSchema). The module
`tables.iceberg.compatibility` contains the rules that depend on Iceberg's metadata.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.glue import parse_glue_type
from destination_datalake.schema.names import EXTRACTED_AT, Naming
from destination_datalake.schema.types import (
    ColumnType,
    Decimal,
    Field,
    Float32,
    Float64,
    Int64,
    Json,
    List,
    String,
    Struct,
)
from destination_datalake.tables.catalog import is_iceberg
from destination_datalake.tables.naming import TableOwner, outside_warehouse
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from destination_datalake.config.options import Config
    from destination_datalake.protocol.catalog import StreamId

CONNECTOR = "Airbyte's S3 Data Lake destination"
NAMING = "naming.style to preserve"


def is_of_s3_data_lake(glue_table: Mapping[str, Any]) -> bool:
    """Return whether S3 Data Lake created the table, even if this connector has written to it since."""
    parameters: Mapping[str, str] = glue_table.get("Parameters", {})
    columns = glue_table.get("StorageDescriptor", {}).get("Columns", [])
    return (
        is_iceberg(glue_table)
        and TableOwner.load(parameters) is None
        and has_epoch_metadata_columns({column["Name"]: parse_glue_type(column.get("Type", "")) for column in columns})
    )


def table_of(stream: StreamId, config: Config) -> TableName:
    """Return the name of the table that S3 Data Lake creates for a stream.

    If the stream has no namespace, the table is in the configured database.
    """
    namespace = stream.namespace or config.lakeformation_database_name
    return TableName(table_identifier(namespace), table_identifier(stream.name))


def incompatible_options(glue_table: Mapping[str, Any], config: Config) -> Iterator[str]:
    """Yield each reason why a sync with these options would not continue the table.

    Each reason is a clause, followed by a remedy. If `table_prefix` is set, yield nothing, because this option requests
    new tables.
    """
    if config.table_prefix:
        return
    if config.table_type != "ICEBERG":
        yield f"it is an Iceberg table, but table_type is {config.table_type}. Set table_type to ICEBERG"
    location = glue_table.get("StorageDescriptor", {}).get("Location", "")
    if not config.follow_table_location and (problem := outside_warehouse(location, config.uri(""))) is not None:
        yield problem.removesuffix(".")
    if config.naming.style == "snake_case":
        yield (
            "naming.style snake_case gives other tables to streams with capital letters in their names, such as "
            "orderItems. If the connection contains such streams, set naming.style to preserve"
        )


# Columns

EPOCH_METADATA_COLUMNS = tuple(
    replace(column, type=Int64()) if column.name == EXTRACTED_AT else column for column in METADATA_COLUMNS
)
"""The metadata columns of S3 Data Lake's tables. The extraction time is an integer: milliseconds since 1970."""

_BLANKS = re.compile(r"[ \t-\r]+")
_NOT_ASCII_WORD = re.compile("[^A-Za-z0-9_]")


def has_epoch_metadata_columns(existing: Mapping[str, ColumnType | None]) -> bool:
    """Return whether a table has S3 Data Lake's metadata columns. No other Airbyte connector writes such columns."""
    return all(existing.get(column.name) == column.type for column in EPOCH_METADATA_COLUMNS)


def table_identifier(stream: str) -> str:
    """Return S3 Data Lake's name for a stream's table in Glue. S3 Data Lake names databases by the same rule."""
    # Decompose letters with accents, and drop the accents, which Unicode classifies as marks (M).
    plain = "".join(c for c in unicodedata.normalize("NFKD", stream.lower()) if unicodedata.category(c)[0] != "M")
    return _NOT_ASCII_WORD.sub("_", _BLANKS.sub("_", plain))


def column_naming(naming: Naming, existing: Collection[str]) -> Naming:
    """Return naming rules that keep the existing column names of an S3 Data Lake table. New columns follow `naming`.

    By default, S3 Data Lake gives a column exactly the name of the field in the source. One of its options converts
    this name to lower-case ASCII letters, digits and underscores.
    """
    names = {name.lower() for name in existing}

    def spelling(source: str) -> str:
        candidates = (source.lower(), table_identifier(source))
        return next((name for name in candidates if name in names), None) or naming.identifier(source)

    return Naming(naming.style, spelling, naming.spelling_inside)


def inherit_types(
    columns: Sequence[Field], json_schema: Mapping[str, object], existing: Mapping[str, ColumnType | None]
) -> tuple[Field, ...]:
    """Return the stream's columns. An existing column keeps its type if S3 Data Lake derived it from the schema.

    `existing` maps the names of the table's columns to their types.
    """
    types = {name.lower(): type_ for name, type_ in existing.items()}
    properties = json_schema.get("properties")
    schemas = properties if isinstance(properties, Mapping) else {}
    return tuple(
        replace(column, type=_inherited(column.type, types.get(column.name.lower()), schemas.get(column.source)))
        for column in columns
    )


def _inherited(derived: ColumnType, existing: ColumnType | None, schema: object) -> ColumnType:
    match derived, existing:
        case Struct() | List(), String():
            return Json()
        case List(element), List(existing_element):
            return List(_inherited(element, existing_element, None))
        case Decimal(scale=0), Float64():
            return derived  # A double cannot hold all of these integers.
        case Float32() | Float64() | Decimal(), Float64() | Decimal():
            # S3 Data Lake stores primary keys as decimals, because Iceberg does not allow floats as identifier fields.
            return existing
        case String(), Int64() if isinstance(schema, Mapping) and schema.get("airbyte_type") == "big_integer":
            return existing
    return derived
