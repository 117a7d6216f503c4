"""Airbyte's BasicFunctionalityIntegrationTest here; each test bears its scenario's name, in snake case."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest

from integration_tests.conformance.warehouse import BOOLEAN, INTEGER, NUMBER, STRING, Warehouse, object_schema
from integration_tests.messages import EMITTED_AT, configured_stream, global_state, record, state, status
from integration_tests.platform import record_count, same_text, without_stats

ID_AND_NAME = object_schema(id=INTEGER, name=STRING)
COMPLETE = status("orders", "COMPLETE")


def orders(generation: int = 0, minimum: int = 0, sync_id: int = 1, **more: Any) -> dict[str, object]:
    """Return the stream `orders` (id, name), appended to unless said otherwise."""
    return configured_stream(
        "orders", more.pop("schema", ID_AND_NAME), generation=generation, minimum=minimum, sync_id=sync_id, **more
    )


def order(id: int, name: str = "x") -> bytes:
    return record("orders", {"id": id, "name": name})


def test_basic_write(warehouse: Warehouse) -> None:
    """Records of a sync are rows with their metadata, and its state comes back."""
    sent = state("orders", 7, id=3)

    run = warehouse.sync([orders(generation=42, sync_id=9)], [order(5678, "foo"), sent, COMPLETE])

    (echoed,) = run.states
    assert same_text(without_stats(echoed.raw), sent)
    assert record_count(echoed) == 1
    row = warehouse.row("orders")
    assert (row["id"], row["name"]) == (5678, "foo")
    assert row["_airbyte_generation_id"] == 42
    assert row["_airbyte_meta"] == {"sync_id": 9, "changes": []}
    assert row["_airbyte_extracted_at"].replace(tzinfo=UTC) == datetime.fromtimestamp(EMITTED_AT / 1000, UTC)


def test_state_message_before_records(warehouse: Warehouse) -> None:
    """A state that no record precedes is answered at once, stdin still open."""
    with warehouse.start([orders()]) as running:
        running.send([state("orders", 0)])

        assert record_count(running.wait_for_state()) == 0

        running.send([order(1), state("orders", 1), COMPLETE])
        run = running.close()
    assert [record_count(echoed) for echoed in run.states] == [0, 1]


def test_stream_state_types(warehouse: Warehouse) -> None:
    """Whatever a stream's state is, null and text and a list included, it comes back as it was sent."""
    cursors: list[object] = [None, {}, [1, "two"], "text", 1.0, {"deep": {"null": None}}]
    lines = [state("orders", cursor, id=number) for number, cursor in enumerate(cursors)]

    run = warehouse.sync([orders()], [order(1), *lines, COMPLETE])

    assert [same_text(without_stats(echoed.raw), sent) for echoed, sent in zip(run.states, lines, strict=True)] == [
        True
    ] * len(lines)


def test_cdc_state_types(warehouse: Warehouse) -> None:
    """A global state with shared state and stream states comes back whole, counting the records of all streams."""
    users = configured_stream("users", ID_AND_NAME)
    sent = global_state({"lsn": 3}, [(None, "orders"), (None, "users")], id=1, partition_id="p")

    run = warehouse.sync(
        [orders(), users], [order(1), record("users", {"id": 1}), sent, COMPLETE, status("users", "COMPLETE")]
    )

    (echoed,) = run.states
    assert same_text(without_stats(echoed.raw), sent)
    assert record_count(echoed) == 2


def test_mid_sync_checkpointing_stream_state(warehouse: Warehouse) -> None:
    """What a state has acknowledged survives a kill; the next sync goes on from there."""
    with warehouse.start([orders()], flush_interval_seconds=1) as running:
        running.send([order(1), state("orders", 1)])
        running.wait_for_state()
        running.kill()
    assert warehouse.ids("orders") == [1]

    warehouse.sync([orders(sync_id=2)], [order(2), state("orders", 2), COMPLETE])

    assert warehouse.ids("orders") == [1, 2]


def test_namespaces(warehouse: Warehouse) -> None:
    """Streams of one name in two namespaces and in none are three tables."""
    first, second = warehouse.lake.name("ns1"), warehouse.lake.name("ns2")
    places = (first, second, None)

    warehouse.sync(
        [configured_stream("orders", ID_AND_NAME, namespace=place) for place in places],
        [
            *(record("orders", {"id": number}, namespace=place) for number, place in enumerate(places)),
            *(status("orders", "COMPLETE", namespace=place) for place in places),
        ],
    )

    assert [warehouse.ids("orders", place) for place in places] == [[0], [1], [2]]


FUNKY_NAMES = [
    "streamWithCamelCase",
    "stream_with_underscores",
    "STREAM_WITH_ALL_CAPS",
    "CapitalCase",
    "stream_with_spec:ial_character",
    "stream_with_edge_case_field_names",
    "stream with spaces",
    "streamWithÜmläut",
    "99_leading_digits",
    "order",
    "stream.with.dots",
    "emoji_🚀_stream",
    "c'est une belle histoire,./<>?'\";[]\\:{}|`~!@#$%^&*()_+-=",
]


