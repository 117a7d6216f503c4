"""The conversion rules for all column types.

This module contains the rules for booleans, strings, JSON text, objects and lists. The modules `numbers` and `temporal`
contain the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from destination_datalake.protocol.json_text import (
    NULL,
    elements_or_none,
    members_or_none,
    string_or_none,
)
from destination_datalake.records.decoded import SERIALIZATION_ERROR, ValueChange
from destination_datalake.records.values.numbers import (
    DecimalRules,
    ExactFloat,
    ExactFloatRules,
    FloatRules,
    IntegerRules,
)
from destination_datalake.records.values.rules import (
    MAX_CHANGES,
    Floats,
    TooManyChanges,
    TypeRules,
    Value,
    nulled,
    prepend_step,
    with_key,
)
from destination_datalake.records.values.temporal import DateRules, TimestampRules
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
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


@lru_cache(maxsize=1024)
def rules_for(type_: ColumnType, floats: Floats) -> TypeRules:
    """Return the conversion rules for a type. They are cached, because rules for nested types are slow to create."""
    if isinstance(type_, ExactFloat):  # This is not a column type, but another way to read a float column.
        return ExactFloatRules(type_, floats)
    return RULES[type(type_)](type_, floats)


# --- Booleans, strings, JSON text -------------------------------------------------------------------------------------


class BooleanRules(TypeRules):
    """Converts JSON values to booleans (see `TypeRules`). Accepts only `true` and `false`."""

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the boolean for `true` or `false`. Any other value becomes null."""
        if raw == b"true":
            return True
        if raw == b"false":
            return False
        return None if raw == NULL else nulled(raw, changes, SERIALIZATION_ERROR)


class StringRules(TypeRules):
    """Converts JSON values to text (see `TypeRules`): a string to its content, any other value to its JSON text."""

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the unescaped content of a JSON string, or the JSON text of any other value."""
        if raw[:1] != b'"':
            return _json_text(raw, changes)
        text = string_or_none(raw)
        return nulled(raw, changes, SERIALIZATION_ERROR) if text is None else text


class JsonTextRules(TypeRules):
    """Converts JSON values to their JSON text, exactly as received (see `TypeRules`)."""

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the JSON text unchanged. Text that is not valid JSON in UTF-8 becomes null."""
        return _json_text(raw, changes)


def _json_text(raw: bytes, changes: list[ValueChange]) -> Value:
    if raw == NULL:
        return None
    try:
        text = raw.decode()
        if b"NaN" in raw or b"Infinity" in raw:
            json.loads(text, parse_int=len, parse_float=len, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return nulled(raw, changes, SERIALIZATION_ERROR)
    return text


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# --- Objects and lists ------------------------------------------------------------------------------------------------


class StructRules(TypeRules):
    """Converts JSON objects to structs (see `TypeRules`). Keys of members become names of fields."""

    def __init__(self, type_: Struct, floats: Floats) -> None:
        super().__init__(type_, floats)
        self._coercers = [
            (field.source, field.name, with_key(field.source, rules_for(field.type, floats).coerce))
            for field in type_.fields
        ]

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the members of an object as a dict, by field name. Missing members are null.

        For duplicate keys, the last one wins.
        """
        if raw == NULL:
            return None
        members = members_or_none(raw)
        if members is None:
            return nulled(raw, changes, SERIALIZATION_ERROR)
        return {name: coercer(members.get(source, NULL), changes) for source, name, coercer in self._coercers}


class ListRules(TypeRules):
    """Converts JSON arrays to lists (see `TypeRules`). All elements get the same type."""

    def __init__(self, type_: List, floats: Floats) -> None:
        super().__init__(type_, floats)
        self._coerce_element = rules_for(type_.element, floats).coerce

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the elements of an array. Raises TooManyChanges after MAX_CHANGES changes in the record."""
        if raw == NULL:
            return None
        elements = elements_or_none(raw)
        if elements is None:
            return nulled(raw, changes, SERIALIZATION_ERROR)
        coerce = self._coerce_element
        values: list[Value] = []
        for i, element in enumerate(elements):
            before = len(changes)
            values.append(coerce(element, changes))
            if len(changes) != before:
                if len(changes) > MAX_CHANGES:
                    raise TooManyChanges
                prepend_step(str(i), changes, before)
        return values


# --- The table --------------------------------------------------------------------------------------------------------

RULES: Mapping[type[ColumnType], Callable[[Any, Floats], TypeRules]] = {
    Boolean: BooleanRules,
    Int32: IntegerRules,
    Int64: IntegerRules,
    Float32: FloatRules,
    Float64: FloatRules,
    Decimal: DecimalRules,
    String: StringRules,
    Json: JsonTextRules,
    Date: DateRules,
    Timestamp: TimestampRules,
    Struct: StructRules,
    List: ListRules,
}
