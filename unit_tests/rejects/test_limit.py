"""Counts of rejects, and when they are too many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.rejects.counts import RejectCounts
from destination_datalake.rejects.limit import RejectLimit, describe_reasons

TALLY = RejectCounts(100, 1, 10, {("price", "WRONG"): 8, ("born", "WRONG"): 8, (None, "UNREADABLE"): 1})


@pytest.mark.parametrize(
    ("limit", "passed"),
    [
        (RejectLimit(), False),
        (RejectLimit(max_ratio=0.1), False),
        (RejectLimit(max_ratio=0.099), True),
        (RejectLimit(max_ratio=0.0), True),
        (RejectLimit(max_count=10), False),
        (RejectLimit(max_count=9), True),
        (RejectLimit(max_count=0), True),
        (RejectLimit(max_ratio=0.5, max_count=9), True),
    ],
)
def test_a_limit_is_passed_by_more_records_than_it_allows(limit: RejectLimit, passed: bool) -> None:
    assert (limit.exceeded(TALLY) is not None) is passed


def test_a_sentence_names_the_limit_and_counts_reasons_per_column() -> None:
    assert RejectLimit(max_count=9).exceeded(TALLY) == (
        "10 of 100 records have rejects, which is more than rejects.max_count 9 allows: "
        "born WRONG 8 times; price WRONG 8 times; whole records UNREADABLE 1 time"
    )


def test_of_very_many_columns_only_the_commonest_are_named() -> None:
    text = describe_reasons(RejectCounts(reasons={(f"c{number:02}", "WRONG"): 100 - number for number in range(15)}))

    assert text.startswith("c00 WRONG 100 times; c01 WRONG 99 times; ")
    assert text.endswith("c09 WRONG 91 times; and 5 more")


@given(st.integers(0, 999))
def test_a_share_is_compared_exactly(thousandths: int) -> None:
    limit = RejectLimit(max_ratio=thousandths / 1000)

    assert limit.exceeded(RejectCounts(1000, affected=thousandths)) is None
    assert limit.exceeded(RejectCounts(1000, affected=thousandths + 1)) is not None


def test_nothing_is_never_too_much() -> None:
    assert RejectLimit(max_ratio=0.0, max_count=0).exceeded(RejectCounts()) is None


counts = st.integers(0, 100)
reasons = st.dictionaries(st.tuples(st.none() | st.sampled_from("ab"), st.sampled_from("xy")), counts)
tallies = st.builds(RejectCounts, counts, counts, counts, reasons)


@given(st.lists(tallies))
def test_a_total_loses_nothing(parts: list[RejectCounts]) -> None:
    total = RejectCounts.total(parts)

    assert total.records == sum(part.records for part in parts)
    assert (total.refused, total.affected) == (sum(p.refused for p in parts), sum(p.affected for p in parts))
    assert sum(total.reasons.values()) == sum(sum(part.reasons.values()) for part in parts)
    assert total.values == sum(part.values for part in parts)
