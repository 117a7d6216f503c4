"""Values of keys and cursors of every type, few of each so that they meet, and what Python makes of them."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

NAN = float("nan")

_FLOATS = [0.0, -0.0, NAN, -NAN, 1.5, -1.5, math.inf, -math.inf]
_TEXTS = [
    "",
    "\0",
    "a",
    "A",
    "a\0",
    "\0a",
    "ä",
    "a\u0308",
    "1",
    "12345678",
    "123456789",
    "x" * 700,
    "x" * 699 + "y",
    "😀",
]
_TIMES = [datetime(1, 1, 1), datetime(1970, 1, 1), datetime(2024, 2, 29, 12, 0, 0, 1), datetime(9999, 12, 31)]

VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [False, True]),
    (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31)]),
    (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63)]),
    (pa.float32(), _FLOATS),
    (pa.float64(), [*_FLOATS, 5e-324]),
    (pa.decimal128(38, 2), [Decimal(number).scaleb(-2) for number in (0, 1, -1, 2**64, -(2**64), 10**37, 2**64 + 1)]),
    (pa.string(), _TEXTS),
    (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(2024, 2, 29)]),
    (pa.timestamp("us"), _TIMES),
    (pa.timestamp("us", "UTC"), [time.replace(tzinfo=UTC) for time in _TIMES]),
]

Column = tuple[pa.DataType, list[Any]]
"""A type, and values of it."""


def arrays(columns: list[Column]) -> list[pa.Array[Any]]:
    return [pa.array(values, type_) for type_, values in columns]


@st.composite
def tables(draw: st.DrawFn, max_columns: int = 3, max_rows: int = 12) -> list[Column]:
    """Columns of any types, all of one length."""
    chosen = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=max_columns))
    rows = draw(st.integers(0, max_rows))
    few = [
        (type_, draw(st.lists(st.sampled_from([None, *values]), min_size=1, max_size=3))) for type_, values in chosen
    ]
    return [(type_, draw(st.lists(st.sampled_from(choices), min_size=rows, max_size=rows))) for type_, choices in few]


def ordered(value: Any) -> tuple[Any, ...]:
    """What is equal, and in order, as values of keys and cursors are."""
    if value is None:
        return (0,)
    if value != value:
        return (1,)
    return (2, value.encode() if isinstance(value, str) else value)


def rows_of(columns: list[Column]) -> list[tuple[Any, ...]]:
    """The rows, as `ordered`."""
    return [tuple(map(ordered, row)) for row in zip(*(values for _, values in columns), strict=True)]
