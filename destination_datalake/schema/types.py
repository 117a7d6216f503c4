"""The closed set of column types, and the rules that derive them from a stream's JSON schema.

A module for each system (Arrow, Glue, Iceberg) beside this one maps the whole set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeGuard, TypeVar
from urllib.parse import unquote

from destination_datalake.schema.names import SNAKE_CASE, Naming, origin_of


@dataclass(frozen=True, slots=True)
class Boolean:
    """true or false."""


@dataclass(frozen=True, slots=True)
class Int32:
    """A 32-bit integer; can be widened to `Int64`."""


@dataclass(frozen=True, slots=True)
class Int64:
    """A 64-bit integer."""


@dataclass(frozen=True, slots=True)
class Float32:
    """A number that a 32-bit float holds exactly; can be widened to `Float64`."""


@dataclass(frozen=True, slots=True)
class Float64:
    """A number as the nearest 64-bit float (IEEE 754)."""


@dataclass(frozen=True, slots=True)
class Decimal:
    """An exact number of at most `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class String:
    """Text, as received."""


@dataclass(frozen=True, slots=True)
class Json:
    """A value with an open schema, kept as JSON text exactly as received. A string in every catalog."""


@dataclass(frozen=True, slots=True)
class Date:
    """A calendar day."""


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A point in time in microseconds: in UTC if `zoned`, otherwise a local date and time.

    `zoned` is None for an existing column in a catalog that does not distinguish the two, never for a stream's column.
    """

    zoned: bool | None


@dataclass(frozen=True, slots=True)
class Struct:
    """An object with declared properties."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class List:
    """An array whose items have a declared type."""

    element: ColumnType


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a table, or a field of a `Struct`.

    `name` is its identifier in the catalog, `source` its key in the stream's records. If it is a column that is a field
    of an object (`nested: flatten`), `parents` are the keys of the objects around it, the outermost first.
    """

    name: str
    source: str
    type: ColumnType
    parents: tuple[str, ...] = ()

    @property
    def path(self) -> tuple[str, ...]:
        """The keys from the record's data down to the value."""
        return (*self.parents, self.source)

    @property
    def origin(self) -> str:
        """The path as catalogs record it beside the name: a key by itself, several as JSONPath (`$.address.city`)."""
        return origin_of(self.path)


ColumnType = Boolean | Int32 | Int64 | Float32 | Float64 | Decimal | String | Json | Date | Timestamp | Struct | List


class Nested(Enum):
    """What becomes of objects and arrays with a declared schema; the option `nested`."""

    STRUCT = "struct"
    JSON = "json"
    FLATTEN = "flatten"


class NumericTypes(Enum):
    """The initial types of `integer` and `number`; the option `numeric_types`."""

    INT_FLOAT = "int/float"
    BIGINT_DOUBLE = "bigint/double"
    DECIMAL = "decimal"


INTEGER: Mapping[NumericTypes, ColumnType] = {
    NumericTypes.INT_FLOAT: Int32(),
    NumericTypes.BIGINT_DOUBLE: Int64(),
    NumericTypes.DECIMAL: Int64(),
}
NUMBER: Mapping[NumericTypes, ColumnType] = {
    NumericTypes.INT_FLOAT: Float32(),
    NumericTypes.BIGINT_DOUBLE: Float64(),
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
"""Protocol v1's `WellKnownTypes.json#/definitions/…` as schemas of protocol v0."""

_T = TypeVar("_T")
_UNIONS = ("oneOf", "anyOf", "allOf")
_WELL_KNOWN_REFERENCE = "WellKnownTypes.json#/definitions/"
# Deeper than sources nest, and below the limits of Parquet readers and of Python's stack.
_MAX_DEPTH = 64


def column_type(
    json_schema: object,
    numeric: NumericTypes,
    root: object = None,
    naming: Naming = SNAKE_CASE,
) -> ColumnType:
    """Return the column type of one property's JSON schema; `Json` for a schema without a meaning here.

    `root` is the document in which `$ref`s of the form `#/…` are resolved: the stream's schema, by default
    `json_schema` itself. `naming` is the table's. A recursive schema is `Json` where it recurs.
    """
    return _SchemaReader(json_schema if root is None else root, numeric, naming).type_of(json_schema, (), 0)


