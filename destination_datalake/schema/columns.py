"""A table's columns: the metadata columns, and the columns of a stream with their unique names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self

from destination_datalake.schema.evolution import redirected_from
from destination_datalake.schema.json_schema import Untyped, property_types
from destination_datalake.schema.names import (
    EXTRACTED_AT,
    GENERATION_ID,
    META,
    METADATA_NAMES,
    RAW_ID,
    SNAKE_CASE,
    AssignedNames,
    Naming,
    path_of,
)
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
"""The type of an element of `_airbyte_meta.changes` (Airbyte protocol): a changed field, the change, and its reason."""

METADATA_COLUMNS = (
    Field(RAW_ID, RAW_ID, String()),
    Field(EXTRACTED_AT, EXTRACTED_AT, Timestamp(zoned=True)),
    Field(
        META,
        META,
        Struct((Field("sync_id", "sync_id", Int64()), Field("changes", "changes", List(CHANGE)))),
    ),
    Field(GENERATION_ID, GENERATION_ID, Int64()),
)
"""The metadata columns, which precede the stream's columns in every table."""

WHOLE_RECORD = Field("_airbyte_data", "_airbyte_data", Json(whole=True))
"""The only data column of a stream whose schema declares no properties. Airbyte's raw tables use the same name."""

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
    """Return the columns of a new table for a stream, in the order of the stream's JSON schema.

    Skips properties that have the name of a metadata column. If the schema declares no other properties, returns only
    WHOLE_RECORD. `flatten_max_depth` (at least 1) is the number of levels of nested objects that `Nested.FLATTEN`
    replaces by columns.
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
    """Yield the fields inside an object, up to `levels` levels deep. Yield a field that is not an object unchanged."""
    if not isinstance(field.type, Struct) or not levels:
        yield field
        return
    for inner in field.type.fields:
        yield from _flattened(replace(inner, parents=field.path), levels - 1)


Names = dict[str, tuple[str, "Names"]]
"""The names that the connector has assigned to fields.

Maps each field's source to a pair: the field's name, and the `Names` of its nested fields. The source of a nested field
is its key in the records. The source of a column is its path in the records, as a string (`origin_of`). If the field is
an array of objects, its nested fields are the fields of these objects.
"""


@dataclass(frozen=True, slots=True)
class NameRecord:
    """The names that the connector has assigned to a table's fields, by naming style.

    For each style, a field has one name, even if several columns of different types store its values.
    """

    by_style: Mapping[str, Names]

    def with_columns(self, columns: Sequence[Field], naming: Naming) -> NameRecord:
        """Return a copy that also contains the names of these columns and of their nested fields."""
        own = _added(self.by_style.get(naming.style, {}), [(column.origin, column) for column in columns])
        return NameRecord({**self.by_style, naming.style: own})


NO_RECORD = NameRecord({})


def _added(names: Names, fields: Sequence[tuple[str, Field]]) -> Names:
    return names | {
        # Names in the record are kept, including those of fields that the stream no longer sends.
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
    """Return the stream's columns with their names in an existing table, including the names of nested fields.

    - `existing` maps the names of the table's columns to their sources, or to None if no field may use the name.
    - `record` contains the names that earlier syncs assigned. Fields keep these names.
    - `types` maps the names of the table's columns to their types, which contain the names of nested fields.

    A field without an entry in `record` keeps its existing column, even if a newer field would have the same name.
    """
    by_style = record.by_style
    # The current style comes first: a field keeps its name in this style, and avoids those of all other styles.
    levels = [
        by_style.get(naming.style, {}),
        *(names for style, names in by_style.items() if style != naming.style),
    ]
    # A redirected column such as `price__string` holds values of the same source, so its struct fields have the same
    # names.
    stored: dict[str, list[ColumnType]] = {}
    for name, type_ in types.items():
        if type_ is not None:
            stored.setdefault(redirected_from(name.lower()) or name.lower(), []).append(type_)
            stored.setdefault(name.lower(), []).append(type_)
    origins = {name: source for source, (name, _) in levels[0].items()}
    # A column for redirected values has the same source as the original one. Without this, the source would get its
    # name.
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
    """Return the names in `levels[0]`, which belong to the current style. The names of all styles count as taken."""
    own = {source: name for source, (name, _) in levels[0].items()}
    return AssignedNames(own, frozenset(name for names in levels for name, _ in names.values()))


def _inside(levels: Sequence[Names], source: str) -> list[Names]:
    return [names.get(source, ("", {}))[1] for names in levels]


def _with_names(type_: ColumnType, naming: Naming, stored: Sequence[ColumnType], levels: Sequence[Names]) -> ColumnType:
    """Return the type with the names that its nested fields have in the table.

    `stored` contains the types of the table's columns for the same source. If a sync redirected values because of a
    type conflict, there are several such columns.
    """
    if isinstance(type_, List):
        elements = [stored_type.element for stored_type in stored if isinstance(stored_type, List)]
        return List(_with_names(type_.element, naming, elements, levels))
    if not isinstance(type_, Struct):
        return type_
    members = [member for struct in stored if isinstance(struct, Struct) for member in struct.fields]
    assigned, present = _assigned_names(levels), {member.name.lower(): member.source for member in members}
    # The doc of a struct field in an Iceberg table contains the field's source. So a field keeps its name even if the
    # record lacks the field.
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
    """Return whether one of the columns stores whole records (`WHOLE_RECORD`)."""
    return any(column.type == WHOLE_RECORD.type for column in columns)


def as_column(name: str, origin: str, type_: ColumnType) -> Field:
    """Return a column of an existing table as a Field.

    `origin` is the path of the column's values in the records, as a string in the catalog (see `origin_of`).
    """
    *parents, source = path_of(origin)
    return Field(name, source, type_, tuple(parents))


def field_at(columns: Sequence[Field], path: Sequence[str]) -> Field | None:
    """Return the column or nested field at a path of names in the catalog, or None if there is none.

    Ignores case. The property `path` of the result is the full path in the records, including the keys of the objects
    that enclose a nested field.
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
    """The fields that a decoder must read from records to fill a stream's columns.

    A flattened object, whose members are separate columns, is one struct in `fields`. For each column, `positions`
    contains the position of its values: the index of a field in `fields`, followed by the indexes of nested fields.
    """

    fields: tuple[Field, ...]
    positions: tuple[tuple[int, ...], ...]

    @classmethod
    def for_columns(cls, columns: Sequence[Field]) -> Self:
        """Return the fields for these columns, in the order of the columns.

        Columns from the same flattened object share one field, at the position of the first of these columns.
        """
        root = _Object(())
        positions = tuple(root.add(column) for column in columns)
        return cls(root.fields(), positions)


