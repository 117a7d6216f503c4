"""Convert JSON schemas to column types.

The conversion has two steps. The first step converts a schema to a `Shape`, which describes the allowed values of each
JSON type. In the following table, a *kind* is a JSON type. The keywords of a schema combine shapes by these rules:

| keyword | rule |
|---|---|
| `type`, `format`, `airbyte_type` | the kinds of values and their column types; `null` only makes a column nullable |
| `enum`, `const` without `type` | the kinds of the values |
| `$ref`, `$dynamicRef`, `$recursiveRef` | the referenced schema; any value if unresolvable or recursive |
| `allOf` | intersection of kinds, union of properties |
| `oneOf`, `anyOf` | union of kinds and of properties |
| `then`, `else`, `dependentSchemas`, `dependencies` | like a union with a schema that allows any value |
| these keywords next to a `type` or a `$ref` | properties and items are added, the kinds stay |

The second step converts the shape to a column type. If the shape allows values of only one kind, the column has the
type for this kind. In the following cases, the column stores JSON text:

- The shape allows values of several kinds.
- The shape allows objects, and the schema declares no properties.
- The shape allows arrays, and the schema declares no items.
- The shape is a union of different objects, and the schema declares no properties next to the union.
- The schema exceeds the limits below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial, reduce
from typing import TypeGuard, cast
from urllib.parse import unquote

from destination_datalake.schema.names import SNAKE_CASE, Naming
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
    NumericTypes,
    String,
    Struct,
    Timestamp,
)

INTEGER: Mapping[NumericTypes, ColumnType] = {
    NumericTypes.INT_FLOAT: Int32(),
    NumericTypes.BIGINT_DOUBLE: Int64(),
    NumericTypes.INT_DECIMAL: Int32(),
    NumericTypes.DECIMAL: Decimal(38, 0),
}
NUMBER: Mapping[NumericTypes, ColumnType] = {
    NumericTypes.INT_FLOAT: Float32(),
    NumericTypes.BIGINT_DOUBLE: Float64(),
    NumericTypes.INT_DECIMAL: Decimal(38, 18),
    NumericTypes.DECIMAL: Decimal(38, 18),
}

WELL_KNOWN: Mapping[str, Mapping[str, object]] = {
    "String": {"type": "string"},
    "BinaryData": {"type": "string"},
    "Date": {"type": "string", "format": "date"},
    "TimestampWithTimezone": {"type": "string", "format": "date-time"},
    "TimestampWithoutTimezone": {
        "type": "string",
        "format": "date-time",
        "airbyte_type": "timestamp_without_timezone",
    },
    "TimeWithTimezone": {"type": "string"},
    "TimeWithoutTimezone": {"type": "string"},
    "Number": {"type": "number"},
    "Integer": {"type": "integer"},
    "Boolean": {"type": "boolean"},
}
"""Maps each type of protocol v1 (`WellKnownTypes.json#/definitions/…`) to the equivalent schema in protocol v0."""

MAX_COLUMN_SCHEMAS = 50_000
"""Maximum number of schemas in a column, including nested ones. A larger struct type would be too long for Glue."""

MAX_STREAM_SCHEMAS = 100_000
"""Maximum number of schemas in a stream, including nested ones. The connector parses this number in a few seconds."""

# Maximum numbers of enclosing structs and lists, and of enclosing schemas. Real sources stay below these limits.
# Parquet readers and Python's stack would fail only at higher values.
_MAX_DEPTH = 64
_MAX_STEPS = 140

_WELL_KNOWN_REFERENCE = "WellKnownTypes.json#/definitions/"
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_UNIONS = ("oneOf", "anyOf")
_CONDITIONAL = ("dependentSchemas", "dependencies")
_COMBINING = {"allOf", *_UNIONS, "if", *_CONDITIONAL, "enum", "const"}
_ITEMS = ""
"""The key in `Nest.members` that stands for the items of an array."""


class Untyped(Enum):
    """How to derive a column type from enumerated values without a `type`, and from the branches of a union."""

    INFER = auto()
    JSON_TEXT = auto()
    """Use JSON text, as in tables that earlier versions of the connector created."""


@dataclass(frozen=True, slots=True)
class Nest:
    """The objects or arrays that a schema allows, described by the shapes of their members.

    `members` maps each declared property of an object to its shape. For an array, `members` has one entry for all
    items. If `members` is empty, the schema allows any member. `varies` is True if the schema is a union whose branches
    declare different members.
    """

    members: Mapping[str, Shape]
    varies: bool = False


Shape = Mapping[str, ColumnType | Nest]
"""The values that a schema allows, except null.

