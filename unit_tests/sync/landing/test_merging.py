"""Rows that wait for their deduplication: merged when there are many, and before their stream is published."""

from __future__ import annotations

import logging

import pytest

from destination_datalake.sync.outcome import BatchCommitted
from destination_datalake.tables.table import TableBusy, TableConflict
from unit_tests.sync.fakes.table import raising
from unit_tests.sync.landing.lake import A, B, Lake


def test_a_batch_is_settled_before_a_merge_that_is_due_begins(lake: Lake) -> None:
    happened: list[str] = []
    lake.on_settle = lambda _: happened.append("settled")
    lake.a.is_due, lake.a.on_merge = True, lambda: happened.append("merged")

    lake.land(lake.batch(A), lake.batch(B))

    assert happened.index("settled") < happened.index("merged")
    assert happened.count("merged") == 1


def test_nothing_is_merged_while_an_earlier_batch_is_not_committed(lake: Lake) -> None:
    """A deletion in the later one would be merged and forgotten, and a row in the earlier one come back."""
    merges: list[int] = []
    lake.a.is_due, lake.a.on_merge = True, lambda: merges.append(lake.a.rows)
    landing = lake.landing()

    landing.land([lake.batch(A, records=2)])
    landing.land([lake.batch(A, records=4, first=3)])
    assert merges == [2]

    landing.land([lake.batch(A, first=2)])
    landing.land([lake.batch(A, first=7)])
    assert merges == [2, 7, 8]


def test_a_merge_that_fails_in_the_middle_of_a_stream_fails_nothing(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    lake.a.is_due, lake.a.on_merge = True, raising(TableConflict("The table has equality deletes."))

    outcomes = lake.land(lake.batch(A))

    assert all(isinstance(outcome, BatchCommitted) for outcome in outcomes)
    assert "The table has equality deletes. They are deduplicated later." in caplog.text


def test_nothing_is_merged_after_a_commit_that_failed(lake: Lake) -> None:
    lake.a.is_due, lake.a.on_merge = True, raising(AssertionError("merged"))
    lake.a.on_commit = raising(TableConflict("The table is another stream's."))

    [outcome] = lake.land(lake.batch(A))

    assert not isinstance(outcome, BatchCommitted)


def test_a_stream_whose_rows_cannot_be_merged_is_not_published(lake: Lake) -> None:
    lake.a.on_merge = raising(TableBusy("Other writers have changed the table each time."))

    failures = lake.landing().publish([A, B])

    assert ([*failures], lake.a.published, lake.b.published) == ([A], False, True)
