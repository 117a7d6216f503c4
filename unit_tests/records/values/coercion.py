"""What a coercer makes of a value: kept as it is, or changed in one of three ways."""

from __future__ import annotations

from destination_datalake.records.decoded import ValueChange
from destination_datalake.records.values.registry import coerce_value
from destination_datalake.schema.types import (
    ColumnType,
)

WRONG_TYPE = (ValueChange("", "NULLED", "DESTINATION_SERIALIZATION_ERROR"),)
OUT_OF_RANGE = (ValueChange("", "NULLED", "DESTINATION_FIELD_SIZE_LIMITATION"),)
CUT = (ValueChange("", "TRUNCATED", "DESTINATION_FIELD_SIZE_LIMITATION"),)


def assert_kept(raw: str, column_type: ColumnType, expected: object) -> None:
    value, changes = coerce_value(raw.encode(), column_type)
    assert (value, type(value), changes) == (expected, type(expected), ())
