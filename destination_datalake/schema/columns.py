"""The columns of a stream's table: the connector's own first, then the stream's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from destination_datalake.schema.names import METADATA_NAMES, SNAKE_CASE, Naming
from destination_datalake.schema.types import (
    Field,
    Int64,
    List,
    NumericTypes,
    String,
    Struct,
    Timestamp,
    column_type,
)

CHANGE = Struct(
    (
        Field("field", "field", String()),
        Field("change", "change", String()),
        Field("reason", "reason", String()),
    )
)
"""One entry of `_airbyte_meta.changes`: what happened to a value that could not be kept as it was."""

METADATA_COLUMNS = (
    Field("_airbyte_raw_id", "_airbyte_raw_id", String()),
    Field("_airbyte_extracted_at", "_airbyte_extracted_at", Timestamp(zoned=True)),
    Field(
        "_airbyte_meta",
        "_airbyte_meta",
        Struct((Field("sync_id", "sync_id", Int64()), Field("changes", "changes", List(CHANGE)))),
    ),
    Field("_airbyte_generation_id", "_airbyte_generation_id", Int64()),
)
"""The columns that begin every table."""


def stream_columns(
    json_schema: Mapping[str, object],
    numeric: NumericTypes,
    naming: Naming = SNAKE_CASE,
) -> tuple[Field, ...]:
    """The stream's own columns, in the order of its JSON schema.

    A property that bears the name of a metadata column is not a column: those names are the connector's. A schema
    without properties has no columns.
    """
    properties = json_schema.get("properties")
    if not isinstance(properties, Mapping):
        return ()
    columns = {source: schema for source, schema in properties.items() if source not in METADATA_NAMES}
    names = naming.identifiers(tuple(columns))
    return tuple(
        Field(name, source, column_type(schema, numeric, json_schema, naming))
        for name, (source, schema) in zip(names, columns.items(), strict=True)
    )


def renamed(columns: Sequence[Field], naming: Naming, there: Mapping[str, str]) -> tuple[Field, ...]:
    """The stream's columns in a table that has some already: `there` has their sources by their names.

    A field keeps the column that it has, whichever fields have come since whose names meet with its own. Fields inside
    structs are not looked at: catalogs do not say their sources.
    """
    names = naming.identifiers([column.source for column in columns], there)
    return tuple(replace(column, name=name) for column, name in zip(columns, names, strict=True))