Maps each allowed JSON type to a column type, or to the members of the allowed objects or arrays. Integers belong to the
JSON type `number`.
"""

_ANY_VALUE: Shape = {"boolean": Json(), "number": Json(), "string": Json(), "object": Nest({}), "array": Nest({})}
_KINDS = {**{kind: kind for kind in _ANY_VALUE}, "integer": "number", "int": "number"}


def column_type(
    json_schema: object,
    numeric: NumericTypes,
    root: object = None,
    naming: Naming = SNAKE_CASE,
    untyped: Untyped = Untyped.INFER,
) -> ColumnType:
    """Return the column type for a property's JSON schema.

    Returns `Json` for unsupported schemas. If a part of a schema refers to a schema that encloses it, the type of this
    part is `Json`. `root` is the document to which references of the form `#/…` refer, such as the stream's schema. The
    default is `json_schema`. `naming` contains the rules for the names of struct fields.
    """
    reader = _Reader(json_schema if root is None else root, numeric, naming, untyped)
    return reader.type_of(reader.read_column(json_schema, reader.scope))


def property_types(
    json_schema: Mapping[str, object],
    numeric: NumericTypes,
    naming: Naming = SNAKE_CASE,
    untyped: Untyped = Untyped.INFER,
) -> dict[str, ColumnType]:
    """Return a dict from the key of each property that a stream's schema declares to the property's column type.

    Includes the properties in referenced schemas, and in subschemas such as the branches of `oneOf`. Returns an empty
    dict if the schema declares no properties, or contains more than MAX_STREAM_SCHEMAS schemas.
    """
    reader = _Reader(json_schema, numeric, naming, untyped)
    try:
        records = reader.read_root(json_schema)
    except _TooManySchemas:
        return {}
    return {source: reader.type_of(member) for source, member in records.members.items()}


class _TooManySchemas(Exception):
    """A column or stream contains more schemas than allowed, including referenced schemas."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """The position of a schema in its document.

    `root` is the resource to which relative references in the schema refer. `seen` contains the references that the
    reader has followed to reach this schema. `depth` is the number of enclosing structs and lists, and `steps` is the
    number of enclosing schemas.
    """

    root: object
    seen: frozenset[tuple[int, str]] = frozenset()
    depth: int = 0
    steps: int = 0


class _Reader:
    """A converter from the schemas of one document to shapes and column types."""

    def __init__(self, document: object, numeric: NumericTypes, naming: Naming, untyped: Untyped) -> None:
        self.scope = _Scope(document)
        self._numeric = numeric
        self._naming = naming
        self._infers = untyped is Untyped.INFER
        self._extend = partial(_extend, opens=self._infers)
        self._remaining_schemas = MAX_STREAM_SCHEMAS
        self._named: Mapping[str, object] | None = None

    def type_of(self, shape: Shape) -> ColumnType:
        """Return the column type that stores the values of a shape."""
        if len(shape) != 1:
            return Json()
        [(kind, type_)] = shape.items()
        if not isinstance(type_, Nest):
            return type_
        if type_.varies or not type_.members:
            return Json()
        if kind == "array":
            return List(self.type_of(type_.members[_ITEMS]))
        names = self._naming.inside.identifiers(tuple(type_.members))
        members = zip(names, type_.members.items(), strict=True)
        return Struct(tuple(Field(name, source, self.type_of(member)) for name, (source, member) in members))

    def read_root(self, schema: Mapping[str, object]) -> Nest:
        """Return the shape of a stream's records, which are objects even if the schema's `type` differs.

        If the schema declares a property outside of all subschemas such as `oneOf`, only this declaration determines
        the JSON types of the property's column. Raises _TooManySchemas if the schema contains too many schemas.
        """
        untyped = {key: value for key, value in schema.items() if key != "type"}
        scope = replace(self.scope, depth=-1)  # The properties are columns, at depth 0.
        # Own declarations decide. The schemas beside them only add columns.
        own, beside = self._own(untyped, scope), self._beside(untyped, scope)
        if reference := _reference_of(schema):
            beside = [self._referenced(reference, scope), *beside]
        columns, extra = own["object"], reduce(self._intersect, beside, _ANY_VALUE).get("object")
        assert isinstance(columns, Nest)
        return _merge_members(columns, extra, self._extend) if isinstance(extra, Nest) else columns

    def read_column(self, schema: object, scope: _Scope) -> Shape:
        """Return the shape of a column's values. If `schema` contains too many schemas, the shape allows any value."""
        # A column that is too large becomes JSON text and must not use up the budget of the columns after it.
        before, self._remaining_schemas = self._remaining_schemas, min(self._remaining_schemas, MAX_COLUMN_SCHEMAS)
        allowed = self._remaining_schemas
        try:
            return self._read(schema, scope)
        except _TooManySchemas:
            return _ANY_VALUE
        finally:
            self._remaining_schemas = before - (allowed - max(self._remaining_schemas, 0))

    def _read(self, schema: object, scope: _Scope) -> Shape:
        self._remaining_schemas -= 1
        if self._remaining_schemas < 0:
            raise _TooManySchemas
        # `false` allows no value (JSON Schema: Boolean schemas).
        if schema is False:
            return {}
        if not _is_object(schema) or scope.depth > _MAX_DEPTH or scope.steps > _MAX_STEPS:
            return _ANY_VALUE
        root = schema if _is_resource(schema) else scope.root
        scope = _Scope(root, scope.seen, scope.depth, scope.steps + 1)
        reference = _reference_of(schema)
        if reference and _WELL_KNOWN_REFERENCE in reference:  # A `type` of protocol v0 may be next to the reference.
            return self._read(WELL_KNOWN.get(reference.partition(_WELL_KNOWN_REFERENCE)[2]), scope)
        if reference and len(schema) == 1:
            return self._referenced(reference, scope)
        own, beside = self._own(schema, scope), self._beside(schema, scope)
        if reference:
            return self._declared(self._referenced(reference, scope), [own, *beside])
        if "type" in schema:
            return self._declared(own, beside)
        return self._untyped(schema, own, beside, scope)

    def _declared(self, declared: Shape, beside: Sequence[Shape]) -> Shape:
        return self._extend(declared, reduce(self._intersect, beside)) if beside else declared

    def _untyped(self, schema: Mapping[str, object], own: Shape, beside: Sequence[Shape], scope: _Scope) -> Shape:
        if not self._infers:
            for key in ("oneOf", "anyOf", "allOf"):
                if isinstance(branches := schema.get(key), list):
                    return self._declared(self._union(branches, scope), [own])
        shape = reduce(self._intersect, beside, own)
        # Formally, a schema with `properties` but without `type` also allows other values than objects. In practice,
        # its author means objects.
        return {"object": shape["object"]} if _has_properties(schema) and shape.keys() == _ANY_VALUE.keys() else shape

    # --- Keywords

    def _own(self, schema: Mapping[str, object], scope: _Scope) -> Shape:
        """Return the shape that `type` and its related keywords declare: `properties`, `items`, `format` and others."""
        if "type" not in schema:
            nested: Shape = {"object": self._object(schema, scope), "array": self._array(schema, scope)}
            text = _string(schema)
            return {**_ANY_VALUE, **nested, "string": Json() if text == String() else text}
        declared = schema["type"]
        # `null` makes a column nullable, and all columns are nullable already.
        names = [name for name in (declared if isinstance(declared, list) else [declared]) if name != "null"]
        if declared == [] or not all(isinstance(name, str) and name in _KINDS for name in names):
            return _ANY_VALUE
        return self._unite({_KINDS[name]: self._of_kind(name, schema, scope)} for name in cast(list[str], names))

    def _of_kind(self, name: str, schema: Mapping[str, object], scope: _Scope) -> ColumnType | Nest:
        match name:
            case "boolean":
                return Boolean()
            case "string":
                return _string(schema)
            case "object":
                return self._object(schema, scope)
            case "array":
                return self._array(schema, scope)
        return self._number(name, schema)

    def _number(self, declared: str, schema: Mapping[str, object]) -> ColumnType:
        match declared, schema.get("airbyte_type"):
            case _, "big_number" | "big_integer":
                return String()
            case "number", airbyte_type if airbyte_type != "integer":
                return NUMBER[self._numeric]
        return INTEGER[self._numeric]

    def _object(self, schema: Mapping[str, object], scope: _Scope) -> Nest:
        properties = schema.get("properties")
        inside = _Scope(scope.root, scope.seen, scope.depth + 1, scope.steps)
        # At depth -1, the properties are columns, each with its own budget of schemas.
        read = self.read_column if scope.depth < 0 else self._read
        return Nest({key: read(value, inside) for key, value in properties.items()} if _is_object(properties) else {})

    def _array(self, schema: Mapping[str, object], scope: _Scope) -> Nest:
        items = schema.get("items")
        if not items or not isinstance(items, list | dict):
            return Nest({})
        inside = _Scope(scope.root, scope.seen, scope.depth + 1, scope.steps)
        prefixes = [*_listed(schema.get("prefixItems")), *filter(_is_object, [schema.get("additionalItems")])]
        declared = self._union(items if isinstance(items, list) else [items], inside)
        first = self._union(prefixes, inside)
        fits = self._includes(declared, first)
        return Nest({_ITEMS: self._extend(declared, first) if fits else self._unite([declared, first])})

    def _beside(self, schema: Mapping[str, object], scope: _Scope) -> list[Shape]:
        """Return the shapes of the subschemas that apply to the same value as `schema`, such as those in `allOf`."""
        if _COMBINING.isdisjoint(schema):
            return []
        every = [self._read(branch, scope) for branch in _listed(schema.get("allOf"))]
        unions = [self._union(branches, scope) for key in _UNIONS if (branches := _listed(schema.get(key)))]
        # A conditional schema applies to some values only, so any other value is allowed as well.
        sometimes = [self._union([True, branch], scope) for branch in _conditional(schema)]
        values = [schema["const"]] if "const" in schema else _listed(schema.get("enum"))
        if self._infers and values and "type" not in schema:
            unions.append(self._unite(map(self._of_value, values)))
        return [*every, *unions, *sometimes]

    def _of_value(self, value: object) -> Shape:
        match value:
            # Before `int`, because Python's `bool` is a subclass of `int`.
            case bool():
                return {"boolean": Boolean()}
            case int():
                return {"number": INTEGER[self._numeric]}
            case float():
                return {"number": NUMBER[self._numeric]}
            case str():
                return {"string": String()}
            case list():
                return {"array": Nest({})}
            case None:
                return {}
        return {"object": Nest({})}

    # --- References

    def _referenced(self, reference: str, scope: _Scope) -> Shape:
        key = (id(scope.root), reference)
        # The referenced schema encloses this reference. No column type can describe such a recursive schema.
        if key in scope.seen:
            return _ANY_VALUE
        target, root = self._resolved(reference, scope.root)
        if target is None:  # A bundled schema with its own `$id` may still refer to the whole document.
            target, root = self._resolved(reference, self.scope.root)
        return self._read(target, _Scope(root, scope.seen | {key}, scope.depth, scope.steps + 1))

    def _resolved(self, reference: str, root: object) -> tuple[object, object]:
        """Return a referenced schema, and the resource that contains it. If it does not exist, the schema is None."""
        address, _, fragment = reference.partition("#")
        if address or fragment[:1] not in ("", "/"):
            if self._named is None:
                self._named = _named_schemas(self.scope.root)
            if fragment[:1] not in ("", "/"):
                return None if address else self._named.get(f"#{fragment}"), root
            root = self._named.get(address)
        target = root
        for step in unquote(fragment).split("/")[1:]:
            # JSON Pointer (RFC 6901): decode `~1` before `~0`, so that `~01` becomes `~1`.
            key = step.replace("~1", "/").replace("~0", "~")
            if _is_object(target):
                target = target.get(key)
            # `isdecimal` and the length exclude texts that `int` would reject or take long to convert.
            elif isinstance(target, list) and key.isdecimal() and len(key) < 9 and int(key) < len(target):
                target = target[int(key)]
            else:
                return None, root
            root = target if _is_object(target) and _is_resource(target) else root
        return target, root

    # --- Shapes

    def _union(self, branches: Iterable[object], scope: _Scope) -> Shape:
        return self._unite(self._read(branch, scope) for branch in branches)

    def _unite(self, shapes: Iterable[Shape]) -> Shape:
        """Return the union of shapes, which allows every value that at least one of the shapes allows."""
        joined: dict[str, ColumnType | Nest] = {}
        for shape in shapes:
            for kind, type_ in shape.items():
                joined[kind] = self._unite_types(kind, joined[kind], type_) if kind in joined else type_
        return joined

    def _unite_types(self, kind: str, left: ColumnType | Nest, right: ColumnType | Nest) -> ColumnType | Nest:
        if isinstance(left, Nest) and isinstance(right, Nest):
            varies = left.varies or right.varies or self.type_of({kind: left}) != self.type_of({kind: right})
            shared_keys = left.members.keys() & right.members.keys()
            shared = {key: self._unite([left.members[key], right.members[key]]) for key in shared_keys}
            return Nest({**left.members, **right.members, **shared}, varies)
        if left == right:
            return left
        types = {cast(ColumnType, left), cast(ColumnType, right)}
        if self._infers and kind == "string" and Json() not in types:
            return String()
        if self._infers and types == {INTEGER[self._numeric], NUMBER[self._numeric]}:
            return NUMBER[self._numeric]
        return Json()

    def _includes(self, left: Shape, right: Shape) -> bool:
        """Return whether the column types of `left` can store all values of `right`.

        Ignores members that only `right` declares.
        """
        return all(kind in left and self._includes_type(kind, left[kind], type_) for kind, type_ in right.items())

    def _includes_type(self, kind: str, left: ColumnType | Nest, right: ColumnType | Nest) -> bool:
        if isinstance(left, Nest) and isinstance(right, Nest):
            shared = left.members.keys() & right.members.keys()
            return all(self._includes(left.members[key], right.members[key]) for key in shared)
        return self._unite_types(kind, left, right) == left

    def _intersect(self, left: Shape, right: Shape) -> Shape:
        """Return the intersection of two shapes. Objects in the intersection have the members of both shapes."""
        return {kind: self._narrower(kind, left[kind], right[kind]) for kind in left if kind in right}

    def _narrower(self, kind: str, left: ColumnType | Nest, right: ColumnType | Nest) -> ColumnType | Nest:
        if isinstance(left, Nest) and isinstance(right, Nest):
            return _merge_members(left, right, self._intersect)
        if right == Json():
            return left
        is_wider = left == Json() or (kind == "string" and left == String())
        return right if is_wider or (left, right) == (NUMBER[self._numeric], INTEGER[self._numeric]) else left


