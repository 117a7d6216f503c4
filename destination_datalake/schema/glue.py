"""Column types in the words of the Glue Data Catalog (Hive's type language), and back."""

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

_PLAIN: Mapping[str, ColumnType] = {
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
_SIGN = re.compile(r"([<>(),:])")
_DECIMAL = re.compile(r"decimal\(([0-9]{1,3})(?:,([0-9]{1,3}))?\)")
_FIELD = re.compile(r"([^:<>,()]+):")


def glue_type(column_type: ColumnType) -> str:
    """The type as Glue and Athena write it, for example `struct<id:bigint,tags:array<string>>`."""
    return GLUE[type(column_type)](column_type)


def describe_type(column_type: ColumnType) -> str:
    """The type in a catalog's words, and where Glue has one word for two, the one that tells them apart."""
    match column_type:
        case Json():
            return "JSON text"
        case Timestamp(zoned=True):
            return "timestamp, UTC"
    return glue_type(column_type)


def parse_glue_type(text: str) -> ColumnType | None:
    """The column type behind a Glue type, or None if this connector never writes it.

    Glue has one word for `String` and `Json`, read as `String`, and one for both kinds of `Timestamp`, read as one that
    may be either; it keeps no sources, so a struct field's source is its name.
    """
    # Blanks mean nothing around a sign. Inside a name, which somebody else has given, they are part of it.
    parser = _Parser("".join(part.strip() for part in _SIGN.split(text.lower())))
    parsed = parser.type()
    if parsed is None or parser.rest:
        return None
    return parsed


class _Parser:
    """Reads one type from the front of `rest`, and leaves the remainder there."""

    def __init__(self, text: str) -> None:
        self.rest = text

    def type(self) -> ColumnType | None:
        if self._take("array<"):
            element = self.type()
            return List(element) if element is not None and self._take(">") else None
        if self._take("struct<"):
            return self._struct()
        if found := _DECIMAL.match(self.rest):
            self.rest = self.rest[found.end() :]
            return Decimal(int(found[1]), int(found[2] or 0))
        word = "".join(takewhile(str.isalpha, self.rest))
        self.rest = self.rest[len(word) :]
        return _PLAIN.get(word)

    def _struct(self) -> Struct | None:
        fields = []
        while found := _FIELD.match(self.rest):
            self.rest = self.rest[found.end() :]
            inner = self.type()
            if inner is None:
                return None
            fields.append(Field(found[1], found[1], inner))
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
