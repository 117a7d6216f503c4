"""What Airbyte's older DestinationAcceptanceTest asks beyond the basic functionality, under its own names."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from integration_tests.harness.messages import configured_stream, global_state, record, state, status
from integration_tests.harness.runs.output import record_count, same_text, without_stats
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import INTEGER, NUMBER, STRING, Warehouse, object_schema

pytestmark = pytest.mark.slow

RATES = object_schema(id=INTEGER, currency=STRING, date=STRING, HKD=NUMBER, NZD=NUMBER)
COMPLETE = status("exchange_rate", "COMPLETE")


def rates(generation: int = 0, minimum: int = 0, **more: Any) -> dict[str, object]:
    schema = more.pop("schema", RATES)
    return configured_stream("exchange_rate", schema, generation=generation, minimum=minimum, **more)


def rate(id: int, **data: object) -> bytes:
    return record("exchange_rate", {"id": id, "currency": "USD", "date": "2020-08-29T00:00:00Z", "HKD": 10.5} | data)


def test_get_spec(container: Platform) -> None:
    """`spec` answers one SPEC and nothing else."""
    run = container.spec()

    assert run.exit_code == 0
    assert run.spec["supported_destination_sync_modes"] == ["overwrite", "append", "append_dedup"]


def test_check_connection(warehouse: Warehouse) -> None:
    """`check` succeeds with a configuration that syncs."""
    run = warehouse.platform.check(warehouse.config())

    assert run.exit_code == 0, run.report()
    assert run.connection_status["status"] == "SUCCEEDED"


def test_check_connection_invalid_credentials(warehouse: Warehouse) -> None:
    """`check` with what cannot work is answered FAILED, with a message, and exits 0."""
    run = warehouse.platform.check(
        warehouse.config(bucket_name="no-such-bucket-anywhere", aws_account_id="000000000000")
    )

    assert run.exit_code == 0
    assert run.connection_status["status"] == "FAILED"
    assert run.connection_status["message"]


def test_sync(warehouse: Warehouse) -> None:
    """Records between global states: all are there, and all states come back in order."""
    states = [global_state({"at": n}, [(None, "exchange_rate")], id=n) for n in range(3)]

    run = warehouse.sync([rates()], [states[0], rate(1), states[1], rate(2), rate(3), states[2], COMPLETE])

    assert [same_text(without_stats(answer.raw), sent) for answer, sent in zip(run.states, states, strict=True)] == [
        True
    ] * 3
    assert [record_count(answer) for answer in run.states] == [0, 1, 2]
    assert warehouse.ids("exchange_rate") == [1, 2, 3]


def test_second_sync(warehouse: Warehouse) -> None:
    """A second sync with overwrite leaves only its own records."""
    warehouse.sync([rates(1, 1)], [rate(1), rate(2), COMPLETE])

    warehouse.sync([rates(2, 2)], [rate(3), COMPLETE])

    assert warehouse.ids("exchange_rate") == [3]


def test_line_break_characters(warehouse: Warehouse) -> None:
    """Line breaks of every kind inside a value stay inside it."""
    text = "US\nD\r\n\t\u2028\u2029\u0085\v\f end"

    warehouse.sync([rates()], [rate(1, currency=text), rate(2), COMPLETE])

    assert [row["currency"] for row in warehouse.rows("exchange_rate")] == [text, "USD"]


def test_incremental_sync(warehouse: Warehouse) -> None:
    """A second sync with append adds to the first."""
    warehouse.sync([rates()], [rate(1), state("exchange_rate", 1), COMPLETE])

    warehouse.sync([rates()], [rate(2), state("exchange_rate", 2), COMPLETE])

    assert warehouse.ids("exchange_rate") == [1, 2]


def test_sync_uses_airbyte_stream_namespace_if_not_null(warehouse: Warehouse) -> None:
    """A stream's namespace is its database."""
    place = warehouse.lake.name("source_namespace")

    warehouse.sync(
        [rates(namespace=place)],
        [record("exchange_rate", {"id": 1}, namespace=place), status("exchange_rate", "COMPLETE", namespace=place)],
    )

    assert warehouse.lake.tables() == [(place, "exchange_rate")]


def test_sync_write_same_table_name_different_namespace(warehouse: Warehouse) -> None:
    """One name in two namespaces is two tables, in the same sync."""
    places = [warehouse.lake.name(name) for name in ("one", "two")]

    warehouse.sync(
        [rates(namespace=place) for place in places],
        [
            *(record("exchange_rate", {"id": number}, namespace=place) for number, place in enumerate(places)),
            *(status("exchange_rate", "COMPLETE", namespace=place) for place in places),
        ],
    )

    assert [warehouse.ids("exchange_rate", place) for place in places] == [[0], [1]]


def test_sync_not_fails_with_new_fields(warehouse: Warehouse) -> None:
    """A field that the schema does not have yet does no harm; once it has it, it is a column."""
    warehouse.sync([rates(1, 1)], [rate(1), COMPLETE])
    warehouse.sync([rates(2, 2)], [rate(2, new_field="early"), COMPLETE])

    wider = object_schema(**RATES["properties"], new_field=STRING)  # type: ignore[arg-type]
    warehouse.sync([rates(3, 3, schema=wider)], [rate(3, new_field="declared"), COMPLETE])

    assert [(row["id"], row["new_field"]) for row in warehouse.rows("exchange_rate")] == [(3, "declared")]


