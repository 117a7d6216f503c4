"""A sync whose Spark is behind a Spark Connect server; more of that in `integration_tests/cluster/`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from integration_tests.archive import archived
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.launch import COMMAND
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import INTEGER, STRING, object_schema
from integration_tests.spark.connect_server import ConnectServer


@pytest.mark.slow
def test_a_sync_over_spark_connect_outlives_its_session_and_leaves_nothing_behind(
    lake: Lake, container: Platform, tmp_path: Path
) -> None:
    # Given a server that ends sessions which are idle for five seconds
    soon = {
        "spark.connect.session.manager.defaultSessionTimeout": "5s",
        "spark.connect.session.manager.maintenanceInterval": "100ms",
    }
    catalog = configured_catalog(configured_stream("orders", object_schema(id=INTEGER, name=STRING)))
    with ConnectServer(tmp_path, **soon) as server:
        config = lake.config(spark={"remote": server.remote}, flush_interval_seconds=1, raw_archive={"enabled": True})
        orders = [record("orders", {"id": 1, "name": "é"}), record("orders", {"id": 2, "name": None})]
        with container.start(config, catalog) as sync:
            sync.send([orders[0], state("orders", 1)])
            sync.wait_for_states(1)

            # When the next batch comes after that
            server.wait_for("Closing session with")
            sync.send([orders[1], state("orders", 2), status("orders", "COMPLETE")])
            run = sync.close()
        server.wait_for("Closing session with", 2)

    # Then it is committed in another session, which ends with the sync
    assert run.exit_code == 0, run.report()
    assert sorted(row["id"] for row in lake.rows(lake.database, "orders")) == [1, 2]
    assert archived.lines(lake, "orders") == archived.as_archived(orders)
    assert "ended. Opening a new session" in run.report()
    assert lake.objects("lake/_staging") == {}


@pytest.mark.slow
def test_rows_are_erased_over_spark_connect(lake: Lake, container: Platform, tmp_path: Path) -> None:
    catalog = configured_catalog(configured_stream("orders", object_schema(id=INTEGER, name=STRING)))
    orders = [record("orders", {"id": number, "name": "é"}) for number in (1, 2)]
    config, ids = tmp_path / "config.json", tmp_path / "ids.txt"
    ids.write_text("1\n")
    with ConnectServer(tmp_path) as server:
        options = lake.config(spark={"remote": server.remote})
        config.write_text(json.dumps(options))
        written = container.write(options, catalog, [*orders, state("orders", 1), status("orders", "COMPLETE")])
        assert written.exit_code == 0, written.report()

        command = [COMMAND, "delete-rows", "--config", str(config), "--all", "--column", "id", "--ids-file", str(ids)]
        erased = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert erased.returncode == 0, erased.stderr
    assert ": 1 rows removed from 1 objects" in erased.stdout
    assert [row["id"] for row in lake.rows(lake.database, "orders")] == [2]
