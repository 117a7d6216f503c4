"""Whatever happens to syncs, their reports say what was sent, what is in the lake, and how they ended."""

import json
import random
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from emulated_aws.server import ACCESS_KEY_ID

from destination_datalake.reports.report import schema
from integration_tests.archive.histories import Histories, Sync
from integration_tests.chaos.aws.adversary import Adversary, HostileAws
from integration_tests.chaos.aws.faults import Fault
from integration_tests.chaos.aws.faults import draw as faults
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.kill_points import KillPoint
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
KILLED = -signal.SIGKILL
USERS = configured_stream("users", object_schema(id=INTEGER))


@dataclass(frozen=True)
class Fate:
    """What happens to a sync: at most one of these. `killed_after` is in seconds; a rival does the same beside it."""

    killed_at: KillPoint | None = None
    killed_after: float | None = None
    terminated: bool = False
    rivalled: bool = False
    faults: Sequence[Fault] = ()

    @classmethod
    def drawn(cls, draw: random.Random, sync: Sync) -> "Fate":
        if sync.killed_at is not None:
            return cls(killed_at=sync.killed_at)
        share = draw.random()
        if share < 0.2:
            return cls(killed_after=draw.uniform(0, 4))
        if share < 0.4:
            return cls(faults=faults(draw))
        return cls(terminated=share < 0.55, rivalled=share > 0.85)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_whatever_has_happened_a_report_is_what_an_independent_count_finds(
    lake: Lake, launch: WarmLaunch, tmp_path: Path, seed: int
) -> None:
    """Some 170 syncs of all modes: dirty values, a limit of rejects, deletions, refreshes, and all kinds of ends."""
    draw = random.Random(seed)
    kind = draw.choice((*TABLE_KINDS, *PARTITIONED_KINDS))
    options: dict[str, object] = {**kind.options, "batch_size_mb": 1, "flush_interval_seconds": 1}
    if draw.random() < 0.3:
        options["rejects"] = {"max_count": draw.randint(0, 6)}
    with_users = draw.random() < 0.5
    oracle, leaves_rows = Oracle(lake), False
    ends: dict[str, str] = {}
    """How each sync has ended, by its run; those that die are thought to run until another one begins."""

    for sync in Histories(draw, is_iceberg="iceberg" in kind.name).syncs():
        streams, lines = [sync.stream], [*sync.lines]
        if with_users:
            streams.append(USERS)
            of_users = [record("users", {"id": n}) for n in range(draw.randint(0, 3))]
            lines += [*of_users, *([status("users", "COMPLETE")] if draw.random() < 0.8 else [])]
        fate, before = Fate.drawn(draw, sync), oracle.table("orders")
        if fate.terminated:
            del lines[draw.randint(0, len(lines)) :]
            lines.append(state("orders", "last"))
        runs = played(lake, options, streams, lines, fate, tmp_path, launch)
        told = f"{sync.stream['destination_sync_mode']} {options} {fate}\n" + "\n".join(run.report() for run in runs)
        begun = [line["run_id"] for line in lines_of(lake, "_started.json") if line["type"] == "source"]
        reports = reports_of(lake)
        new = {run: reports.get(run) for run in (*begun, *reports) if run not in ends}
        ends |= {run: report[0]["status"] if report else "died" for run, report in new.items()}
        # Other states are out before it is said that a sync has begun only if that takes more than a second.
        assert len(new) == len(runs) or not any(run.states for run in runs), told
        if not fate.faults:
            assert sum(report is None for report in new.values()) <= sum(run.exit_code == KILLED for run in runs), told
        for report in filter(None, new.values()):
            line, *of_streams = report
            if len(runs) == 1 and runs[0].exit_code != KILLED:
                check_sync(line, of_streams, runs[0])
            for stream_line in of_streams:
                check_stream(stream_line, oracle, lines, told)
                if stream_line["stream_name"] == "orders" and len(runs) == 1:
                    after, refreshes = oracle.table("orders"), sync.stream["minimum_generation_id"] != 0
                    check_table(stream_line, lake, before, after, told, adopts=leaves_rows, refreshes=refreshes)
        leaves_rows = [*ends.values()][-1:] != ["finished"] or len(runs) > 1

    outcomes = history(lake, tmp_path)
    if ends and outcomes[0]["status"] == "unfinished":
        assert ends[outcomes[0]["run_id"]] == "died"
        ends[outcomes[0]["run_id"]] = "unfinished"
    assert {outcome["run_id"]: outcome["status"] for outcome in outcomes} == ends


