"""Which version of a row is the latest: cursor, then the next column of the order; null, then NaN, then all others."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.files.dedup.keys import canonical_keys, key_hashes
from destination_datalake.files.dedup.order import is_as_late, latest
from unit_tests.examples import examples
from unit_tests.files.dedup.values import Column, arrays, rows_of, tables


@given(tables(max_columns=4, max_rows=20), st.integers(1, 3), st.sampled_from([1, 2, 2**63]))
@settings(max_examples=examples(1000))
def test_the_latest_of_a_key_is_that_of_a_dict(columns: list[Column], parts: int, hashes: int) -> None:
    # Given a key of some columns, an order by the others, and hashes of which there may be few
    key, order = columns[:parts], columns[parts:]
    keys = rows_of(key)
    versions = rows_of(order) if order else [()] * len(keys)

    canonical = canonical_keys(arrays(key))
    won = latest(canonical, key_hashes(canonical) % np.uint64(hashes), arrays(order))

    expected: dict[Any, int] = {}
    for row, (of_key, version) in enumerate(zip(keys, versions, strict=True)):
        if of_key not in expected or version >= versions[expected[of_key]]:
            expected[of_key] = row
    assert won.nonzero()[0].tolist() == sorted(expected.values())


@given(tables(max_rows=20))
@settings(max_examples=examples(500))
def test_rows_are_compared_column_by_column(columns: list[Column]) -> None:
    rows = rows_of(columns)
    reverse = [(type_, values[::-1]) for type_, values in columns]

    result = is_as_late(arrays(columns), arrays(reverse))

    assert result.tolist() == [one >= other for one, other in zip(rows, rows[::-1], strict=True)]