def _extend(declared: Shape, beside: Shape, *, opens: bool) -> Shape:
    """Return the shape `declared`, with the members that `beside` declares for the same JSON types.

    If `opens` is False, do not extend objects and arrays that allow any member, or that are a union of different
    branches.
    """

    def extend(left: ColumnType | Nest, right: ColumnType | Nest) -> ColumnType | Nest:
        is_kept = not opens and isinstance(left, Nest) and (left.varies or not left.members)
        if is_kept or not isinstance(left, Nest) or not isinstance(right, Nest):
            return left
        return _merge_members(left, right, partial(_extend, opens=opens))

    return {kind: extend(type_, beside[kind]) if kind in beside else type_ for kind, type_ in declared.items()}


def _merge_members(left: Nest, right: Nest, combine: Callable[[Shape, Shape], Shape]) -> Nest:
    if not left.members or not right.members:
        return right if not left.members else left
    shared = {key: combine(left.members[key], right.members[key]) for key in left.members if key in right.members}
    return Nest({**left.members, **right.members, **shared}, left.varies and right.varies)


# --- JSON of schemas ------------------------------------------------------------------------------------------------


def _string(schema: Mapping[str, object]) -> ColumnType:
    match schema.get("format"):
        case "date":
            return Date()
        case "date-time":
            return Timestamp(zoned=schema.get("airbyte_type") != "timestamp_without_timezone")
    # Times, base64 and other formats are text.
    return String()


