"""The conversion rules for all column types.

This module contains the coercers for booleans, strings, JSON text, objects and lists. A coercer converts a JSON value
to a column type. The modules `numbers` and `temporal` contain the other coercers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from destination_datalake.protocol.json_text import (
    NULL,
    elements_or_none,
    members_or_none,
    string_or_none,
)
from destination_datalake.records.decoded import SERIALIZATION_ERROR, ValueChange
from destination_datalake.records.values.numbers import (
    ExactFloat,
    coerce_exact_float,
    coerce_float,
    coerce_integer,
    decimal_coercer,
)
from destination_datalake.records.values.rules import (
    MAX_CHANGES,
    Coercer,
    Floats,
    TooManyChanges,
    TypeRules,
    Value,
    nulled,
    prepend_step,
    with_key,
)
from destination_datalake.records.values.temporal import coerce_date, timestamp_coercer
from destination_datalake.schema.arrow import arrow_type, widest
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
    """Return the conversion rules for a type. Caches the rules, because rules for nested types are slow to create."""
    # ExactFloat is not a column type, but another way to read a float column.
    is_exact = isinstance(type_, ExactFloat)
    coerce = partial(coerce_exact_float, floats) if is_exact else RULES[type(type_)](type_, floats)
    return TypeRules(arrow_type(widest(type_)), coerce)


# --- Booleans, strings, JSON text -------------------------------------------------------------------------------------


def coerce_boolean(raw: bytes, changes: list[ValueChange]) -> Value:
    """Return the boolean for `true` or `false`, and null for any other value."""
    if raw == b"true":
        return True
    if raw == b"false":
        return False
    return None if raw == NULL else nulled(raw, changes, SERIALIZATION_ERROR)


def coerce_string(raw: bytes, changes: list[ValueChange]) -> Value:
    """Return the unescaped content of a JSON string, or the JSON text of any other value.

    For a string that UTF-8 cannot encode, such as a lone surrogate, returns null.
    """
    if raw[:1] != b'"':
        return coerce_json_text(raw, changes)
    text = string_or_none(raw)
    return nulled(raw, changes, SERIALIZATION_ERROR) if text is None else text


def coerce_json_text(raw: bytes, changes: list[ValueChange]) -> Value:
    """Return the JSON text, exactly as received, or null if the text is not valid JSON in UTF-8."""
    if raw == NULL:
        return None
    try:
        text = raw.decode()
        # Decoders accept these words outside of strings, but JSON does not. All other texts have been checked by the
        # decoder. With `len`, numbers are not converted: `int` rejects more than 4,300 digits.
        if b"NaN" in raw or b"Infinity" in raw:
            json.loads(text, parse_int=len, parse_float=len, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return nulled(raw, changes, SERIALIZATION_ERROR)
    return text


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# --- Objects and lists ------------------------------------------------------------------------------------------------


def struct_coercer(type_: Struct, floats: Floats) -> Coercer:
    """Return the coercer that converts a JSON object to a dict from the names of the struct's fields to values.

    For a field whose key the object lacks, the value is null. If the object contains a key several times, the last
    value wins. For any other JSON value than an object, the coercer returns null.
    """
    coercers = [
        (field.source, field.name, with_key(field.source, rules_for(field.type, floats).coerce))
        for field in type_.fields
    ]

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        if raw == NULL:
            return None
        members = members_or_none(raw)
        if members is None:
            return nulled(raw, changes, SERIALIZATION_ERROR)
        return {name: coercer(members.get(source, NULL), changes) for source, name, coercer in coercers}

    return coerce


def list_coercer(type_: List, floats: Floats) -> Coercer:
    """Return the coercer that converts a JSON array to a list, with all elements converted to the same type.

    For any other JSON value than an array, the coercer returns null. The coercer raises TooManyChanges if an element
    causes a change, and the record then has more than MAX_CHANGES changes.
    """
    coerce_element = rules_for(type_.element, floats).coerce

    def coerce(raw: bytes, changes: list[ValueChange]) -> Value:
        if raw == NULL:
            return None
        elements = elements_or_none(raw)
        if elements is None:
            return nulled(raw, changes, SERIALIZATION_ERROR)
        values: list[Value] = []
        for i, element in enumerate(elements):
            before = len(changes)
            values.append(coerce_element(element, changes))
            if len(changes) != before:
                if len(changes) > MAX_CHANGES:
                    raise TooManyChanges
                prepend_step(str(i), changes, before)
        return values

    return coerce


# --- The table --------------------------------------------------------------------------------------------------------

RULES: Mapping[type[ColumnType], Callable[[Any, Floats], Coercer]] = {
    Boolean: lambda _, __: coerce_boolean,
    Int32: lambda _, __: coerce_integer,
    Int64: lambda _, __: coerce_integer,
    Float32: lambda _, floats: partial(coerce_float, floats),
    Float64: lambda _, floats: partial(coerce_float, floats),
    Decimal: lambda type_, _: decimal_coercer(type_),
    String: lambda _, __: coerce_string,
    Json: lambda _, __: coerce_json_text,
    Date: lambda _, __: coerce_date,
    Timestamp: lambda type_, _: timestamp_coercer(type_),
    Struct: struct_coercer,
    List: list_coercer,
}
