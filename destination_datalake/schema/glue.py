"""Convert column types to Glue's types and back. Glue's types are strings in Hive's type language."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

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

GLUE: Mapping[type[ColumnType], Callable[[Any], str]] = {
    Boolean: lambda _: "boolean",
    Int32: lambda _: "int",
    Int64: lambda _: "bigint",
    Float32: lambda _: "float",
    Float64: lambda _: "double",
    Decimal: lambda t: f"decimal({t.precision},{t.scale})",
    String: lambda _: "string",
    Json: lambda _: "string",
    Date: lambda _: "date",
    Timestamp: lambda _: "timestamp",
    Struct: lambda t: f"struct<{','.join(f'{field.name}:{glue_type(field.type)}' for field in t.fields)}>",
    List: lambda t: f"array<{glue_type(t.element)}>",
}

_SIMPLE: Mapping[str, ColumnType] = {
    "boolean": Boolean(),
    "int": Int32(),
    "integer": Int32(),
    "bigint": Int64(),
    "float": Float32(),
    "double": Float64(),
    "string": String(),
    "date": Date(),
    "timestamp": Timestamp(zoned=None),
    "decimal": Decimal(10, 0),  # Hive's default
}
_PUNCTUATION = re.compile(r"([<>(),:])")
_DECIMAL = re.compile(r"decimal\(([0-9]{1,3})(?:,([0-9]{1,3}))?\)")
_FIELD = re.compile(r"([^:<>,()]+):")


def glue_type(column_type: ColumnType) -> str:
    """Return the type in the notation of Glue and Athena, such as `struct<id:bigint,tags:array<string>>`."""
    return GLUE[type(column_type)](column_type)


def describe_type(column_type: ColumnType) -> str:
    """Return the type's name for messages and documentation.

    The name is Glue's notation for the type, except for types that Glue does not distinguish from others.
    """
    match column_type:
        case Json():
            return "JSON text"
        case Timestamp(zoned=True):
            return "timestamp, UTC"
    return glue_type(column_type)


def parse_glue_type(text: str) -> ColumnType | None:
    """Return the column type for a type in Glue, or None for a type that this connector never writes.

    Glue's types contain less information than column types:

    - `String` and `Json` have the same type in Glue, for which this function returns `String`.
    - Both kinds of `Timestamp` have the same type in Glue, for which this function returns `Timestamp(None)`.
    - Glue does not store the sources of struct fields. In the result, a field's source equals its name.
    """
    # Spaces next to punctuation are insignificant. Spaces inside a field's name are part of the name.
    parser = _Parser("".join(part.strip() for part in _PUNCTUATION.split(text.lower())))
    parsed = parser.type()
    return None if parser.rest else parsed


class _Parser:
    """A parser for Glue's types. Methods parse the beginning of `rest`, and remove the parsed part from `rest`."""

    def __init__(self, text: str) -> None:
        self.rest = text

    def type(self) -> ColumnType | None:
        if self._take("array<"):
            element = self.type()
            return List(element) if element is not None and self._take(">") else None
        if self._take("struct<"):
            return self._struct()
        if match := _DECIMAL.match(self.rest):
            self.rest = self.rest[match.end() :]
            return Decimal(int(match[1]), int(match[2] or 0))
        # Types with parameters that this module does not parse, such as `varchar(10)`, leave text in `rest`.
        word = "".join(takewhile(str.isalpha, self.rest))
        self.rest = self.rest[len(word) :]
        return _SIMPLE.get(word)

    def _struct(self) -> Struct | None:
        fields = []
        while match := _FIELD.match(self.rest):
            self.rest = self.rest[match.end() :]
            inner = self.type()
            if inner is None:
                return None
            fields.append(Field(match[1], match[1], inner))
            if self._take(">"):
                return Struct(tuple(fields))
            if not self._take(","):
                return None
        return None

    def _take(self, token: str) -> bool:
        if not self.rest.startswith(token):
            return False
        self.rest = self.rest[len(token) :]
        return True