def _is_object(schema: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(schema, dict)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _has_properties(schema: Mapping[str, object]) -> bool:
    return _is_object(properties := schema.get("properties")) and bool(properties)


def _reference_of(schema: Mapping[str, object]) -> str | None:
    return next((value for key in _REFERENCES if isinstance(value := schema.get(key), str)), None)


def _is_resource(schema: Mapping[str, object]) -> bool:
    """Return whether a schema has its own `$id`. References inside such a schema are relative to the schema itself."""
    address = schema.get("$id")
    return isinstance(address, str) and not address.startswith("#")


def _conditional(schema: Mapping[str, object]) -> Iterator[object]:
    """Yield the subschemas that apply only to some values, such as those in `then` and `else`."""
    if "if" in schema:
        yield from (schema[key] for key in ("then", "else") if key in schema)
    for key in _CONDITIONAL:
        if _is_object(by_property := schema.get(key)):
            yield from (schema for schema in by_property.values() if _is_object(schema))


def _named_schemas(document: object) -> Mapping[str, object]:
    """Return a mapping from addresses (`$id`) and anchors (`#…`) to the schemas of a document.

    If several schemas have the same address or anchor, it maps to None.
    """
    named: dict[str, object] = {}
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if _is_object(value):
            waiting += value.values()
            anchors = (f"#{value[key]}" for key in ("$anchor", "$dynamicAnchor") if isinstance(value.get(key), str))
            address = value.get("$id")
            for name in {*anchors, *([address] if isinstance(address, str) else [])}:
                # An ambiguous name resolves to nothing, so the column becomes JSON text.
                named[name] = None if name in named else value
        elif isinstance(value, list):
            waiting += value
    return named
