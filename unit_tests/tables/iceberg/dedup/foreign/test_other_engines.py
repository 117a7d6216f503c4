"""Tables that other engines have made or written to, in syncs that deduplicate."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField

from unit_tests.tables.iceberg.dedup.orders import Orders, named

ID = NestedField(1, "id", LongType())


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


def test_a_file_never_has_more_than_one_file_of_position_deletes(orders: Orders) -> None:
    more: dict[str, Any] = {"dedup": {"deletes": "merge_on_read"}}
    orders.sync([named(number, "a", 1) for number in range(10)], **more)

    for number in range(3):
        orders.sync([named(number, "b", 2)], **more)

    assert orders.names() == {number: "b" if number < 3 else "a" for number in range(10)}
    tasks = orders.lake.load().scan().plan_files()
    assert sorted(len(task.delete_files) for task in tasks) == [0, 0, 0, 1]


def test_keys_of_a_narrower_type_are_found(orders: Orders) -> None:
    orders.lake.create(Schema(NestedField(1, "id", IntegerType())))
    orders.lake.load().append(pa.table({"id": pa.array([1, 2, 3], pa.int32())}))

    orders.sync([named(2, "b", 1)])
    orders.sync([named(3, "c", 1), named(2**40, "d", 1)])

    assert orders.names() == {1: None, 2: "b", 3: "c", 2**40: "d"}
