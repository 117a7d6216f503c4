"""The columns of a stream's table: the metadata columns, then the stream's own, and names that collide among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from destination_datalake.schema.names import METADATA_NAMES, SNAKE_CASE, Naming
from destination_datalake.schema.types import (
    ColumnType,
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
"""One entry of `_airbyte_meta.changes`: a value that could not be kept as it was, and why (Airbyte protocol)."""

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
"""The first columns of every table."""


def stream_columns(
    json_schema: Mapping[str, object],
    numeric: NumericTypes,
    naming: Naming = SNAKE_CASE,
) -> tuple[Field, ...]:
    """Return the stream's own columns in a new table, in the order of its JSON schema.

    Properties with the name of a metadata column are left out. A schema without properties has no columns.
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


def assign_names(columns: Sequence[Field], naming: Naming, existing: Mapping[str, str]) -> tuple[Field, ...]:
    """Return the stream's columns under their names in an existing table; `existing` has its sources by column name.

    A field keeps the column that it has, even if the name of a newer field collides with its own. Fields inside structs
    keep their names: catalogs do not record their sources.
    """
    names = naming.identifiers([column.source for column in columns], existing)
    return tuple(replace(column, name=name) for column, name in zip(columns, names, strict=True))


@dataclass(frozen=True, slots=True)
class Collision:
    """Fields of one object that have the same identifier, or one whose identifier is reserved.

    `parents` are the sources of the structs around them, the outermost first.
    """

    parents: tuple[str, ...]
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        columns = ", ".join(f"{field.source!r} is {field.name}" for field in self.fields)
        return f"in {'.'.join(map(repr, self.parents))} {columns}" if self.parents else columns


def find_collisions(columns: Sequence[Field], naming: Naming) -> Iterator[Collision]:
    """Yield every collision among columns named by `naming`, and among the fields of structs inside them."""
    return _collisions(columns, naming, ())


def _collisions(fields: Sequence[Field], naming: Naming, parents: tuple[str, ...]) -> Iterator[Collision]:
    by_identifier: dict[str, list[Field]] = {}
    for field in fields:
        by_identifier.setdefault(naming.identifier(field.source), []).append(field)
    for identifier, sharing in by_identifier.items():
        if any(field.name != identifier for field in sharing):
            yield Collision(parents, tuple(sharing))
    for field in fields:
        yield from _collisions(_struct_fields(field.type), naming.inside, (*parents, field.source))


def _struct_fields(type_: ColumnType) -> Sequence[Field]:
    match type_:
        case Struct(fields):
            return fields
        case List(element):
            return _struct_fields(element)
    return ()
