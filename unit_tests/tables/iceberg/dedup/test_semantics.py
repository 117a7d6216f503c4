"""Which rows are in a table after syncs that deduplicate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from unit_tests.tables.iceberg.dedup.orders import Orders, Row, named


@pytest.mark.parametrize(
    ("syncs", "found"),
    [
        ([[named(1, "a", 1), named(1, "b", 2)]], {1: "b"}),
        ([[named(1, "a", 1)], [named(1, "b", 2), named(2, "c", 1)]], {1: "b", 2: "c"}),
        ([[named(1, "a", 2)], [named(1, "b", 1)]], {1: "a"}),
        ([[named(1, "a", 1)], [named(1, "b", None)]], {1: "a"}),
        ([[named(1, "a", None)], [named(1, "b", 1)]], {1: "b"}),
        ([[named(1, "a", 1, at=2)], [named(1, "b", 1, at=1)]], {1: "a"}),
        ([[named(1, "a", None, at=1)], [named(1, "b", None, at=2)]], {1: "b"}),
        ([[named(1, "a")], [named(1, "b")]], {1: "b"}),
        ([[named(1, "a"), named(1, "b")]], {1: "b"}),
        ([[named(None, "a")], [named(None, "b")]], {None: "b"}),
        ([[named(1, "a", 1)], [named(1, "b", 2, deleted=True)]], {}),
        ([[named(1, "a", 2)], [named(1, "b", 1, deleted=True)]], {1: "a"}),
        ([[named(1, "a", 1, deleted=True)]], {}),
        ([[named(1, "a", 1), named(1, "b", 2, deleted=True), named(1, "c", 3)]], {1: "c"}),
        ([[named(1, "a", 1)], [named(1, "b", 2, deleted=True)], [named(1, "c", 3)]], {1: "c"}),
        ([[named(1, "a")], []], {1: "a"}),
        ([[]], {}),
    ],
    ids=[
        "the higher cursor within a sync",
        "a higher cursor replaces",
        "a lower cursor does not",
        "null is lower than any value",
        "any value is higher than null",
        "of equal cursors the later extraction",
        "of null cursors the later extraction",
        "at a tie what arrives replaces what is there",
        "at a tie what arrived last",
        "null is a key",
        "a deletion deletes",
        "an older deletion does not",
        "a deletion of nothing inserts nothing",
        "a key comes back in the same sync",
        "a key comes back in a later sync",
        "a sync without records",
        "only a sync without records",
    ],
)
@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
def test_a_table_has_the_latest_row_of_each_key(
    orders: Orders, syncs: Sequence[Sequence[Row]], found: dict[Any, str], deletes: str
) -> None:
    for records in syncs:
        orders.sync(*([records] if records else []), dedup={"deletes": deletes})

    assert orders.names() == found
    assert orders.lake.branches() == []
