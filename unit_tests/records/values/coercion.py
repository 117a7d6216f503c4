"""What a coercer makes of a value: kept as it is, or changed in one of three ways."""

from __future__ import annotations

from typing import NamedTuple

from destination_datalake.records.decoded import ValueChange
from destination_datalake.records.values.registry import rules_for
from destination_datalake.records.values.rules import Floats, Value, bounded
from destination_datalake.schema.types import ColumnType

WRONG_TYPE = (ValueChange("", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),)
OUT_OF_RANGE = (ValueChange("", "NULLED", "DESTINATION_FIELD_SIZE_LIMITATION"),)
CUT = (ValueChange("", "TRUNCATED", "DESTINATION_FIELD_SIZE_LIMITATION"),)


class Coerced(NamedTuple):
    """A value as its column takes it, and its changes; their paths are relative to the value."""

    value: Value
    changes: tuple[ValueChange, ...]


def coerce_value(raw: bytes, column_type: ColumnType, floats: Floats = Floats.ANY) -> Coerced:
    """What becomes of one JSON text (valid, without white space around it) in a column."""
    changes: list[ValueChange] = []
    value = bounded(rules_for(column_type, floats).coerce)(raw, changes)
    return Coerced(value, tuple(changes))


def assert_kept(raw: str, column_type: ColumnType, expected: object) -> None:
    value, changes = coerce_value(raw.encode(), column_type)
    assert (value, type(value), changes) == (expected, type(expected), ())
