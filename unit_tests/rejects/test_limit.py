"""When a stream has too many rejects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.rejects.counts import RejectCounts
from destination_datalake.rejects.limit import RejectLimit, describe_reasons

COUNTS = RejectCounts(100, 1, 10, {("price", "WRONG"): 8, ("born", "WRONG"): 8, (None, "UNREADABLE"): 1})


@pytest.mark.parametrize(
    ("limit", "exceeded"),
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
def test_a_limit_is_exceeded_by_more_affected_records_than_it_allows(limit: RejectLimit, exceeded: bool) -> None:
    assert (limit.exceeded(COUNTS) is not None) is exceeded


def test_the_message_names_the_limit_and_counts_reasons_per_column() -> None:
    assert RejectLimit(max_count=9).exceeded(COUNTS) == (
        "10 of 100 records have rejects, which is more than rejects.max_count 9 allows: "
        "born WRONG 8 times; price WRONG 8 times; whole records UNREADABLE 1 time"
    )


def test_only_the_most_frequent_reasons_are_named() -> None:
    text = describe_reasons(RejectCounts(reasons={(f"c{number:02}", "WRONG"): 100 - number for number in range(15)}))

    assert text.startswith("c00 WRONG 100 times; c01 WRONG 99 times; ")
    assert text.endswith("c09 WRONG 91 times; and 5 more")


@given(st.integers(0, 999))
def test_the_ratio_is_compared_exactly(thousandths: int) -> None:
    limit = RejectLimit(max_ratio=thousandths / 1000)

    assert limit.exceeded(RejectCounts(1000, affected=thousandths)) is None
    assert limit.exceeded(RejectCounts(1000, affected=thousandths + 1)) is not None


def test_a_stream_without_records_exceeds_no_limit() -> None:
    assert RejectLimit(max_ratio=0.0, max_count=0).exceeded(RejectCounts()) is None
