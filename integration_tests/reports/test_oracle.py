"""Whatever happens to syncs, their reports say what was sent, what is in the lake, and how they ended."""

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from destination_datalake.reports.report import schema
from integration_tests.archive.histories import Histories, Sync
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.output import ProtocolError, Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, object_schema
from integration_tests.reports.oracle import Oracle, Table, expected_rejects, records
from integration_tests.reports.test_reports import history, lines_of

SUMS = (
    "rows_received",
    "row_count",
    "rows_rejected",
    "rows_skipped",
    "values_rejected",
    "rows_merged",
    "rows_deduplicated",
    "rows_deleted",
    "bytes_received",
    "bytes_written",
    "files",
    "merges",
)
USERS = configured_stream("users", object_schema(id=INTEGER))


@pytest.mark.share(1)
@pytest.mark.parametrize("seed", range(40))
def test_whatever_has_happened_a_report_is_what_an_independent_count_finds(
    lake: Lake, launch: WarmLaunch, tmp_path: Path, seed: int
) -> None:
    """Some 150 syncs of all modes: dirty values, a limit of rejects, deletions, refreshes, and all kinds of ends."""
    draw = random.Random(seed)
    kind = draw.choice((*TABLE_KINDS, *PARTITIONED_KINDS))
    options: dict[str, object] = {**kind.options, "batch_size_mb": 1, "flush_interval_seconds": 1}
    if draw.random() < 0.3:
        options["rejects"] = {"max_count": draw.randint(0, 6)}
    with_users = draw.random() < 0.5
    oracle, ends, leaves_rows = Oracle(lake), list[str](), False
    known: set[str] = set()

    for sync in Histories(draw, is_iceberg="iceberg" in kind.name).syncs():
        streams, lines = [sync.stream], [*sync.lines]
        if with_users:
            streams.append(USERS)
            of_users = [record("users", {"id": n}) for n in range(draw.randint(0, 3))]
            lines += [*of_users, *([status("users", "COMPLETE")] if draw.random() < 0.8 else [])]
        before = oracle.table("orders")
        run = played(lake.config(**options), streams, lines, sync, Platform(tmp_path, launch), draw, launch)
        new = {line["run_id"] for line in lines_of(lake, "_started.json")} - known
        known |= new
        if run is None:
            leaves_rows = True
            # A sync does not wait for more than a second until it is said that it has begun.
            ends += ["died"] * len(new)
            assert not [line for line in lines_of(lake) if line["run_id"] in new]
            continue
        line, *of_streams = [line for line in lines_of(lake) if line["run_id"] in new]
        ends.append(line["status"])
        told = f"{sync.stream['destination_sync_mode']} {options}\n{run.report()}"
        check_sync(line, of_streams, run)
        for each in of_streams:
            check_stream(each, oracle, lines, told)
            if each["stream_name"] == "orders":
                check_table(each, lake, before, oracle.table("orders"), told, adopts=leaves_rows)
        leaves_rows = line["status"] != "finished"

    died_or_running = [
        end if end != "died" or number + 1 < len(ends) else "unfinished" for number, end in enumerate(ends)
    ]
    assert [each["status"] for each in history(lake, tmp_path)] == died_or_running[::-1]


def played(
    config: Mapping[str, object],
    streams: Sequence[Any],
    lines: list[bytes],
    sync: Sync,
    platform: Platform,
    draw: random.Random,
    launch: WarmLaunch,
) -> Run | None:
    """Run a sync: to its end, up to where it is killed (None), or until SIGTERM. `lines` is cut to what was sent."""
    catalog = configured_catalog(*streams)
    if sync.killed_at is not None:
        with suppress(ProtocolError):
            killed = Platform(platform._folder, launch.killed_at(sync.killed_at))
            return killed.write(config, catalog, lines)
        return None
    if draw.random() < 0.2:
        del lines[draw.randint(0, len(lines)) :]
        lines.append(state("orders", "last"))
        with platform.start(config, catalog) as running:
            running.send(lines)
            with suppress(ProtocolError):  # It may fail: it has ended then.
                running.wait_for_states(sum(json.loads(line)["type"] == "STATE" for line in lines))
            return running.terminate()
    return platform.write(config, catalog, lines)


