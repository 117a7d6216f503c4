"""Records: whatever the platform or PyAirbyte may put around them."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from integration_tests.conformance.records.orders import COMPLETE, ORDERS, SCHEMA, line
from integration_tests.harness.lake import PREFIX
from integration_tests.harness.messages import EMITTED_AT, configured_stream, record, state, status
from integration_tests.harness.runs.output import record_count
from integration_tests.harness.warehouse import INTEGER, Warehouse, object_schema

pytestmark = pytest.mark.share(3)


def test_the_only_stream_of_a_name_is_found_without_its_namespace(warehouse: Warehouse) -> None:
    """PyAirbyte leaves the namespace out of records, states and statuses."""
    place = warehouse.lake.name("shop")
    stream = configured_stream("orders", SCHEMA, namespace=place)

    run = warehouse.sync(
        [stream], [record("orders", {"id": 1}), line('{"id":2}', namespace=""), state("orders", 2), COMPLETE]
    )

    assert warehouse.ids("orders", place) == [1, 2]
    assert record_count(run.states[0]) == 2


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
    """It is among the rejects, or in the table if the nesting is outside the columns; the sync continues."""
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


def test_emitted_at_is_when_the_record_was_extracted(warehouse: Warehouse) -> None:
    """Milliseconds by the protocol; PyAirbyte sends seconds, and others a float."""
    milliseconds = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    moments: Sequence[tuple[float, datetime]] = [
        (1_700_000_000_123, milliseconds),
        (1_700_000_000_123.0, milliseconds),
        (1_700_000_000_123.5, milliseconds),
        (1_700_000_000, datetime(2023, 11, 14, 22, 13, 20, 0, UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
    ]

    lines = [line(f'{{"id":{id_}}}', emitted_at=emitted_at) for id_, (emitted_at, _) in enumerate(moments)]
    warehouse.sync([ORDERS], [*lines, COMPLETE])

    extracted_at = {
        row["id"]: row["_airbyte_extracted_at"].replace(tzinfo=UTC) for row in warehouse.whole_rows("orders")
    }
    assert extracted_at == dict(enumerate(moment for _, moment in moments))


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


def test_a_byte_order_mark_before_the_first_record_is_none_of_it(warehouse: Warehouse) -> None:
    """Also where a column of open JSON has the record read in another way."""
    stream = configured_stream("orders", object_schema(id=INTEGER, any={"type": "object"}))

    warehouse.sync([stream], [b"\xef\xbb\xbf" + line('{"id":1,"any":{"x":1}}'), line('{"id":2}'), COMPLETE])

    assert warehouse.ids("orders") == [1, 2]
    assert not warehouse.lake.objects(f"{PREFIX}/_errors/")