class _Object:
    """An object in the records from which flattened columns are read, or that contains such objects."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path
        self._members: list[Field | _Object] = []
        self._objects: dict[str, int] = {}

    def add(self, column: Field) -> tuple[int, ...]:
        """Add a column. Return its position: its index in this object, or in nested objects."""
        depth = len(self._path)
        if len(column.parents) == depth:
            self._members.append(column)
            return (len(self._members) - 1,)
        key = column.parents[depth]
        index = self._objects.get(key)
        if index is None:
            # Members keep the position of their first column, so that `positions` stay valid.
            index = self._objects[key] = len(self._members)
            self._members.append(_Object((*self._path, key)))
        inner = self._members[index]
        assert isinstance(inner, _Object)
        return (index, *inner.add(column))

    def fields(self) -> tuple[Field, ...]:
        """Return the members as fields.

        The name of a nested object's field starts with a dot, so that it differs from the names of columns.
        """
        return tuple(
            Field(f".{index}", member._path[-1], Struct(member.fields()))
            if isinstance(member, _Object)
            else replace(member, parents=())
            for index, member in enumerate(self._members)
        )


@dataclass(frozen=True, slots=True)
class Collision:
    """Fields to which the naming style would give the same name, or one field whose name is reserved.

    `parents` contains the sources of the enclosing structs, outermost first. For columns, `parents` is empty.
    """

    parents: tuple[str, ...]
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        columns = ", ".join(f"{field.origin!r} is {field.name}" for field in self.fields)
        return f"in {'.'.join(map(repr, self.parents))} {columns}" if self.parents else columns


def find_collisions(fields: Sequence[Field], naming: Naming, parents: tuple[str, ...] = ()) -> Iterator[Collision]:
    """Yield the collisions among the names of columns, and among the names of fields in each struct.

    Fields may share an identifier only if each of their names equals the identifier, or equals it with signs spelled
    out as words (`Naming.in_words`). Otherwise, the fields collide. A single field also collides if its identifier is
    reserved and its name fails this test.
    `parents` contains the sources of the enclosing structs. For columns, `parents` is empty.
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
