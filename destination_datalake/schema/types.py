"""All column types. No other module defines a column type.

The modules `arrow`, `glue` and `iceberg` map each column type to a type of that system. `json_schema` derives column
types from a stream's schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from destination_datalake.schema.names import origin_of


@dataclass(frozen=True, slots=True)
class Boolean:
    """true or false."""


@dataclass(frozen=True, slots=True)
class Int32:
    """A 32-bit integer, which can be widened to 64 bits."""


@dataclass(frozen=True, slots=True)
class Int64:
    """A 64-bit integer."""


@dataclass(frozen=True, slots=True)
class Float32:
    """A number that a 32-bit float represents exactly, which can be widened to 64 bits."""


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
    """A value with an open schema, stored as JSON text exactly as received. A string in every catalog.

    If `whole` is True, the value is the whole record of a stream whose schema declares no properties.
    """

    whole: bool = False


@dataclass(frozen=True, slots=True)
class Date:
    """A calendar day."""


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A timestamp in microseconds: in UTC if `zoned`, otherwise a local date and time.

    If the catalog of an existing table does not distinguish the two kinds, `zoned` is None.
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

    `name` is the field's identifier in the catalog, and `source` is the field's key in the records. For a field of a
    flattened object (`nested: flatten`), `parents` contains the keys of the enclosing objects, outermost first.
    """

    name: str
    source: str
    type: ColumnType
    parents: tuple[str, ...] = ()

    @property
    def path(self) -> tuple[str, ...]:
        """The keys that lead from a record's data to the field's value."""
        return (*self.parents, self.source)

    @property
    def origin(self) -> str:
        """The path as a string in catalogs: a single key unchanged, several keys as JSONPath (`$.address.city`)."""
        return origin_of(self.path)


ColumnType = Boolean | Int32 | Int64 | Float32 | Float64 | Decimal | String | Json | Date | Timestamp | Struct | List


class Nested(Enum):
    """The option `nested`: how a table stores objects and arrays with a declared schema."""

    STRUCT = "struct"
    JSON = "json"
    FLATTEN = "flatten"


class NumericTypes(Enum):
    """The option `numeric_types`: the initial column types for the JSON types `integer` and `number`."""

    INT_FLOAT = "int/float"
    BIGINT_DOUBLE = "bigint/double"
    INT_DECIMAL = "int/decimal"
    DECIMAL = "decimal"
