"""Columns of an Iceberg table that must have a value in every row: no engine would tell of one that is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from destination_datalake.files.plan import DataFile


def required_besides(schema: Schema, columns: Collection[str]) -> str | None:
    """Return a required column that is none of these, or None."""
    return next((field.name for field in schema.fields if field.required and field.name not in columns), None)


def required_inside(schema: Schema, columns: Collection[str]) -> str | None:
    """Return the path of a required field in one of these columns whose nulls a file does not count apart, or None.

    Those are fields inside structs and lists, and required structs and lists themselves.
    """
    nested = (field for field in schema.fields if field.name in columns and not field.field_type.is_primitive)
    paths = (path for field in nested for path, found in _within(field, "") if found.required)
    return next(paths, None)


def required_but_null(file: DataFile, schema: Schema) -> str | None:
    """Return a required column that a row of the file has no value for, or None; not one that lies inside another."""
    required = {field.name for field in schema.fields if field.required and field.field_type.is_primitive}
    return min(required & file.with_nulls, default=None)


def _within(field: NestedField, above: str) -> Iterator[tuple[str, NestedField]]:
    path = f"{above}{field.name}"
    yield path, field
    for inner in _inside(field.field_type):
        yield from _within(inner, f"{path}.")


def _inside(type_: IcebergType) -> tuple[NestedField, ...]:
    match type_:
        case StructType(fields=fields):
            return fields
        case ListType():
            return (type_.element_field,)
        case MapType():
            return (type_.value_field,)
    return ()
