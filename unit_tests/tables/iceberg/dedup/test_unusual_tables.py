"""Tables that others have made, or changed in ways that this connector would not."""

from __future__ import annotations

import pytest

from destination_datalake.tables.iceberg.snapshots.replacing import Change
from destination_datalake.tables.table import TableConflict
from unit_tests.tables.iceberg.dedup.orders import Orders, named
from unit_tests.tables.iceberg.lake import no_rewrite
from unit_tests.tables.iceberg.snapshots.committed import files, merge


@pytest.mark.parametrize("branch", ["main", "airbyte_pending"])
@pytest.mark.parametrize("key", [(), ("id",)], ids=["appended", "deduplicated"])
def test_a_file_that_is_listed_twice_is_refused_and_keeps_its_rows(
    orders: Orders, branch: str, key: tuple[str, ...]
) -> None:
    """A removal is by path: it would remove both, and a row that one of them still has."""
    orders.sync([named(1, "a"), named(2, "b")], key=key)
    syncing = orders.open()
    orders.land(syncing, named(3, "c"))
    merge(orders.lake, Change(files(orders.lake, branch)), branch)
    before = orders.lake.ids(), orders.lake.ids("airbyte_pending")

    with pytest.raises(TableConflict, match="lists a file more than once"):
        syncing.publish(no_rewrite)

    assert (orders.lake.ids(), orders.lake.ids("airbyte_pending")) == before
