"""Maintenance over the real command line: at the end of a sync, and by the command `maintain`."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from emulated_aws.account import Account
from emulated_aws.server import ACCOUNT_ID

from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.launch import COMMAND, Launch
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import INTEGER, STRING, object_schema
from integration_tests.permissions.scenarios import iam_policy

SCHEMA = object_schema(id=INTEGER, fill=STRING)
FILL = "x" * 1_200_000
"""Makes a record a batch of its own where batch_size_mb is 1."""

IDS = [1, 2, 3, 4, 5, 6]


def sync(platform: Platform, config: Mapping[str, object]) -> Run:
    """Append a file for each id."""
    lines = [line for id_ in IDS for line in (record("orders", {"id": id_, "fill": FILL}), state("orders", id_))]
    run = platform.write(
        config, configured_catalog(configured_stream("orders", SCHEMA)), [*lines, status("orders", "COMPLETE")]
    )
    assert (run.exit_code, run.errors) == (0, []), run.report()
    return run


def reports(run: Run) -> list[dict[str, Any]]:
    """Return the lines about maintenance in a sync's log."""
    return [json.loads(text.removeprefix("INFO: ")) for text in run.logs if text.startswith('INFO: {"table"')]


def data_files(lake: Lake) -> int:
    return sum("/data/" in key for key in lake.objects())


def maintain(config: Mapping[str, object], folder: Path, *arguments: str) -> tuple[int, list[str], str]:
    """Run the console script; return its exit code, the lines on stdout, and stderr."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    done = subprocess.run(
        [COMMAND, "maintain", "--config", path, *arguments], capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_a_sync_compacts_at_its_end_when_its_states_are_out(platform: Platform, lake: Lake) -> None:
    config = lake.config(batch_size_mb=1, maintenance={"mode": "connector"})

    run = sync(platform, config)

    kinds = ["report" if b'{\\"table\\"' in message.raw else message.type for message in run.messages]
    assert kinds.index("report") > max(number for number, kind in enumerate(kinds) if kind == "STATE")
    compaction, expiry, orphans = reports(run)
    assert (compaction["step"], compaction["files"] >= 5, compaction["new_files"]) == ("compaction", True, 1)
    assert (expiry["step"], orphans["step"]) == ("expiry", "orphans")
    assert data_files(lake) > 1  # Those of snapshots that are not old yet.
    assert sorted(row["id"] for row in lake.rows(lake.database, "orders")) == IDS


def test_a_sync_turns_on_glue_s_optimizers_once(platform: Platform, lake: Lake) -> None:
    role = f"arn:aws:iam::{ACCOUNT_ID}:role/optimizers"
    config = lake.config(maintenance={"mode": "glue", "role_arn": role})

    first, second = sync(platform, config), sync(platform, config)

    assert [(report["step"], report["optimizers"]) for report in reports(first)] == [("optimizers", 3)]
    assert reports(second) == []
    optimizer = lake.glue.get_table_optimizer(
        CatalogId=ACCOUNT_ID, DatabaseName=lake.database, TableName="orders", Type="compaction"
    )
    assert optimizer["TableOptimizer"].get("configuration", {}).get("roleArn") == role


@pytest.mark.slow
def test_a_dry_run_says_what_the_command_then_does(
    platform: Platform, lake: Lake, tmp_path: Path, launch_cold: Launch
) -> None:
    del launch_cold  # `maintain` starts a Spark of its own.
    config = lake.config(batch_size_mb=1)
    sync(platform, config)
    before = lake.objects().keys()
    table = f"{lake.database}.orders"

    code, lines, _ = maintain(config, tmp_path, "--dry-run")
    assert (code, lake.objects().keys()) == (0, before)
    assert [line.rpartition("(")[0] for line in lines][:1] == [f"{table} compaction: would rewrite 6 files "]
    code, lines, errors = maintain(config, tmp_path, "--stream", "orders")

    assert code == 0, errors
    assert [line.partition(" (")[0] for line in lines] == [
        f"{table} compaction: rewrote 6 files",
        f"{table} expiry: no snapshots expired",
        f"{table} orphans: no orphan files",
    ]
    assert sorted(row["id"] for row in lake.rows(lake.database, "orders")) == IDS
    code, lines, errors = maintain(config, tmp_path, "--stream", "shop.orders")
    assert (code, lines) == (1, [])
    assert errors.startswith("--stream shop.orders: this configuration has no Iceberg table")


@pytest.mark.slow
def test_the_command_may_do_what_the_printed_policy_allows(platform: Platform, lake: Lake, tmp_path: Path) -> None:
    config = lake.config(maintenance={"mode": "connector"})
    sync(platform, config)
    account = Account(lake.endpoint_url)
    document = json.loads(iam_policy(tmp_path, config, configured_catalog(configured_stream("orders", SCHEMA))))
    user = account.user(*document["Statement"])
    log = account.log()

    code, lines, errors = maintain({**config, "credentials": user.credentials}, tmp_path)

    # Databases that the connector has created for others, here for other tests, are theirs.
    skipped = [line for line in (*lines, *errors.splitlines()) if line.endswith(" were skipped.")]
    assert code == 0, errors
    assert len(lines) + len(errors.splitlines()) - len(skipped) == 3
    asked = log.read(caller=user.arn)
    assert {"GetDatabases", "GetTables", "ListObjectsV2", "GetObject"} <= {request.operation for request in asked}
    assert [request.operation for request in asked if request.refusal] == ["GetTables"] * len(skipped)
