"""Speculation: Spark runs a slow task a second time, elsewhere, and takes whichever ends first."""

from collections.abc import Mapping

import pytest

from integration_tests.cluster.doors import DOORS, Cluster
from integration_tests.cluster.failures.test_lost_executors import LINES, contents
from integration_tests.cluster.harness.aws import Holding
from integration_tests.conformance.airbyte.orders import COMPLETE, order, orders
from integration_tests.harness.messages import state
from integration_tests.harness.warehouse import Warehouse

SPECULATES: Mapping[str, str] = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    # Of a job with as many tasks as cores there may be none to compare with.
    "spark.speculation.task.duration.threshold": "2s",
}


@pytest.mark.parametrize("door", DOORS[:1], ids=lambda door: door.name, indirect=True)
def test_the_slower_of_two_copies_of_a_task_changes_nothing_even_after_the_commit(
    warehouse: Warehouse, cluster: Cluster
) -> None:
    spark = {**cluster.option, "conf": {**cluster.option["conf"], **SPECULATES}}

    with (
        Holding(warehouse.lake.endpoint_url) as aws,
        warehouse.start([orders()], endpoint_url=aws.endpoint_url, flush_interval_seconds=1, spark=spark) as running,
    ):
        running.send(LINES)
        # Given that the other copy is done
        running.wait_for_state()
        committed = contents(warehouse)

        # When the upload of the slower one arrives
        aws.released.set()
        assert aws.arrived.wait(60)
        running.send([order(100), state("orders", 101), COMPLETE])
        run = running.close()

    assert run.exit_code == 0, run.report()
    assert contents(warehouse).items() >= committed.items()
    assert warehouse.ids("orders") == list(range(101))