def check_sync(line: Mapping[str, Any], streams: Sequence[Mapping[str, Any]], run: Run) -> None:
    jsonschema.validate(line, schema())
    failed = {each["stream_descriptor"]["name"] for each in run.errors if "stream_descriptor" in each}
    all_failed = any("stream_descriptor" not in each for each in run.errors) or len(failed) == len(streams)
    ends = {0: "finished", 143: "terminated", 1: "failed" if all_failed else "partial"}
    assert line["status"] == ends[run.exit_code], run.report()
    assert {name: line[name] for name in SUMS} == {name: sum(each[name] for each in streams) for name in SUMS}
    assert (line["states_released"], line["streams"]) == (len(run.states), len(streams))
    assert line["streams_failed"] == sum(each["status"] == "failed" for each in streams)
    for each in streams:
        is_failed = each["stream_name"] in failed or any("stream_descriptor" not in error for error in run.errors)
        good = "terminated" if run.exit_code == 143 else "finished"
        assert each["status"] == ("failed" if is_failed else good), run.report()
        assert (each["error"] is not None) == is_failed


def check_stream(line: Mapping[str, Any], oracle: Oracle, sent: Sequence[bytes], told: str) -> None:
    """Check a line against what was sent, what was committed, and what is among the rejects."""
    jsonschema.validate(line, schema())
    name, run = line["stream_name"], line["run_id"]
    lines, received = records(sent, name), line["rows_received"]
    assert received == len(lines) or (line["status"] == "failed" and received < len(lines)), told
    assert line["bytes_received"] == sum(len(each) + 1 for each in lines[:received])
    files = oracle.files(run, name)
    assert {member: line[member] for member in files} == files, told
    assert received == line["row_count"] + line["rows_rejected"] + line["rows_skipped"], told
    rejects = oracle.rejects(run, name)
    if line["status"] == "failed":
        # Those of the batch that was too much are there, as evidence.
        assert line["rows_rejected"] + line["values_rejected"] <= len(rejects)
        return
    assert line["rows_skipped"] == 0, told
    assert line["rejects"] == expected_rejects(rejects), told
    refused = {each["sequencenumber"] for each in rejects if each["row_id"] is None}
    assert line["rows_rejected"] == len(refused), told
    assert line["values_rejected"] == sum(each["column_name"] is not None for each in rejects), told


def check_table(line: Mapping[str, Any], lake: Lake, before: Table, after: Table, told: str, *, adopts: bool) -> None:
    """Check what a line says of the table, and of what has changed in it. It may adopt rows of an earlier attempt."""
    if before.columns:
        assert {each["name"] for each in line["new_columns"]} == after.columns.keys() - before.columns.keys(), told
        promoted = {name for name, type_ in before.columns.items() if after.columns[name] != type_}
        assert {each["name"] for each in line["promoted_columns"]} == promoted, told
    else:
        assert line["new_columns"] == [], told
    if line["sync_mode"] == "append":
        new = len(after.ids - before.ids)
        assert new == line["row_count"] or (adopts and new > line["row_count"]), told
        assert line["merges"] == line["rows_deduplicated"] == line["rows_deleted"] == 0
    elif line["sync_mode"] == "append_dedup" and line["status"] == "finished":
        assert line["rows_merged"] >= line["row_count"], told
        assert adopts or line["rows_deduplicated"] + line["rows_deleted"] == len(before.ids - after.ids), told
    if line["snapshot_id"] is not None and line["status"] == "finished":
        table = lake.iceberg_table(lake.database, "orders")
        current = table.current_snapshot()
        files = lake.data_files(lake.database, "orders")
        assert current is not None
        assert {name: line[name] for name in ("snapshot_id", "table_snapshots", "table_files", "table_bytes")} == {
            "snapshot_id": current.snapshot_id,
            "table_snapshots": len(table.snapshots()),
            "table_files": len(files),
            "table_bytes": sum(files.values()),
        }, told
        assert line["table_rows"] == len(after.ids), told
