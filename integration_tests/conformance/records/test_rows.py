"""Rows: what becomes of a record's fields, whatever they are called and hold."""

from uuid import UUID

from integration_tests.conformance.records.orders import COMPLETE, ORDERS, line
from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.runs.output import record_count
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema


def test_the_source_s_changes_come_before_ours(warehouse: Warehouse) -> None:
    """`_airbyte_meta.changes` is the whole story, in order."""
    reported = [
        {"field": "name", "change": "TRUNCATED", "reason": "SOURCE_FIELD_SIZE_LIMITATION"},
        {"field": "other", "change": "NULLED", "reason": "A_REASON_THAT_THE_PROTOCOL_DOES_NOT_HAVE"},
    ]
    quiet = line('{"id":1}', meta={"changes": reported})
    loud = line('{"id":"two"}', meta={"changes": reported})

    warehouse.sync([ORDERS], [quiet, loud, line('{"id":3}', meta={}), COMPLETE])

    rows = {row["id"]: row["_airbyte_meta"]["changes"] for row in warehouse.whole_rows("orders")}
    assert rows[1] == reported
    assert rows[None] == [
        *reported,
        {"field": "id", "change": "NULLED", "reason": "DESTINATION_SERIALIZATION_ERROR"},
    ]
    assert rows[3] == []


def test_undeclared_fields_are_not_columns(warehouse: Warehouse) -> None:
    """The stream's schema says what a table has; the rest of a record is left out, also the connector's own names."""
    data = {"id": 1, "undeclared": {"x": 1}, "_airbyte_raw_id": "theirs", "_airbyte_meta": {"mine": 1}, "name": "n"}

    warehouse.sync([ORDERS], [record("orders", data), record("orders", {}), COMPLETE])

    assert list(warehouse.columns("orders")) == [
        "_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id", "id", "name",
    ]  # fmt: skip
    rows = {row["id"]: row for row in warehouse.whole_rows("orders")}
    assert rows.keys() == {1, None}
    assert rows[1]["_airbyte_raw_id"] != "theirs"
    assert rows[1]["_airbyte_meta"] == {"sync_id": 1, "changes": []}


def test_fields_that_nobody_declared_are_named_once_and_their_values_never(warehouse: Warehouse) -> None:
    """At the top of a record, and in an object whose properties are declared, whatever else it allows."""
    address = {"type": "object", "properties": {"city": STRING}, "additionalProperties": True}
    stream = configured_stream("orders", object_schema(id=INTEGER, address=address))
    data = {"id": 1, "surname": "hush", "address": {"city": "x", "street": "hush"}}

    run = warehouse.sync([stream], [record("orders", data), *[state("orders", n) for n in range(2)], COMPLETE])

    (told,) = [log for log in run.logs if "does not declare" in log]
    assert told.startswith("WARN")
    assert "address.street, surname" in told
    assert b"hush" not in b"".join(message.raw for message in run.messages)
    assert warehouse.row("orders")["address"] == {"city": "x"}


def test_declared_fields_with_the_connector_s_own_names_give_way(warehouse: Warehouse) -> None:
    """PyAirbyte's caches declare `_airbyte_*` columns; those stay the connector's."""
    schema = object_schema(
        id=INTEGER, _airbyte_raw_id=STRING, _airbyte_extracted_at=STRING, _airbyte_meta={"type": "object"}
    )
    data = {"id": 1, "_airbyte_raw_id": "theirs", "_airbyte_extracted_at": "then", "_airbyte_meta": {}}

    warehouse.sync([configured_stream("orders", schema)], [record("orders", data), COMPLETE])

    row = warehouse.row("orders")
    assert row["_airbyte_raw_id"] != "theirs"
    assert list(row) == ["_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id", "id"]


def test_every_row_has_an_id_of_its_own(warehouse: Warehouse) -> None:
    """`_airbyte_raw_id` tells rows apart, whatever they hold."""
    warehouse.sync([ORDERS], [*(record("orders", {"id": 1}) for _ in range(500)), COMPLETE])

    assert len({UUID(row["_airbyte_raw_id"]) for row in warehouse.whole_rows("orders")}) == 500


def test_a_record_of_megabytes_arrives_whole(warehouse: Warehouse) -> None:
    """Longer than any block that is parsed at a time."""
    text = "0123456789é\n" * 1_000_000

    run = warehouse.sync(
        [ORDERS], [record("orders", {"id": 1, "name": text}), record("orders", {"id": 2}), state("orders", 2), COMPLETE]
    )

    assert record_count(run.states[0]) == 2
    assert {row["id"]: row["name"] for row in warehouse.rows("orders")} == {1: text, 2: None}


def test_keys_of_any_characters_are_columns(warehouse: Warehouse) -> None:
    """Quotes, backslashes and control characters too, beside a stream that has none of them."""
    schema = object_schema(**{'a"b': INTEGER, "back\\slash": {"type": "object"}, "line\nfeed": STRING, "rows": INTEGER})
    data = {'a"b': 1, "back\\slash": {'x"y': 2}, "line\nfeed": "z", "rows": 3}

    warehouse.sync(
        [configured_stream("odd", schema), ORDERS],
        [record("odd", data), record("orders", {"id": 1}), status("odd", "COMPLETE"), COMPLETE],
    )

    assert warehouse.rows("odd") == [{"a_b": 1, "back_slash": '{"x\\"y":2}', "line_feed": "z", "rows": 3}]
    assert warehouse.ids("orders") == [1]


def test_a_row_is_whole_whatever_its_fields_are_called(warehouse: Warehouse) -> None:
    """Also where a field bears a name that a reader or writer of the files might use itself."""
    names = ["rows", "Rows", "row", "data", "json", "records", "select"]
    streams = {f"stream_{number}": name for number, name in enumerate(names)}

    warehouse.sync(
        [configured_stream(stream, object_schema(id=INTEGER, **{name: INTEGER})) for stream, name in streams.items()],
        [
            line
            for stream, name in streams.items()
            for line in (record(stream, {"id": 1, name: 7}), record(stream, {"id": 2}), status(stream, "COMPLETE"))
        ],
    )

    assert {name: warehouse.rows(stream) for stream, name in streams.items()} == {
        name: [{"id": 1, name.lower(): 7}, {"id": 2, name.lower(): None}] for name in names
    }
