"""The examples of docs/operating/orchestrators.md, run by the orchestrators themselves; those of Kestra by a shell."""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
import yaml

from integration_tests.clients.environments import HOME
from integration_tests.documentation.blocks import block
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.launch import COMMAND
from integration_tests.harness.warehouse import INTEGER, object_schema

PAGE = "docs/operating/orchestrators.md"
_SECONDS = 300


@dataclass(frozen=True)
class Shop:
    """The folder that the examples call /opt/syncs/shop, and what runs in it."""

    folder: Path
    lake: Lake

    def example(self, heading: str, language: str) -> str:
        """Return the block of a section of the page, for this folder."""
        return block(PAGE, heading, language).body.replace("/opt/syncs/shop", str(self.folder))

    def send(self, *ids: object) -> None:
        """Let the source's next run send records with these ids, the first column of which is an integer."""
        now = int(time.time() * 1000)
        lines = [record("orders", {"id": id_}, emitted_at=now) for id_ in ids]
        lines += [state("orders", len(ids)), status("orders", "COMPLETE")]
        (self.folder / "messages.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))

    def run(self, *command: str, code: int = 0) -> str:
        """Run a command in the folder; returns what it printed on stdout."""
        path = os.pathsep.join((str(self.folder / "bin"), str(Path(COMMAND).parent), os.environ["PATH"]))
        settings = {
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "DO_NOT_TRACK": "1",
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "False",
        }
        run = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **settings, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert run.returncode == code, f"{command}: exit {run.returncode}\n{run.stdout}\n{run.stderr}"
        return run.stdout

    def ids(self) -> Sequence[int]:
        return sorted(row["id"] for row in self.lake.rows(self.lake.database, "orders"))


@pytest.fixture
def shop(tmp_path: Path, lake: Lake) -> Shop:
    shop = Shop(tmp_path, lake)
    catalog = configured_catalog(configured_stream("orders", object_schema(id=INTEGER)))
    (tmp_path / "config.json").write_text(json.dumps(lake.config()))
    (tmp_path / "catalog.json").write_text(json.dumps(catalog))
    (tmp_path / "sync.sh").write_text(shop.example("One sync", "sh"))
    (tmp_path / "bin").mkdir()
    source = tmp_path / "bin" / "source-shop"
    source.write_text(f"#!/bin/sh\ncat {tmp_path}/messages.jsonl\n")
    source.chmod(0o755)
    shop.send(1, 2)
    return shop


def test_the_script_keeps_what_is_acknowledged_and_fails_as_the_connector_does(shop: Shop) -> None:
    shop.run("bash", "sync.sh")
    [kept] = json.loads((shop.folder / "state.json").read_text())
    assert kept["stream"]["stream_state"] == {"cursor": 2}
    (shop.folder / "messages.jsonl").write_bytes(record("orders", {"id": 3}) + b"\n")  # Incomplete.

    shop.run("bash", "sync.sh", code=1)

    assert [kept] == json.loads((shop.folder / "state.json").read_text())
    assert shop.ids() == [1, 2, 3]
    assert shop.run("bash", "-c", shop.example("Exit codes", "sh")) == "transient_error\n"


def test_airflow_runs_the_sync_and_fails_if_a_table_is_unhealthy(shop: Shop) -> None:
    (shop.folder / "airflow" / "dags").mkdir(parents=True)
    (shop.folder / "airflow" / "dags" / "shop.py").write_text(shop.example("Airflow", "python"))
    airflow = str(HOME / "airflow" / "bin" / "airflow")
    shop.run(airflow, "db", "migrate")

    shop.run(airflow, "dags", "test", "shop")

    assert shop.ids() == [1, 2]
    (shop.folder / "messages.jsonl").write_bytes(record("orders", {"id": 3}) + b"\n")  # Incomplete.

    shop.run("bash", "sync.sh", code=1)
    tested = shop.run(airflow, "tasks", "test", "shop", "health")

    assert "AirflowFailException: unhealthy" in tested
    assert "new_state=failed" in tested


def test_dagster_materializes_the_asset_and_checks_it(shop: Shop) -> None:
    (shop.folder / "shop.py").write_text(shop.example("Dagster", "python"))
    program = """
import json, dagster, shop
done = dagster.materialize([shop.orders, shop.orders_are_healthy])
[made] = done.get_asset_materialization_events()
[check] = done.get_asset_check_evaluations()
print(json.dumps([made.materialization.metadata["dagster/row_count"].value, check.passed]))
"""

    printed = shop.run(str(HOME / "dagster" / "bin" / "python"), "-c", program)

    assert json.loads(printed.splitlines()[-1]) == [2, True]
    assert shop.ids() == [1, 2]


def test_kestra_s_commands_run_in_a_shell(shop: Shop) -> None:
    flow = yaml.safe_load(shop.example("Kestra", "yaml"))

    for task in flow["tasks"]:
        for command in task["commands"]:
            shop.run("bash", "-c", command)

    assert [task["id"] for task in flow["tasks"]] == ["sync", "health"]
    assert shop.ids() == [1, 2]


def test_dbt_finds_the_source_fresh_and_tests_it(shop: Shop) -> None:
    shop.run("bash", "sync.sh")
    with duckdb.connect(str(shop.folder / "lake.duckdb")) as engine:
        rows = shop.lake.read(shop.lake.database, "orders")
        engine.register("rows", rows)
        engine.execute("CREATE SCHEMA landing; CREATE TABLE landing.orders AS FROM rows")
    (shop.folder / "models").mkdir()
    (shop.folder / "models" / "sources.yml").write_text(shop.example("dbt", "yaml"))
    (shop.folder / "dbt_project.yml").write_text("name: shop\nprofile: shop\n")
    target = {"type": "duckdb", "path": "lake.duckdb"}
    profiles = {"shop": {"target": "dev", "outputs": {"dev": target}}}
    (shop.folder / "profiles.yml").write_text(yaml.safe_dump(profiles))
    dbt = str(HOME / "dbt" / "bin" / "dbt")

    assert "PASS freshness of landing.orders" in shop.run(dbt, "--no-use-colors", "source", "freshness")
    assert "PASS=3" in shop.run(dbt, "--no-use-colors", "test")
