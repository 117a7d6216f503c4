"""Spark Connect: sessions that the server ends, a server that goes away, and tokens that it does not take."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from integration_tests.cluster.doors import TOKEN
from integration_tests.cluster.harness.connect_server import ConnectServer
from integration_tests.cluster.harness.environments import CONNECTOR, OLDEST_SPARK, SPARK, python_of, spark_home
from integration_tests.cluster.harness.host import HIDDEN
from integration_tests.cluster.harness.standalone import ROLE
from integration_tests.conformance.airbyte.orders import COMPLETE, order, orders
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import state
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import Warehouse

pytestmark = pytest.mark.xdist_group("connect")

SESSIONS_END_SOON = {
    "spark.connect.session.manager.defaultSessionTimeout": "4s",
    "spark.connect.session.manager.maintenanceInterval": "1s",
}
"""The server forgets a session that nothing is asked of for a while."""


CLOSING = "Closing session"
"""What the server's log says when it forgets one."""


@pytest.fixture(params=[pytest.param(SPARK, id="connect"), pytest.param(OLDEST_SPARK, id="connect-4.0")])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConnectServer]:
    variables = {**ROLE, "PYSPARK_PYTHON": python_of(SPARK)}
    home = spark_home(request.param)
    with ConnectServer(home, tmp_path, HIDDEN, variables=variables, token=TOKEN, conf=SESSIONS_END_SOON) as started:
        yield started


@pytest.fixture
def warehouse(lake: Lake, platform: Platform, server: ConnectServer) -> Warehouse:
    spark = {"remote": server.remote, "token": TOKEN, "python": python_of(CONNECTOR)}
    kind = TABLE_KINDS[0]
    return Warehouse(lake, platform, replace(kind, options={**kind.options, "spark": spark}))


def test_a_session_that_the_server_ends_is_followed_by_another_and_a_lost_server_by_a_sentence(
    warehouse: Warehouse, server: ConnectServer
) -> None:
    with warehouse.start([orders()], flush_interval_seconds=1) as running:
        running.send([order(1), state("orders", 1)])
        running.wait_for_state()

        # When the session ends while the source says nothing
        server.host.wait_for(CLOSING, 1 + server.host.text().count(CLOSING))
        running.send([order(2), state("orders", 2)])
        running.wait_for_states(2)

        # When the server is gone
        server.host.fail()
        running.send([order(3), state("orders", 3), COMPLETE])
        run = running.close()

    assert run.exit_code == 1
    assert len(run.states) == 2
    (error,) = run.errors
    assert error["failure_type"] == "transient_error"
    assert server.remote in error["message"]
    assert warehouse.ids("orders") == [1, 2]


def test_a_wrong_token_is_refused_with_a_sentence(warehouse: Warehouse, server: ConnectServer) -> None:
    spark = {"remote": server.remote, "token": f"not {TOKEN}"}

    run = warehouse.attempt([orders()], [order(1), state("orders", 1), COMPLETE], spark=spark)

    assert run.exit_code == 1
    assert run.states == []
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert "spark.token" in error["message"]
    assert TOKEN not in run.stderr