def test_funky_characters(warehouse: Warehouse) -> None:
    """Names with every character there is become tables and columns; values come back as they were."""
    schema = object_schema(
        id=INTEGER, **{"Foo.Bar": STRING, "camelCase": STRING, "spécial": STRING, "1st": STRING, "sel'ect": STRING}
    )
    value = "foo\nbar \" \\ \u2028 é 🚀 ' ` ,"
    data = {"id": 1, "Foo.Bar": value, "camelCase": value, "spécial": value, "1st": value, "sel'ect": value}

    warehouse.sync(
        [configured_stream(name, schema) for name in FUNKY_NAMES],
        [*(record(name, data) for name in FUNKY_NAMES), *(status(name, "COMPLETE") for name in FUNKY_NAMES)],
    )

    tables = [table for database, table in warehouse.lake.tables() if database == warehouse.lake.database]
    assert len(tables) == len(FUNKY_NAMES)
    assert {"stream_with_camel_case", "order", "_99_leading_digits", "stream_with_spaces"} <= set(tables)
    for table in tables:
        row = warehouse.rows(table)[0]
        assert [name for name, kept in row.items() if kept == value] == [
            "foo_bar", "camel_case", "special", "_1st", "sel_ect",
        ]  # fmt: skip


def test_truncate_refresh(warehouse: Warehouse) -> None:
    """A truncate refresh keeps the old rows until the stream is complete, over as many syncs as that takes."""
    warehouse.sync([orders(generation=12)], [order(1, "old"), state("orders", 1), COMPLETE])

    unfinished = warehouse.attempt([orders(generation=13, minimum=13)], [order(2, "new"), state("orders", 2)])
    assert unfinished.exit_code == 1
    assert [error["failure_type"] for error in unfinished.errors] == ["transient_error"]
    assert len(unfinished.states) == 1
    assert warehouse.ids("orders") == [1]

    warehouse.sync([orders(generation=13, minimum=13)], [order(3, "new"), state("orders", 3), COMPLETE])
    assert warehouse.ids("orders") == [2, 3]


def test_truncate_refresh_change_sync_mode(warehouse: Warehouse) -> None:
    """From append to overwrite and back: replaced at the end of the overwrite, appended to afterwards."""
    warehouse.sync([orders(generation=0)], [order(1), COMPLETE])

    warehouse.sync([orders(generation=1, minimum=1, mode="overwrite")], [order(2), COMPLETE])
    assert warehouse.ids("orders") == [2]

    warehouse.sync([orders(generation=1)], [order(3), COMPLETE])
    assert warehouse.ids("orders") == [2, 3]


def test_interrupted_truncate_with_prior_data(warehouse: Warehouse) -> None:
    """A truncate killed after an acknowledged state: old rows stay, and the resumed one loses nothing."""
    warehouse.sync([orders(generation=12)], [order(1), COMPLETE])

    with warehouse.start([orders(generation=13, minimum=13)], flush_interval_seconds=1) as running:
        running.send([order(2), state("orders", 2)])
        running.wait_for_state()
        running.kill()
    assert warehouse.ids("orders") == [1]

    warehouse.sync([orders(generation=13, minimum=13)], [order(3), COMPLETE])
    assert warehouse.ids("orders") == [2, 3]


def test_interrupted_truncate_without_prior_data(warehouse: Warehouse) -> None:
    """The same for a table that did not exist before."""
    with warehouse.start([orders(generation=13, minimum=13)], flush_interval_seconds=1) as running:
        running.send([order(2), state("orders", 2)])
        running.wait_for_state()
        running.kill()

    warehouse.sync([orders(generation=13, minimum=13)], [order(3), COMPLETE])

    assert warehouse.ids("orders") == [2, 3]


def test_resume_after_cancelled_truncate(warehouse: Warehouse) -> None:
    """Rows that a truncate acknowledged before the user cancelled it reach the table with the next normal sync."""
    warehouse.sync([orders(generation=12)], [order(1), COMPLETE])
    warehouse.attempt([orders(generation=13, minimum=13)], [order(2), state("orders", 2)])
    assert warehouse.ids("orders") == [1]

    warehouse.sync([orders(generation=14)], [order(3), COMPLETE])

    assert warehouse.ids("orders") == [1, 2, 3]


def test_append(warehouse: Warehouse) -> None:
    """A second sync adds to the rows of the first, each with its own sync and generation."""
    warehouse.sync([orders(generation=0, sync_id=41)], [order(1), COMPLETE])

    warehouse.sync([orders(generation=1, sync_id=42)], [order(2), COMPLETE])

    found = {
        row["id"]: (row["_airbyte_generation_id"], row["_airbyte_meta"]["sync_id"])
        for row in warehouse.whole_rows("orders")
    }
    assert found == {1: (0, 41), 2: (1, 42)}


