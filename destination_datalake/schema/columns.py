"""The metadata columns of a table, the columns of its stream, and the detection of collisions between their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self

from destination_datalake.schema.evolution import redirected_from
from destination_datalake.schema.json_schema import Untyped, property_types
from destination_datalake.schema.names import METADATA_NAMES, SNAKE_CASE, AssignedNames, Naming, path_of
from destination_datalake.schema.types import (
    ColumnType,
    Field,
    Int64,
    Json,
    List,
    Nested,
    NumericTypes,
    String,
    Struct,
    Timestamp,
)

CHANGE = Struct(
    (
        Field("field", "field", String()),
        Field("change", "change", String()),
        Field("reason", "reason", String()),
    )
)
"""The type of an entry in `_airbyte_meta.changes`: the changed field, the change and its reason (Airbyte protocol)."""

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

WHOLE_RECORD = Field("_airbyte_data", "_airbyte_data", Json(whole=True))
"""The only column of a stream without declared properties. Its name is the same as in Airbyte's raw tables."""

MAX_FLATTEN_DEPTH = 100
"""The maximum value of the option `flatten_max_depth`."""


def stream_columns(
    json_schema: Mapping[str, object],
    numeric: NumericTypes,
    naming: Naming = SNAKE_CASE,
    nested: Nested = Nested.STRUCT,
    flatten_max_depth: int = MAX_FLATTEN_DEPTH,
    untyped: Untyped = Untyped.INFER,
) -> tuple[Field, ...]:
    """Return the columns that a new table has for a stream, in the order of the stream's JSON schema.

    Properties with the name of a metadata column are skipped. A schema without properties results in the single column
    WHOLE_RECORD. `flatten_max_depth`, at least 1, is the number of levels of objects that `Nested.FLATTEN` flattens.
    """
    columns = [
        Field(source, source, type_)
        for source, type_ in property_types(json_schema, numeric, naming, untyped).items()
        if source not in METADATA_NAMES
    ]
    if not columns:
        return (WHOLE_RECORD,)
    match nested:
        case Nested.JSON:
            columns = [
                replace(column, type=Json()) if isinstance(column.type, Struct | List) else column for column in columns
            ]
        case Nested.FLATTEN:
            columns = [leaf for column in columns for leaf in _flattened(column, flatten_max_depth)]
    return assign_names(columns, naming, {})


def _flattened(field: Field, levels: int) -> Iterator[Field]:
    """Yield the field itself or, if it is an object and `levels` is not 0, its flattened fields."""
    if not isinstance(field.type, Struct) or not levels:
        yield field
        return
    for inner in field.type.fields:
        yield from _flattened(replace(inner, parents=field.path), levels - 1)


Names = dict[str, tuple[str, "Names"]]
"""The assigned names of fields, by source: for each field, its name and the `Names` of its nested fields.

Objects in arrays are treated like objects. For a column, the source is its origin (`origin_of`).
"""


@dataclass(frozen=True, slots=True)
class NameRecord:
    """The assigned names of a table's fields, by naming style.

    A field has one name per style, even if its values are stored in several columns of different types.
    """

    by_style: Mapping[str, Names]

    def with_columns(self, columns: Sequence[Field], naming: Naming) -> NameRecord:
        """Return a copy of this record to which the names of a stream's columns and their nested fields were added."""
        own = _added(self.by_style.get(naming.style, {}), [(column.origin, column) for column in columns])
        return NameRecord({**self.by_style, naming.style: own})


NO_RECORD = NameRecord({})


def _added(names: Names, fields: Sequence[tuple[str, Field]]) -> Names:
    return names | {
        source: (field.name, _added(_inside([names], source)[0], [(member.source, member) for member in members]))
        for source, field in fields
        for members in [_struct_fields(field.type)]
    }


def assign_names(
    columns: Sequence[Field],
    naming: Naming,
    existing: Mapping[str, str | None],
    record: NameRecord = NO_RECORD,
    types: Mapping[str, ColumnType | None] = MappingProxyType({}),
) -> tuple[Field, ...]:
    """Return the stream's columns, with the names for them and their nested fields in an existing table.

    Fields keep the names in the table's `record`. `existing` maps the names of the table's columns to their sources, or
    to None if the name is unavailable. `types` maps these names to the columns' types. A field that has a column but is
    not in the record keeps its column, even if a newer field's name collides with it.
    """
    by_style = record.by_style
    levels = [
        by_style.get(naming.style, {}),
        *(names for style, names in by_style.items() if style != naming.style),
    ]
    stored: dict[str, list[ColumnType]] = {}
    for name, type_ in types.items():
        if type_ is not None:
            stored.setdefault(redirected_from(name.lower()) or name.lower(), []).append(type_)
            stored.setdefault(name.lower(), []).append(type_)
    origins = {name: source for source, (name, _) in levels[0].items()}
    redirected = {
        name: None
        for name, source in existing.items()
        if name not in origins and source is not None and source == origins.get(redirected_from(name) or "")
    }
    identifiers = naming.identifiers_of_paths(
        [column.path for column in columns], {**existing, **redirected}, _assigned_names(levels)
    )
    return tuple(
        replace(
            column,
            name=name,
            type=_with_names(column.type, naming.inside, stored.get(name, []), _inside(levels, column.origin)),
        )
        for column, name in zip(columns, identifiers, strict=True)
    )


def _assigned_names(levels: Sequence[Names]) -> AssignedNames:
    """Return the names that the first style has assigned, with the names of all styles as the taken names."""
    own = {source: name for source, (name, _) in levels[0].items()}
    return AssignedNames(own, frozenset(name for names in levels for name, _ in names.values()))


