"""Airbyte's BasicFunctionalityIntegrationTest here: types.

Each test bears its scenario's name, in snake case.
"""

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest

from integration_tests.conformance.airbyte.orders import COMPLETE, orders
from integration_tests.harness.messages import record, state
from integration_tests.harness.runs.output import record_count, same_text
from integration_tests.harness.warehouse import BOOLEAN, INTEGER, NUMBER, STRING, Warehouse, object_schema


def test_basic_types(warehouse: Warehouse) -> None:
    """Values of every basic type arrive; one that does not fit becomes null and says so in `_airbyte_meta.changes`."""
    schema = object_schema(
        id=INTEGER, string=STRING, number=NUMBER, integer=INTEGER, boolean=BOOLEAN,
        day={"type": "string", "format": "date"},
        moment={"type": "string", "format": "date-time"},
        clock={"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"},
        time={"type": "string", "format": "time", "airbyte_type": "time_without_timezone"},
    )  # fmt: skip
    good = {
        "id": 1, "string": "fo\u0000o", "number": 42.125, "integer": 42, "boolean": True, "day": "2023-01-23",
        "moment": "2023-01-23T12:34:56+05:00", "clock": "2023-01-23T12:34:56", "time": "12:34:56",
    }  # fmt: skip
    nulls = dict.fromkeys(good) | {"id": 2}
    bad = {
        "id": 3, "string": {"an": "object"}, "number": "foo", "integer": "foo", "boolean": "foo", "day": "foo",
        "moment": "foo", "clock": "foo", "time": "foo",
    }  # fmt: skip
    large = {"id": 4, "integer": 12345678901234567890123456789012, "number": 1e39}

    warehouse.sync([orders(schema=schema)], [*(record("orders", row) for row in (good, nulls, bad, large)), COMPLETE])

    rows = {row["id"]: row for row in warehouse.whole_rows("orders")}
    kept = {key: value for key, value in rows[1].items() if not key.startswith("_")}
    assert kept | {"moment": kept["moment"].replace(tzinfo=UTC)} == {
        "id": 1, "string": "fo\u0000o", "number": 42.125, "integer": 42, "boolean": True, "day": date(2023, 1, 23),
        "moment": datetime(2023, 1, 23, 7, 34, 56, tzinfo=UTC), "clock": datetime(2023, 1, 23, 12, 34, 56),
        "time": "12:34:56",
    }  # fmt: skip
    assert {value for key, value in rows[2].items() if not key.startswith("_")} == {2, None}
    assert json.loads(rows[3]["string"]) == {"an": "object"}
    assert changed(rows[3]) == dict.fromkeys(
        ("number", "integer", "boolean", "day", "moment", "clock"), ("NULLED", "DESTINATION_SERIALIZATION_ERROR")
    )
    assert changed(rows[4]) == {"integer": ("NULLED", "DESTINATION_FIELD_SIZE_LIMITATION")}
    assert rows[4]["number"] == 1e39


def changed(row: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return a row's changes: field → (change, reason)."""
    return {each["field"]: (each["change"], each["reason"]) for each in row["_airbyte_meta"]["changes"]}


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        pytest.param(INTEGER, [0, -1, 2**31 - 1, 2**31, -(2**63), 2**63 - 1], id="integer"),
        pytest.param(NUMBER, [0.5, -1.25, 1.0e38, 0.1, 1.7976931348623157e308, 5e-324], id="number"),
    ],
)
def test_numeric_types(warehouse: Warehouse, kind: dict[str, object], sent: list[float]) -> None:
    """Numbers arrive as they were sent: a narrow column is widened before it would round or wrap."""
    warehouse.sync(
        [orders(schema=object_schema(id=INTEGER, value=kind))],
        [*(record("orders", {"id": number, "value": value}) for number, value in enumerate(sent)), COMPLETE],
    )

    assert [row["value"] for row in warehouse.rows("orders")] == sent


