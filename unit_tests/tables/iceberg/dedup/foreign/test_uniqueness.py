"""Content that another writer, or a rollback, has made not unique: the next merge makes it so, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from destination_datalake.files.dedup.tasks import WinnersTask
from destination_datalake.schema.types import Field, Float32, Float64
from destination_datalake.tables.iceberg.snapshots.change import Change
from destination_datalake.tables.table import Committed, TableConflict
from unit_tests.tables.iceberg.dedup.orders import COLUMNS, Orders, named
from unit_tests.tables.iceberg.lake import no_rewrite
from unit_tests.tables.iceberg.maintenance.compacting import compacted
from unit_tests.tables.iceberg.test_promotion import TENTH, Executors

pytestmark = pytest.mark.share(3)


@pytest.fixture
def pooled(orders: Orders) -> list[int]:
    """The files of the content that were pooled, by the number of their rows."""
    row_counts: list[int] = []

    def note(_name: str, tasks: Sequence[Any], _results: object) -> None:
        files = orders.files()
        sources = [source for task in tasks if isinstance(task, WinnersTask) for source in task.files]
        row_counts.extend(sorted(source.rows for source in sources if source.uri in files))

    orders.watch(note)
    return row_counts


UNIQUE = {1: "a", 2: "a", 3: "b", 4: "b"}


def append(orders: Orders, *rows: Mapping[str, Any], branch: str = "main") -> None:
    """Append rows as another engine does."""
    table = orders.lake.load()
    names = {field.name for field in table.schema().fields}
    columns = [{key: value for key, value in orders.row(**row).items() if key in names} for row in rows]
    table.append(pa.Table.from_pylist(columns, schema=table.schema().as_arrow()), branch=branch)


def replace(orders: Orders, *rows: Mapping[str, Any]) -> None:
    """Replace the table as `CREATE OR REPLACE TABLE … AS` of Spark and Trino does (TableMetadata.buildReplacement).

    Its properties, its other branches and all snapshots stay; main begins anew.
    """
    append(orders, *rows, branch="replacement")
    table = orders.lake.load()
    head = table.metadata.refs["replacement"].snapshot_id
    assert table.metadata.snapshot_by_id(head).parent_snapshot_id is None  # type: ignore[union-attr]
    with table.manage_snapshots() as snapshots:
        snapshots.set_current_snapshot(head).remove_branch("replacement")


def roll_back(orders: Orders, snapshot: int) -> None:
    with orders.lake.load().manage_snapshots() as snapshots:
        snapshots.set_current_snapshot(snapshot)


def head(orders: Orders) -> int:
    return orders.lake.load().metadata.refs["main"].snapshot_id


def unique(orders: Orders) -> None:
    """A table of several files."""
    orders.sync([named(1, "a", 1), named(2, "a", 1), named(3, "a", 1)])
    orders.sync([named(3, "b", 2), named(4, "b", 1)])
    assert orders.names() == UNIQUE


@pytest.mark.share(1)
@pytest.mark.parametrize("records", [[], [named(9, "ours", 1)]], ids=["without records", "with others"])
def test_a_key_that_another_engine_has_appended_again_is_there_once(
    orders: Orders, pooled: list[int], records: list[Mapping[str, Any]]
) -> None:
    """Only what it has appended is read, and looked up in the rest."""
    unique(orders)
    append(orders, named(1, "theirs", 2), named(2, "theirs", 0), named(5, "theirs", 1))
    append(orders, named(5, "theirs, newer", 2))
    pooled.clear()

    orders.sync(records)

    own_names = {record["id"]: record["name"] for record in records}
    assert orders.names() == {1: "theirs", 2: "a", 3: "b", 4: "b", 5: "theirs, newer", **own_names}
    assert pooled == [1, 3]
    pooled.clear()
    orders.sync([named(1, "ours", 3)])
    assert orders.names()[1] == "ours"
    assert pooled == []


def test_a_key_that_is_appended_while_a_merge_is_committed_is_there_once(orders: Orders, pooled: list[int]) -> None:
    unique(orders)
    opened = orders.open()
    orders.land(opened, named(4, "ours", 2))
    orders.lake.at_the_next_update(lambda: append(orders, named(1, "theirs", 2)))

    opened.publish(no_rewrite)

    assert orders.names() == {1: "theirs", 2: "a", 3: "b", 4: "ours"}
    assert pooled == [1]


def test_a_key_that_is_appended_after_the_merge_of_an_earlier_batch_is_there_once(orders: Orders) -> None:
    unique(orders)
    opened = orders.open()
    orders.land(opened, named(4, "ours", 2))
    opened.merge()
    append(orders, named(1, "theirs", 2))
    orders.land(opened, named(4, "ours, newer", 3))

    opened.publish(no_rewrite)

    assert orders.names() == {1: "theirs", 2: "a", 3: "b", 4: "ours, newer"}


@pytest.mark.slow
def test_content_that_replaced_the_table_is_deduplicated(orders: Orders, pooled: list[int]) -> None:
    unique(orders)
    replace(orders, named(1, "x", 5), named(1, "y", 6), named(2, "x", 1))
    pooled.clear()

    orders.sync([named(2, "ours", 2)])
    assert orders.names() == {1: "y", 2: "ours"}
    assert pooled == [3]
    orders.sync([named(2, "ours, newer", 3)])

    assert orders.names() == {1: "y", 2: "ours, newer"}
    assert pooled == [3]


def test_what_is_pending_when_the_table_is_replaced_is_merged_into_the_new_content(orders: Orders) -> None:
    unique(orders)
    orders.land(orders.open(), named(1, "ours", 9))
    replace(orders, named(1, "x", 5), named(1, "y", 6))

    orders.sync()

    assert orders.names() == {1: "ours"}


def test_a_rollback_to_appended_content_is_deduplicated(orders: Orders) -> None:
    orders.sync([named(1, "a", 1)], [named(1, "b", 2), named(2, "b", 1)], key=())
    appended = head(orders)
    orders.sync([named(2, "c", 2)])
    roll_back(orders, appended)

    orders.sync([named(3, "d", 1)])

    assert orders.names() == {1: "b", 2: "b", 3: "d"}


def test_a_rollback_to_unique_content_needs_no_pooling(orders: Orders, pooled: list[int]) -> None:
    orders.sync([named(1, "a", 1), named(2, "a", 1)])
    earlier = head(orders)
    orders.sync([named(1, "b", 2)])
    append(orders, named(2, "theirs", 2))
    roll_back(orders, earlier)
    pooled.clear()

    orders.sync([named(2, "c", 2)])

    assert orders.names() == {1: "a", 2: "c"}
    assert pooled == []


def test_content_of_a_branch_that_main_was_moved_to_is_deduplicated(orders: Orders) -> None:
    """As write-audit-publish does: what was written to a branch becomes main's by fast-forward."""
    unique(orders)
    with orders.lake.load().manage_snapshots() as snapshots:
        snapshots.create_branch(head(orders), "audit")
    append(orders, named(1, "theirs", 2), branch="audit")
    roll_back(orders, orders.lake.load().metadata.refs["audit"].snapshot_id)

    orders.sync([named(4, "ours", 3)])

    assert orders.names() == {1: "theirs", 2: "a", 3: "b", 4: "ours"}


