"""Rows that were acknowledged and cannot be merged, since another engine has changed the table: the way out is told."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from destination_datalake.schema.types import Field, String
from destination_datalake.tables.iceberg.compatibility import incompatibility
from destination_datalake.tables.iceberg.snapshots.change import Change
from destination_datalake.tables.table import TableConflict
from unit_tests.tables.iceberg.dedup.orders import COLUMNS, Orders, named
from unit_tests.tables.iceberg.lake import no_rewrite
from unit_tests.tables.iceberg.test_inspection import notes

pytestmark = pytest.mark.share(3)

_RENAME = re.compile(r"ALTER TABLE \.\.\. RENAME COLUMN (\w+) TO (\w+)")
_INSERT = re.compile(r"INSERT INTO \.\.\. SELECT \* FROM \.\.\. VERSION AS OF '(\w+)'")
_SELECT = re.compile(r"SELECT \* FROM \.\.\. VERSION AS OF (\d+)")


def leave_stranded_rows(orders: Orders, *, merged: bool) -> None:
    """Rows of a sync that died; the content has been merged before, or has not."""
    if merged:
        orders.sync([named(1, "old", 1), named(2, "old", 1)])
    orders.land(orders.open(), named(1, "new", 2), named(3, "new", 2))


def refused(orders: Orders, **more: Any) -> str:
    with pytest.raises(TableConflict) as error:
        orders.open(**more)
    return str(error.value)


@pytest.mark.parametrize("merged", [True, False], ids=["merged before", "first sync"])
def test_a_key_that_was_renamed_is_renamed_back(orders: Orders, *, merged: bool) -> None:
    """Its new column is null in all rows, so they would become one."""
    leave_stranded_rows(orders, merged=merged)
    with orders.lake.load().update_schema() as update:
        update.rename_column("id", "number")

    told = refused(orders)

    assert "2 acknowledged rows on the branch airbyte_pending" in told
    [statement] = _RENAME.findall(told)
    with orders.lake.load().update_schema() as update:
        update.rename_column(*statement)
    orders.sync([named(4, "d", 1)])
    assert orders.names() == {1: "new", **({2: "old"} if merged else {}), 3: "new", 4: "d"}


@pytest.mark.parametrize("merged", [True, False], ids=["merged before", "first sync"])
def test_rows_whose_key_was_dropped_are_read_with_it(orders: Orders, *, merged: bool) -> None:
    leave_stranded_rows(orders, merged=merged)
    with orders.lake.load().update_schema() as update:
        update.delete_column("id")

    told = refused(orders)

    assert "2 acknowledged rows on the branch airbyte_pending" in told
    assert any("2 acknowledged rows on the branch airbyte_pending" in note for note in notes(orders.lake))
    [snapshot] = _SELECT.findall(told)
    rows = orders.lake.load().scan(snapshot_id=int(snapshot)).to_arrow().to_pylist()
    assert {row["id"]: row["name"] for row in rows} == {1: "new", 3: "new"}


def test_rows_whose_key_is_dropped_during_the_sync_are_read_with_it(orders: Orders) -> None:
    opened = orders.open()
    orders.land(opened, named(1, "new", 2), named(3, "new", 2))
    with orders.lake.load().update_schema() as update:
        update.delete_column("id")

    with pytest.raises(
        TableConflict, match="a column of this key or a metadata column of the connector was dropped"
    ) as error:
        opened.publish(no_rewrite)

    assert orders.lake.branches() == ["airbyte_pending"]
    [snapshot] = _SELECT.findall(str(error.value))
    rows = orders.lake.load().scan(snapshot_id=int(snapshot)).to_arrow().to_pylist()
    assert sorted(row["id"] for row in rows) == [1, 3]


def test_rows_whose_key_has_another_type_in_the_source_are_refreshed(orders: Orders) -> None:
    """In the new column all of them are null: they would become one."""
    leave_stranded_rows(orders, merged=False)
    texts = (Field("id", "id", String()), *COLUMNS[1:])

    told = refused(orders, columns=texts)

    assert re.search(r"2 acknowledged rows .* Refresh the stream", told)
    orders.sync([{"id__string": "1", "name": "a", "version": 1}], columns=texts, generation=2, overwrite=True)
    assert [row["name"] for row in orders.lake.load().scan().to_arrow().to_pylist()] == ["a"]


def test_another_key_that_pending_rows_have_is_taken(orders: Orders) -> None:
    """The key was chosen wrongly, and nothing was merged by it."""
    leave_stranded_rows(orders, merged=False)

    orders.sync([named(1, "newer", 3)], key=("name",))

    assert sorted(row["name"] for row in orders.lake.load().scan().to_arrow().to_pylist()) == ["new", "newer"]


def test_rows_that_are_pending_when_the_table_is_upgraded_are_copied_with_it(orders: Orders) -> None:
    leave_stranded_rows(orders, merged=True)
    old = orders.lake.load()
    orders.lake.edit_metadata({"format-version": 3, "next-row-id": 0})

    told = refused(orders)

    assert "2 acknowledged rows on the branch airbyte_pending" in told
    assert told.count("airbyte_pending") == 2
    assert any("2 acknowledged rows on the branch airbyte_pending" in note for note in notes(orders.lake))
    copy = _copied(orders, old, old.metadata.refs["main"].snapshot_id)
    [branch] = _INSERT.findall(told)
    copy.append(_rows(old, old.metadata.refs[branch].snapshot_id))
    orders.sync([named(4, "d", 1)])
    assert orders.names() == {1: "new", 2: "old", 3: "new", 4: "d"}


def test_what_is_said_of_a_table_that_was_upgraded_names_unfinished_overwrites(orders: Orders) -> None:
    orders.sync([named(1, "old", 1)])
    orders.land(orders.open(2, overwrite=True), named(1, "new", 2))
    orders.lake.edit_metadata({"format-version": 3, "next-row-id": 0})

    assert re.search(r"Refresh the stream afterwards: .* the branch airbyte_generation_2", refused(orders))


def test_nothing_is_said_of_rows_where_none_are_pending(orders: Orders) -> None:
    orders.sync([named(1, "old", 1)])
    left_over = orders.open()
    orders.land(left_over, named(2, "new", 1))
    orders.lake.merge(Change((), orders.lake.files("airbyte_pending")), "airbyte_pending")
    orders.lake.edit_metadata({"format-version": 3, "next-row-id": 0})

    told = refused(orders)

    assert "acknowledged" not in told
    assert incompatibility(orders.lake.load().metadata) in told  # type: ignore[operator]


def _rows(table: Table, snapshot: int) -> pa.Table:
    return table.scan(snapshot_id=snapshot).to_arrow()


def _copied(orders: Orders, old: Table, snapshot: int) -> Table:
    """Put a copy of the content of format version 2 into the table's place."""
    rows, schema, location = _rows(old, snapshot), old.schema(), f"s3://{orders.lake.bucket}/orders"
    catalog = orders.lake._catalog()
    catalog.drop_table(orders.lake.name)
    copy = catalog.create_table(orders.lake.name, schema, location=location)
    copy.append(rows)
    return copy