def test_airbyte_fields(warehouse: Warehouse) -> None:
    """Every metadata column holds what it promises; a value that does not fit is nulled beside the source's changes."""
    reported = {"field": "last_name", "change": "NULLED", "reason": "SOURCE_RETRIEVAL_ERROR"}
    schema = object_schema(id=INTEGER, name=STRING, last_name=STRING)
    users = configured_stream("users", schema, generation=10, sync_id=100)
    lines = [
        _user({"id": 1, "name": "a"}, 1602637589000),
        _user({"id": 2, "name": "b"}, 1602637689100, [reported]),
        _user({"id": "two", "name": None}, 1602637789200, [reported]),
    ]

    warehouse.sync([users], [*lines, status("users", "COMPLETE")])

    rows = sorted(warehouse.whole_rows("users"), key=lambda row: row["_airbyte_extracted_at"])
    assert all(UUID(row["_airbyte_raw_id"]) for row in rows)
    assert {row["_airbyte_generation_id"] for row in rows} == {10}
    assert {row["_airbyte_meta"]["sync_id"] for row in rows} == {100}
    assert rows[2]["_airbyte_extracted_at"].replace(tzinfo=UTC) == datetime(2020, 10, 14, 1, 9, 49, 200_000, UTC)
    nulled = {"field": "id", "change": "NULLED", "reason": "DESTINATION_SERIALIZATION_ERROR"}
    assert [row["_airbyte_meta"]["changes"] for row in rows] == [[], [reported], [reported, nulled]]


def _user(data: dict[str, object], emitted_at: int, changes: list[dict[str, str]] | None = None) -> bytes:
    body = {"stream": "users", "data": data, "emitted_at": emitted_at, "meta": {"changes": changes or []}}
    return json.dumps({"type": "RECORD", "record": body}).encode()


def test_airbyte_time_types(warehouse: Warehouse) -> None:
    """Dates and times with a zone, without one, and with nothing said about it."""
    schema = object_schema(
        id=INTEGER,
        day={"type": "string", "format": "date"},
        zoned={"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"},
        local={"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"},
        unsaid={"type": "string", "format": "date-time"},
        clock={"type": "string", "format": "time", "airbyte_type": "time_with_timezone"},
    )
    data = {
        "id": 1, "day": "2021-01-01", "zoned": "2021-01-01T01:02:03.000001-08:00", "local": "2021-01-01T01:02:03",
        "unsaid": "2021-01-01T01:02:03Z", "clock": "01:02:03.5-08:00",
    }  # fmt: skip

    warehouse.sync([rates(schema=schema)], [record("exchange_rate", data), COMPLETE])

    (row,) = warehouse.rows("exchange_rate")
    assert str(row["day"]) == "2021-01-01"
    assert row["zoned"].replace(tzinfo=None) == datetime(2021, 1, 1, 9, 2, 3, 1)
    assert row["local"] == datetime(2021, 1, 1, 1, 2, 3)
    assert row["unsaid"].replace(tzinfo=None) == datetime(2021, 1, 1, 1, 2, 3)
    assert row["clock"] == "01:02:03.5-08:00"


def test_problematic_types(warehouse: Warehouse) -> None:
    """Schemas without a type, unions of objects, and unions of nothing but null stop no sync and lose no value."""
    schema = object_schema(
        id=INTEGER,
        schemaless_object={"type": ["null", "object"]},
        schemaless_array={"type": "array", "items": {}},
        mixed={"type": "array", "items": {"type": ["integer", "string", "boolean"]}},
        objects={"oneOf": [object_schema(a=INTEGER), object_schema(a=STRING), object_schema(b=STRING)]},
        only_null={"oneOf": [{"type": "null"}, {"type": "null"}]},
    )
    data: dict[str, object] = {
        "id": 1, "schemaless_object": {"any": [1]}, "schemaless_array": [1, "x", {}], "mixed": [1, "x", True],
        "objects": {"a": "text", "b": "more"}, "only_null": {"not": "null"},
    }  # fmt: skip

    warehouse.sync(
        [rates(schema=schema)], [record("exchange_rate", data), record("exchange_rate", {"id": 2}), COMPLETE]
    )

    first, second = warehouse.rows("exchange_rate")
    assert {name: _read(value) for name, value in first.items()} == data
    assert set(second.values()) == {2, None}


def _read(value: object) -> object:
    """Read JSON text, alone or as the elements of a list."""
    if isinstance(value, list):
        return [_read(element) for element in value]
    return json.loads(value) if isinstance(value, str) else value


def test_sync_with_large_record_batch(warehouse: Warehouse) -> None:
    """Many records with many states: all counted, all there."""
    count, every = 20_000, 500
    lines = []
    for id in range(count):
        lines.append(rate(id))
        if (id + 1) % every == 0:
            lines.append(state("exchange_rate", id, id=id))

    run = warehouse.sync([rates()], [*lines, COMPLETE])

    assert len(run.states) == count // every
    assert {record_count(answer) for answer in run.states} == {every}
    assert warehouse.ids("exchange_rate") == list(range(count))
