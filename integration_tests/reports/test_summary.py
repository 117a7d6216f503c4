"""The last lines that a sync logs, which Airbyte shows: one for each stream, then one on the sync."""

import re

import pytest

from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TableKind
from integration_tests.harness.warehouse import INTEGER, NUMBER, STRING, object_schema

pytestmark = pytest.mark.share(2)

ORDERS = object_schema(id=INTEGER, name=STRING)
ODD = "a\nINFO: Stream b\r\u2028 🦆"
"""A name that would be more than one line, or another line."""


def summary(run: Run) -> list[str]:
    """What is logged of the streams' and the sync's end, with `…` for sizes, and times."""
    lines = [
        each.removeprefix("INFO: ")
        for each in run.logs
        if re.match(r"INFO: (Stream \S.* |Sync )\w+( \(\w+\))?: \d+", each)
    ]
    # The types of an Iceberg table have other names than those of Glue.
    lines = [line.replace(" to long", " to bigint") for line in lines]
    return [re.sub(r"\d+ records/s|\d+\.\d (MB|s)\b", "…", line) for line in lines if " received (" in line]


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
        "Stream orders finished: 2 records received (…), 2 committed in 1 files (…), 1 values rejected (see _errors/), "
        "2 states released, new columns: price, promoted: id to bigint, ….",
        "Stream users finished: 0 records received (…), 0 committed in 0 files (…), ….",
        "Sync finished: 2 streams, 2 records received (…), 2 committed in 1 files (…), 1 values rejected "
        "(see _errors/), 2 states released, … (…).",
    ], run.report()


def test_a_stream_that_fails_is_a_line_with_the_class_of_its_failure(platform: Platform, lake: Lake) -> None:
    catalog = configured_catalog(configured_stream("orders", ORDERS), configured_stream("users", ORDERS))
    sent = [record("orders", {"id": "x"}), state("orders", 1), record("users", {"id": 1}), state("users", 1)]

    run = platform.write(lake.config(rejects={"max_count": 0}), catalog, [*sent, *completed("orders", "users")])

    assert summary(run) == [
        "Stream orders FAILED (invalid_settings): 1 records received (…), 0 committed in 0 files (…), ….",
        "Stream users finished: 1 records received (…), 1 committed in 1 files (…), 1 states released, ….",
        "Sync PARTIAL (invalid_settings): 2 streams (1 failed), 2 records received (…), 1 committed in 1 files (…), "
        "1 states released, … (…).",
    ], run.report()


def test_a_sync_that_fails_before_its_first_record_says_so_in_one_line(platform: Platform, lake: Lake) -> None:
    catalog = configured_catalog(configured_stream("orders", ORDERS))
    config = lake.config(bucket_name="not-there-x")

    run = platform.write(config, catalog, [record("orders", {"id": 1}), *completed("orders")])

    assert run.exit_code == 1
    last = [line for line in run.logs if line.startswith("INFO: Sync ")]
    assert len(last) == 1, run.report()
    assert re.match(r"INFO: Sync FAILED \(\w+\)", last[0])


def test_a_sync_that_is_terminated_says_what_it_has_kept(platform: Platform, lake: Lake) -> None:
    catalog = configured_catalog(configured_stream("orders", ORDERS))
    with platform.start(lake.config(flush_interval_seconds=1), catalog) as running:
        running.send([record("orders", {"id": 1}), state("orders", 1)])
        running.wait_for_state()
        run = running.terminate()

    assert summary(run) == [
        "Stream orders terminated: 1 records received (…), 1 committed in 1 files (…), 1 states released, ….",
        "Sync terminated: 1 streams, 1 records received (…), 1 committed in 1 files (…), 1 states released, … (…).",
    ], run.report()


@pytest.mark.parametrize("name", [ODD, "🦆"], ids=["lines", "emoji"])
def test_a_stream_with_an_odd_name_is_one_line(platform: Platform, lake: Lake, name: str) -> None:
    catalog = configured_catalog(configured_stream(name, ORDERS))

    run = platform.write(lake.config(), catalog, [record(name, {"id": 1}), status(name, "COMPLETE")])

    assert run.exit_code == 0, run.report()
    [stream, sync] = [line for line in run.logs if " finished: " in line]
    assert len(stream.splitlines()) == len(sync.splitlines()) == 1
    assert stream.count("INFO: Stream") == 1 + name.count("INFO: Stream")


def completed(*streams: str) -> list[bytes]:
    """What the platform sends once the source has succeeded."""
    return [status(stream, "COMPLETE") for stream in streams]
