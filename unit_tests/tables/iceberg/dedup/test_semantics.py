"""Which rows are in a table after syncs that deduplicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from random import Random
from typing import Any

import pytest

from destination_datalake.files.dedup import index
from destination_datalake.tables.iceberg.dedup import plan
from unit_tests.tables.iceberg.dedup.orders import Orders, named, only_history_of_main

pytestmark = pytest.mark.share(3)

V = dict[str, Any]


def v(name: str, version: int | None = 0, **more: Any) -> V:
    return {"name": name, "version": version, **more}


CASES: Mapping[str, tuple[Sequence[Sequence[V]], str | None]] = {
    "the higher cursor within a sync": ([[v("a", 1), v("b", 2)]], "b"),
    "the higher cursor within a sync, sent first": ([[v("a", 2), v("b", 1)]], "a"),
    "a higher cursor replaces": ([[v("a", 1)], [v("b", 2)]], "b"),
    "a lower cursor does not": ([[v("a", 2)], [v("b", 1)]], "a"),
    "null is lower than any value": ([[v("a", -1)], [v("b", None, at=9)]], "a"),
    "any value is higher than null": ([[v("a", None, at=9)], [v("b", -1)]], "b"),
    "of equal cursors the later extraction": ([[v("a", 1, at=2)], [v("b", 1, at=1)]], "a"),
    "of null cursors the later extraction": ([[v("a", None, at=1)], [v("b", None, at=2)]], "b"),
    "at a tie what arrives replaces what is there": ([[v("a")], [v("b")]], "b"),
    "at a tie what arrived last": ([[v("a"), v("b")]], "b"),
    "a row that no sync sends again stays": ([[v("a")], [], []], "a"),
    "a deletion deletes": ([[v("a", 1)], [v("", 2, deleted=True)]], None),
    "a deletion at a tie deletes": ([[v("a")], [v("", deleted=True)]], None),
    "an older deletion does not": ([[v("a", 2)], [v("", 1, deleted=True)]], "a"),
    "a deletion of nothing inserts nothing": ([[v("", deleted=True)]], None),
    "a key that came and went in one sync": ([[v("a", 1), v("", 2, deleted=True)]], None),
    "a key that comes back in the same sync": ([[v("a", 1), v("", 2, deleted=True), v("c", 3)]], "c"),
    "a key that comes back in a later sync": ([[v("a", 1)], [v("", 2, deleted=True)], [v("c", 1)]], "c"),
}


@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
def test_a_table_has_the_latest_row_of_each_key(orders: Orders, deletes: str) -> None:
    """Each case is a key; all are in the same syncs. One of the keys is null."""
    ids = {case: number or None for number, case in enumerate(CASES)}
    for number in range(3):
        records = [
            {"id": ids[case], **row}
            for case, (syncs, _) in CASES.items()
            for row in (syncs[number] if number < len(syncs) else ())
        ]
        orders.sync(records, dedup={"deletes": deletes})

    names = orders.names()
    assert {case: names.get(ids[case]) for case in CASES} == {case: name for case, (_, name) in CASES.items()}
    assert orders.lake.branches() == []


def test_what_was_merged_leaves_no_snapshots_beside_those_of_main(orders: Orders) -> None:
    """Iceberg's library until 1.9 would delete the files that such a snapshot has added, although main has them."""
    orders.sync([named(1, "a", 1)], [named(2, "b", 1)])
    orders.sync([named(1, "c", 2)], [named(3, "d", 1)])

    assert orders.names() == {1: "c", 2: "b", 3: "d"}
    assert only_history_of_main(orders)


def test_a_merge_of_old_versions_alone_adds_no_snapshot_and_ends_what_was_pending(orders: Orders) -> None:
    orders.sync([named(1, "new", 2)])
    before = orders.lake.load().metadata.current_snapshot_id

    orders.sync([named(1, "old", 1)])

    assert orders.names() == {1: "new"}
    assert orders.lake.branches() == []
    assert orders.lake.load().metadata.current_snapshot_id == before


def test_soft_deletions_are_rows_as_others(orders: Orders) -> None:
    soft = {"cdc_deletion": "soft"}

    orders.sync([{"id": 1, **v("a", 1)}], dedup=soft)
    orders.sync([{"id": 1, **v("b", 2, deleted=True)}, {"id": 2, **v("c", deleted=True)}], dedup=soft)

    assert orders.names() == {1: "b", 2: "c"}


def test_no_row_comes_of_syncs_without_records(orders: Orders) -> None:
    orders.sync()
    orders.sync()

    assert orders.names() == {}


@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
def test_many_keys_are_divided_among_tasks(orders: Orders, monkeypatch: pytest.MonkeyPatch, deletes: str) -> None:
    # Given an index that has to be in several parts, each a file
    monkeypatch.setattr(plan, "_ROWS_OF_A_PART", 50)
    monkeypatch.setattr(index, "_INLINE_BYTES", 0)
    random = Random(12)
    expected: dict[int, tuple[int, str]] = {}

    # When each of many keys has some versions in each of some syncs
    for sync in range(3):
        batches = [
            [(random.randrange(300), f"{sync}-{batch}-{row}", random.randrange(9)) for row in range(150)]
            for batch in range(2)
        ]
        orders.sync(*([named(*row) for row in rows] for rows in batches), dedup={"deletes": deletes})
        for id_, name, version in chain.from_iterable(batches):
            if id_ not in expected or version >= expected[id_][0]:
                expected[id_] = (version, name)

    # Then the table has the latest of each
    assert orders.names() == {id_: name for id_, (_, name) in expected.items()}