def test_append_schema_evolution(warehouse: Warehouse) -> None:
    """A dropped column is null from then on, a new one is null before, and one of a new type gets a neighbour."""
    before = object_schema(id=INTEGER, to_drop=STRING, to_change=INTEGER)
    after = object_schema(id=INTEGER, to_change=STRING, to_add=STRING)
    warehouse.sync([orders(schema=before)], [record("orders", {"id": 1, "to_drop": "d", "to_change": 42}), COMPLETE])

    warehouse.sync([orders(schema=after)], [record("orders", {"id": 2, "to_change": "42s", "to_add": "a"}), COMPLETE])

    assert warehouse.rows("orders") == [
        {"id": 1, "to_drop": "d", "to_change": 42, "to_change__string": None, "to_add": None},
        {"id": 2, "to_drop": None, "to_change": None, "to_change__string": "42s", "to_add": "a"},
    ]


def test_append_json_schema_evolution(warehouse: Warehouse) -> None:
    """A property added inside an object is there in new rows; the old rows keep what they had."""
    before = object_schema(id=INTEGER, inner=object_schema(a=STRING))
    after = object_schema(id=INTEGER, inner=object_schema(a=STRING, b=STRING))
    warehouse.sync([orders(schema=before)], [record("orders", {"id": 1, "inner": {"a": "1"}}), COMPLETE])

    warehouse.sync([orders(schema=after)], [record("orders", {"id": 2, "inner": {"a": "2", "b": "3"}}), COMPLETE])

    first, second = (row for row in warehouse.rows("orders"))
    values = [
        {key: value for kept in row.values() if isinstance(kept, dict) for key, value in kept.items() if value}
        for row in (first, second)
    ]
    assert values == [{"a": "1"}, {"a": "2", "b": "3"}]


def test_overwrite_schema_evolution(warehouse: Warehouse) -> None:
    """An overwrite with other columns, then a third sync that appends to it."""
    before = object_schema(id=INTEGER, to_drop=STRING, to_change=INTEGER)
    after = object_schema(id=INTEGER, to_change=STRING, to_add=STRING)
    old = record("orders", {"id": 1, "to_drop": "d", "to_change": 42})
    warehouse.sync([orders(generation=1, minimum=1, schema=before)], [old, COMPLETE])

    new = record("orders", {"id": 2, "to_change": "42s", "to_add": "a"})
    warehouse.sync([orders(generation=2, minimum=2, schema=after)], [new, COMPLETE])
    (row,) = warehouse.rows("orders")
    assert {key: value for key, value in row.items() if value is not None} == {
        "id": 2, "to_change__string": "42s", "to_add": "a",
    }  # fmt: skip

    third = record("orders", {"id": 3, "to_change": "43s", "to_add": "b"})
    warehouse.sync([orders(generation=2, schema=after)], [third, COMPLETE])
    assert warehouse.ids("orders") == [2, 3]


def test_many_streams_completion(warehouse: Warehouse) -> None:
    """Twenty-one streams end in one sync, each with its rows and its state."""
    names = [f"stream_{number}" for number in range(21)]

    run = warehouse.sync(
        [configured_stream(name, ID_AND_NAME) for name in names],
        [
            *(record(name, {"id": number}) for number, name in enumerate(names)),
            *(state(name, number) for number, name in enumerate(names)),
            *(status(name, "COMPLETE") for name in names),
        ],
    )

    assert len(run.states) == 21
    assert [warehouse.ids(name) for name in names] == [[number] for number in range(21)]


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
    """A type nobody knows is JSON text, whatever is in it."""
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


def test_no_data(warehouse: Warehouse) -> None:
    """A stream without records has a table without rows."""
    warehouse.sync([orders()], [COMPLETE])

    assert warehouse.rows("orders") == []


def test_truncate_refresh_no_data(warehouse: Warehouse) -> None:
    """A truncate without records empties the table."""
    warehouse.sync([orders(generation=12)], [order(1), COMPLETE])

    warehouse.sync([orders(generation=13, minimum=13)], [COMPLETE])

    assert warehouse.rows("orders") == []


def test_clear(warehouse: Warehouse) -> None:
    """Airbyte's Clear: no records, a null state, generation 1: the table is empty and the state is answered."""
    warehouse.sync([orders(generation=0)], [order(1), COMPLETE])
    sent = (
        b'{"type":"STATE","state":{"type":"GLOBAL","global":{"shared_state":null,"stream_states":'
        b'[{"stream_descriptor":{"name":"orders"},"stream_state":null}]},"id":1}}'
    )

    run = warehouse.sync([orders(generation=1, minimum=1)], [sent, COMPLETE])

    assert same_text(without_stats(run.states[0].raw), sent)
    assert warehouse.rows("orders") == []
