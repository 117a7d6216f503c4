"""An overwrite that deduplicates, was merged on its branch, and died before it was published."""

from __future__ import annotations

import pytest

from unit_tests.tables.iceberg.dedup.orders import Orders, named, only_history_of_main


@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("key", [("id",), ()], ids=["deduplicated", "plain"])
def test_its_rows_are_taken_over_by_the_next_append(orders: Orders, deletes: str, key: tuple[str, ...]) -> None:
    orders.sync([named(1, "a", 1)])
    overwrite = orders.open(2, overwrite=True, dedup={"deletes": deletes})
    orders.land(overwrite, named(2, "b", 1), named(2, "c", 2), named(3, "d"), named(4, "e", deleted=True))
    overwrite.merge()

    orders.sync([named(5, "f")], generation=3, key=key)

    assert orders.names() == {1: "a", 2: "c", 3: "d", 5: "f"}
    assert orders.lake.branches() == []
    assert only_history_of_main(orders)
