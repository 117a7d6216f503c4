"""Refreshes, interruptions and changes of the sync mode of tables that are deduplicated."""

import pytest

from integration_tests.conformance.dedup.items import COMPLETE, ONLY_ICEBERG, item, items, names
from integration_tests.harness.messages import state
from integration_tests.harness.warehouse import Warehouse

pytestmark = [ONLY_ICEBERG, pytest.mark.share(2)]


def test_a_truncate_refresh_leaves_the_latest_rows_of_its_generation(warehouse: Warehouse) -> None:
    """Over as many syncs as it takes; readers see the old rows until then. Older cursors do not matter."""
    warehouse.sync([items(12)], [item(1, 9, "old"), item(2, 9, "old"), COMPLETE])

    unfinished = warehouse.attempt([items(13, 13)], [item(1, 1, "a"), item(3, 2, "b"), state("items", 1)])
    assert (unfinished.exit_code, len(unfinished.states)) == (1, 1)
    assert names(warehouse) == {1: "old", 2: "old"}

    warehouse.sync([items(13, 13)], [item(1, 2, "c"), item(3, 1, "late"), item(4, 1, "d"), COMPLETE])
    assert names(warehouse) == {1: "c", 3: "b", 4: "d"}


def test_a_truncate_refresh_that_is_killed_goes_on(warehouse: Warehouse) -> None:
    """From an acknowledged state, whose rows are not sent again. Rows that are sent again are there once."""
    warehouse.sync([items(12)], [item(1, 9, "old"), COMPLETE])
    with warehouse.start([items(13, 13)], flush_interval_seconds=1) as running:
        running.send([item(2, 1, "a"), item(3, 1, "a"), state("items", 2)])
        running.wait_for_state()
        running.kill()
    assert names(warehouse) == {1: "old"}

    warehouse.sync([items(13, 13)], [item(3, 1, "b"), item(4, 1, "b"), COMPLETE])

    assert names(warehouse) == {2: "a", 3: "b", 4: "b"}


def test_a_refresh_that_keeps_rows_merges_into_them(warehouse: Warehouse) -> None:
    """A new generation without a minimum."""
    warehouse.sync([items(12)], [item(1, 1, "a"), item(2, 2, "a"), COMPLETE])

    warehouse.sync([items(13)], [item(1, 2, "b"), item(2, 1, "b"), item(3, 1, "b"), COMPLETE])

    assert names(warehouse) == {1: "b", 2: "a", 3: "b"}


def test_generation_ids_that_are_always_1_replace_nothing(warehouse: Warehouse) -> None:
    """PyAirbyte sends them with every sync: the second one updates what the first has written."""
    warehouse.sync([items(1, 1)], [item(1, 1, "a"), item(2, 1, "a"), COMPLETE])

    warehouse.sync([items(1, 1)], [item(2, 2, "b"), item(3, 1, "b"), COMPLETE])

    assert names(warehouse) == {1: "a", 2: "b", 3: "b"}


def test_acknowledged_rows_of_a_killed_sync_are_merged_by_the_next(warehouse: Warehouse) -> None:
    """They were not in the table when it was killed, and are not sent again."""
    warehouse.sync([items()], [item(1, 1, "old"), item(2, 5, "old"), COMPLETE])
    with warehouse.start([items(sync_id=2)], flush_interval_seconds=1) as running:
        running.send([item(1, 2, "new"), item(2, 4, "new"), item(3, 1, "new"), state("items", 1)])
        running.wait_for_state()
        running.kill()
    assert names(warehouse) == {1: "old", 2: "old"}

    warehouse.sync([items(sync_id=3)], [item(3, 2, "newer"), COMPLETE])

    assert names(warehouse) == {1: "new", 2: "old", 3: "newer"}


def test_from_append_to_dedup_and_back(warehouse: Warehouse) -> None:
    """The rows that were appended are deduplicated once, as a whole; what is appended later is appended."""
    warehouse.sync([items(mode="append")], [item(1, 1, "a"), item(1, 2, "b"), item(2, 1, "a"), COMPLETE])

    warehouse.sync([items()], [item(2, 2, "c"), item(3, 1, "c"), COMPLETE])
    assert names(warehouse) == {1: "b", 2: "c", 3: "c"}

    warehouse.sync([items(mode="append")], [item(3, 2, "d"), COMPLETE])
    assert sorted(row["name"] for row in warehouse.rows("items")) == ["b", "c", "c", "d"]
