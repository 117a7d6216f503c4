from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.files.dedup.rows import Marks, RowSet

MASKS = st.lists(st.booleans()).map(lambda each: np.array(each, np.bool_))


@given(MASKS)
def test_a_set_has_the_rows_that_it_was_made_of(mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    rows = RowSet.of_mask(mask)

    assert (rows.rows, rows.count) == (len(mask), mask.sum())
    assert rows.mask().tolist() == mask.tolist()
    assert RowSet.of_positions(rows.positions(), rows.rows) == rows


@given(st.lists(MASKS, min_size=1, max_size=4))
def test_sets_of_different_lengths_have_a_union(masks: list[np.ndarray[tuple[int], np.dtype[np.bool_]]]) -> None:
    union = RowSet.union([RowSet.of_mask(mask) for mask in masks])

    assert union.positions().tolist() == sorted({row for mask in masks for row in np.flatnonzero(mask).tolist()})
    assert (union.rows, union.count) == (max(map(len, masks)), len(union.positions()))


@given(st.lists(st.tuples(st.booleans(), st.booleans())))
def test_a_union_has_the_rows_of_both(both: list[tuple[bool, bool]]) -> None:
    one, other = (np.array([each[side] for each in both], np.bool_) for side in (0, 1))

    assert RowSet.union([RowSet.of_mask(one), RowSet.of_mask(other)]).mask().tolist() == [a or b for a, b in both]


@given(st.lists(st.sets(st.integers(0, 40))))
def test_marks_are_the_rows_that_were_marked(batches: list[set[int]]) -> None:
    marks = Marks(41)
    for each in batches:
        marks.add(np.array([*each], np.int64))

    rows = marks.row_set()
    assert rows == RowSet.of_positions(np.array(sorted(set().union(*batches)), np.int64), 41)
