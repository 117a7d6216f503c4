"""Blocks: what of a segment is parsed at a time is bounded in bytes and in values, whatever shape the records have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.records.block_size import BLOCK_BYTES, BLOCK_CELLS, blocks
from destination_datalake.schema.types import Field, Int64, List, Struct

SPARSE = b'{"type":"RECORD","record":{"stream":"s","data":{"c1":1},"emitted_at":1}}\n'


def columns(count: int) -> list[Field]:
    return [Field(f"c{i}", f"c{i}", Int64()) for i in range(count)]


def test_sparse_rows_of_many_columns_are_cut_by_cells() -> None:
    cut = list(blocks(SPARSE * 75_000, columns(1000)))

    assert b"".join(cut) == SPARSE * 75_000
    assert max(bytes(block).count(b"\n") for block in cut) == BLOCK_CELLS // 1000
    assert len(cut) <= 75_000 * 1000 // BLOCK_CELLS + 2


def test_a_property_counts_like_a_column() -> None:
    inside = [Field("a", "a", List(Struct(tuple(columns(1000)))))]

    assert [*map(len, blocks(SPARSE * 5000, inside))] == [*map(len, blocks(SPARSE * 5000, columns(1000)))]


@pytest.mark.parametrize("count", [0, 1, 10])
def test_rows_of_few_columns_are_cut_by_bytes(count: int) -> None:
    cut = list(blocks(SPARSE * (3 * BLOCK_BYTES // len(SPARSE)), columns(count)))

    assert all(BLOCK_BYTES - len(SPARSE) < len(block) <= BLOCK_BYTES for block in cut[:-1])


def test_a_row_with_more_cells_than_a_block_is_not_cut() -> None:
    assert [*map(bytes, blocks(SPARSE * 3, columns(10), cells=9))] == [SPARSE] * 3


@given(st.lists(st.integers(0, 300)), st.booleans(), st.integers(1, 50))
def test_blocks_together_are_the_segment(lengths: list[int], ended: bool, cells: int) -> None:
    text = b"\n".join(b"x" * length for length in lengths) + b"\n" * ended

    cut = [bytes(block) for block in blocks(text, columns(10), cells)]

    assert b"".join(cut) == text
    assert all(block.endswith(b"\n") for block in cut[:-1])
    assert all(cut)
