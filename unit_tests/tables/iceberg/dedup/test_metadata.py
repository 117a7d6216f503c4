"""The metadata of a table after merges, compactions and expiries in any order."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from unit_tests.tables.iceberg.dedup.orders import Orders, named
from unit_tests.tables.iceberg.maintenance.compacting import compacted
from unit_tests.tables.iceberg.maintenance.removal.test_expiry import expire
from unit_tests.tables.iceberg.maintenance.removal.test_orphans import remove
from unit_tests.tables.iceberg.snapshots.consistency import assert_consistent


@pytest.mark.parametrize("seed", [3])
def test_it_is_consistent_and_names_the_latest_rows(orders: Orders, seed: int) -> None:
    chosen = random.Random(seed)
    expected: dict[int, str] = {}

    def sync() -> None:
        deletes = chosen.choice(["copy_on_write", "merge_on_read", "merge_on_read"])
        options: dict[str, Any] = {"dedup": {"deletes": deletes}, "partition_by": [{"source": "name"}]}
        opened = orders.open(**options)
        for _ in range(chosen.randint(1, 2)):
            rows = [(id_, chosen.choice("abc"), chosen.random() < 0.2) for id_ in chosen.sample(range(12), 4)]
            orders.land(opened, *(named(id_, name, deleted=deleted) for id_, name, deleted in rows))
            for id_, name, deleted in rows:
                expected.pop(id_, None) if deleted else expected.update({id_: name})
        assert_consistent(orders.lake)
        opened.merge()

    acts: list[Callable[[], object]] = [
        *[sync] * 4,
        partial(compacted, orders.lake),
        partial(compacted, orders.lake, target=100),
        partial(expire, orders.lake),
        partial(remove, orders.lake),
    ]
    chosen.shuffle(acts)
    for act in (sync, *acts):
        act()
        assert_consistent(orders.lake)
        assert orders.names() == expected
