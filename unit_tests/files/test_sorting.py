"""The order of rows: nulls where they are wanted, NaN above all numbers, texts by code point, ties as they were."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.files.sorting import in_order
from destination_datalake.partitioning.spec import Bucket, SortField, SortOrder, Truncate

rows = st.lists(
    st.tuples(
        st.sampled_from([None, math.nan, -math.inf, -1.5, 0.0, 2.0, math.inf]),
        st.sampled_from([None, "", "a", "B", "ä", "\uffff", "\U00010000"]),
    ),
    max_size=12,
)
fields = st.lists(
    st.builds(SortField, st.sampled_from([("number",), ("inside", "text")]), st.booleans(), st.booleans()), max_size=3
)


def table(rows: list[tuple[float | None, str | None]]) -> pa.Table:
    return pa.table(
        {
            "position": pa.array(range(len(rows)), pa.int64()),
            "number": pa.array([number for number, _ in rows], pa.float64()),
            "inside": pa.array([None if text is None else {"text": text} for _, text in rows], TEXT),
        }
    )


TEXT = pa.struct([("text", pa.string())])


def compared(row: tuple[float | None, str | None], field: SortField) -> Any:
    """A key of Python that puts the row where the rule wants it."""
    number, text = row
    null: tuple[int, ...] = (0,) if field.nulls_first else (2,)
    if field.source == ("number",):
        if number is None:
            return null
        sign = 1 if field.ascending else -1
        return (1, sign * math.isnan(number), 0 if math.isnan(number) else sign * number)
    if text is None:
        return null
    points = [ord(character) for character in text]
    return (1, [*points, -1] if field.ascending else [*(-point for point in points), 1])


@given(rows=rows, fields=fields)
def test_rows_are_in_order_and_ties_stay_as_they_were(
    rows: list[tuple[float | None, str | None]], fields: list[SortField]
) -> None:
    expected = sorted(range(len(rows)), key=lambda row: [compared(rows[row], field) for field in fields])

    assert in_order(table(rows), SortOrder(tuple(fields))).column("position").to_pylist() == expected


@pytest.mark.parametrize(
    ("field", "texts"),
    [
        (SortField(("text",), transform=Truncate(1)), ["ab", "aa", "b"]),
        (SortField(("text",), transform=Bucket(1)), ["b", "ab", "aa"]),
        (SortField(("missing",)), ["b", "ab", "aa"]),
    ],
)
def test_rows_are_ordered_by_transformed_values(field: SortField, texts: list[str]) -> None:
    given = pa.table({"text": ["b", "ab", "aa"]})

    assert in_order(given, SortOrder((field,))).column("text").to_pylist() == texts


def test_rows_in_order_are_not_copied() -> None:
    given = pa.table({"number": [None, 1, 1, 2]})

    assert in_order(given, SortOrder((SortField(("number",)),))) is given
