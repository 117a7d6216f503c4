"""Canonical keys: equal if, and only if, all parts of the keys are."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.files.dedup import keys
from destination_datalake.files.dedup.keys import canonical_keys, key_hashes, part_numbers
from unit_tests.examples import examples
from unit_tests.files.dedup.values import NAN, Column, arrays, rows_of, tables


@given(tables())
@settings(max_examples=examples(500))
def test_keys_are_equal_if_and_only_if_all_their_parts_are(columns: list[Column]) -> None:
    canonical = canonical_keys(arrays(columns)).to_pylist()

    by_canonical: dict[Any, set[Any]] = {}
    by_value: dict[Any, set[Any]] = {}
    for key, row in zip(canonical, rows_of(columns), strict=True):
        by_canonical.setdefault(key, set()).add(row)
        by_value.setdefault(row, set()).add(key)
    assert all(len(each) == 1 for each in (*by_canonical.values(), *by_value.values()))


@given(tables(), st.integers(0, 5), st.integers(0, 5), st.integers(1, 50))
@settings(max_examples=examples(300))
def test_a_key_has_one_part_however_its_column_is_sliced_and_chunked(
    columns: list[Column], before: int, cut: int, parts: int
) -> None:
    whole = canonical_keys(arrays(columns))
    chunked: Any = pa.chunked_array
    sliced: list[Any] = []
    for type_, values in columns:
        padded: Any = pa.array([*values[:before], *values], type_).slice(min(before, len(values)))
        sliced.append(chunked([padded.slice(0, cut), padded.slice(cut)], type_))

    other = canonical_keys(sliced)

    assert other.equals(whole)
    expected = part_numbers(key_hashes(whole), parts)
    assert part_numbers(key_hashes(other), parts).tolist() == expected.tolist()
    alone = [part_numbers(key_hashes(whole.slice(row, 1)), parts)[0] for row in range(len(whole))]
    assert alone == expected.tolist()
    by_key = dict(zip(whole.to_pylist(), expected.tolist(), strict=True))
    assert [by_key[key] for key in whole.to_pylist()] == expected.tolist()
    assert all(0 <= part < parts for part in expected)


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        (pa.int32(), pa.int64(), [0, -1, 2**31 - 1, None]),
        (pa.float32(), pa.float64(), [0.5, -0.0, NAN, None]),
        (pa.decimal128(5, 2), pa.decimal128(38, 2), [1, -1, None]),
    ],
)
def test_a_column_that_is_promoted_gives_the_same_keys(old: pa.DataType, new: pa.DataType, values: list[Any]) -> None:
    for others in ([], [pa.array(["a", "b", None, "d"][: len(values)])]):
        first, second = (canonical_keys([pa.array(values, type_), *others]) for type_ in (old, new))

        assert first.equals(second)
        assert key_hashes(first).tolist() == key_hashes(second).tolist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array(range(100_000)),
        pa.array(range(0, 6_400_000, 64)),
        pa.array([f"{number}" for number in range(100_000)]),
        pa.array([f"https://shop.example/{'x' * 900}/{number}/{'y' * 400}" for number in range(4_000)]),
        pa.array([os.urandom(16).hex() for _ in range(100_000)]),
    ],
    ids=["ascending", "multiples", "digits", "long texts", "random"],
)
def test_parts_are_balanced(column: pa.Array[Any]) -> None:
    numbers = part_numbers(key_hashes(canonical_keys([column])), 16)

    share = len(column) / 16
    assert np.bincount(numbers, minlength=16).max() < 1.25 * share


def test_the_key_of_one_column_of_integers_or_texts_is_no_copy() -> None:
    for column in (pa.array([1, 2, 3]), pa.array(["a", "b", None])):
        key = canonical_keys([column])
        addresses = [[buffer and buffer.address for buffer in each.buffers()] for each in (key, column)]

        assert addresses[0] == addresses[1]


def test_more_keys_than_an_array_holds_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_MOST_BYTES", 1000)

    with pytest.raises(OverflowError, match="100 keys"):
        canonical_keys([pa.array(range(100)), pa.array(range(100))])


def test_nested_columns_cannot_be_keys() -> None:
    with pytest.raises(TypeError, match="struct"):
        canonical_keys([pa.array([{"a": 1}])])


@pytest.mark.parametrize("width", [0, 1, 7, 8, 9, 16, 32, 512, 520])
def test_a_key_has_one_hash_whether_or_not_others_have_its_length(width: int) -> None:
    keys: list[bytes] = [os.urandom(width) for _ in range(20)]

    alike = key_hashes(pa.array(keys, pa.binary()))
    among_others = key_hashes(pa.array([*keys, b"another length"], pa.binary()))

    assert among_others[:-1].tolist() == alike.tolist()
