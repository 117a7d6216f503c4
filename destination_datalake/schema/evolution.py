"""Compute the changes that a table needs before a sync can write a stream to the table.

A change never drops, renames or narrows a column. The package `tables` applies the changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from destination_datalake.schema.glue import glue_type
from destination_datalake.schema.names import bounded
from destination_datalake.schema.types import (
    ColumnType,
    Decimal,
    Field,
    Float32,
    Float64,
    Int32,
    Int64,
    Json,
    List,
    String,
    Struct,
    Timestamp,
)

Path = tuple[str, ...]
"""The name of a column, followed by the names that lead to a nested field. `ELEMENT` stands for a list's elements."""

ELEMENT = "element"

_INT64_DIGITS = 19

WIDER: Mapping[ColumnType, ColumnType] = {Int32(): Int64(), Float32(): Float64()}
"""Maps a type to the wider type that stores its values without loss. Decimals can also be widened, to more digits."""

# Maps the suffix of a column for redirected values to the suffixes that an earlier sync may have used for the same
# values, with another value of the option `numeric_types`.
_RELATED: Mapping[str, Sequence[str]] = {
    "int": ("bigint", "decimal"),
    "bigint": ("int", "decimal"),
    "decimal": ("bigint", "int"),
    "float": ("double",),
    "double": ("float",),
}


_REDIRECTED = re.compile(
    r"(?P<column>.+)__(boolean|int|bigint|float|double|decimal|string|date|timestamp|json|list|struct)"
)


@dataclass(frozen=True, slots=True)
class AddColumn:
    """The addition of a column at the end of the table, or of a field at the end of the struct at the path `parent`.

    If the field becomes a column, `parent` is empty.
    """

    parent: Path
    field: Field

    @property
    def path(self) -> Path:
        """The path of the added column or field."""
        return (*self.parent, self.field.name)


@dataclass(frozen=True, slots=True)
class Widen:
    """The change of the column or field at `path` to the wider type `type`. The stored values stay the same."""

    path: Path
    type: ColumnType


SchemaChange = AddColumn | Widen


@dataclass(frozen=True, slots=True)
class Evolution:
    """The `changes` that a table needs, in order, and the stream's `columns` with the names and types to write."""

    changes: tuple[SchemaChange, ...]
    columns: tuple[Field, ...]


def evolve(table: Mapping[str, ColumnType | None], stream: Sequence[Field]) -> Evolution:
    """Return the changes that `table` needs before a sync can write the columns of `stream` to it.

    `table` maps column names to types, or to None for types that this connector never writes. Rules:

    - If the table lacks a column, add the column at the end.
    - If a column is narrower than the stream's values, widen the column. If a column is wider, keep it unchanged.
    - If the stream sends integers of any size (`decimal(38,0)`) for an integer column, write them as `bigint`, because
      Iceberg cannot convert an integer column to decimal.
    - If the types are incompatible, redirect the values to a column `<name>__<type>`. The original column stays, and is
      null in new rows. A conflict inside a struct or list redirects the whole column.
    - A text column accepts text and JSON text. If the catalog does not distinguish timestamps with and without time
      zone, a timestamp column accepts both.
    - Ignore case when comparing names, as Glue, Athena and Spark do. Keep the table's spelling.
    """
    spelling = {name.lower(): name for name in table}
    fields = [replace(field, name=spelling.get(field.name.lower(), field.name)) for field in stream]
    # Names of all fields, so that a redirected column of one field does not take the name of another.
    claimed = {field.name for field in fields}
    changes: list[SchemaChange] = []
    columns: list[Field] = []
    for field in fields:
        column, needed = _target_column(table, field, claimed)
        claimed.add(column.name)
        changes += needed
        columns.append(column)
    return Evolution(tuple(changes), tuple(columns))


def apply_changes(
    table: Mapping[str, ColumnType | None], changes: Iterable[SchemaChange]
) -> dict[str, ColumnType | None]:
    """Return the table's columns after `changes`. New columns come last."""
    columns = dict(table)
    for change in changes:
        name, *inside = change.path
        column = columns.get(name)
        if column is not None:
            columns[name] = _changed(column, change, tuple(inside))
        elif isinstance(change, AddColumn) and not change.parent:
            columns[name] = change.field.type
    return columns


def _target_column(
    table: Mapping[str, ColumnType | None], field: Field, claimed: set[str]
) -> tuple[Field, Sequence[SchemaChange]]:
    """Return the column that will store a field's values, and the changes that the table needs for this column."""
    name = field.name
    # A redirected column may have another type too, for example in a struct. Then redirect once more, to a longer name.
    while name in table or (name != field.name and name in claimed):
        common = _common_supertype(table.get(name), field.type, (name,))
        if common and (name == field.name or name not in claimed):
            return replace(field, name=name, type=common.type), common.changes
        name = _redirected(table, name, field.type, claimed)
    column = replace(field, name=name)
    return column, [AddColumn((), column)]


