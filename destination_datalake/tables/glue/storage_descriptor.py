"""Location and columns in a Glue table's storage descriptor (Glue API: StorageDescriptor).

Changes keep what other writers have set: comments, the order of columns, and columns that the stream does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from destination_datalake.aws.address import S3Address
from destination_datalake.schema.columns import as_column
from destination_datalake.schema.evolution import AddColumn, SchemaChange, apply_changes
from destination_datalake.schema.glue import glue_type, parse_glue_type
from destination_datalake.schema.names import comment_of
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.glue.glue_table import TableInput

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import ColumnTypeDef


def table_location(table_input: TableInput) -> str:
    """Return the S3 URI of the table's files, with the scheme `s3` and without a trailing slash."""
    return str(S3Address.parse(table_input["StorageDescriptor"]["Location"])).removesuffix("/")


def storage_column(field: Field) -> ColumnTypeDef:
    """Return a new column; its comment is its origin in the records, if that is spelled differently."""
    comment = {"Comment": comment_of(field.origin)} if field.origin != field.name else {}
    return {"Name": field.name, "Type": glue_type(field.type), **comment}  # type: ignore[typeddict-item]


def column_types(table_input: TableInput) -> dict[str, ColumnType | None]:
    """Return the columns' types by name; None is a type that this connector never writes."""
    return {name: parse_glue_type(type_name) for name, type_name in column_type_names(table_input).items()}


def column_type_names(table_input: TableInput) -> dict[str, str]:
    """Return Glue's names for the columns' types by column name."""
    return {column["Name"]: column.get("Type", "") for column in _columns(table_input)}


def column_sources(table_input: TableInput) -> dict[str, str]:
    """Return the keys in the record that the columns were made for, by column name."""
    return {column["Name"]: column.get("Comment") or column["Name"] for column in _columns(table_input)}


def known_columns(table_input: TableInput) -> tuple[Field, ...]:
    """Return the columns of types that this connector writes, with the keys in the record that they were made for."""
    sources = column_sources(table_input)
    types = column_types(table_input)
    return tuple(as_column(name, sources[name], type_) for name, type_ in types.items() if type_ is not None)


def change_columns(table_input: TableInput, changes: Sequence[SchemaChange]) -> None:
    """Apply changes: add columns at the end, and change the types of existing ones."""
    columns = _columns(table_input)
    before = column_types(table_input)
    after = apply_changes(before, changes)
    for column in columns:
        type_ = after[column["Name"]]
        if type_ is not None and type_ != before[column["Name"]]:
            column["Type"] = glue_type(type_)
    for change in changes:
        if isinstance(change, AddColumn) and not change.parent:
            columns.append({**storage_column(change.field)})


def add_missing_columns(table_input: TableInput, other: TableInput) -> None:
    """Add the columns that `other` has at the end, as it has them."""
    present = {column["Name"].lower() for column in _columns(table_input)}
    _columns(table_input).extend(dict(column) for column in _columns(other) if column["Name"].lower() not in present)


def set_column_types(table_input: TableInput, types: Mapping[str, ColumnType | None]) -> None:
    """Set the types of columns; those that are None or not in `types` stay as they are."""
    for column in _columns(table_input):
        type_ = types.get(column["Name"])
        if type_ is not None and parse_glue_type(column.get("Type", "")) != parse_glue_type(glue_type(type_)):
            column["Type"] = glue_type(type_)


def _columns(table_input: TableInput) -> list[dict[str, Any]]:
    columns: list[dict[str, Any]] = table_input["StorageDescriptor"]["Columns"]
    return columns
