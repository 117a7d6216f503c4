"""Reports over the real command line: what a sync says of itself is what was sent, acknowledged and stored.

So do the last lines of its log, which Airbyte shows: one for each stream, then one on the sync.
"""

import json
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from emulated_aws.account import Account, allow, deny

from destination_datalake.reports.report import schema
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.launch import COMMAND
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TableKind
from integration_tests.harness.warehouse import INTEGER, NUMBER, STRING, object_schema

pytestmark = pytest.mark.share(6)

ORDERS = object_schema(id=INTEGER, name=STRING)


def lines_of(lake: Lake, name: str = "report.jsonl") -> list[dict[str, Any]]:
    """Every line of every report in the lake, in the order of their keys."""
    keys = [key for key in lake.reports() if key.endswith(f"/{name}")]
    contents = [lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read() for key in keys]
    return [json.loads(line) for content in contents for line in content.splitlines()]


def test_a_report_tells_what_was_sent_rejected_and_stored(
    platform: Platform, lake: Lake, table_kind: TableKind
) -> None:
    catalog = configured_catalog(configured_stream("orders", ORDERS), configured_stream("users", ORDERS))
    sent = [record("orders", {"id": 1, "name": "a"}), record("orders", {"id": "x", "name": "b"}), state("orders", 1)]
    sent += [record("users", {"id": n}) for n in range(10)]

    run = platform.write(lake.config(**table_kind.options), catalog, [*sent, *completed("orders", "users")])

    assert run.exit_code == 0, run.report()
    sync, *streams = lines_of(lake)
    for line in (sync, *streams):
        jsonschema.validate(line, schema())
    assert (sync["type"], sync["status"], sync["rows_received"], sync["states_released"]) == (
        "source",
        "finished",
        12,
        1,
    )
    assert {line["stream_name"]: (line["rows_received"], line["row_count"]) for line in streams} == {
        "orders": (2, 2),
        "users": (10, 10),
    }
    assert streams[0]["rejects"] == [{"column_name": "id", "reason": "DESTINATION_SERIALIZATION_ERROR", "count": 1}]
    for line in streams:
        files = lake.data_files(line["database"], line["table_name"])
        assert (line["files"], line["bytes_written"]) == (len(files), sum(files.values()))
        assert line["row_count"] == lake.read(line["database"], line["table_name"]).num_rows
    assert sync["aws_calls"]["s3.PutObject"] > 1
    assert sync["executor_cpu_seconds"] > 0 < sync["cpu_seconds"]
    started = lines_of(lake, "_started.json")
    assert {(line["run_id"], line["status"]) for line in started} == {(sync["run_id"], "started")}
    assert [line["stream_name"] for line in started] == [None, "orders", "users"]


def history(lake: Lake, folder: Path) -> list[dict[str, Any]]:
    """What the console script prints."""
    config = folder / "config.json"
    config.write_text(json.dumps(lake.config()))
    done = subprocess.run([COMMAND, "history", "--config", config, "--json"], capture_output=True, check=True)
    runs: list[dict[str, Any]] = json.loads(done.stdout)
    return runs


def test_a_sync_that_is_killed_has_died(platform: Platform, lake: Lake, tmp_path: Path) -> None:
    with platform.start(lake.config(), configured_catalog(configured_stream("orders", ORDERS))) as running:
        running.send([record("orders", {"id": 1}), state("orders", 1)])
        running.wait_for_log("MB/s received")
        running.kill()

    assert [line["status"] for line in lines_of(lake, "_started.json")] == ["started", "started"]
    assert lines_of(lake) == []
    platform.write(lake.config(), configured_catalog(configured_stream("orders", ORDERS)), completed("orders"))
    assert [run["status"] for run in history(lake, tmp_path)] == ["finished", "died"]


def test_a_sync_that_fails_before_it_reads_is_a_failure_of_its_tables(
    platform: Platform, lake: Lake, tmp_path: Path
) -> None:
    catalog = configured_catalog(configured_stream("orders", ORDERS))

    run = platform.write(lake.config(partitioning="DAY", partition_source="nowhere"), catalog, completed("orders"))

    assert run.exit_code == 1, run.report()
    sync, orders = lines_of(lake)
    assert (sync["status"], orders["status"], sync["streams_failed"]) == ("failed", "failed", 1)
    assert "nowhere" in orders["error"] == sync["error"]
    (tmp_path / "config.json").write_text(json.dumps(lake.config()))
    health = subprocess.run(
        [COMMAND, "health", "--config", tmp_path / "config.json"], capture_output=True, text=True, check=False
    )
    assert health.returncode == 1
    assert "the last sync failed" in health.stdout


