"""Tables that another writer created: what a sync leaves unchanged in them."""

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.types import BinaryType, IntegerType, LongType, NestedField, StringType, StructType

from integration_tests.harness.messages import Json, configured_stream, record, state, status
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

COMPLETE = status("orders", "COMPLETE")
SCHEMA = object_schema(id=INTEGER, orderNo=STRING, more=STRING)
ORDERS = configured_stream("orders", SCHEMA)
ICEBERG = [kind for kind in TABLE_KINDS if kind.options["table_type"] == "ICEBERG"]
ID = NestedField(1, "id", IntegerType(), required=True, doc="the order's number")
ORDER_NO = NestedField(2, "order_no", StringType(), doc="on the paper")
PICTURE = NestedField(3, "picture", BinaryType(), doc="a scan")
BUYER = NestedField(4, "buyer", StructType(NestedField(5, "name", StringType(), required=True, doc="in full")))
BY_NUMBER = SortOrder(SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST))

pytestmark = pytest.mark.parametrize("table_kind", ICEBERG, ids=lambda kind: kind.name)


def create(warehouse: Warehouse, *fields: NestedField, **properties: str) -> Any:
    """Make the table as another engine does, and return it."""
    lake = warehouse.lake
    lake.glue.create_database(DatabaseInput={"Name": lake.database})
    return lake.create_iceberg_table(lake.database, "orders", Schema(*fields), BY_NUMBER, properties)


def test_another_engine_s_iceberg_table_keeps_all_that_is_not_ours(warehouse: Warehouse) -> None:
    """Required columns, ids, comments, types that are never written here, order of columns and of rows, properties."""
    create(warehouse, ID, ORDER_NO, PICTURE, BUYER, comment="Every order.", theirs="yes")

    for generation in (1, 2):
        stream = configured_stream("orders", SCHEMA, generation=generation, minimum=generation)
        warehouse.sync([stream], [record("orders", {"id": 2**40, "orderNo": "a", "more": "b"}), COMPLETE])

    table = warehouse.lake.iceberg_table(warehouse.lake.database, "orders")
    names = [field.name for field in table.schema().fields]
    assert names[:4] == ["id", "order_no", "picture", "buyer"]
    assert names[4:] == [*(name for name in names if name.startswith("_airbyte_")), "more"]
    assert [str(field) for field in table.schema().fields[:4]] == [
        str(field) for field in (wider(ID), ORDER_NO, PICTURE, BUYER)
    ]
    assert table.sort_order() == BY_NUMBER
    assert table.properties.items() >= {"comment": "Every order.", "theirs": "yes"}.items()
    comments = {
        column["Name"]: column.get("Comment")
        for column in warehouse.lake.glue_table(warehouse.lake.database, "orders")["StorageDescriptor"]["Columns"]
    }
    assert (comments["id"], comments["order_no"]) == (ID.doc, ORDER_NO.doc)


def wider(field: NestedField) -> NestedField:
    return field.model_copy(update={"field_type": LongType()})


def test_a_record_without_a_value_for_a_required_column_fails_its_stream(warehouse: Warehouse) -> None:
    """Nothing else would notice, and readers may make of it what they like."""
    create(warehouse, ID)

    run = warehouse.attempt([ORDERS], [record("orders", {"orderNo": "a"}), state("orders", 1), COMPLETE])

    assert run.exit_code == 1
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert "its column id is required, and records have no value for it" in error["message"]
    assert run.states == []
    assert warehouse.rows("orders") == []
    assert not [key for key in warehouse.lake.objects() if "/data/" in key]


def test_a_required_column_that_the_stream_does_not_have_is_found_before_anything_is_written(
    warehouse: Warehouse,
) -> None:
    """The table stays as it is."""
    before = create(warehouse, ID, NestedField(2, "theirs", StringType(), required=True)).metadata

    run = warehouse.attempt([ORDERS], [record("orders", {"id": 1}), state("orders", 1), COMPLETE])

    assert run.exit_code == 1
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert "its column theirs is required, and the stream has no such field" in error["message"]
    assert warehouse.lake.iceberg_table(warehouse.lake.database, "orders").metadata == before


def test_rows_are_in_the_partitions_of_another_engine_s_table(warehouse: Warehouse) -> None:
    """Nulls too, and where a partition field has been removed."""
    table = create(warehouse, ID, ORDER_NO, PICTURE)
    with table.update_spec() as update:
        update.add_field("order_no", TruncateTransform(1), "first").add_field("id", BucketTransform(4), "bucket")
        update.add_field("picture", VoidTransform(), "removed")

    rows: list[Json] = [{"id": 1, "orderNo": "ab"}, {"id": 2, "orderNo": "ac"}, {"id": 3, "orderNo": "b"}, {"id": 4}]
    warehouse.sync([ORDERS], [*(record("orders", row) for row in rows), state("orders", 1), COMPLETE])

    assert warehouse.ids("orders") == [1, 2, 3, 4]
    table = warehouse.lake.iceberg_table(warehouse.lake.database, "orders")
    partitions = [tuple(task.file.partition._data) for task in table.scan().plan_files()]
    bucket = BucketTransform(4).transform(IntegerType())
    assert set(partitions) == {(first, bucket(id), None) for id, first in ((1, "a"), (2, "a"), (3, "b"), (4, None))}
    assert len(table.scan("order_no is null").to_arrow()) == 1


def test_a_column_takes_the_field_whose_name_differs_only_in_case(warehouse: Warehouse) -> None:
    """Glue, Athena and Spark could not tell two such columns apart."""
    create(warehouse, ID, NestedField(2, "Order_No", StringType()))

    for id in (1, 2):
        warehouse.sync([ORDERS], [record("orders", {"id": id, "orderNo": "a", "more": "b"}), COMPLETE])

    assert warehouse.rows("orders") == [{"id": id, "Order_No": "a", "more": "b"} for id in (1, 2)]