@dataclass(frozen=True, slots=True)
class _SchemaReader:
    """What stays the same in all schemas inside one schema."""

    root: object
    numeric: NumericTypes
    naming: Naming

    def type_of(self, schema: object, seen: tuple[str, ...], depth: int) -> ColumnType:
        """Return a schema's type. `seen` are the references followed to it, `depth` is that of structs and lists."""
        if not _is_object(schema) or depth > _MAX_DEPTH:
            return Json()
        reference = schema.get("$ref")
        if isinstance(reference, str):  # JSON schema: keywords beside a reference are ignored
            return self._referenced(reference, seen, depth)
        if "type" not in schema:
            return self._untyped(schema, seen, depth)
        declared = schema["type"]
        if isinstance(declared, list):
            declared = _only(name for name in declared if name != "null")
        match declared:
            case "string":
                return _string(schema)
            case "integer" | "int" | "number":
                return self._number(declared, schema)
            case "boolean":
                return Boolean()
            case "object":
                return self._object(schema, seen, depth)
            case "array":
                return self._array(schema, seen, depth)
        return Json()

    def _untyped(self, schema: Mapping[str, object], seen: tuple[str, ...], depth: int) -> ColumnType:
        for key in _UNIONS:
            branches = schema.get(key)
            if isinstance(branches, list):
                return self._union(branches, seen, depth)
        return self._object(schema, seen, depth)

    def _referenced(self, reference: str, seen: tuple[str, ...], depth: int) -> ColumnType:
        _, found, well_known = reference.partition(_WELL_KNOWN_REFERENCE)
        if found:
            return self.type_of(WELL_KNOWN.get(well_known), seen, depth)
        if reference in seen:
            return Json()
        return self.type_of(_resolve(self.root, reference), (*seen, reference), depth)

    def _union(self, branches: Sequence[object], seen: tuple[str, ...], depth: int) -> ColumnType:
        return _only(self.type_of(branch, seen, depth) for branch in branches if not _is_null(branch)) or Json()

    def _number(self, declared: str, schema: Mapping[str, object]) -> ColumnType:
        match declared, schema.get("airbyte_type"):
            case _, "big_number" | "big_integer":
                return String()
            case "number", airbyte_type if airbyte_type != "integer":
                return NUMBER[self.numeric]
        return INTEGER[self.numeric]

    def _object(self, schema: Mapping[str, object], seen: tuple[str, ...], depth: int) -> ColumnType:
        properties = schema.get("properties")
        if not _is_object(properties) or not properties:
            return Json()
        names = self.naming.inside.identifiers(tuple(properties))
        return Struct(
            tuple(
                Field(name, source, self.type_of(property_schema, seen, depth + 1))
                for name, (source, property_schema) in zip(names, properties.items(), strict=True)
            )
        )

    def _array(self, schema: Mapping[str, object], seen: tuple[str, ...], depth: int) -> ColumnType:
        items = schema.get("items")
        if not items or not isinstance(items, list | dict):
            return Json()
        return List(
            self._union(items, seen, depth + 1) if isinstance(items, list) else self.type_of(items, seen, depth + 1)
        )


def _string(schema: Mapping[str, object]) -> ColumnType:
    match schema.get("format"):
        case "date":
            return Date()
        case "date-time":
            return Timestamp(zoned=schema.get("airbyte_type") != "timestamp_without_timezone")
    # Times, base64 and all other formats are text.
    return String()


def _is_object(schema: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(schema, Mapping)


def _is_null(schema: object) -> bool:
    return _is_object(schema) and schema.get("type") in ("null", ["null"])


def _only(values: Iterable[_T]) -> _T | None:
    """Return the value that all `values` are equal to; None if they differ or there are none."""
    remaining = iter(values)
    first = next(remaining, None)
    return first if all(other == first for other in remaining) else None


def _resolve(root: object, reference: str) -> object:
    """Return what a local JSON pointer such as `#/definitions/Address` refers to; None if there is nothing."""
    if not reference.startswith("#"):
        return None
    found = root
    for step in unquote(reference[1:]).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if _is_object(found):
            found = found.get(key)
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found
