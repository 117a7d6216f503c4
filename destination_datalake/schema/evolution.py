"""How a table must change so that a stream fits into it: compare, decide, and hand the changes over as values.

Nothing here drops, renames or narrows anything. `tables/` applies the changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from destination_datalake.schema.names import bounded
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
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
"""Names from a column down to a place inside it; `ELEMENT` stands for the elements of a list."""

ELEMENT = "element"

WIDER: Mapping[ColumnType, ColumnType] = {Int32(): Int64(), Float32(): Float64()}
"""What a type may become without a single value changing. (Decimals too: more digits before the point.)"""

TYPE_SUFFIX: Mapping[type[ColumnType], str] = {
    Boolean: "boolean",
    Int32: "int",
    Int64: "bigint",
    Float32: "float",
    Float64: "double",
    Decimal: "decimal",
    String: "string",
    Json: "json",
    Date: "date",
    Timestamp: "timestamp",
    Struct: "struct",
    List: "list",
}
"""The last part of `<column>__<type>`, where values go that the table's column cannot hold."""

# Where an earlier sync may have put the same values, when `numeric_types` was another.
_RELATED: Mapping[str, str] = {"int": "bigint", "bigint": "int", "float": "double", "double": "float"}


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new last column (`parent` empty), or a new last field of the struct at `parent`."""

    parent: Path
    field: Field

    @property
    def path(self) -> Path:
        """Where the new column is."""
        return (*self.parent, self.field.name)


@dataclass(frozen=True, slots=True)
class Widen:
    """The column or field at `path` becomes the wider `type`; every value in it stays what it is."""

    path: Path
    type: ColumnType


SchemaChange = AddColumn | Widen


@dataclass(frozen=True, slots=True)
class Evolution:
    """What must happen to the table, in this order, and the stream's columns as they must then be written."""

    changes: tuple[SchemaChange, ...]
    columns: tuple[Field, ...]


def evolve(table: Mapping[str, ColumnType | None], stream: Sequence[Field]) -> Evolution:
    """The changes that let `stream` be written to `table` (its columns by name; None is a type that is not ours).

    A column the table lacks is added at the end. Where the table is narrower it is widened, where it is wider the
    stream is written in the table's type. Where the two cannot meet, the stream's values go to a column
    `<name>__<type>`, and the table's stays as it is, null from now on. A conflict inside a struct or a list is a
    conflict of the whole column. A text column takes text and JSON text alike, because no catalog tells them apart, and
    a timestamp of a catalog that has one word for both kinds takes both. Names are the same whatever the case of their
    letters (Glue, Athena and Spark compare them so); what is there is written as it is spelled there.
    """
    spelled = {name.lower(): name for name in table}
    fields = [replace(field, name=spelled.get(field.name.lower(), field.name)) for field in stream]
    claimed = {field.name for field in fields}
    changes: list[SchemaChange] = []
    columns: list[Field] = []
    for field in fields:
        home = _target_column(table, field, claimed)
        claimed.add(home.column.name)
        changes += home.changes
        columns.append(home.column)
    return Evolution(tuple(changes), tuple(columns))


def widen_columns(columns: Sequence[Field], needs: Mapping[Path, ColumnType]) -> Evolution:
    """The changes that the data needs: each path in `needs` becomes at least the type given for it.

    What is wide enough stays, so the order in which batches report does not matter. Raises ValueError for a path that
    is not there or a type that its values would not survive.
    """
    changes: list[SchemaChange] = []
    wide = list(columns)
    for path, needed in needs.items():
        position = next((i for i, field in enumerate(wide) if path[:1] == (field.name,)), None)
        if position is None:
            raise ValueError(f"there is no column {'.'.join(path)} to widen")
        field = wide[position]
        change = _widening(field.type, needed, path, path[1:])
        if change:
            changes.append(change)
            wide[position] = replace(field, type=_changed(field.type, change, path[1:]))
    return Evolution(tuple(changes), tuple(wide))


def apply_changes(
    table: Mapping[str, ColumnType | None], changes: Iterable[SchemaChange]
) -> dict[str, ColumnType | None]:
    """The table's columns once the changes are made: the same order, new ones last."""
    columns = dict(table)
    for change in changes:
        name, *inside = change.path
        column = columns.get(name)
        if column is not None:
            columns[name] = _changed(column, change, tuple(inside))
        elif isinstance(change, AddColumn) and not change.parent:
            columns[name] = change.field.type
    return columns


