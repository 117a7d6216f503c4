"""The columns in a Glue table's entry: changed where they must, and otherwise as whoever wrote them left them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from destination_datalake.schema.evolution import AddColumn, SchemaChange, applied
from destination_datalake.schema.glue import glue_type, parse_glue_type
from destination_datalake.schema.types import ColumnType
from destination_datalake.tables.glue.creation import glue_column
from destination_datalake.tables.glue.glue_table import Entry


def columns_of(entry: Entry) -> list[dict[str, Any]]:
    """Return the entry's own list of columns."""
    columns: list[dict[str, Any]] = entry["StorageDescriptor"]["Columns"]
    return columns


def change_columns(entry: Entry, changes: Sequence[SchemaChange]) -> None:
    """Apply changes; order, comments and columns of others stay. A new column's comment is the stream's own name."""
    columns = columns_of(entry)
    before = types_of(entry)
    after = applied(before, changes)
    for column in columns:
        type_ = after[column["Name"]]
        if type_ is not None and type_ != before[column["Name"]]:
            column["Type"] = glue_type(type_)
    for change in changes:
        if isinstance(change, AddColumn) and not change.parent:
            columns.append({**glue_column(change.field)})


def types_of(entry: Entry) -> dict[str, ColumnType | None]:
    """Return the columns' types by name; None where a type is not ours."""
    return {column["Name"]: parse_glue_type(column.get("Type", "")) for column in columns_of(entry)}


def set_types(entry: Entry, types: Mapping[str, ColumnType | None]) -> None:
    """Give columns these types; those that are None, or not named, are not ours to change."""
    for column in columns_of(entry):
        type_ = types.get(column["Name"])
        if type_ is not None and parse_glue_type(column.get("Type", "")) != parse_glue_type(glue_type(type_)):
            column["Type"] = glue_type(type_)