def test_container_types(warehouse: Warehouse) -> None:
    """Objects and arrays with a closed schema are structs and lists; the open ones are JSON text."""
    schema = object_schema(
        id=INTEGER,
        closed=object_schema(a=INTEGER, inner=object_schema(b=STRING)),
        open={"type": "object"},
        empty={"type": "object", "properties": {}},
        strings={"type": "array", "items": STRING},
        objects={"type": "array", "items": object_schema(c=INTEGER)},
        anything={"type": "array"},
    )
    data = {
        "id": 1, "closed": {"a": 1, "inner": {"b": "x"}}, "open": {"k": [1, {"l": None}]}, "empty": {"k": 1},
        "strings": ["a", None, "b"], "objects": [{"c": 1}, {"c": 2}], "anything": [1, "two", {"three": 3}],
    }  # fmt: skip

    warehouse.sync([orders(schema=schema)], [record("orders", data), COMPLETE])

    (row,) = warehouse.rows("orders")
    for name in ("closed", "strings", "objects"):
        assert row[name] == data[name]
    for name in ("open", "empty", "anything"):
        assert same_text(row[name].encode(), json.dumps(data[name]).encode())


def test_unknown_types(warehouse: Warehouse) -> None:
    """An unknown type is JSON text, whatever the values are."""
    schema = object_schema(id=INTEGER, mystery={"type": "potato"}, nothing={})
    sent: list[object] = ["text", 1, {"a": [1]}, True]

    warehouse.sync(
        [orders(schema=schema)],
        [*(record("orders", {"id": n, "mystery": v, "nothing": v}) for n, v in enumerate(sent)), COMPLETE],
    )

    rows = warehouse.rows("orders")
    assert [json.loads(row["mystery"]) for row in rows] == sent
    assert [json.loads(row["nothing"]) for row in rows] == sent


def test_unions(warehouse: Warehouse) -> None:
    """A union is JSON text, so that "1" and 1 stay apart; a union of one thing is that thing."""
    schema = object_schema(
        id=INTEGER,
        either={"oneOf": [STRING, INTEGER, object_schema(a=INTEGER)]},
        single={"oneOf": [INTEGER, {"type": "null"}]},
    )
    sent: list[object] = ["1", 1, {"a": 1}]

    warehouse.sync(
        [orders(schema=schema)],
        [*(record("orders", {"id": n, "either": value, "single": n}) for n, value in enumerate(sent)), COMPLETE],
    )

    rows = warehouse.rows("orders")
    assert [json.loads(row["either"]) for row in rows] == sent
    assert [row["single"] for row in rows] == [0, 1, 2]


def test_coerce_legacy_unions(warehouse: Warehouse) -> None:
    """A union in the old notation, a list of types, is the same union; null in it only says what may be absent."""
    schema = object_schema(
        id={"type": ["null", "integer"]},
        either={"type": ["string", "integer", "null"]},
        list_of_either={"type": ["array", "null"], "items": {"type": ["string", "integer"]}},
    )
    data = {"id": 1, "either": "1", "list_of_either": ["1", 1]}

    warehouse.sync([orders(schema=schema)], [record("orders", data), COMPLETE])

    (row,) = warehouse.rows("orders")
    assert row["id"] == 1
    assert json.loads(row["either"]) == "1"
    assert [json.loads(value) for value in row["list_of_either"]] == ["1", 1]


@pytest.mark.parametrize(
    "schema", [{"type": "object", "properties": {}}, {"type": "object"}, {}], ids=["empty", "open", "none"]
)
def test_no_columns(warehouse: Warehouse, schema: dict[str, object]) -> None:
    """Records of a stream without properties are rows of metadata, one each."""
    run = warehouse.sync(
        [orders(schema=schema)],
        [record("orders", {}), record("orders", {"undeclared": 1}), state("orders", 1), COMPLETE],
    )

    assert record_count(run.states[0]) == 2
    assert warehouse.rows("orders") == [{}, {}]