@dataclass(frozen=True, slots=True)
class _TargetColumn:
    """The column that takes a field's values, and what must happen for that."""

    column: Field
    changes: tuple[SchemaChange, ...]


def _target_column(table: Mapping[str, ColumnType | None], field: Field, claimed: set[str]) -> _TargetColumn:
    name = field.name
    while name in table or (name != field.name and name in claimed):
        meeting = _common_supertype(table.get(name), field.type, (name,))
        if meeting and (name == field.name or name not in claimed):
            return _TargetColumn(replace(field, name=name, type=meeting.type), meeting.changes)
        name = _redirected(table, name, field.type, claimed)
    column = replace(field, name=name)
    return _TargetColumn(column, (AddColumn((), column),))


def _redirected(table: Mapping[str, ColumnType | None], name: str, column_type: ColumnType, claimed: set[str]) -> str:
    """`<name>__<type>`, or the kindred column that already holds such values."""
    word = TYPE_SUFFIX[type(column_type)]
    own, *kin = (bounded(f"{name.lower()}__{each}", f"{name}__{each}") for each in (word, _RELATED.get(word)) if each)
    for other in kin:
        if own not in table and other not in claimed and _common_supertype(table.get(other), column_type, (other,)):
            return other
    return own


@dataclass(frozen=True, slots=True)
class _Supertype:
    """The type in which a stream's values can be written to a table, and what must happen for that."""

    type: ColumnType
    changes: tuple[SchemaChange, ...] = ()


def _common_supertype(table: ColumnType | None, stream: ColumnType, path: Path) -> _Supertype | None:
    if table is None:
        return None
    if WIDER.get(stream) == table:
        return _Supertype(table)
    if WIDER.get(table) == stream:
        return _Supertype(stream, (Widen(path, stream),))
    match table, stream:
        case (String() | Json(), String() | Json()) | (Timestamp(zoned=None), Timestamp()):
            return _Supertype(stream)
        case Decimal(), Decimal() if table.scale == stream.scale:
            wide = table.precision >= stream.precision
            return _Supertype(table) if wide else _Supertype(stream, (Widen(path, stream),))
        case List(), List():
            meeting = _common_supertype(table.element, stream.element, (*path, ELEMENT))
            return meeting and _Supertype(List(meeting.type), meeting.changes)
        case Struct(), Struct():
            return _common_struct(table, stream, path)
    return _Supertype(stream) if table == stream else None


def _common_struct(table: Struct, stream: Struct, path: Path) -> _Supertype | None:
    there = {field.name.lower(): field for field in table.fields}
    fields: list[Field] = []
    changes: list[SchemaChange] = []
    for field in stream.fields:
        found = there.get(field.name.lower())
        if found is None:
            fields.append(field)
            changes.append(AddColumn(path, field))
            continue
        meeting = _common_supertype(found.type, field.type, (*path, found.name))
        if meeting is None:
            return None
        fields.append(replace(field, name=found.name, type=meeting.type))
        changes += meeting.changes
    return _Supertype(Struct(tuple(fields)), tuple(changes))


def _widening(column_type: ColumnType, needed: ColumnType, path: Path, inside: Path) -> Widen | None:
    match column_type, inside:
        case _, ():
            meeting = _common_supertype(column_type, needed, path)
            if meeting is None or isinstance(needed, Struct | List):
                raise ValueError(f"{'.'.join(path)} is {column_type} and cannot become {needed}")
            return Widen(path, meeting.type) if meeting.changes else None
        case List(element), (step, *rest) if step == ELEMENT:
            return _widening(element, needed, path, tuple(rest))
        case Struct(fields), (step, *rest):
            for field in fields:
                if field.name == step:
                    return _widening(field.type, needed, path, tuple(rest))
    raise ValueError(f"there is no column {'.'.join(path)} to widen")


def _changed(column_type: ColumnType, change: SchemaChange, inside: Path) -> ColumnType:
    """The type after a change at `inside`, the rest of the change's path below this type."""
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