def test_a_sync_that_is_terminated_says_so_with_what_it_has_committed(platform: Platform, lake: Lake) -> None:
    catalog = configured_catalog(configured_stream("orders", ORDERS))
    with platform.start(lake.config(flush_interval_seconds=1), catalog) as running:
        running.send([record("orders", {"id": 1}), state("orders", 1)])
        running.wait_for_state()
        run = running.terminate()

    assert run.exit_code == 143
    sync, stream = lines_of(lake)
    assert (sync["status"], stream["status"], stream["row_count"]) == ("terminated", "terminated", 1)
    assert summary(run) == [
        "Stream orders terminated: 1 record received (…), 1 committed in 1 file (…), 1 state released, ….",
        "Sync terminated: 1 stream, 1 record received (…), 1 committed in 1 file (…), 1 state released, … (…).",
    ], run.report()


def test_a_stream_that_fails_makes_a_sync_partial_and_its_records_skipped(platform: Platform, lake: Lake) -> None:
    catalog = configured_catalog(configured_stream("orders", ORDERS), configured_stream("users", ORDERS))
    sent = [record("orders", {"id": "x"}), state("orders", 1), record("users", {"id": 1}), state("users", 1)]

    run = platform.write(lake.config(rejects={"max_count": 0}), catalog, [*sent, *completed("orders", "users")])

    assert run.exit_code == 1
    sync, orders, users = lines_of(lake)
    assert (sync["status"], orders["status"], users["status"]) == ("partial", "failed", "finished")
    assert (orders["rows_received"], orders["row_count"], orders["rows_skipped"]) == (1, 0, 1)
    assert (sync["rows_received"], sync["row_count"], sync["rows_skipped"]) == (2, 1, 1)
    assert orders["error_code"] == "invalid_settings"
    assert "max_count" in orders["error"]
    assert summary(run) == [
        "Stream orders FAILED (invalid_settings): 1 record received (…), 0 committed in 0 files (…), ….",
        "Stream users finished: 1 record received (…), 1 committed in 1 file (…), 1 state released, ….",
        "Sync PARTIAL (invalid_settings): 2 streams (1 failed), 2 records received (…), 1 committed in 1 file (…), "
        "1 state released, … (…).",
    ], run.report()


def test_a_user_who_may_not_write_reports_loses_nothing_else(platform: Platform, lake: Lake) -> None:
    reports = f"arn:aws:s3:::{lake.bucket}/lake/_reports/*"
    user = Account(lake.endpoint_url).user(allow("*"), deny("s3:PutObject", resource=reports))
    catalog = configured_catalog(configured_stream("orders", ORDERS))
    sent = [record("orders", {"id": 1}), state("orders", 1), *completed("orders")]

    run = platform.write(lake.config(credentials=user.credentials), catalog, sent)

    assert (run.exit_code, len(run.states), run.errors) == (0, 1, [])
    assert sum("The report of this sync" in line for line in run.logs) == 1
    assert lines_of(lake) == lines_of(lake, "_started.json") == []


def test_lineage_and_a_topic_that_is_not_there_come_after_the_states(
    platform: Platform, lake: Lake, tmp_path: Path
) -> None:
    topic, events = "arn:aws:sns:us-east-1:123456789012:nobody", tmp_path / "lineage.jsonl"
    options = lake.config(lineage={"endpoint": str(events)}, notify={"sns_topic_arn": topic}, rejects={"max_count": 0})
    catalog = configured_catalog(configured_stream("orders", ORDERS), configured_stream("users", ORDERS))
    sent = [record("orders", {"id": "x"}), record("users", {"id": 1}), state("users", 1), *completed("orders", "users")]

    run = platform.write(options, catalog, sent)

    assert (run.exit_code, len(run.states)) == (1, 1)
    assert [json.loads(line)["eventType"] for line in events.read_text().splitlines()] == ["START", "FAIL"]
    assert sum("did not send the notice of this sync" in line for line in run.logs) == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_terminated", [False, True], ids=["at its end", "after SIGTERM"])
