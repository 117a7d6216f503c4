"""The order of rows: nulls where they are wanted, NaN above all numbers, texts by code point, ties as they were.

Sorting by runs on disk gives what sorting in memory gives.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.files.sorting import MergeSort, in_order
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


# --- Runs on disk


def merged(tables: list[pa.Table], order: SortOrder, run_bytes: int, merged_bytes: int = 1) -> list[pa.Table]:
    sort = MergeSort(order, run_bytes, merged_bytes)
    for part in tables:
        sort.add(part)
    result = list(sort.rows())
    sort.close()
    return result


@given(
    added=st.lists(rows.filter(bool), max_size=6),
    fields=fields.filter(bool),
    run_bytes=st.integers(1, 600),
    merged_bytes=st.integers(1, 600),
)
def test_rows_of_many_runs_are_in_order(added: Any, fields: Any, run_bytes: int, merged_bytes: int) -> None:
    order, tables = SortOrder(tuple(fields), 1), [table(values) for values in added]

    result = pa.concat_tables([table([]), *merged(tables, order, run_bytes, merged_bytes)])

    assert sorted(keys(result)) == sorted(keys(pa.concat_tables([table([]), *tables])))
    assert keys(in_order(result.combine_chunks(), order)) == keys(result)


def keys(table: pa.Table) -> list[str]:
    return [repr((row["number"], row["inside"])) for row in table.to_pylist()]


def numbers(*values: int) -> pa.Table:
    return pa.table({"number": pa.array(values, pa.int64())})


BY_NUMBER = SortOrder((SortField(("number",), ascending=True, nulls_first=True),), 1)


def test_runs_that_follow_each_other_are_read_one_after_the_other() -> None:
    """Data that came in order costs little more than to be copied."""
    tables = merged([numbers(*range(10)), numbers(*range(10, 20)), numbers(*range(20, 30))], BY_NUMBER, 1, 3 * 40)

    assert pa.concat_tables(tables).column("number").to_pylist() == list(range(30))
    assert [table.num_rows for table in tables] == [5, 10, 10, 5]


def test_rows_that_memory_holds_need_no_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "missing"))

    [result] = merged([numbers(3, 1), numbers(2)], BY_NUMBER, 1000)

    assert result.column("number").to_pylist() == [1, 2, 3]