def _inside(levels: Sequence[Names], source: str) -> list[Names]:
    return [names.get(source, ("", {}))[1] for names in levels]


def _with_names(type_: ColumnType, naming: Naming, stored: Sequence[ColumnType], levels: Sequence[Names]) -> ColumnType:
    """Return a type whose fields have their names in a table.

    `stored` are the types of the table's columns that hold the same values.
    """
    if isinstance(type_, List):
        elements = [stored_type.element for stored_type in stored if isinstance(stored_type, List)]
        return List(_with_names(type_.element, naming, elements, levels))
    if not isinstance(type_, Struct):
        return type_
    members = [member for struct in stored if isinstance(struct, Struct) for member in struct.fields]
    assigned, present = _assigned_names(levels), {member.name.lower(): member.source for member in members}
    # Iceberg tables store the sources of members in field docs, so members that are not in the record keep their names.
    documented = {
        member.source: member.name.lower()
        for member in members
        if member.source != member.name
        and member.source not in assigned.names
        and member.name.lower() not in assigned.taken
        and naming.may_name(member.source, member.name.lower())
    }
    assigned = AssignedNames({**documented, **assigned.names}, assigned.taken | {*documented.values()})
    names = naming.identifiers([field.source for field in type_.fields], present, assigned)
    types = {name: [member.type for member in members if member.name.lower() == name] for name in names}
    return Struct(
        tuple(
            replace(field, name=name, type=_with_names(field.type, naming, types[name], _inside(levels, field.source)))
            for field, name in zip(type_.fields, names, strict=True)
        )
    )


def has_whole_record(columns: Sequence[Field]) -> bool:
    """Return whether the columns include WHOLE_RECORD."""
    return any(column.type == WHOLE_RECORD.type for column in columns)


def as_column(name: str, origin: str, type_: ColumnType) -> Field:
    """Return the Field for a column of an existing table.

    `origin` is the text with which the catalog records the column's path (see `origin_of`).
    """
    *parents, source = path_of(origin)
    return Field(name, source, type_, tuple(parents))


def field_at(columns: Sequence[Field], path: Sequence[str]) -> Field | None:
    """Return the column or nested field at a path of names, or None if it does not exist.

    Names are compared case-insensitively. The `path` of the result is the whole path in the records, including the
    parents of flattened objects.
    """
    fields: Sequence[Field] = columns
    parents: tuple[str, ...] = ()
    field: Field | None = None
    for name in path:
        field = next((candidate for candidate in fields if candidate.name.lower() == name.lower()), None)
        if field is None:
            return None
        field = replace(field, parents=(*parents, *field.parents))
        parents = field.path
        fields = field.type.fields if isinstance(field.type, Struct) else ()
    return field


@dataclass(frozen=True, slots=True)
class RecordFields:
    """The fields of records from which columns are read. Objects that are flattened to columns are structs here.

    `positions` contains the position of each column's values in `fields`: the index of a field, followed by the indexes
    of nested fields.
    """

    fields: tuple[Field, ...]
    positions: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, columns: Sequence[Field]) -> Self:
        """Return the fields for a stream's columns. Fields are in the order of the first column read from each."""
        root = _Object(())
        positions = tuple(root.add(column) for column in columns)
        return cls(root.fields(), positions)


class _Object:
    """An object in the records whose fields are columns, or an object that contains such an object."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path
        self._members: list[Field | _Object] = []
        self._objects: dict[str, int] = {}

    def add(self, column: Field) -> tuple[int, ...]:
        """Add a column, and return its position below this object."""
        depth = len(self._path)
        if len(column.parents) == depth:
            self._members.append(column)
            return (len(self._members) - 1,)
        key = column.parents[depth]
        index = self._objects.get(key)
        if index is None:
            index = self._objects[key] = len(self._members)
            self._members.append(_Object((*self._path, key)))
        inner = self._members[index]
        assert isinstance(inner, _Object)
        return (index, *inner.add(column))

    def fields(self) -> tuple[Field, ...]:
        """Return the fields of this object. A nested object's name begins with a dot, unlike any column's name."""
        return tuple(
            Field(f".{index}", member._path[-1], Struct(member.fields()))
            if isinstance(member, _Object)
            else replace(member, parents=())
            for index, member in enumerate(self._members)
        )


@dataclass(frozen=True, slots=True)
class Collision:
    """Several columns or struct fields with the same identifier, or one of them with a reserved identifier.

    `parents` are the sources of the enclosing structs, outermost first.
    """

    parents: tuple[str, ...]
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        columns = ", ".join(f"{field.origin!r} is {field.name}" for field in self.fields)
        return f"in {'.'.join(map(repr, self.parents))} {columns}" if self.parents else columns


def find_collisions(fields: Sequence[Field], naming: Naming, parents: tuple[str, ...] = ()) -> Iterator[Collision]:
    """Yield all collisions of the names that `naming` assigns to columns and to the fields of their structs.

    `parents` are the sources of the enclosing structs. It is empty for columns.
    """
    by_identifier: dict[str, list[Field]] = {}
    for field in fields:
        by_identifier.setdefault(naming.identifier_of_path(field.path), []).append(field)
    for identifier, sharing in by_identifier.items():
        if any(field.name not in (identifier, naming.in_words(field.path)) for field in sharing):
            yield Collision(parents, tuple(sharing))
    for field in fields:
        yield from find_collisions(_struct_fields(field.type), naming.inside, (*parents, field.origin))


def _struct_fields(type_: ColumnType) -> Sequence[Field]:
    match type_:
        case Struct(fields):
            return fields
        case List(element):
            return _struct_fields(element)
    return ()