@pytest.mark.slow
@pytest.mark.share(1)
@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
def test_deletes_and_compactions_leave_content_unique(orders: Orders, pooled: list[int], deletes: str) -> None:
    more: dict[str, Any] = {"dedup": {"deletes": deletes}}
    for number in range(7):
        orders.sync([named(number, "a", 1)], [named(0, "a", number)], **more)
    pooled.clear()

    orders.lake.merge(Change((), orders.lake.files()[:1]))
    assert compacted(orders.lake).commits == 1
    orders.lake.delete_first_row()
    remaining = orders.names()
    orders.sync([named(9, "d", 1)], **more)

    assert orders.names() == {**remaining, 9: "d"}
    assert pooled == []


def test_a_compaction_is_known_to_have_kept_content_unique_when_all_before_it_has_expired(
    orders: Orders, pooled: list[int]
) -> None:
    unique(orders)
    orders.sync(*([named(number, "c", 1)] for number in range(5, 10)))
    assert compacted(orders.lake).commits == 1
    table = orders.lake.load()
    old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id != head(orders)]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    pooled.clear()

    orders.sync([named(1, "c", 3)])

    assert orders.names()[1] == "c"
    assert pooled == []


def test_what_was_appended_and_then_compacted_is_deduplicated(orders: Orders) -> None:
    unique(orders)
    for number in range(5):
        append(orders, named(1, "theirs", number), named(5, "theirs", 1))
    assert compacted(orders.lake).commits == 1

    orders.sync([named(4, "ours", 3)])

    assert orders.names() == {1: "theirs", 2: "a", 3: "b", 4: "ours", 5: "theirs"}


