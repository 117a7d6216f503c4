"""When pending rows are merged before their stream has ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.tables.iceberg.dedup import merge
from destination_datalake.tables.iceberg.dedup.merge import is_merge_due
from unit_tests.tables.iceberg.dedup.orders import Orders, named
from unit_tests.tables.iceberg.lake import no_rewrite


def test_a_merge_is_due_half_an_hour_after_the_first_row_that_is_pending(orders: Orders) -> None:
    opened = orders.open()
    orders.land(opened, named(1, "a"))
    orders.land(opened, named(2, "a"))
    metadata = orders.lake.load().metadata
    first = min(
        snapshot.timestamp_ms for snapshot in metadata.snapshots if snapshot.snapshot_id != metadata.current_snapshot_id
    )
    began = datetime.fromtimestamp(first / 1000, UTC)

    answers = [is_merge_due(metadata, began + timedelta(minutes=minutes)) for minutes in (1, 29, 31)]

    assert answers == [False, False, True]


def test_a_merge_is_due_when_too_many_bytes_are_pending(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = orders.open()
    monkeypatch.setattr(merge, "MAX_PENDING_BYTES", 5000)
    orders.land(opened, named(1, "a"))
    assert not opened.merge_is_due()

    orders.land(opened, named(2, "a"))
    orders.land(opened, named(3, "a"))
    assert opened.merge_is_due()
    opened.merge()

    assert not opened.merge_is_due()
    assert orders.names() == dict.fromkeys((1, 2, 3), "a")
    orders.land(opened, named(3, "b", 1))
    assert orders.lake.branches() == ["airbyte_pending"]


def test_a_merge_that_failed_is_not_due_with_each_batch(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a merge that fails in the middle of a stream
    monkeypatch.setattr(merge, "MAX_PENDING_BYTES", 0)
    failures = [ConnectorError(Failure("No.", "", "transient_error"))]

    def fail_once(*_: object) -> None:
        if failures:
            raise failures.pop()

    orders.watch(fail_once)
    opened = orders.open()
    orders.land(opened, named(1, "a"))
    assert opened.merge_is_due()
    with pytest.raises(ConnectorError):
        opened.merge()

    # When more is committed, then it waits for the end of the stream, or some minutes
    orders.land(opened, named(2, "a"))
    assert not opened.merge_is_due()
    opened.publish(no_rewrite)
    assert orders.names() == {1: "a", 2: "a"}


def test_an_overwrite_is_merged_once(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "MAX_PENDING_BYTES", 0)
    opened = orders.open(2, overwrite=True)
    orders.land(opened, named(1, "a"))

    assert not opened.merge_is_due()


def test_no_engine_may_expire_what_is_pending(orders: Orders) -> None:
    """Whatever the table's owner has set: those rows were acknowledged."""
    opened = orders.open()
    orders.lake.set_properties({"history.expire.max-ref-age-ms": "1"})
    orders.land(opened, named(1, "a"))
    orders.land(opened, named(2, "a"))

    assert orders.lake.load().metadata.refs["airbyte_pending"].max_ref_age_ms == 2**63 - 1
