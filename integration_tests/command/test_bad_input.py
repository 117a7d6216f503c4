"""Bad input through the command line: what is said, what has been acknowledged, and what is in the lake afterwards."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.lake import PREFIX, Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.output import Run, record_count
from integration_tests.harness.runs.platform import Platform

pytestmark = pytest.mark.share(3)

SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
APPENDED = configured_stream("orders", SCHEMA)
REPLACED = configured_stream("users", SCHEMA, generation=1, minimum=1)
COMPLETE = [status("orders", "COMPLETE"), status("users", "COMPLETE")]
SECRET = "the customer's name"


def ids(lake: Lake, table: str) -> list[int]:
    return sorted(row["id"] for row in lake.rows(lake.database, table))


def assert_failed_once(run: Run, failure_type: str) -> str:
    """The run failed with one TRACE ERROR; return what it tells the user."""
    assert run.exit_code == 1, run.report()
    assert [error["failure_type"] for error in run.errors] == [failure_type], run.report()
    message: str = run.errors[0]["message"]
    return message


# --- Lines that end the sync


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param(
            f"Exception in thread: {SECRET}".encode(), "is not an Airbyte message: JSON is malformed", id="not JSON"
        ),
        pytest.param(
            f'{{"type":"RECORD","record":{{"stream":"orders","emitted_at":1,"daten":"{SECRET}"}}}}'.encode(),
            "is not an Airbyte message: Object missing required field `data`",
            id="not a message",
        ),
        pytest.param(
            record("payments", {"name": SECRET}),
            "a RECORD of stream payments. The configured catalog does not contain this stream.",
            id="a record of another stream",
        ),
    ],
)
def test_a_line_that_cannot_be_understood_fails_the_sync_after_what_stood_before_it_is_safe(
    lake: Lake, platform: Platform, bad: bytes, reason: str
) -> None:
    before = [
        record("orders", {"id": 1, "name": SECRET}),
        record("users", {"id": 1, "name": SECRET}),
        b"",
        state("orders", 1),
        record("orders", {"id": 2, "name": SECRET}),
    ]
    after = [record("orders", {"id": 3, "name": SECRET}), state("orders", 3), *COMPLETE]

    run = platform.write(lake.config(), configured_catalog(APPENDED, REPLACED), [*before, bad, *after])

    message = assert_failed_once(run, "system_error")
    assert message.startswith("Line 6 of the input")
    assert reason in message
    assert SECRET not in "\n".join([*run.logs, run.stderr, *map(str, run.errors)])
    # What was acknowledged is in the table, and so is what was merely received; what was not read is not.
    assert [record_count(released) for released in run.states] == [1.0]
    assert run.states[0].body["stream"]["stream_state"] == {"cursor": 1}
    assert ids(lake, "orders") == [1, 2]
    # An overwrite that was not completed shows nothing of itself.
    assert ids(lake, "users") == []
    assert lake.unfinished_uploads() == []


def test_a_malformed_record_among_thousands_fails_the_sync_and_no_state_after_it_is_released(
    lake: Lake, platform: Platform
) -> None:
    records = [record("orders", {"id": number, "name": SECRET}) for number in range(4000)]
    records[3000] = record("orders", {"id": 3000, "name": SECRET}).replace(b'"id":', b'"id"')
    config = lake.config(flush_interval_seconds=1)

    with platform.start(config, configured_catalog(APPENDED)) as running:
        running.send([*records[:2000], state("orders", 2000)])
        running.wait_for_states(1)
        running.send([*records[2000:], state("orders", 4000), status("orders", "COMPLETE")])
        run = running.close()

    message = assert_failed_once(run, "system_error")
    length = len(records[3000])
    assert message.startswith(f"Line 3002 of the input ({length} bytes) is not an Airbyte message: JSON is malformed")
    assert SECRET not in "\n".join([*run.logs, run.stderr, *map(str, run.errors)])
    assert [released.body["stream"]["stream_state"] for released in run.states] == [{"cursor": 2000}]
    assert ids(lake, "orders") == [*range(3000)]
    assert lake.unfinished_uploads() == []


# --- Files that say what to do, and do not


@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("catalog", "reason"),
    [
        ('{"streams": [\n{"stream": }]}', "is not valid JSON: line 2, column 12: Expecting value."),
        (
            '{"streams": [{"stream": {"name": "orders", "json_schema": '
            + '{"properties": {"a": ' * 50_000
            + "{}"
            + "}}" * 50_000
            + '}, "destination_sync_mode": "append"}]}',
            "is nested too deeply",
        ),
    ],
    ids=["broken", "deep"],
)
def test_a_catalog_that_cannot_be_is_a_sentence_and_no_stack_trace(
    lake: Lake, platform: Platform, tmp_path: Path, catalog: str, reason: str
) -> None:
    config, streams = tmp_path / "c.json", tmp_path / "s.json"
    config.write_text(json.dumps(lake.config()))
    streams.write_text(catalog)

    run = platform.run("write", "--config", str(config), "--catalog", str(streams))

    assert reason in assert_failed_once(run, "config_error")
    assert "Traceback" not in str(run.messages) + run.stderr
    assert len(run.logs) == 1


# --- Lines that do not


def test_what_a_destination_need_not_know_is_ignored_with_one_warning_for_each_unknown_type(
    lake: Lake, platform: Platform
) -> None:
    unknown = [
        b'{"type":"NEWS","news":{"headline":"%s"}}' % SECRET.encode(),
        b'{"type":"WEATHER"}',
        b'{"type":"NEWS","record":"%s"}' % SECRET.encode(),
        b'{"type":"NEWS","news":NaN}',
    ]
    known = [
        b'{"type":"LOG","log":{"level":"INFO","message":"%s"}}' % SECRET.encode(),
        b'{"type":"CONTROL","control":{"type":"CONNECTOR_CONFIG"}}',
        b'{"type":"TRACE","trace":{"type":"ESTIMATE","emitted_at":1,"estimate":{"name":"orders","type":"STREAM"}}}',
        b'{"type":"TRACE","trace":{"type":"ANALYTICS","emitted_at":1,"analytics":{"type":"x"}}}',
        status("payments", "COMPLETE"),
        b'{"type":"TRACE","trace":{"type":"NEWS","\\ud83d":NaN,"deep":' + b"[" * 5000 + b"]" * 5000 + b"}}",
        b"",
        b"   ",
    ]
    odd_records = [
        record("orders", {"id": 2, "name": "b"}) + b"\r",
        record("orders", {"id": 3, "name": float("nan")}),
        b'{"type":"RECORD","record":{"stream":"orders","data":{"id":4,"name":"\\ud83d"},"emitted_at":1.7e12}}',
        b'{"type":"RECORD","record":{"stream":"orders","data":{"id":5,"id":6},"emitted_at":1700000000000}}',
        record("orders", {}),
    ]
    lines = [*unknown, record("orders", {"id": 1, "name": "a"}), *known, *odd_records, state("orders", 1), *COMPLETE]

    run = platform.write(lake.config(), configured_catalog(APPENDED, REPLACED), lines)

    assert (run.exit_code, run.errors) == (0, []), run.report()
    assert [log for log in run.logs if not log.startswith("INFO")] == [
        "WARN: The connector ignores messages of the unknown type 'NEWS'.",
        "WARN: The connector ignores messages of the unknown type 'WEATHER'.",
    ]
    assert [record_count(released) for released in run.states] == [6.0]
    rows = lake.rows(lake.database, "orders")
    assert len(rows) == 6
    assert {row["id"]: row["name"] for row in rows if row["id"] in (1, 2)} == {1: "a", 2: "b"}
    changed = {row["id"]: row["_airbyte_meta"]["changes"] for row in rows if row["_airbyte_meta"]["changes"]}
    assert set(changed) == {3, 4}
    assert ids(lake, "users") == []


# --- Syncs that cannot be

ORDER_LINES = (configured_stream("orderLines", SCHEMA), configured_stream("order_lines", SCHEMA))


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("options", "streams", "reasons"),
    [
        pytest.param(
            {"format": {"format_type": "JSONL"}, "table_type": "ICEBERG"},
            [APPENDED],
            [
                "table_type ICEBERG does not support format_type JSONL",
                "Set table_type to HIVE, or format_type to Parquet",
            ],
            id="JSON Lines in an Iceberg table",
        ),
        pytest.param(
            {},
            ORDER_LINES,
            ["Streams orderLines and order_lines would both be written to table", "Rename one"],
            id="two streams in one table",
        ),
        pytest.param(
            {"format": {"format_type": "JSONL"}},
            [APPENDED | {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}],
            [
                "orders uses the destination sync mode append_dedup",
                "Set table_type to ICEBERG and format_type to Parquet",
            ],
            id="deduplication in a Hive table",
        ),
        pytest.param(
            {"table_type": "HIVE", "partitioning": "DATE", "partition_source": "created_at"},
            [APPENDED],
            ["partition_source names the field created_at", "no table would be partitioned"],
            id="a partition source that no stream has",
        ),
    ],
)
def test_a_sync_that_cannot_work_is_refused_before_anything_is_read(
    lake: Lake,
    platform: Platform,
    options: Mapping[str, object],
    streams: list[dict[str, object]],
    reasons: list[str],
) -> None:
    # Were it read, this line would be the failure.
    run = platform.write(lake.config(**options), configured_catalog(*streams), [b"not a message"])

    message = assert_failed_once(run, "config_error")
    for text in reasons:
        assert text in message
    assert run.states == []
    assert (lake.tables(), lake.objects(PREFIX)) == ([], {})