def test_a_server_of_lineage_that_never_answers_is_a_warning(
    platform: Platform, lake: Lake, *, is_terminated: bool
) -> None:
    catalog = configured_catalog(configured_stream("orders", ORDERS))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = lake.config(lineage={"endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}"})
        with platform.start({**config, "flush_interval_seconds": 1}, catalog) as running:
            running.send([record("orders", {"id": 1}), state("orders", 1)])
            running.wait_for_state()
            running.send(completed("orders") if not is_terminated else [])
            run = running.terminate() if is_terminated else running.close()

    assert (run.exit_code, run.errors) == (143 if is_terminated else 0, []), run.report()
    assert sum("did not send the lineage of this sync" in line for line in run.logs) == 1
    assert lines_of(lake)[0]["status"] == ("terminated" if is_terminated else "finished")


def test_without_the_option_there_is_none(platform: Platform, lake: Lake) -> None:
    run = platform.write(lake.config(sync_reports=False), configured_catalog(configured_stream("orders", ORDERS)), [])

    assert lake.reports() == {}, run.report()


def test_a_sync_ends_with_a_line_for_each_stream_and_one_for_itself(
    platform: Platform, lake: Lake, table_kind: TableKind
) -> None:
    config = lake.config(**table_kind.options)
    wider = object_schema(id=INTEGER, name=STRING, price=NUMBER)
    users = configured_stream("users", ORDERS)
    platform.write(config, configured_catalog(configured_stream("orders", ORDERS)), [record("orders", {"id": 1})])
    catalog = configured_catalog(configured_stream("orders", wider), users)
    lines = [record("orders", {"id": 2**40, "price": 1.5}), record("orders", {"id": "x"}), state("orders", 1)]

    run = platform.write(config, catalog, [*lines, state("orders", 2), *completed("orders", "users")])

    assert summary(run) == [
        "Stream orders finished: 2 records received (…), 2 committed in 1 file (…), 1 value rejected (see _errors/), "
        "2 states released, new columns: price, promoted: id to bigint, ….",
        "Stream users finished: 0 records received (…), 0 committed in 0 files (…), ….",
        "Sync finished: 2 streams, 2 records received (…), 2 committed in 1 file (…), 1 value rejected "
        "(see _errors/), 2 states released, … (…).",
    ], run.report()


def test_a_sync_that_fails_before_its_first_record_says_so_in_one_line(platform: Platform, lake: Lake) -> None:
    catalog = configured_catalog(configured_stream("orders", ORDERS))
    config = lake.config(bucket_name="not-there-x")

    run = platform.write(config, catalog, [record("orders", {"id": 1}), *completed("orders")])

    assert run.exit_code == 1
    last = [line for line in run.logs if line.startswith("INFO: Sync ")]
    assert len(last) == 1, run.report()
    assert re.match(r"INFO: Sync FAILED \(\w+\)", last[0])


ODD = "a\nINFO: Stream b\r\u2028 🦆"
"""A name that would be more than one line, or another line."""


@pytest.mark.parametrize("name", [ODD, "🦆"], ids=["lines", "emoji"])
def test_a_stream_with_an_odd_name_is_one_line(platform: Platform, lake: Lake, name: str) -> None:
    catalog = configured_catalog(configured_stream(name, ORDERS))

    run = platform.write(lake.config(), catalog, [record(name, {"id": 1}), status(name, "COMPLETE")])

    assert run.exit_code == 0, run.report()
    [stream, sync] = [line for line in run.logs if " finished: " in line]
    assert len(stream.splitlines()) == len(sync.splitlines()) == 1
    assert stream.count("INFO: Stream") == 1 + name.count("INFO: Stream")


def summary(run: Run) -> list[str]:
    """What is logged of the streams' and the sync's end, with `…` for sizes, and times."""
    lines = [
        message.removeprefix("INFO: ")
        for message in run.logs
        if re.match(r"INFO: (Stream \S.* |Sync )\w+( \(\w+\))?: \d+", message)
    ]
    # The types of an Iceberg table have other names than those of Glue.
    lines = [line.replace(" to long", " to bigint") for line in lines]
    return [re.sub(r"\d+ records/s|\d+\.\d (MB|s)\b", "…", line) for line in lines if " received (" in line]


def completed(*streams: str) -> list[bytes]:
    return [status(stream, "COMPLETE") for stream in streams]
