"""Hosts that go away in the middle of a sync, with everything that runs on them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from integration_tests.cluster.harness.aws import Interfering, executor_at
from integration_tests.cluster.harness.environments import CONNECTOR, SPARK, python_of, spark_home
from integration_tests.cluster.harness.host import HIDDEN
from integration_tests.cluster.harness.standalone import CONF, ROLE, Standalone
from integration_tests.conformance.airbyte.orders import COMPLETE, order, orders
from integration_tests.harness.lake import Lake
from integration_tests.harness.loopback import Request
from integration_tests.harness.messages import state
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import Warehouse

pytestmark = pytest.mark.xdist_group("hosts")


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    """A master and two workers, each on a host of its own."""
    with Standalone(spark_home(SPARK), tmp_path, HIDDEN, variables=ROLE) as cluster:
        yield cluster


@pytest.fixture
def warehouse(lake: Lake, platform: Platform, standalone: Standalone) -> Warehouse:
    spark = {"master": standalone.master, "python": python_of(CONNECTOR), "conf": CONF}
    kind = TABLE_KINDS[0]
    return Warehouse(lake, platform, replace(kind, options={**kind.options, "spark": spark}))


def test_a_host_that_goes_away_is_done_without(warehouse: Warehouse, standalone: Standalone) -> None:
    """The host of the executor that uploads is lost; the other one does its work."""

    def lose(request: Request) -> None:
        (host,) = (host for host in standalone.workers if executor_at(request.port, host.processes("Executor")))
        host.fail()

    with Interfering(warehouse.lake.endpoint_url, lose) as aws:
        run = warehouse.sync([orders()], [order(1), state("orders", 1), COMPLETE], endpoint_url=aws.endpoint_url)

    assert aws.done
    assert len(run.states) == 1
    assert warehouse.ids("orders") == [1]


def test_a_master_that_goes_away_does_not_end_a_sync(warehouse: Warehouse, standalone: Standalone) -> None:
    """Executors are already there."""
    with warehouse.start([orders()], flush_interval_seconds=1) as running:
        running.send([order(1), state("orders", 1)])
        running.wait_for_state()

        standalone.lose_master()
        running.send([order(2), state("orders", 2), COMPLETE])
        run = running.close()

    assert run.exit_code == 0, run.report()
    assert len(run.states) == 2
    assert warehouse.ids("orders") == [1, 2]


def test_a_sync_whose_hosts_all_go_away_ends_with_what_was_acknowledged_safe(
    warehouse: Warehouse, standalone: Standalone
) -> None:
    with warehouse.start([orders()], flush_interval_seconds=1) as running:
        running.send([order(1), state("orders", 1)])
        running.wait_for_state()

        for host in standalone.workers:
            host.fail()
        running.send([order(2), state("orders", 2), COMPLETE])
        run = running.close()

    assert run.exit_code == 1
    assert len(run.states) == 1
    (error,) = run.errors
    assert error["failure_type"] == "transient_error"
    assert f"{standalone.master} started no executor for this sync within 60 s" in error["message"]
    assert warehouse.ids("orders") == [1]