def reports_of(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    """Return the lines of each report, by its run."""
    lines_by_run: dict[str, list[dict[str, Any]]] = {}
    for line in lines_of(lake):
        lines_by_run.setdefault(line["run_id"], []).append(line)
    return lines_by_run


def played(
    lake: Lake,
    options: Mapping[str, object],
    streams: Sequence[Any],
    lines: Sequence[bytes],
    fate: Fate,
    folder: Path,
    launch: WarmLaunch,
) -> list[Run]:
    """Run a sync, and its rival if it has one, to the end that fate has for it."""
    platform = Platform(folder, launch if fate.killed_at is None else launch.killed_at(fate.killed_at))
    with HostileAws(lake.endpoint_url) as aws, ExitStack() as stack:
        aws.watch(ACCESS_KEY_ID, Adversary(faults=fate.faults))
        config = lake.config(**options, **({"endpoint_url": aws.endpoint_url} if fate.faults else {}))
        syncs = range(2 if fate.rivalled else 1)
        all_running = [stack.enter_context(platform.start(config, configured_catalog(*streams))) for _ in syncs]
        began = time.monotonic()
        for running in all_running:
            running.send(lines)
        (running, *_) = all_running
        if fate.killed_after is not None:
            running.end_input()
            time.sleep(max(0.0, began + fate.killed_after - time.monotonic()))
            return [running.kill()]
        if fate.killed_at is not None:
            return [running.perish()]
        if fate.terminated:
            with suppress(ProtocolError):  # It may fail: it has ended then.
                running.wait_for_states(sum(json.loads(line)["type"] == "STATE" for line in lines))
            return [running.terminate()]
        return [running.close() for running in all_running]


def check_sync(line: Mapping[str, Any], streams: Sequence[Mapping[str, Any]], run: Run) -> None:
    jsonschema.validate(line, schema())
    failed = {error["stream_descriptor"]["name"] for error in run.errors if "stream_descriptor" in error}
    all_failed = any("stream_descriptor" not in error for error in run.errors) or len(failed) == len(streams)
    ends = {0: "finished", 143: "terminated", 1: "failed" if all_failed else "partial"}
    assert line["status"] == ends[run.exit_code], run.report()
    assert {name: line[name] for name in SUMS} == {name: sum(stream[name] for stream in streams) for name in SUMS}
    assert (line["states_released"], line["streams"]) == (len(run.states), len(streams))
    assert line["streams_failed"] == sum(stream["status"] == "failed" for stream in streams)
    for stream in streams:
        is_failed = stream["stream_name"] in failed or any("stream_descriptor" not in error for error in run.errors)
        good = "terminated" if run.exit_code == 143 else "finished"
        assert stream["status"] == ("failed" if is_failed else good), run.report()
        assert (stream["error"] is not None) == is_failed


def check_stream(line: Mapping[str, Any], oracle: Oracle, sent: Sequence[bytes], told: str) -> None:
    """Check a line against what was sent, what was committed, and what is among the rejects."""
    jsonschema.validate(line, schema())
    name, run = line["stream_name"], line["run_id"]
    lines, received = records(sent, name), line["rows_received"]
    assert received == len(lines) or (line["status"] == "failed" and received < len(lines)), told
    assert line["bytes_received"] == sum(len(sent_line) + 1 for sent_line in lines[:received])
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
    refused = {reject["sequencenumber"] for reject in rejects if reject["row_id"] is None}
    assert line["rows_rejected"] == len(refused), told
    assert line["values_rejected"] == sum(reject["column_name"] is not None for reject in rejects), told


def check_table(
    line: Mapping[str, Any], lake: Lake, before: Table, after: Table, told: str, *, adopts: bool, refreshes: bool
) -> None:
    """Check what a line says of the table, and of what has changed in it. It may adopt rows of an earlier attempt."""
    if before.columns:
        new_columns = {column["name"] for column in line["new_columns"]}
        added = after.columns.keys() - before.columns.keys()
        # SIGTERM may come while the table is being prepared, which no report waits for.
        assert new_columns == added or (line["status"] == "terminated" and new_columns < added), told
        promoted = {name for name, type_ in before.columns.items() if after.columns[name] != type_}
        assert {column["name"] for column in line["promoted_columns"]} == promoted, told
    else:
        assert line["new_columns"] == [], told
    if line["sync_mode"] == "append":
        new = len(after.ids - before.ids)
        assert new == line["row_count"] or (adopts and new > line["row_count"]), told
        # Rows that a killed sync has left for a merge are merged by the next sync, whatever its mode.
        assert adopts or line["merges"] == line["rows_deduplicated"] == line["rows_deleted"] == 0, told
    elif line["sync_mode"] == "append_dedup" and line["status"] == "finished":
        assert line["rows_merged"] >= line["row_count"], told
        lost = len(before.ids - after.ids)
        # A refresh loses rows without a merge, and where rows of others are merged too, some may be of this table.
        is_plain = not refreshes and line["rows_merged"] == line["row_count"]
        assert not is_plain or line["rows_deduplicated"] + line["rows_deleted"] == lost, told
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
