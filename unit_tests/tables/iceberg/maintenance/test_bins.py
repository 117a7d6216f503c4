"""Which files become one: enough of them, none of them for nothing, and each row not too often."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.tables.iceberg.maintenance.compaction import MIN_FILES, bins, is_small

TARGET = 100


def packed(sizes: list[int]) -> list[list[int]]:
    return bins(sizes, lambda size: size, TARGET)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1, 1, 1, 1], []),
        ([1, 1, 1, 1, 1], [[1, 1, 1, 1, 1]]),
        ([74, 1], [[74, 1]]),
        ([75, 1], []),
        ([40, 40], [[40, 40]]),
        ([70, 70], []),
        ([70, 70, 30, 30], [[70, 30], [70, 30]]),
        ([60, 1, 1, 1, 1, 1], [[1, 1, 1, 1, 1]]),
        ([300, 1, 1, 1, 1, 1, 200], [[1, 1, 1, 1, 1]]),
        ([10, 90, 20, 30, 15], [[10, 20, 30, 15]]),
        ([20, 10, 1, 1, 1], []),
        ([13, 10, 1, 1, 1], [[13, 10, 1, 1, 1]]),
    ],
)
def test_files_become_one_if_that_is_worth_it(sizes: list[int], expected: list[list[int]]) -> None:
    assert packed(sizes) == expected


sizes = st.lists(st.integers(0, 130), max_size=60)


@given(sizes)
def test_every_bin_takes_small_files_in_their_order_and_stays_within_the_target(sizes: list[int]) -> None:
    numbered = list(enumerate(sizes))

    packed = bins(numbered, lambda file: file[1], TARGET)

    chosen = [file for bin_ in packed for file in bin_]
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(numbered)
    for bin_ in packed:
        assert bin_ == sorted(bin_)
        assert all(is_small(size, TARGET) for _, size in bin_)
        total = sum(size for _, size in bin_)
        assert total <= TARGET
        assert not is_small(total, TARGET) or (len(bin_) >= MIN_FILES and all(2 * size <= total for _, size in bin_))


@given(sizes)
def test_what_is_packed_again_and_again_ends_and_each_byte_is_rewritten_a_few_times(sizes: list[int]) -> None:
    """Each rewriting at least doubles the size of the file that a byte is in, or is its last."""
    files = [(size, 0) for size in sizes if size]
    rounds = 0
    while packed := bins(files, lambda file: file[0], TARGET):
        rounds += 1
        for bin_ in packed:
            for file in bin_:
                files.remove(file)
            files.append((sum(size for size, _ in bin_), 1 + max(times for _, times in bin_)))

    assert rounds <= len(sizes)
    assert all(times <= 1 + TARGET.bit_length() for _, times in files)
    assert sum(size for size, _ in files) == sum(sizes)


def test_a_bin_has_a_thousand_files_at_most() -> None:
    assert [len(bin_) for bin_ in packed([0] * 2500)] == [1000, 1000, 500]


def test_few_bins_are_open_at_a_time() -> None:
    """Ten thousand files that fit to none of the others take seconds otherwise."""
    assert packed([70] * 10_000) == []
