"""Location and columns in a Glue table's storage descriptor (Glue API: StorageDescriptor).

Changes keep what others have written: comments, the order of the columns, and columns that the stream does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from destination_datalake.aws.address import S3Address
from destination_datalake.schema.evolution import AddColumn, SchemaChange, apply_changes
from destination_datalake.schema.glue import glue_type, parse_glue_type
from destination_datalake.schema.types import ColumnType
from destination_datalake.tables.glue.creation import glue_column
from destination_datalake.tables.glue.glue_table import TableInput


def table_location(entry: TableInput) -> str:
    """Return the S3 URI of the table's files: with the scheme `s3`, and without a slash at the end."""
    return str(S3Address.parse(entry["StorageDescriptor"]["Location"])).removesuffix("/")


def storage_columns(entry: TableInput) -> list[dict[str, Any]]:
    """Return the entry's own list of columns."""
    columns: list[dict[str, Any]] = entry["StorageDescriptor"]["Columns"]
    return columns


def change_columns(entry: TableInput, changes: Sequence[SchemaChange]) -> None:
    """Apply changes; order, comments and columns of others stay. A new column's comment is the stream's own name."""
    columns = storage_columns(entry)
    before = column_types(entry)
    after = apply_changes(before, changes)
    for column in columns:
        type_ = after[column["Name"]]
        if type_ is not None and type_ != before[column["Name"]]:
            column["Type"] = glue_type(type_)
    for change in changes:
        if isinstance(change, AddColumn) and not change.parent:
            columns.append({**glue_column(change.field)})


def column_types(entry: TableInput) -> dict[str, ColumnType | None]:
    """Return the columns' types by name; None where a type is not ours."""
    return {column["Name"]: parse_glue_type(column.get("Type", "")) for column in storage_columns(entry)}


def set_column_types(entry: TableInput, types: Mapping[str, ColumnType | None]) -> None:
    """Give columns these types; those that are None, or not named, are not ours to change."""
    for column in storage_columns(entry):
        type_ = types.get(column["Name"])
        if type_ is not None and parse_glue_type(column.get("Type", "")) != parse_glue_type(glue_type(type_)):
            column["Type"] = glue_type(type_)
