"""What a table must hold after a sync, worked out from the messages and the schema alone.

This is a second opinion: plain Python, written from the protocol's documents, sharing no code with the connector.
A value is taken as its JSON text, because open values are kept exactly as received.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import TypeVar

from integration_tests.acceptance.json_text import elements, members

WRONG_TYPE = "DESTINATION_SERIALIZATION_ERROR"
OUT_OF_RANGE = "DESTINATION_FIELD_SIZE_LIMITATION"

T = TypeVar("T")
Schema = Mapping[str, object]
Change = Mapping[str, str]

_WELL_KNOWN: Mapping[str, Schema] = {
    "String": {"type": "string"},
    "BinaryData": {"type": "string"},
    "Boolean": {"type": "boolean"},
    "Integer": {"type": "integer"},
    "Number": {"type": "number"},
    "Date": {"type": "string", "format": "date"},
    "TimestampWithTimezone": {"type": "string", "format": "date-time"},
    "TimestampWithoutTimezone": {
        "type": "string",
        "format": "date-time",
        "airbyte_type": "timestamp_without_timezone",
    },
    "TimeWithTimezone": {"type": "string", "format": "time"},
    "TimeWithoutTimezone": {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"},
}


@dataclass(frozen=True)
class Row:
    """The columns of one record: its fields' values and the changes that its `_airbyte_meta` must tell of."""

    extracted_at: datetime
    values: Mapping[str, object]
    changes: Sequence[Change]
    rounded: frozenset[str] = frozenset()
    """The fields with numbers that their doubles are not: they cannot be keys."""


def row(data: str, emitted_at: float, schema: Schema) -> Row:
    """Return what a record must become; `data` is its JSON text, `emitted_at` epoch milliseconds, or seconds."""
    given = members(data)
    changes: list[Change] = []
    values = {
        identifier(name): _value(given.get(name, "null"), field, name, changes)
        for name, field in _properties(schema).items()
    }
    # No record was extracted before 1973 by a clock in milliseconds: smaller numbers are seconds.
    milliseconds = emitted_at if emitted_at >= 1e11 else emitted_at * 1000
    rounded = frozenset(
        name
        for name in _properties(schema)
        if isinstance(value := values[identifier(name)], float) and isfinite(value) and _is_rounded(value, given[name])
    )
    return Row(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds), values, changes, rounded)


def columns(schema: Schema) -> list[str]:
    """Return the names of a stream's columns in the schema's order."""
    return [identifier(name) for name in _properties(schema)]


def single_valued(schema: Schema) -> list[str]:
    """Return the names of the fields whose values are neither objects nor arrays with a schema, in its order."""
    return [
        name for name, field in _properties(schema).items() if _resolved(field).get("type") not in ("object", "array")
    ]


def identifier(name: str) -> str:
    """Return the name of a column, table or database: snake_case, latin letters without their diacritics."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain)
    return re.sub(r"[^a-z0-9]+", "_", words.lower())


class _RefusedError(Exception):
    """A value that its column cannot hold; the reason is one of the protocol's."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _value(text: str, schema: object, path: str, changes: list[Change]) -> object:
    if text == "null":
        return None
    try:
        return _read(text, _resolved(schema), path, changes)
    except _RefusedError as refused:
        changes.append({"field": path, "change": "NULLED", "reason": refused.reason})
        return None


def _read(text: str, schema: Schema, path: str, changes: list[Change]) -> object:
    match schema.get("type"), schema.get("format"):
        case "boolean", _:
            _demand(text in ("true", "false"))
            return text == "true"
        case "integer", _:
            return _integer(text)
        case "number", _:
            return _number(text)
        case "string", "date":
            return _parsed(date.fromisoformat, text)
        case "string", "date-time":
            return _timestamp(text, zoned=schema.get("airbyte_type") != "timestamp_without_timezone")
        case "string", _:
            return json.loads(text) if text.startswith('"') else text
        case "array", _:
            _demand(text.startswith("["))
            item = _resolved(schema["items"])
            return [_value(element, item, f"{path}.{i}", changes) for i, element in enumerate(elements(text))]
        case "object", _:
            _demand(text.startswith("{"))
            given = members(text)
            return {
                identifier(name): _value(given.get(name, "null"), field, f"{path}.{name}", changes)
                for name, field in _properties(schema).items()
            }
        case _:
            return text


def _resolved(schema: object) -> Schema:
    """Return the schema with its references followed and its nulls taken out; `{}` stands for every open type."""
    if not isinstance(schema, Mapping):
        # A list of item schemas is a union; a union of one is that one.
        return _resolved(schema[0]) if isinstance(schema, list) and len(schema) == 1 else {}
    if isinstance(reference := schema.get("$ref"), str):
        return _WELL_KNOWN[reference.rsplit("/", 1)[-1]]
    for union in ("oneOf", "anyOf", "allOf"):
        if isinstance(branches := schema.get(union), list):
            real = [branch for branch in branches if branch.get("type") not in ("null", ["null"])]
            return _resolved(real[0]) if len(real) == 1 else {}
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        real_kinds = [word for word in kind if word != "null"]
        kind = real_kinds[0] if len(real_kinds) == 1 else None
    if kind == "number" and schema.get("airbyte_type") == "integer":
        kind = "integer"
    is_open = (kind == "object" and not schema.get("properties")) or (kind == "array" and not schema.get("items"))
    return {} if is_open or kind is None else {**schema, "type": kind}


def _properties(schema: Schema) -> Mapping[str, object]:
    properties = schema.get("properties", {})
    assert isinstance(properties, Mapping)
    return properties


def _integer(text: str) -> int:
    number = _decimal(text)
    _demand(number.is_finite() and number == number.to_integral_value())
    if not -(2**63) <= number < 2**63:
        raise _RefusedError(OUT_OF_RANGE)
    return int(number)


def _number(text: str) -> float:
    number = _decimal(text)
    nearest = float(number)
    if number.is_finite() and nearest in (float("inf"), float("-inf")):
        raise _RefusedError(OUT_OF_RANGE)
    return nearest


def _is_rounded(value: float, text: str) -> bool:
    return _decimal(text) != (Decimal(value) if value.is_integer() else Decimal(repr(value)))


def _decimal(text: str) -> Decimal:
    """Return a number, or the number that a string holds, exactly."""
    _demand(text[0] in '"-0123456789')
    try:
        return Decimal(json.loads(text) if text.startswith('"') else text)
    except InvalidOperation:
        raise _RefusedError(WRONG_TYPE) from None


def _timestamp(text: str, *, zoned: bool) -> datetime:
    moment = _parsed(datetime.fromisoformat, text)
    if not zoned:
        return moment.replace(tzinfo=None)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _parsed(parse: Callable[[str], T], text: str) -> T:
    _demand(text.startswith('"'))
    try:
        return parse(json.loads(text))
    except ValueError:
        raise _RefusedError(WRONG_TYPE) from None


def _demand(condition: bool) -> None:
    if not condition:
        raise _RefusedError(WRONG_TYPE)
