"""Counts of rejects add up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.rejects.counts import RejectCounts

_numbers = st.integers(0, 100)
_reasons = st.dictionaries(st.tuples(st.none() | st.sampled_from("ab"), st.sampled_from("xy")), _numbers)
_counts = st.builds(RejectCounts, _numbers, _numbers, _numbers, _reasons)


@given(st.lists(_counts))
def test_the_total_is_the_sum_of_its_parts(parts: list[RejectCounts]) -> None:
    total = RejectCounts.total(parts)

    assert total.records == sum(part.records for part in parts)
    assert (total.refused, total.affected) == (sum(p.refused for p in parts), sum(p.affected for p in parts))
    assert sum(total.reasons.values()) == sum(sum(part.reasons.values()) for part in parts)
    assert total.values == sum(part.values for part in parts)


@given(_counts, _counts, _counts)
def test_the_order_of_additions_does_not_matter(a: RejectCounts, b: RejectCounts, c: RejectCounts) -> None:
    total = RejectCounts.total([a, b, c])

    assert total == RejectCounts.total([RejectCounts.total([c, a]), b])
    assert total == RejectCounts.total([total, RejectCounts()])


def test_whole_records_are_not_counted_as_values() -> None:
    assert RejectCounts(reasons={(None, "UNREADABLE"): 5, ("price", "WRONG"): 2}).values == 2