def redirect_suffix(column_type: ColumnType) -> str:
    """Return the suffix in the name `<column>__<suffix>` of a column for redirected values of this type.

    The suffix is the type's name in Glue, such as `bigint`. Exceptions: `json` for JSON text, and `list` for arrays.
    """
    match column_type:
        case Json():
            return "json"
        case List():
            return "list"
    return re.split(r"[(<]", glue_type(column_type), maxsplit=1)[0]


def redirected_from(column: str) -> str | None:
    """Return the column from which a sync may have redirected values to `column`, or None.

    Returns None if the name `column` does not end with a suffix of `redirect_suffix`, or if the connector has truncated
    the name to Glue's maximum length.
    """
    match = _REDIRECTED.fullmatch(column)
    return match["column"] if match else None


def _redirected(table: Mapping[str, ColumnType | None], name: str, column_type: ColumnType, claimed: set[str]) -> str:
    """Return the name of the column that stores redirected values of this type.

    The name is `<name>__<type>`. If the table lacks this column, it may have a related column that can store the values
    too, such as `<name>__decimal` for integers. An earlier sync with another value of the option `numeric_types` has
    created such a column. In this case, return the name of the related column.
    """
    suffix = redirect_suffix(column_type)
    # Glue limits the length of names, so the name may be truncated and hashed.
    target, *related_targets = (
        bounded(f"{name.lower()}__{kind}", f"{name}__{kind}") for kind in (suffix, *_RELATED.get(suffix, ()))
    )
    if target not in table:
        for related in related_targets:
            if related not in claimed and _common_supertype(table.get(related), column_type, (related,)):
                return related
    return target


@dataclass(frozen=True, slots=True)
class _Supertype:
    """The type in which a sync writes a stream's values to a column, and the changes that the table needs for it."""

    type: ColumnType
    changes: tuple[SchemaChange, ...] = ()


def _common_supertype(table: ColumnType | None, stream: ColumnType, path: Path) -> _Supertype | None:
    if table is None:
        return None
    # The table is wider than the stream. It stays as it is, and the writer uses its type.
    if WIDER.get(stream) == table:
        return _Supertype(table)
    if WIDER.get(table) == stream:
        return _Supertype(stream, (Widen(path, stream),))
    match table, stream:
        case (String() | Json(), String() | Json()) | (Timestamp(zoned=None), Timestamp()):
            return _Supertype(stream)
        # Decide for `bigint`, the widest type to which an integer column can change (Iceberg spec: Schema Evolution).
        case Int32() | Int64(), Decimal(scale=0):  # An integer column cannot be changed to a decimal column.
            return _common_supertype(table, Int64(), path)
        # A decimal column with 19 digits stores every 64-bit integer.
        case Decimal(scale=0), Int32() | Int64() if table.precision >= _INT64_DIGITS:
            return _Supertype(table)
        # Iceberg can add digits to a decimal, but not change its scale (Iceberg spec: Schema Evolution).
        case Decimal(), Decimal() if table.scale == stream.scale:
            is_wide = table.precision >= stream.precision
            return _Supertype(table) if is_wide else _Supertype(stream, (Widen(path, stream),))
        case List(), List():
            common = _common_supertype(table.element, stream.element, (*path, ELEMENT))
            return common and _Supertype(List(common.type), common.changes)
        case Struct(), Struct():
            return _common_struct(table, stream, path)
    return _Supertype(stream) if table == stream else None


def _common_struct(table: Struct, stream: Struct, path: Path) -> _Supertype | None:
    existing = {field.name.lower(): field for field in table.fields}
    fields: list[Field] = []
    changes: list[SchemaChange] = []
    for field in stream.fields:
        own = existing.get(field.name.lower())
        if own is None:
            fields.append(field)
            changes.append(AddColumn(path, field))
            continue
        common = _common_supertype(own.type, field.type, (*path, own.name))
        if common is None:
            return None
        fields.append(replace(field, name=own.name, type=common.type))
        changes += common.changes
    return _Supertype(Struct(tuple(fields)), tuple(changes))


def _changed(column_type: ColumnType, change: SchemaChange, inside: Path) -> ColumnType:
    """Return the type after a change. `inside` is the part of the change's path that is below this type."""
    match column_type, inside:
        case _, ():
            return change.type if isinstance(change, Widen) else column_type
        case List(element), (_, *rest):
            return List(_changed(element, change, tuple(rest)))
        case Struct(fields), (step, *rest):
            if isinstance(change, AddColumn) and not rest and all(field.name != step for field in fields):
                return Struct((*fields, change.field))
            return Struct(
                tuple(
                    replace(field, type=_changed(field.type, change, tuple(rest))) if field.name == step else field
                    for field in fields
                )
            )
    return column_type
