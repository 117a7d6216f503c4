"""A field whose type has changed to one that its column cannot hold."""

from typing import Any

from integration_tests.harness.messages import configured_stream, record, status
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

COMPLETE = [status("orders", "COMPLETE"), status("users", "COMPLETE")]
USERS = configured_stream("users", object_schema(id=INTEGER))
BEFORE = configured_stream("orders", object_schema(id=INTEGER, code=INTEGER, buyer=object_schema(points=INTEGER)))
AFTER = configured_stream("orders", object_schema(id=INTEGER, code=STRING, buyer=object_schema(points=STRING)))
LINES = (
    "Column code__string holds what is sent for code as string; code is int.",
    "Column buyer__struct holds what is sent for buyer as struct<points:string>; buyer is struct<points:int>.",
)


def old_order(id: int) -> bytes:
    return record("orders", {"id": id, "code": 7, "buyer": {"points": 1}})


def new_order(id: int) -> bytes:
    return record("orders", {"id": id, "code": "x7", "buyer": {"points": "many"}})


def describe(warehouse: Warehouse, text: str) -> None:
    """Set a table's description as in the Glue console."""
    entry: Any = warehouse.lake.glue_table(warehouse.lake.database, "orders")
    names = ("Name", "TableType", "Parameters", "StorageDescriptor", "PartitionKeys")
    kept = {key: entry[key] for key in names if key in entry}
    described: Any = {**kept, "Description": text}
    warehouse.lake.glue.update_table(DatabaseName=warehouse.lake.database, TableInput=described)


def test_a_conflicting_type_gets_a_column_of_its_own_and_the_table_s_comment_tells_of_both(
    warehouse: Warehouse,
) -> None:
    """What stood in the comment stays before it, and two syncs say it once; inside an object the whole object moves."""
    warehouse.sync([BEFORE], [old_order(1), COMPLETE[0]])
    describe(warehouse, "Every order.")

    warehouse.sync([AFTER], [new_order(2), COMPLETE[0]])
    warehouse.sync([AFTER], [new_order(3), COMPLETE[0]])

    old = {"code": 7, "buyer": {"points": 1}, "code__string": None, "buyer__struct": None}
    new = {"code": None, "buyer": None, "code__string": "x7", "buyer__struct": {"points": "many"}}
    assert warehouse.rows("orders") == [{"id": 1, **old}, {"id": 2, **new}, {"id": 3, **new}]
    entry = warehouse.lake.glue_table(warehouse.lake.database, "orders")
    assert entry["Description"] == "\n".join(["Every order.", *LINES])
