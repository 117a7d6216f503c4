"""Sorting by runs on disk gives what sorting in memory gives."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.files.sorting import MergeSort, in_order
from destination_datalake.partitioning.spec import SortField, SortOrder

SCHEMA = pa.schema([pa.field("number", pa.float64()), pa.field("inside", pa.struct([pa.field("text", pa.string())]))])

rows = st.lists(
    st.tuples(
        st.sampled_from([None, math.nan, -1.5, 0.0, 2.0, 3.0]), st.sampled_from([None, "", "a", "B", "\U00010000"])
    ),
    min_size=1,
    max_size=8,
)
fields = st.lists(
    st.builds(SortField, st.sampled_from([("number",), ("inside", "text")]), st.booleans(), st.booleans()),
    min_size=1,
    max_size=2,
)


def table(rows: list[tuple[float | None, str | None]]) -> pa.Table:
    found: list[dict[str, Any]] = [{"number": number, "inside": {"text": text}} for number, text in rows]
    return pa.Table.from_pylist(found, SCHEMA)


def merged(tables: list[pa.Table], order: SortOrder, run_bytes: int, merged_bytes: int = 1) -> list[pa.Table]:
    sort = MergeSort(order, run_bytes, merged_bytes)
    for each in tables:
        sort.add(each)
    found = list(sort.rows())
    sort.close()
    return found


def keys(table: pa.Table) -> list[str]:
    return [repr((row["number"], row["inside"])) for row in table.to_pylist()]


@given(added=st.lists(rows, max_size=6), fields=fields, run_bytes=st.integers(1, 600), merged=st.integers(1, 600))
def test_rows_of_many_runs_are_in_order(added: Any, fields: Any, run_bytes: int, merged: int) -> None:
    order, tables = SortOrder(tuple(fields), 1), [table(each) for each in added]
    sort = MergeSort(order, run_bytes, merged)
    for each in tables:
        sort.add(each)

    found = pa.concat_tables([SCHEMA.empty_table(), *sort.rows()])
    sort.close()

    together = pa.concat_tables([SCHEMA.empty_table(), *tables]).combine_chunks()
    assert sorted(keys(found)) == sorted(keys(together))
    assert keys(in_order(found.combine_chunks(), order)) == keys(found)


def numbers(*values: int) -> pa.Table:
    return pa.table({"number": pa.array(values, pa.int64())})


BY_NUMBER = SortOrder((SortField(("number",), ascending=True, nulls_first=True),), 1)


def test_runs_that_follow_each_other_are_read_one_after_the_other() -> None:
    """Data that came in order costs little more than to be copied."""
    found = merged([numbers(*range(10)), numbers(*range(10, 20)), numbers(*range(20, 30))], BY_NUMBER, 1, 3 * 40)

    assert pa.concat_tables(found).column("number").to_pylist() == list(range(30))
    assert [each.num_rows for each in found] == [5, 10, 10, 5]


def test_rows_that_memory_holds_need_no_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "missing"))

    [found] = merged([numbers(3, 1), numbers(2)], BY_NUMBER, 1000)

    assert found.column("number").to_pylist() == [1, 2, 3]
