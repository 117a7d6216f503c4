"""Columns of an Iceberg table that must have a value in every row: no engine would tell of one that is missing."""

from __future__ import annotations

from collections.abc import Collection

from pyiceberg.schema import Schema

from destination_datalake.datafiles import DataFile
from destination_datalake.tables.iceberg_files import footer


def required_besides(schema: Schema, columns: Collection[str]) -> str | None:
    """Return a required column that is none of these, or None."""
    return next((field.name for field in schema.fields if field.required and field.name not in columns), None)


def required_but_null(file: DataFile, schema: Schema) -> str | None:
    """Return a required column that a row of the file has no value for, or None; not one that lies inside another."""
    required = {field.name for field in schema.fields if field.required and field.field_type.is_primitive}
    if not required:
        return None
    metadata = footer(file)
    chunks = (
        metadata.row_group(group).column(column)
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    )
    counts = ((chunk.path_in_schema, chunk.statistics) for chunk in chunks)
    return next((name for name, found in counts if name in required and found and found.null_count), None)
