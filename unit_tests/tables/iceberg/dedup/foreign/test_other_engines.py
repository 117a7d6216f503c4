"""Tables that other engines have made or written to, or changed in ways that this connector would not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from destination_datalake.tables.iceberg.snapshots.change import Change
from destination_datalake.tables.table import TableConflict
from unit_tests.tables.iceberg.dedup.orders import Orders, named
from unit_tests.tables.iceberg.lake import no_rewrite

pytestmark = pytest.mark.share(3)

# --- Tables that other engines have made or written to, in syncs that deduplicate.


ID = NestedField(1, "id", LongType())


@pytest.mark.share(1)
@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("version", ["1", "2"])
def test_a_table_of_either_format_version_becomes_unique(orders: Orders, deletes: str, version: str) -> None:
    """Version 1 has no delete files: there, files are written again."""
    orders.lake.create(Schema(ID), properties={"format-version": version})
    orders.lake.append(1, 1, 2, 3)
    more: dict[str, Any] = {"dedup": {"deletes": deletes}}

    orders.sync([named(2, "b", 1)], **more)
    assert orders.names() == {1: None, 2: "b", 3: None}
    orders.sync([named(3, "c", 1)], **more)
    orders.sync([named(1, "a", 1)], **more)
    orders.sync([named(2, "B", 2)], **more)

    assert orders.names() == {1: "a", 2: "B", 3: "c"}
    assert orders.lake.load().metadata.format_version == int(version)


def test_keys_of_a_narrower_type_are_found(orders: Orders) -> None:
    orders.lake.create(Schema(NestedField(1, "id", IntegerType())))
    orders.lake.load().append(pa.table({"id": pa.array([1, 2, 3], pa.int32())}))

    orders.sync([named(2, "b", 1)])
    orders.sync([named(3, "c", 1), named(2**40, "d", 1)])

    assert orders.names() == {1: None, 2: "b", 3: "c", 2**40: "d"}


# --- Tables that others have made, or changed in ways that this connector would not.


@pytest.mark.parametrize("branch", ["main", "airbyte_pending"])
@pytest.mark.parametrize("key", [(), ("id",)], ids=["appended", "deduplicated"])
def test_a_file_that_is_listed_twice_is_refused_and_keeps_its_rows(
    orders: Orders, branch: str, key: tuple[str, ...]
) -> None:
    """A removal is by path: it would remove both, and a row that one of them still has."""
    orders.sync([named(1, "a"), named(2, "b")], key=key)
    syncing = orders.open()
    orders.land(syncing, named(3, "c"))
    orders.lake.merge(Change(orders.lake.files(branch)), branch)
    before = orders.lake.ids(), orders.lake.ids("airbyte_pending")

    with pytest.raises(TableConflict, match="lists a file more than once"):
        syncing.publish(no_rewrite)

    assert (orders.lake.ids(), orders.lake.ids("airbyte_pending")) == before


def test_rows_cannot_be_merged_without_the_columns_that_they_are_compared_by(orders: Orders) -> None:
    orders.sync([named(1, "a")])
    opened = orders.open()
    orders.land(opened, named(1, "b"))
    with orders.lake.load().update_schema() as update:
        update.delete_column("_airbyte_extracted_at")

    with pytest.raises(TableConflict, match="a column of this key or a metadata column of the connector was dropped"):
        opened.publish(no_rewrite)

    assert orders.lake.branches() == ["airbyte_pending"]


def test_a_table_of_another_engine_is_deduplicated_by_its_own_spelling_of_columns(orders: Orders) -> None:
    fields = [NestedField(1, "ID", LongType()), NestedField(2, "name", StringType())]
    orders.lake.create(Schema(*fields))
    rows = [{"ID": 1, "name": "theirs"}, {"ID": 2, "name": "theirs"}, {"ID": 2, "name": "theirs, twice"}]
    orders.lake.load().append(pa.Table.from_pylist(rows))

    orders.sync([{"ID": 1, "name": "ours", "version": 1}])

    names = [row["name"] for row in orders.lake.load().scan().to_arrow().to_pylist() if row["ID"] == 1]
    assert (names, len(orders.lake.load().scan().to_arrow())) == (["ours"], 2)
