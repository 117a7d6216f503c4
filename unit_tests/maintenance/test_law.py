"""A law: whatever happened to a table, maintenance changes nothing that a reader of any branch or tag finds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.config.tables import Retention
from destination_datalake.maintenance.steps import Maintainer
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.tables.iceberg.commit import TableOperations
from unit_tests.cloud import Cloud, ungoverned
from unit_tests.examples import long_examples
from unit_tests.maintenance.lake import Shop, no_rewrite


class History:
    """One table, and what is done to it. Each day is a step."""

    def __init__(self, shop: Shop, stream: StreamId) -> None:
        self.shop = shop
        self.stream = stream
        self.day = 0
        self.generation = 1
        self._ids = iter(range(1_000_000))
        shop.open(stream)
        TableOperations(shop.name(stream), ungoverned(shop.access)).commit(_merge_manifests_often)

    def append(self) -> None:
        """Appending adopts the rows of a pending overwrite."""
        table = self.shop.open(self.stream, self.generation)
        for _ in range(3):
            self.shop.commit(table, next(self._ids))

    def overwrite(self) -> None:
        self._overwrite().publish(no_rewrite)

    def overwrite_partly(self) -> None:
        self._overwrite()

    def set_tag(self) -> None:
        self._set_ref("create_tag", f"tag{self.day}")

    def set_branch(self) -> None:
        self._set_ref("create_branch", f"branch{self.day}", max_ref_age_ms=30 * 24 * 60 * 60 * 1000)

    def lose_file(self) -> None:
        """As a writer does that is killed before it commits."""
        self.shop.write(self.shop.open(self.stream, self.generation), next(self._ids))

    def roll_back(self) -> None:
        """Make another snapshot current, as others do: the one before is then on no branch."""
        table = self._load()
        heads = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
        if heads:
            with table.manage_snapshots() as change:
                change.set_current_snapshot(heads[len(heads) // 2])

    def compact(self) -> None:
        self._maintainer().compact(self.shop.name(self.stream))

    def remove(self) -> None:
        list(self._maintainer().remove(self.shop.name(self.stream)))

    def _overwrite(self) -> Any:
        self.generation += 1
        table = self.shop.open(self.stream, self.generation, overwrite=True)
        for _ in range(2):
            self.shop.commit(table, next(self._ids))
        return table

    def _set_ref(self, method: str, name: str, **more: Any) -> None:
        table = self._load()
        snapshots = table.metadata.snapshots
        if snapshots:
            with table.manage_snapshots() as change:
                getattr(change, method)(snapshots[self.day % len(snapshots)].snapshot_id, name, **more)

    def _load(self) -> Any:
        return TableOperations(self.shop.name(self.stream), ungoverned(self.shop.access)).load()

    def _maintainer(self) -> Maintainer:
        retention = Retention(snapshot_retention_days=2, min_snapshots_to_keep=2, orphan_retention_days=1)
        return self.shop.maintainer(timedelta(days=self.day), retention=retention, target_bytes=1024 * 1024)


def _merge_manifests_often(_table: Any, transaction: Any) -> None:
    transaction.set_properties({"commit.manifest.min-count-to-merge": "3"})


EVENTS: list[Callable[[History], None]] = [
    History.append,
    History.overwrite,
    History.overwrite_partly,
    History.set_tag,
    History.set_branch,
    History.lose_file,
    History.roll_back,
]


@pytest.mark.law
def test_maintenance_changes_nothing_that_readers_find(cloud: Cloud) -> None:
    shop, numbers = Shop(cloud), iter(range(1000))

    @settings(max_examples=long_examples(8, 4))
    @given(st.lists(st.sampled_from(EVENTS), min_size=3, max_size=9), st.integers(2, 40))
    def law(events: list[Callable[[History], None]], days: int) -> None:
        history = History(shop, StreamId("shop", f"orders_{next(numbers)}"))
        for event in events:
            event(history)
            history.day += 1
        history.day += days
        before = shop.refs(history.stream)

        history.compact()
        history.remove()

        # A branch that says of itself how long it lives may be gone; what is left reads as before.
        after = shop.refs(history.stream)
        assert {ref: before[ref] for ref in after} == after
        assert {ref for ref in before.keys() - after.keys() if not ref.startswith("branch")} == set()
        history.append()
        history.remove()
        shop.refs(history.stream)

    law()
