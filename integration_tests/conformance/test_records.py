"""Records: whatever the platform or PyAirbyte may put around and inside them."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from integration_tests.conformance.warehouse import INTEGER, STRING, Warehouse, object_schema
from integration_tests.lake import PREFIX
from integration_tests.messages import EMITTED_AT, configured_stream, record, state, status
from integration_tests.platform import record_count

SCHEMA = object_schema(id=INTEGER, name=STRING)
ORDERS = configured_stream("orders", SCHEMA)
COMPLETE = status("orders", "COMPLETE")


def line(data: str, **beside: object) -> bytes:
    """Return a RECORD of `orders` with this JSON text as its data and these members beside it."""
    members = {"stream": "orders", "emitted_at": EMITTED_AT, **beside}
    return f'{{"type":"RECORD","record":{{"data":{data},{json.dumps(members)[1:]}}}'.encode()


def test_the_only_stream_of_a_name_is_found_without_its_namespace(warehouse: Warehouse) -> None:
    """PyAirbyte leaves the namespace out of records, states and statuses."""
    place = warehouse.lake.name("shop")
    stream = configured_stream("orders", SCHEMA, namespace=place)

    run = warehouse.sync(
        [stream], [record("orders", {"id": 1}), line('{"id":2}', namespace=""), state("orders", 2), COMPLETE]
    )

    assert warehouse.ids("orders", place) == [1, 2]
    assert record_count(run.states[0]) == 2


def test_a_record_that_could_be_of_two_streams_ends_the_sync(warehouse: Warehouse) -> None:
    """Guessing would put it in the wrong table."""
    places = [warehouse.lake.name(name) for name in ("a", "b")]
    streams = [configured_stream("orders", SCHEMA, namespace=place) for place in places]

    run = warehouse.attempt(streams, [record("orders", {"id": 1})])

    assert run.exit_code == 1
    assert run.errors[0]["failure_type"] == "system_error"
    assert "orders" in run.errors[0]["message"]


def test_a_record_of_an_unknown_stream_ends_the_sync(warehouse: Warehouse) -> None:
    """What came before it is committed and acknowledged."""
    run = warehouse.attempt(
        [ORDERS], [record("orders", {"id": 1}), state("orders", 1), record("strangers", {"id": "hush"}), COMPLETE]
    )

    assert run.exit_code == 1
    assert [error["failure_type"] for error in run.errors] == ["system_error"]
    assert "strangers" in run.errors[0]["message"]
    assert len(run.states) == 1
    assert warehouse.ids("orders") == [1]
    assert b"hush" not in b"".join(message.raw for message in run.messages)


@pytest.mark.parametrize(
    "junk", [b"hush, not JSON", b'{"type":"RECORD"', b"[1]", b'{"hush":1}', b'{"type":"RECORD","record":{"data":{}}}']
)
def test_a_line_that_is_no_message_ends_the_sync_without_being_quoted(warehouse: Warehouse, junk: bytes) -> None:
    """Skipping it could lose a record."""
    run = warehouse.attempt([ORDERS], [record("orders", {"id": 1}), state("orders", 1), junk, COMPLETE])

    assert run.exit_code == 1
    assert [error["failure_type"] for error in run.errors] == ["system_error"]
    assert "Line 3" in run.errors[0]["message"]
    assert len(run.states) == 1
    assert warehouse.ids("orders") == [1]
    assert b"hush" not in b"".join(message.raw for message in run.messages)


def test_messages_that_are_not_for_a_destination_are_ignored(warehouse: Warehouse) -> None:
    """LOG, CONTROL, estimates, statuses in between, empty lines, and types nobody knows yet."""
    others = [
        b'{"type":"LOG","log":{"level":"INFO","message":"x"}}',
        b'{"type":"CONTROL","control":{"type":"CONNECTOR_CONFIG","emitted_at":1,"connectorConfig":{"config":{}}}}',
        b'{"type":"TRACE","trace":{"type":"ESTIMATE","emitted_at":1,"estimate":{"name":"orders","type":"STREAM"}}}',
        b'{"type":"TRACE","trace":{"type":"ANALYTICS","emitted_at":1.5,"analytics":{"type":"t","value":null}}}',
        status("orders", "STARTED"),
        status("orders", "RUNNING"),
        status("strangers", "COMPLETE"),
        b'{"type":"CATALOG","catalog":{"streams":[]}}',
        b'{"type":"BRAND_NEW","brand_new":{}}',
        b'{"type":"BRAND_NEW","brand_new":{}}',
        b"",
    ]

    run = warehouse.sync([ORDERS], [*others, record("orders", {"id": 1}), *others, COMPLETE])

    assert warehouse.ids("orders") == [1]
    assert len([text for text in run.logs if "BRAND_NEW" in text]) == 1


DEEP = "[" * 5000 + "]" * 5000


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(line('{"id":2,"\\ud83d":1}'), id="a lone surrogate in a key of the data"),
        pytest.param(line('{"id":2}')[:-1] + b',"\\udc00":{"\\ud83d":1}}', id="a lone surrogate in a key of the line"),
        pytest.param(b"\xef\xbb\xbf" + line('{"id":2}'), id="a byte order mark"),
        pytest.param(line('{"id":2}')[:-1] + f',"deep":{DEEP}}}'.encode(), id="deep nesting beside the record"),
    ],
)
def test_what_a_decoder_stumbles_over_outside_the_columns_costs_no_record(warehouse: Warehouse, odd: bytes) -> None:
    run = warehouse.sync([ORDERS], [odd, record("orders", {"id": 1}), state("orders", 1), COMPLETE])

    assert warehouse.ids("orders") == [1, 2]
    assert record_count(run.states[0]) == 2


def test_a_record_nested_beyond_any_decoder_costs_no_other(warehouse: Warehouse) -> None:
    """It is among the rejects, or in the table if the nesting is where no column is; the sync goes on."""
    users = configured_stream("users", SCHEMA)
    lines = [
        record("orders", {"id": 1}),
        line(f'{{"id":2,"more":{DEEP}}}'),
        record("users", {"id": 3}),
        record("orders", {"id": 4}),
        state("orders", 1),
        state("users", 1),
    ]

    run = warehouse.sync([ORDERS, users], [*lines, COMPLETE, status("users", "COMPLETE")])

    assert {answer.body["stream"]["stream_descriptor"]["name"] for answer in run.states} == {"orders", "users"}
    assert {1, 4} <= set(warehouse.ids("orders"))
    assert warehouse.ids("users") == [3]
    (orders,) = [answer for answer in run.states if answer.body["stream"]["stream_descriptor"]["name"] == "orders"]
    assert record_count(orders) + orders.body["destinationStats"].get("rejectedRecordCount", 0) == 3


@pytest.mark.parametrize(
    ("emitted_at", "moment"),
    [
        (1_700_000_000_123, datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)),
        (1_700_000_000_123.0, datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)),
        (1_700_000_000, datetime(2023, 11, 14, 22, 13, 20, 0, UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
    ],
    ids=["milliseconds", "float", "seconds", "zero"],
)
def test_emitted_at_is_when_the_record_was_extracted(warehouse: Warehouse, emitted_at: float, moment: datetime) -> None:
    """Milliseconds by the protocol; PyAirbyte sends seconds, and others a float."""
    warehouse.sync([ORDERS], [line('{"id":1}', emitted_at=emitted_at), COMPLETE])

    assert warehouse.row("orders")["_airbyte_extracted_at"].replace(tzinfo=UTC) == moment


def test_explicit_nulls_are_the_same_as_nothing(warehouse: Warehouse) -> None:
    """PyAirbyte writes every optional member."""
    nulls = {"log": None, "spec": None, "state": None, "trace": None, "catalog": None, "control": None}
    body = {"namespace": None, "stream": "orders", "emitted_at": EMITTED_AT, "meta": None, "file_reference": None}
    messages: list[dict[str, Any]] = [
        {"type": "RECORD", "record": {**body, "data": {"id": 1, "name": None}}, **nulls},
        {"type": "RECORD", "record": {**body, "data": {"id": 2}, "meta": {"changes": None}}, **nulls},
        {
            "type": "STATE",
            "record": None,
            "state": {
                "type": "STREAM",
                "stream": {"stream_descriptor": {"name": "orders", "namespace": None}, "stream_state": None},
                "global_": None, "data": None, "sourceStats": None, "destinationStats": None,
            },
        },
        {
            "type": "TRACE",
            "record": None,
            "trace": {
                "type": "STREAM_STATUS", "emitted_at": 1700000000.5, "error": None, "estimate": None, "analytics": None,
                "stream_status": {
                    "stream_descriptor": {"name": "orders", "namespace": None}, "status": "COMPLETE", "reasons": None,
                },
            },
        },
    ]  # fmt: skip

    run = warehouse.sync([ORDERS], [json.dumps(message).encode() for message in messages])

    assert warehouse.rows("orders") == [{"id": 1, "name": None}, {"id": 2, "name": None}]
    assert record_count(run.states[0]) == 2


def test_the_source_s_changes_come_before_ours(warehouse: Warehouse) -> None:
    """`_airbyte_meta.changes` is the whole story, in order."""
    reported = [{"field": "name", "change": "TRUNCATED", "reason": "SOURCE_FIELD_SIZE_LIMITATION"}]
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

    assert list(warehouse.lake.columns(warehouse.lake.database, "orders")) == [
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

    assert len({row["_airbyte_raw_id"] for row in warehouse.whole_rows("orders")}) == 500


def test_a_record_of_megabytes_arrives_whole(warehouse: Warehouse) -> None:
    """Longer than any block that is parsed at a time."""
    text = "0123456789é\n" * 1_000_000

    run = warehouse.sync(
        [ORDERS], [record("orders", {"id": 1, "name": text}), record("orders", {"id": 2}), state("orders", 2), COMPLETE]
    )

    assert record_count(run.states[0]) == 2
    assert {row["id"]: row["name"] for row in warehouse.rows("orders")} == {1: text, 2: None}


def test_a_key_sent_twice_has_its_last_value(warehouse: Warehouse) -> None:
    """As every JSON reader has it."""
    warehouse.sync([ORDERS], [line('{"id":1,"name":"first","name":"last"}'), COMPLETE])

    assert warehouse.row("orders")["name"] == "last"


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


def test_a_byte_order_mark_before_the_first_record_is_none_of_it(warehouse: Warehouse) -> None:
    """Also where a column of open JSON has the record read in another way."""
    stream = configured_stream("orders", object_schema(id=INTEGER, any={"type": "object"}))

    warehouse.sync([stream], [b"\xef\xbb\xbf" + line('{"id":1,"any":{"x":1}}'), line('{"id":2}'), COMPLETE])

    assert warehouse.ids("orders") == [1, 2]
    assert not warehouse.lake.objects(f"{PREFIX}/_errors/")


@pytest.mark.parametrize("number", ["1e-10000000", '"1e-10000000"', "1000000000000000000e-232"])
def test_a_far_exponent_costs_its_value_and_nothing_else(warehouse: Warehouse, number: str) -> None:
    """Where numbers are decimals: it is cut to nothing, which its row says."""
    stream = configured_stream("prices", object_schema(id=INTEGER, price={"type": "number"}))
    prices = [f'{{"id":1,"price":{number}}}', '{"id":2,"price":0.1}']
    lines = [line(data, stream="prices") for data in prices]

    warehouse.sync(
        [stream, ORDERS],
        [*lines, record("orders", {"id": 1}), status("prices", "COMPLETE"), COMPLETE],
        numeric_types="decimal",
    )

    assert {row["id"]: Decimal(row["price"]) for row in warehouse.rows("prices")} == {1: 0, 2: Decimal("0.1")}
    changes = {row["id"]: row["_airbyte_meta"]["changes"] for row in warehouse.whole_rows("prices")}
    cut = {"field": "price", "change": "TRUNCATED", "reason": "DESTINATION_FIELD_SIZE_LIMITATION"}
    assert changes == {1: [cut], 2: []}
    assert warehouse.ids("orders") == [1]


def test_streams_that_would_meet_in_one_table_are_refused(warehouse: Warehouse) -> None:
    """Both are named; nothing is read."""
    streams = [configured_stream(name, SCHEMA) for name in ("my-orders", "My Orders")]

    run = warehouse.attempt(streams, [record("my-orders", {"id": 1})])

    assert run.exit_code == 1
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert "my-orders" in error["message"]
    assert "My Orders" in error["message"]
    assert warehouse.lake.tables() == []


@pytest.mark.parametrize(
    ("streams", "said"),
    [
        pytest.param([], "no streams", id="none"),
        pytest.param([ORDERS, ORDERS], "twice", id="twice"),
        pytest.param([ORDERS | {"destination_sync_mode": "append_dedup"}], "append_dedup", id="dedup"),
    ],
)
def test_a_catalog_that_cannot_work_is_refused(
    warehouse: Warehouse, streams: list[dict[str, object]], said: str
) -> None:
    """Before anything is read or written."""
    run = warehouse.attempt(streams, [record("orders", {"id": 1})])

    assert run.exit_code == 1
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert said in error["message"]
    assert warehouse.lake.tables() == []


@pytest.mark.parametrize("name", ["rows", "Rows", "row", "data", "json", "records", "select"])
def test_a_row_is_whole_whatever_its_fields_are_called(warehouse: Warehouse, name: str) -> None:
    """Also where a field bears a name that a reader or writer of the files might use itself."""
    stream = configured_stream("orders", object_schema(id=INTEGER, **{name: INTEGER}))

    warehouse.sync([stream], [record("orders", {"id": 1, name: 7}), record("orders", {"id": 2}), COMPLETE])

    assert warehouse.rows("orders") == [{"id": 1, name.lower(): 7}, {"id": 2, name.lower(): None}]
