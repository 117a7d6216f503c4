"""The metadata of a table after merges, compactions and expiries in any order."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pyiceberg.table import Table

from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.iceberg.snapshots.files import BranchFiles
from unit_tests.tables.iceberg.dedup.orders import Orders, named
from unit_tests.tables.iceberg.lake import Lake, no_rewrite
from unit_tests.tables.iceberg.maintenance.compacting import compacted
from unit_tests.tables.iceberg.maintenance.test_expiry import expire
from unit_tests.tables.iceberg.maintenance.test_orphans import remove
from unit_tests.tables.iceberg.snapshots.consistency import assert_consistent

pytestmark = pytest.mark.share(4)


@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
def test_nothing_is_left_of_the_branch_that_no_snapshot_has(orders: Orders, deletes: str) -> None:
    """Its snapshots leave the table's metadata with it, so no expiry would find what they had."""
    options: dict[str, Any] = {"dedup": {"deletes": deletes}}
    orders.sync([named(1, "a"), named(2, "a")], **options)
    orders.sync(
        [named(1, "b"), named(3, "b"), named(4, "b")], [named(3, "c")], [named(5, "c", deleted=True)], **options
    )

    assert orders.names() == {1: "b", 2: "a", 3: "c", 4: "b"}
    assert orders.lake.uris() - referred_to(orders.lake) == set()


def test_what_a_tag_of_somebody_still_has_stays(orders: Orders) -> None:
    opened = orders.open()
    orders.land(opened, named(1, "a"))
    table = orders.lake.load()
    table.manage_snapshots().create_tag(table.metadata.refs["airbyte_pending"].snapshot_id, "mine").commit()
    orders.land(opened, named(1, "b"))
    untagged = orders.lake.load().metadata.refs["airbyte_pending"].snapshot_id

    opened.publish(no_rewrite)

    assert orders.names() == {1: "b"}
    assert orders.names("mine") == {1: "a"}
    assert orders.lake.load().metadata.snapshot_by_id(untagged) is None


def kept_by_a_tag(table: Table, head: int) -> None:
    table.manage_snapshots().create_tag(head, "mine").commit()


def kept_by_a_branch(table: Table, head: int) -> None:
    table.manage_snapshots().create_branch(head, "mine").commit()


def moved_to_a_branch_of_its_own(table: Table, head: int) -> None:
    """As a cherry-pick does: another snapshot, of another manifest, with the same files."""
    with table.transaction() as transaction:
        change_branch(
            Change(
                [file.entry for file in BranchFiles(metrics=None).at(table.metadata.snapshot_by_id(head), table.io)]
            ),
            "mine",
            table,
            transaction,
        )


@pytest.mark.parametrize("keep", [kept_by_a_tag, kept_by_a_branch, moved_to_a_branch_of_its_own])
@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
def test_what_others_keep_of_an_overwrite_that_was_adopted_stays(
    orders: Orders, deletes: str, keep: Callable[[Table, int], None]
) -> None:
    options: dict[str, Any] = {"dedup": {"deletes": deletes}}
    orders.sync([named(1, "old"), named(2, "old")], **options)
    orders.land(orders.open(2, overwrite=True, **options), named(1, "a"), named(2, "a"))
    table = orders.lake.load()
    keep(table, table.metadata.refs["airbyte_generation_2"].snapshot_id)

    orders.sync([named(1, "b", 1), named(2, "b", 1)], generation=3, **options)

    assert orders.names() == {1: "b", 2: "b"}
    assert orders.names("mine") == {1: "a", 2: "a"}


def test_what_others_have_taken_from_pending_rows_stays(orders: Orders) -> None:
    opened = orders.open()
    orders.land(opened, named(1, "a"))
    table = orders.lake.load()
    moved_to_a_branch_of_its_own(table, table.metadata.refs["airbyte_pending"].snapshot_id)
    orders.land(opened, named(1, "b", 1))

    opened.publish(no_rewrite)

    assert orders.names() == {1: "b"}
    assert orders.names("mine") == {1: "a"}


def referred_to(lake: Lake) -> set[str]:
    """Return the URIs of what the table's metadata leads to, also by files that were removed."""
    table = lake.load()
    uris = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        manifests = snapshot.manifests(table.io)
        uris |= {snapshot.manifest_list, *(manifest.manifest_path for manifest in manifests)}
        for manifest in manifests:
            uris |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, False)}
    return uris


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
