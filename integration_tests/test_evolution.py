"""Tables whose streams change from sync to sync, and what other writers own in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind

INTEGER, NUMBER, STRING = {"type": "integer"}, {"type": "number"}, {"type": "string"}
INTEGERS = {"type": "array", "items": INTEGER}
HIVE_KINDS = [kind for kind in TABLE_KINDS if kind.options["table_type"] == "HIVE"]


def an_object(**properties: Mapping[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": properties}


def sync(
    platform: Platform, lake: Lake, kind: TableKind, properties: Mapping[str, object], *records: Mapping[str, object]
) -> None:
    """One sync that appends these records under this schema; the connection's settings stay what they were."""
    catalog = configured_catalog(configured_stream("orders", {"type": "object", "properties": properties}))
    lines = [record("orders", data) for data in records]
    run = platform.write(lake.config(**kind.options), catalog, [*lines, status("orders", "COMPLETE")])
    assert run.exit_code == 0, run.report()


def columns(lake: Lake) -> dict[str, str]:
    """The Glue types of the stream's own columns, in order."""
    found = lake.columns(lake.database, "orders")
    return {name: type_ for name, type_ in found.items() if not name.startswith("_airbyte_")}


def rows(lake: Lake) -> list[dict[str, Any]]:
    """The stream's own columns of every row, ordered by id."""
    found = [
        {name: value for name, value in row.items() if not name.startswith("_airbyte_")}
        for row in lake.rows(lake.database, "orders")
    ]
    return sorted(found, key=lambda row: row["id"])


def test_a_table_follows_its_stream_and_loses_nothing(lake: Lake, platform: Platform, table_kind: TableKind) -> None:
    # Given a table
    buyer = an_object(name=STRING, points=INTEGER)
    sync(
        platform, lake, table_kind,
        {"id": INTEGER, "gone": STRING, "total": NUMBER, "buyer": buyer, "counts": INTEGERS, "code": INTEGER},
        {"id": 1, "gone": "a", "total": 0.5, "buyer": {"name": "Ada", "points": 1}, "counts": [1], "code": 7},
    )  # fmt: skip
    assert columns(lake) == {
        "id": "int",
        "gone": "string",
        "total": "float",
        "buyer": "struct<name:string,points:int>",
        "counts": "array<int>",
        "code": "int",
    }
    # When a column goes, one comes in the middle, one inside an object, and one is of a type that the table's is not;
    # and when values of the next sync no longer fit what the table has been so far
    buyer = an_object(points=INTEGER, mail=STRING, name=STRING)
    sync(
        platform, lake, table_kind,
        {"id": INTEGER, "newOne": STRING, "total": NUMBER, "buyer": buyer, "counts": INTEGERS, "code": STRING},
        {"id": 2, "newOne": "b", "total": 0.25, "buyer": {"name": "Bob", "points": 2, "mail": "b@x"}, "code": "x7"},
        {"id": 3, "newOne": "c", "total": 0.1, "buyer": {"points": 2**40}, "counts": [2**40, 3], "code": "x8"},
    )  # fmt: skip
    # Then new columns are last, the others where they were, wide where they had to become so
    assert columns(lake) == {
        "id": "int",
        "gone": "string",
        "total": "double",
        "buyer": "struct<name:string,points:bigint,mail:string>",
        "counts": "array<bigint>",
        "code": "int",
        "new_one": "string",
        "code__string": "string",
    }
    assert rows(lake) == [
        {
            "id": 1,
            "gone": "a",
            "total": 0.5,
            "buyer": {"name": "Ada", "points": 1, "mail": None},
            "counts": [1],
            "code": 7,
            "new_one": None,
            "code__string": None,
        },
        {
            "id": 2,
            "gone": None,
            "total": 0.25,
            "buyer": {"name": "Bob", "points": 2, "mail": "b@x"},
            "counts": None,
            "code": None,
            "new_one": "b",
            "code__string": "x7",
        },
        {
            "id": 3,
            "gone": None,
            "total": 0.1,
            "buyer": {"name": None, "points": 2**40, "mail": None},
            "counts": [2**40, 3],
            "code": None,
            "new_one": "c",
            "code__string": "x8",
        },
    ]
    # And when everything is as it was, the old column takes values again, in the type that the table has by now
    sync(
        platform, lake, table_kind,
        {"id": INTEGER, "gone": STRING, "total": NUMBER, "code": INTEGER},
        {"id": 4, "gone": "d", "total": 1.5, "code": 8},
    )  # fmt: skip
    assert list(columns(lake)) == ["id", "gone", "total", "buyer", "counts", "code", "new_one", "code__string"]
    last = rows(lake)[-1]
    assert {name: value for name, value in last.items() if value is not None} == {
        "id": 4, "gone": "d", "total": 1.5, "code": 8,
    }  # fmt: skip


@pytest.mark.parametrize("kind", HIVE_KINDS, ids=lambda kind: kind.name)
def test_what_others_wrote_into_the_catalog_stays(lake: Lake, platform: Platform, kind: TableKind) -> None:
    # Given a table with another writer's comments, parameters, SerDe settings and columns of types we never write
    sync(platform, lake, kind, {"id": INTEGER, "orderNo": STRING}, {"id": 1, "orderNo": "a"})
    table: Any = lake.glue_table(lake.database, "orders")
    storage = table["StorageDescriptor"]
    storage["Columns"][4]["Comment"] = "the order's number, unique"
    storage["Columns"].insert(5, {"Name": "theirs", "Type": "map<string,varchar(20)>", "Comment": "filled by hand"})
    storage["SerdeInfo"]["Parameters"]["ignore.malformed.json"] = "true"
    entry = {
        "Name": "orders",
        "Description": "all orders",
        "Owner": "the shop",
        "Retention": 7,
        "TableType": table["TableType"],
        "Parameters": {**table["Parameters"], "classified": "yes"},
        "StorageDescriptor": storage,
    }
    lake.glue.update_table(DatabaseName=lake.database, TableInput=entry)  # type: ignore[arg-type]
    # When the connector adds a column and widens another
    sync(platform, lake, kind, {"id": INTEGER, "orderNo": STRING, "more": STRING}, {"id": 2**40, "more": "m"})
    # Then that is all that has changed
    after: Any = lake.glue_table(lake.database, "orders")
    assert [after[key] for key in ("Description", "Owner", "Retention", "TableType")] == [
        entry[key] for key in ("Description", "Owner", "Retention", "TableType")
    ]
    theirs = {key: value for key, value in entry["Parameters"].items() if not key.startswith("airbyte.")}
    assert after["Parameters"].items() >= theirs.items()
    assert after["StorageDescriptor"]["SerdeInfo"] == storage["SerdeInfo"]
    expected = [dict(column) for column in storage["Columns"]]
    expected[4]["Type"] = "bigint"
    expected.append({"Name": "more", "Type": "string"})
    assert after["StorageDescriptor"]["Columns"] == expected
    # And the original spelling of a name is the column's comment
    assert {c["Name"]: c.get("Comment") for c in expected}["order_no"] == "orderNo"
