"""The columns of a stream's table: the metadata columns, then the stream's own, and names that collide among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self

from destination_datalake.schema.evolution import redirected_from
from destination_datalake.schema.json_schema import Untyped, property_types
from destination_datalake.schema.names import METADATA_NAMES, SNAKE_CASE, GivenNames, Naming, path_of
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

WHOLE_RECORD = Field("_airbyte_data", "_airbyte_data", Json(whole=True))
"""The only column of a stream that declares no properties, named as in Airbyte's raw tables."""

HIGHEST_DEPTH = 100
"""The highest value of the option `flatten_max_depth`."""


def stream_columns(
    json_schema: Mapping[str, object],
    numeric: NumericTypes,
    naming: Naming = SNAKE_CASE,
    nested: Nested = Nested.STRUCT,
    flatten_max_depth: int = HIGHEST_DEPTH,
    untyped: Untyped = Untyped.INFER,
) -> tuple[Field, ...]:
    """Return the stream's own columns in a new table, in the order of its JSON schema.

    Properties with the name of a metadata column are left out. A schema without properties has the column WHOLE_RECORD.
    `flatten_max_depth` is how many levels of objects `Nested.FLATTEN` flattens, 1 or more.
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
            columns = [replace(each, type=Json()) if isinstance(each.type, Struct | List) else each for each in columns]
        case Nested.FLATTEN:
            columns = [leaf for column in columns for leaf in _flattened(column, flatten_max_depth)]
    return assign_names(columns, naming, {})


def _flattened(field: Field, levels: int) -> Iterator[Field]:
    """Yield the fields of an object, and of those inside it to so many levels; any other field as it is."""
    if not isinstance(field.type, Struct) or not levels:
        yield field
        return
    for inner in field.type.fields:
        yield from _flattened(replace(inner, parents=field.path), levels - 1)


Names = dict[str, tuple[str, "Names"]]
"""The name that each field has been given, by its source, and the names of the fields inside it.

Objects in arrays are fields like objects. The source of a column is its origin.
"""


@dataclass(frozen=True, slots=True)
class NameRecord:
    """The names that a table's fields have been given, by the style of the naming that gave them.

    A field has one name in all columns that hold its values, whatever their types.
    """

    by_style: Mapping[str, Names]

    def with_columns(self, columns: Sequence[Field], naming: Naming) -> NameRecord:
        """Return the record with the names of a stream's columns, and of the fields inside them."""
        own = _added(self.by_style.get(naming.style, {}), [(column.origin, column) for column in columns])
        return NameRecord({**self.by_style, naming.style: own})


NO_RECORD = NameRecord({})


