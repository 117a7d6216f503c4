"""Columns by which rows may be told apart and ordered, and the few values of each: few, so that keys come back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from unit_tests.laws.dedup.model.versions import Value

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A field of the records: its JSON schema, and its values as readers find them, with the JSON text of each."""

    schema: Schema
    values: Sequence[tuple[Value, str]]

    def value(self, number: int) -> Value:
        return self.values[number % len(self.values)][0]

    def text(self, number: int) -> str:
        return self.values[number % len(self.values)][1]


_NULL: tuple[Value, str] = (None, "null")
INTEGER: Schema = {"type": "integer"}
STRING: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
_DATE: Schema = {**STRING, "format": "date"}
_INSTANT: Schema = {**STRING, "format": "date-time"}
_LOCAL: Schema = {**_INSTANT, "airbyte_type": "timestamp_without_timezone"}

_INTEGERS = Column(INTEGER, [(1, "1"), _NULL, (0, "0"), (-5, "-5"), (2**31, str(2**31)), (-(2**60), str(-(2**60)))])
_NUMBERS = Column(
    NUMBER,
    [
        (0.5, "0.5"),
        _NULL,
        (-0.0, "-0.0"),
        (0.0, "0"),
        (math.nan, '"NaN"'),
        (-math.inf, '"-Infinity"'),
        (0.1, "0.1"),  # As a float it would be another number: the column becomes double.
    ],
)
_TEXTS = Column(
    STRING,
    [
        ("a", '"a"'),
        _NULL,
        ("", '""'),
        ("a\x00", '"a\\u0000"'),
        ("A|1", '"A|1"'),
        ("é😀", '"é😀"'),
        ("null", '"null"'),
        ("x" * 40, f'"{"x" * 40}"'),  # Longer than the bounds that manifests keep.
        ("x" * 39 + "y", f'"{"x" * 39}y"'),
    ],
)
_DAYS = Column(_DATE, [(date(2024, 2, 29), '"2024-02-29"'), _NULL, (date(1969, 12, 31), '"1969-12-31"')])
_INSTANTS = Column(
    _INSTANT,
    [
        (datetime(2024, 1, 1, tzinfo=UTC), '"2024-01-01T00:00:00Z"'),
        _NULL,
        (datetime(2024, 1, 1, tzinfo=UTC), '"2024-01-01T01:00:00+01:00"'),
        (datetime(1960, 1, 1, 0, 0, 0, 1, tzinfo=UTC), '"1960-01-01T00:00:00.000001Z"'),
    ],
)
_LOCALS = Column(
    _LOCAL, [(datetime(2024, 1, 1), '"2024-01-01T00:00:00"'), _NULL, (datetime(1950, 1, 1), '"1950-01-01T00:00:00"')]
)
_FLAGS = Column({"type": "boolean"}, [(True, "true"), _NULL, (False, "false")])
_EXACT = "-12345678901234567.000000000000000001"
_AMOUNTS = Column(
    NUMBER,
    [(Decimal("1.1"), "1.1"), _NULL, (Decimal("1.1"), "1.10"), (Decimal(_EXACT), _EXACT)],
)

KEYS: Mapping[str, Column] = {
    "k_integer": _INTEGERS,
    "k_number": _NUMBERS,
    "k_text": _TEXTS,
    "k_day": _DAYS,
    "k_instant": _INSTANTS,
    "k_local": _LOCALS,
    "k_flag": _FLAGS,
}
CURSORS: Mapping[str, Column] = {
    "c_integer": _INTEGERS,
    "c_number": _NUMBERS,
    "c_text": _TEXTS,
    "c_day": _DAYS,
    "c_instant": _INSTANTS,
}
DELETED_AT = "_ab_cdc_deleted_at"
DELETIONS = Column(STRING, [_NULL, ("2024-01-01T00:00:00Z", '"2024-01-01T00:00:00Z"')])


def columns(decimals: bool) -> dict[str, Column]:
    """Return all columns by name; numbers of keys and cursors are exact ones with `decimals`."""
    by_name = {**KEYS, **CURSORS, DELETED_AT: DELETIONS}
    return {name: _AMOUNTS if decimals and column is _NUMBERS else column for name, column in by_name.items()}