def test_a_promotion_leaves_content_unique(orders: Orders, pooled: list[int]) -> None:
    narrow, wide = ((*COLUMNS, Field("price", "price", type_)) for type_ in (Float32(), Float64()))
    orders.sync([named(1, "a", 1, price=TENTH), named(2, "a", 1, price=TENTH)], columns=narrow)
    before = orders.files()
    pooled.clear()

    opened = orders.open(columns=narrow)
    row = orders.row(**named(1, "b", 2, price=0.1))
    assert opened.commit([orders.lake.write_rows(opened, row, columns=wide)], Executors()) == Committed()
    assert orders.files().isdisjoint(before)
    opened.publish(no_rewrite)

    assert orders.names() == {1: "b", 2: "a"}
    assert pooled == []


def test_a_table_whose_snapshots_do_not_say_that_they_are_unique_is_deduplicated_once(
    orders: Orders, pooled: list[int]
) -> None:
    """Earlier versions have left no more than the property of the table."""
    unique(orders)
    snapshots = [
        {**snapshot, "summary": {key: value for key, value in snapshot["summary"].items() if "unique" not in key}}
        for snapshot in orders.lake.load().metadata.model_dump(mode="json", by_alias=True)["snapshots"]
    ]
    orders.lake.edit_metadata({"snapshots": snapshots})
    pooled.clear()

    orders.sync()
    assert pooled == [2, 2]
    orders.sync([named(4, "c", 2)])

    assert orders.names() == {1: "a", 2: "a", 3: "b", 4: "c"}
    assert pooled == [2, 2]


@pytest.mark.parametrize("raw_id", [None, "zzz"])
def test_a_row_that_arrives_wins_over_one_of_others_that_is_as_late(orders: Orders, raw_id: str | None) -> None:
    """Whatever raw ids those have: they have no order of arrival."""
    orders.sync([named(1, "a", 1), named(2, "a", 1)], key=())
    append(orders, named(1, "theirs", 1, _airbyte_raw_id=raw_id), named(3, "theirs", 1, _airbyte_raw_id=raw_id))

    orders.sync([named(1, "ours", 1), named(3, "ours", 1)])

    assert orders.names() == {1: "ours", 2: "a", 3: "ours"}


def test_a_generation_that_main_was_rolled_back_to_is_overwritten_by_a_later_one(orders: Orders) -> None:
    """The property of the table has the later one, whose rows are gone."""
    orders.sync([named(1, "a", 1)])
    first = head(orders)
    orders.sync([named(2, "b", 1)], generation=2, overwrite=True)
    roll_back(orders, first)

    # A retry would not send again what was rolled back
    with pytest.raises(TableConflict, match="Refresh the stream"):
        orders.sync([named(3, "c", 1)], generation=2, overwrite=True)
    orders.sync([named(3, "c", 1)], generation=3, overwrite=True)

    assert orders.names() == {3: "c"}


def test_rows_that_replaced_the_table_are_kept_by_a_platform_with_constant_ids(orders: Orders) -> None:
    orders.sync([named(1, "a", 1)], overwrite=True)
    replace(orders, named(1, "x", 5), named(2, "x", 1))

    orders.sync([named(2, "b", 2)], overwrite=True)

    assert orders.names() == {1: "x", 2: "b"}