def _added(names: Names, fields: Sequence[tuple[str, Field]]) -> Names:
    return names | {
        source: (field.name, _added(_inside([names], source)[0], [(each.source, each) for each in members]))
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
    """Return the stream's columns, and the fields inside them, under their names in an existing table.

    Fields keep the names that the table's `record` has. `existing` has the sources of the table's columns by name, None
    for names that no column gets, and `types` their types. A field without a record keeps the column that it has, even
    if the name of a newer field collides with its own.
    """
    by_style = record.by_style
    levels = [by_style.get(naming.style, {}), *(names for style, names in by_style.items() if style != naming.style)]
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
    names = naming.identifiers_of_paths([column.path for column in columns], {**existing, **redirected}, _given(levels))
    return tuple(
        replace(
            column,
            name=name,
            type=_with_names(column.type, naming.inside, stored.get(name, []), _inside(levels, column.origin)),
        )
        for column, name in zip(columns, names, strict=True)
    )


def _given(levels: Sequence[Names]) -> GivenNames:
    """Return the names of this style, the first one; those of all styles are taken."""
    own = {source: name for source, (name, _) in levels[0].items()}
    return GivenNames(own, frozenset(name for names in levels for name, _ in names.values()))


def _inside(levels: Sequence[Names], source: str) -> list[Names]:
    return [names.get(source, ("", {}))[1] for names in levels]


def _with_names(type_: ColumnType, naming: Naming, stored: Sequence[ColumnType], levels: Sequence[Names]) -> ColumnType:
    """Return a type with the names of its fields in a table, which has stored types for the same values."""
    if isinstance(type_, List):
        elements = [each.element for each in stored if isinstance(each, List)]
        return List(_with_names(type_.element, naming, elements, levels))
    if not isinstance(type_, Struct):
        return type_
    members = [member for each in stored if isinstance(each, Struct) for member in each.fields]
    given, present = _given(levels), {member.name.lower(): member.source for member in members}
    # Iceberg has the sources of members that it has no record of.
    documented = {
        member.source: member.name.lower()
        for member in members
        if member.source != member.name
        and member.source not in given.names
        and member.name.lower() not in given.taken
        and naming.may_name(member.source, member.name.lower())
    }
    given = GivenNames({**documented, **given.names}, given.taken | {*documented.values()})
    names = naming.identifiers([each.source for each in type_.fields], present, given)
    types = {name: [member.type for member in members if member.name.lower() == name] for name in names}
    return Struct(
        tuple(
            replace(each, name=name, type=_with_names(each.type, naming, types[name], _inside(levels, each.source)))
            for each, name in zip(type_.fields, names, strict=True)
        )
    )


def has_whole_record(columns: Sequence[Field]) -> bool:
    """Whether records are kept whole."""
    return any(column.type == WHOLE_RECORD.type for column in columns)


def as_column(name: str, origin: str, type_: ColumnType) -> Field:
    """Return a column of an existing table; `origin` is what the catalog records beside its name."""
    *parents, source = path_of(origin)
    return Field(name, source, type_, tuple(parents))


def field_at(columns: Sequence[Field], path: Sequence[str]) -> Field | None:
    """Return the column, or field inside one, at a path of names, which are compared without case; None if none is.

    Its own path is that in the records, as that of a column that was an object's field.
    """
    fields: Sequence[Field] = columns
    parents: tuple[str, ...] = ()
    found: Field | None = None
    for name in path:
        found = next((each for each in fields if each.name.lower() == name.lower()), None)
        if found is None:
            return None
        found = replace(found, parents=(*parents, *found.parents))
        parents = found.path
        fields = found.type.fields if isinstance(found.type, Struct) else ()
    return found


@dataclass(frozen=True, slots=True)
class RecordFields:
    """The fields of records that columns are read from: where objects were flattened, they are structs here.

    `positions` has for each column where its values are: the index of a field, then those of fields inside it.
    """

    fields: tuple[Field, ...]
    positions: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, columns: Sequence[Field]) -> Self:
        """Return the fields for a stream's columns, in the order of the first column of each."""
        root = _Object(())
        positions = tuple(root.add(column) for column in columns)
        return cls(root.fields(), positions)


class _Object:
    """An object of the records, some of whose fields are columns or objects with such fields."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path
        self._members: list[Field | _Object] = []
        self._objects: dict[str, int] = {}

    def add(self, column: Field) -> tuple[int, ...]:
        """Add a column; return its position."""
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
        """Return the fields. The name of an object begins with a dot, which no column's name has."""
        return tuple(
            Field(f".{index}", each._path[-1], Struct(each.fields()))
            if isinstance(each, _Object)
            else replace(each, parents=())
            for index, each in enumerate(self._members)
        )


@dataclass(frozen=True, slots=True)
class Collision:
    """Columns, or fields of one struct, that have the same identifier, or one whose identifier is reserved.

    `parents` are the sources of the structs around them, the outermost first.
    """

    parents: tuple[str, ...]
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        columns = ", ".join(f"{field.origin!r} is {field.name}" for field in self.fields)
        return f"in {'.'.join(map(repr, self.parents))} {columns}" if self.parents else columns


def find_collisions(fields: Sequence[Field], naming: Naming, parents: tuple[str, ...] = ()) -> Iterator[Collision]:
    """Yield every collision among columns named by `naming`, and among the fields of structs inside them.

    `parents` are the sources of the structs around the fields, none around columns.
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
