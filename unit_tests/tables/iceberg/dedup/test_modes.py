"""Rows that are pending when a sync of another mode, key or cursor begins."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from destination_datalake.schema.types import Field, String
from destination_datalake.tables.fencing import Fenced
from destination_datalake.tables.iceberg.dedup.plan import PENDING_BY, UNIQUE_BY
from destination_datalake.tables.table import TableBusy, TableConflict
from unit_tests.cloud import during
from unit_tests.tables.iceberg.dedup.orders import COLUMNS, Orders, Row, named
from unit_tests.tables.iceberg.lake import no_rewrite

pytestmark = pytest.mark.share(5)

PENDING = "airbyte_pending"


def leave_pending_rows(orders: Orders) -> None:
    """Two syncs: one has ended, and one has died with rows of its own, which were acknowledged."""
    orders.sync([named(1, "old", 1), named(2, "old", 1)])
    orders.land(orders.open(), named(1, "new", 2), named(3, "new", 1))
    assert orders.names() == {1: "old", 2: "old"}
    assert orders.lake.branches() == [PENDING]


@pytest.mark.parametrize(("sent", "latest"), [([named(3, "newer", 2)], "newer"), ([], "new")])
def test_rows_of_a_sync_that_died_are_merged_with_those_of_the_next_if_any(
    orders: Orders, sent: Sequence[Row], latest: str
) -> None:
    leave_pending_rows(orders)

    orders.sync(sent)

    assert orders.names() == {1: "new", 2: "old", 3: latest}
    assert orders.lake.branches() == []


@pytest.mark.parametrize("records", [True, False], ids=["with records", "without records"])
def test_a_sync_that_appends_merges_them_before_it_adds_its_own(orders: Orders, *, records: bool) -> None:
    leave_pending_rows(orders)

    orders.sync(*([[named(1, "appended", 0)]] if records else []), key=())

    rows = orders.lake.load().scan().to_arrow().to_pylist()
    appended = [(1, "appended")] if records else []
    assert sorted((row["id"], row["name"]) for row in rows) == sorted([*appended, (1, "new"), (2, "old"), (3, "new")])
    assert (UNIQUE_BY in orders.lake.properties()) is not records
    assert orders.lake.branches() == []


@pytest.mark.parametrize("times", [3, 4])
def test_a_sync_that_appends_merges_pending_rows_at_most_four_times(orders: Orders, times: int) -> None:
    leave_pending_rows(orders)
    appending = orders.open(key=())
    left = [named(id_, "pending", 1) for id_ in range(10, 10 + times)]

    def add_after_merge(**_: object) -> None:
        if left and orders.lake.branches() == []:
            row = left.pop()
            orders.land(orders.open(), row)

    with during(orders.lake.access, "after-call.glue.UpdateTable", add_after_merge):
        if times == 4:
            with pytest.raises(TableBusy, match="keeps adding pending rows"):
                orders.land(appending, named(1, "appended", 0))
        else:
            orders.land(appending, named(1, "appended", 0))

    assert left == []
    assert orders.lake.branches() == ([PENDING] if times == 4 else [])


@pytest.mark.parametrize("key", [("id",), ()], ids=["dedup", "plain"])
def test_an_overwrite_drops_them_when_it_is_published_and_not_before(orders: Orders, key: tuple[str, ...]) -> None:
    leave_pending_rows(orders)
    overwriting = orders.open(2, overwrite=True, key=key)
    orders.land(overwriting, named(1, "refreshed", 0), named(4, "refreshed", 0))
    assert orders.lake.branches() == ["airbyte_generation_2", PENDING]

    overwriting.publish(no_rewrite)

    assert orders.names() == {1: "refreshed", 4: "refreshed"}
    assert orders.lake.branches() == []
    assert PENDING_BY not in orders.lake.properties()
    assert (UNIQUE_BY in orders.lake.properties()) is bool(key)


def test_rows_that_were_appended_are_deduplicated_once_by_the_first_merge(orders: Orders) -> None:
    orders.sync([named(1, "a", 1)], [named(1, "b", 2), named(2, "c", 5)], key=())

    orders.sync([named(2, "d", 4), named(3, "e", 1)])
    files = orders.files()
    orders.sync([named(4, "f", 1)])

    assert orders.names() == {1: "b", 2: "c", 3: "e", 4: "f"}
    assert files < orders.files()


def test_rows_that_were_appended_are_deduplicated_although_none_are_sent(orders: Orders) -> None:
    orders.sync([named(1, "a", 1)], [named(1, "b", 2)], key=())

    orders.sync()

    assert orders.names() == {1: "b"}


def test_a_refresh_that_dies_goes_on_with_its_rows(orders: Orders) -> None:
    orders.sync([named(1, "old", 9)])
    orders.land(orders.open(2, overwrite=True), named(1, "a", 1), named(2, "b", 1))

    orders.sync([named(1, "c", 2)], generation=2, overwrite=True)

    assert orders.names() == {1: "c", 2: "b"}


def test_later_refresh_fences_sync_that_continues_published_one(orders: Orders) -> None:
    orders.sync([named(1, "a", 1)], generation=2, overwrite=True)
    continuing = orders.open(2, overwrite=True)
    orders.land(continuing, named(2, "b", 1))
    orders.sync([named(3, "c", 1)], generation=3, overwrite=True)

    with pytest.raises(Fenced):
        orders.land(continuing, named(4, "d", 1))
    with pytest.raises(Fenced):
        continuing.publish(no_rewrite)

    assert orders.names() == {3: "c"}
    assert orders.lake.branches() == []


@pytest.mark.parametrize("key", [("id",), ()], ids=["dedup", "plain"])
def test_the_rows_of_a_refresh_that_is_given_up_are_adopted(orders: Orders, key: tuple[str, ...]) -> None:
    leave_pending_rows(orders)
    orders.land(orders.open(2, overwrite=True), named(3, "refreshed", 2))

    orders.sync([named(4, "d", 1)], generation=2, key=key)

    rows = orders.lake.load().scan().to_arrow().to_pylist()
    visible_rows = sorted((row["id"], row["name"]) for row in rows)
    expected = [(1, "new"), (2, "old"), (3, "refreshed"), (4, "d")]
    assert visible_rows == (expected if key else sorted([*expected, (3, "new")]))
    assert orders.lake.branches() == []


def test_the_first_sync_of_a_platform_with_constant_ids_creates_and_the_next_ones_upsert(orders: Orders) -> None:
    """PyAirbyte sends generation 1 with a minimum of 1 every time."""
    orders.sync([named(1, "a", 1)], overwrite=True)
    orders.sync([named(1, "b", 2), named(2, "c", 1)], overwrite=True)

    assert orders.names() == {1: "b", 2: "c"}


# --- Another key, another cursor


def test_another_key_is_refused_before_anything_is_written(orders: Orders) -> None:
    orders.sync([named(1, "a", 1)])

    with pytest.raises(
        TableConflict, match=r"by the primary key \(id\), but the primary key of the stream is now \(id, name\)"
    ):
        orders.open(key=("id", "name"))

    assert orders.names() == {1: "a"}


def test_a_key_of_another_type_is_another_key(orders: Orders) -> None:
    """Its values get a column of their own (`schema_conflicts`), in which the rows of the table have none."""
    orders.sync([named(1, "a", 1)])
    texts = (Field("id", "id", String()), *COLUMNS[1:])

    with pytest.raises(
        TableConflict, match=r"key \(id\), but the primary key of the stream is now \(id\), in a new column\. Refr"
    ):
        orders.open(columns=texts)
    orders.sync([{"id__string": "x", "name": "b", "version": 1}], columns=texts, generation=2, overwrite=True)
    orders.sync([{"id__string": "x", "name": "c", "version": 2}], columns=texts, generation=2)

    rows = orders.lake.load().scan().to_arrow().to_pylist()
    assert [(row["id"], row["id__string"], row["name"]) for row in rows] == [(None, "x", "c")]


def test_a_cursor_of_another_type_is_another_cursor(orders: Orders) -> None:
    """It goes on in a column of its own; rows that do not have it are older."""
    orders.sync([named(1, "a", 9), named(2, "a", 9)])
    texts = (*COLUMNS[:2], Field("version", "version", String()), *COLUMNS[3:])

    orders.sync([{"id": 1, "name": "b", "version__string": "0"}], columns=texts)
    orders.sync([{"id": 1, "name": "c", "version__string": ""}], columns=texts)

    assert orders.names() == {1: "b", 2: "a"}


@pytest.mark.parametrize(
    ("key", "remedy"), [((), "Set table_type to HIVE to continue the table"), (("id",), "only Iceberg tables support")]
)
def test_a_table_of_another_kind_is_refused_with_what_helps(orders: Orders, key: tuple[str, ...], remedy: str) -> None:
    """A Hive table cannot be continued by a stream that is deduplicated."""
    lake = orders.lake
    glue = lake.access.client("glue")
    glue.create_database(DatabaseInput={"Name": lake.name.database})
    hive = {"Name": "orders", "StorageDescriptor": {"Columns": []}, "TableType": "EXTERNAL_TABLE", "Parameters": {}}
    glue.create_table(DatabaseName=lake.name.database, TableInput=hive)  # type: ignore[arg-type]

    with pytest.raises(TableConflict, match=remedy):
        orders.open(key=key)


def test_a_refresh_brings_another_key(orders: Orders) -> None:
    orders.sync([named(1, "a", 1)])

    orders.sync([named(1, "a", 1), named(2, "a", 2)], generation=2, overwrite=True, key=("name",))
    orders.sync([named(3, "a", 3)], generation=2, key=("name",))

    assert orders.names() == {3: "a"}


def test_rows_that_are_pending_are_merged_by_the_cursor_of_the_sync_that_merges_them(orders: Orders) -> None:
    orders.sync([named(1, "a", 2), named(2, "a", 2)])
    orders.land(orders.open(), named(1, "b", 1, at=5), named(2, "b", 1, at=5))

    orders.sync([named(1, "c", 0, at=1), named(2, "c", 0, at=9)], cursor="")

    assert orders.names() == {1: "b", 2: "c"}


def test_rows_without_the_new_cursor_are_older_than_those_with_it(orders: Orders) -> None:
    orders.sync([named(1, "a", None), named(2, "b", None)], cursor="")

    orders.sync([named(1, "c", 1), named(2, "d", None)])

    assert orders.names() == {1: "c", 2: "d"}


def test_a_renamed_key_is_the_same_key(orders: Orders) -> None:
    orders.sync([named(1, "a", 1)])
    with orders.lake.load().update_schema() as update:
        update.rename_column("name", "title")

    orders.sync([named(1, "b", 2)])

    rows = orders.lake.load().scan().to_arrow().to_pylist()
    assert [(row["id"], row["name"], row["title"]) for row in rows] == [(1, "b", None)]


@pytest.mark.parametrize(("key", "cursor"), [(("nothing",), "version"), (("id",), "nothing")], ids=["key", "cursor"])
def test_a_key_or_cursor_without_a_column_is_refused(orders: Orders, key: tuple[str, ...], cursor: str) -> None:
    with pytest.raises(TableConflict, match="is the field nothing, which has no column of its own"):
        orders.open(key=key, cursor=cursor)
