"""Values in canonical form: equal if, and only if, the values are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from destination_datalake.files.ids import canonical_keys
from unit_tests.examples import examples
from unit_tests.files.dedup.values import NAN, Column, arrays, rows_of, tables


@given(tables(max_columns=1))
@settings(max_examples=examples(500))
def test_keys_are_equal_if_and_only_if_values_are(columns: list[Column]) -> None:
    canonical = canonical_keys(arrays(columns)[0]).to_pylist()

    by_canonical: dict[Any, set[Any]] = {}
    by_value: dict[Any, set[Any]] = {}
    for key, row in zip(canonical, rows_of(columns), strict=True):
        by_canonical.setdefault(key, set()).add(row)
        by_value.setdefault(row, set()).add(key)
    assert all(len(matches) == 1 for matches in (*by_canonical.values(), *by_value.values()))


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        (pa.int32(), pa.int64(), [0, -1, 2**31 - 1, None]),
        (pa.float32(), pa.float64(), [0.5, -0.0, NAN, None]),
        (pa.decimal128(5, 2), pa.decimal128(38, 2), [1, -1, None]),
    ],
)
def test_a_column_that_is_promoted_gives_the_same_keys(old: pa.DataType, new: pa.DataType, values: list[Any]) -> None:
    first, second = (canonical_keys(pa.array(values, type_)) for type_ in (old, new))

    assert first.equals(second)


def test_integers_and_texts_are_no_copies() -> None:
    for column in (pa.array([1, 2, 3]), pa.array(["a", "b", None])):
        key = canonical_keys(column)
        addresses = [[buffer and buffer.address for buffer in array.buffers()] for array in (key, column)]

        assert addresses[0] == addresses[1]


def test_nested_columns_cannot_be_keys() -> None:
    with pytest.raises(TypeError, match="struct"):
        canonical_keys(pa.array([{"a": 1}]))
