"""Booleans, strings, and values kept as JSON text."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from destination_datalake.protocol.json_text import NULL, string_or_none
from destination_datalake.records.changes import SERIALIZATION_ERROR, Value, ValueChange, nulled
from destination_datalake.records.values.rules import Parsed, ScalarRules


class BooleanRules(ScalarRules):
    """true and false."""

    native_type = text_type = pa.bool_()
    shape = bool
    canonical = "^(?:true|false)$"

    def parse_json(self, texts: Any) -> Parsed:
        """Return the values of an array of JSON texts; the string "true" is not a boolean."""
        return self.parse_vectorised(texts)

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the boolean that a JSON text is."""
        if raw == b"true":
            return True
        if raw == b"false":
            return False
        return None if raw == NULL else nulled(raw, changes, SERIALIZATION_ERROR)


class StringRules(ScalarRules):
    """The content of a string; of every other value its JSON text."""

    native_type = text_type = pa.string()
    shape = str
    canonical = r"^[^\\]*$"

    def cast(self, texts: Any) -> Any:
        """Return the texts as they are."""
        return texts

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the content of a string without its escapes, or the JSON text of another value."""
        if raw[:1] != b'"':
            return _json_text(raw, changes)
        text = string_or_none(raw)
        return nulled(raw, changes, SERIALIZATION_ERROR) if text is None else text


class JsonTextRules(ScalarRules):
    """The JSON text of a value, exactly as received: Arrow's JSON parser has no type for it."""

    native_type = text_type = None
    shape = Any
    canonical = ""

    def parse_json(self, texts: Any) -> Parsed:
        """Return the texts as they are."""
        return Parsed(texts, None)

    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the JSON text."""
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
