"""An overwrite that deduplicates, and died before it was published."""

from __future__ import annotations

import pytest

from unit_tests.tables.iceberg.dedup.orders import Orders, named, only_history_of_main
from unit_tests.tables.iceberg.lake import no_rewrite

pytestmark = pytest.mark.share(3)

DELETES = ["copy_on_write", "merge_on_read"]


@pytest.mark.parametrize("deletes", DELETES)
def test_its_rows_and_deletions_are_pending_for_the_next_sync(orders: Orders, deletes: str) -> None:
    orders.sync([named(1, "a", 1), named(4, "old", 1)])
    overwrite = orders.open(2, overwrite=True, dedup={"deletes": deletes})
    orders.land(overwrite, named(2, "b", 1), named(2, "c", 2), named(3, "d"), named(4, "e", 2, deleted=True))
    overwrite.merge()

    orders.sync([named(5, "f")], generation=3)

    assert orders.names() == {1: "a", 2: "c", 3: "d", 5: "f"}
    assert orders.lake.branches() == []
    assert only_history_of_main(orders)


def test_its_rows_are_taken_over_by_a_plain_append(orders: Orders) -> None:
    orders.sync([named(1, "a", 1)])
    overwrite = orders.open(2, overwrite=True)
    orders.land(overwrite, named(2, "b", 1), named(3, "d"))
    overwrite.merge()

    orders.sync([named(5, "f")], generation=3, key=())

    assert orders.names() == {1: "a", 2: "b", 3: "d", 5: "f"}
    assert orders.lake.branches() == []
    assert only_history_of_main(orders)


@pytest.mark.parametrize("deletes", DELETES)
def test_an_overwrite_is_merged_and_published_by_one_commit(orders: Orders, deletes: str) -> None:
    orders.sync([named(1, "a", 1)])
    overwrite = orders.open(2, overwrite=True, dedup={"deletes": deletes})
    orders.land(overwrite, named(2, "b", 1), named(2, "c", 2), named(3, "d"), named(4, "e"))
    before = orders.lake.load().metadata_location

    overwrite.publish(no_rewrite)

    table = orders.lake.load()
    assert orders.names() == {2: "c", 3: "d", 4: "e"}
    assert orders.lake.branches() == []
    assert table.metadata.metadata_log[-1].metadata_file == before
