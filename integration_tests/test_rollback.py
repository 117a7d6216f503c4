"""A table that is rolled back as docs/how-to/roll-back.md describes: the next syncs of every mode continue it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

from integration_tests.harness.lake import Lake
from integration_tests.harness.rollback import BAD, FIRST, LATER, RIGHT, SYNC_MODES, RolledBack, SyncMode
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import Warehouse
from integration_tests.verify.verifying import Verifying


@pytest.fixture(params=SYNC_MODES, ids=lambda mode: mode.name)
def orders(request: pytest.FixtureRequest, lake: Lake, platform: Platform) -> RolledBack:
    mode: SyncMode = request.param
    return RolledBack(Warehouse(lake, platform, TABLE_KINDS[0]), mode)


def run_python(script: str, lake: Lake) -> None:
    """Run a script with PyIceberg, which finds the AWS of the tests in its environment."""
    settings = {
        "GLUE__ENDPOINT": lake.endpoint_url,
        "GLUE__REGION": REGION,
        "GLUE__ACCESS_KEY_ID": ACCESS_KEY_ID,
        "GLUE__SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        **{name.upper().replace(".", "__").replace("-", "_"): value for name, value in lake.s3_properties.items()},
    }
    environment = {f"PYICEBERG_CATALOG__GLUE__{name}": value for name, value in settings.items()}
    run = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.share(1)
def test_syncs_continue_a_table_from_the_snapshot_that_it_was_rolled_back_to(
    orders: RolledBack, launch: WarmLaunch, tmp_path: Path
) -> None:
    orders.sync(1, FIRST)
    good, before = orders.snapshot(), orders.names()
    orders.sync(2, BAD)
    assert (3, "bad") in orders.names()
    assert [(line["sync_id"], line["snapshot_id"]) for line in orders.reported()][1:] == [(1, good)]

    run_python(orders.block("python", snapshot=good), orders.lake)

    assert orders.names() == before
    orders.sync(3, RIGHT)
    assert orders.names() == orders.mode.after_third
    orders.sync(4, LATER)
    assert orders.names() == orders.mode.after_fourth
    problems = Verifying(launch, tmp_path).problems(orders.warehouse.config(), "--stream", "orders")
    assert ["was rolled back by another writer" in problem["description"] for problem in problems] == [True], problems
