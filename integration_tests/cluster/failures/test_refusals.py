"""Clusters that cannot be used: a sentence within bounded time, which says what is wrong and what to do."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from socket import gethostname

import pytest

from integration_tests.cluster.harness.environments import CONNECTOR, SPARK, python_of, spark_home
from integration_tests.cluster.harness.host import HIDDEN
from integration_tests.cluster.harness.standalone import CONF, ROLE, Standalone
from integration_tests.conformance.airbyte.orders import COMPLETE, order, orders
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import state
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import Warehouse

pytestmark = pytest.mark.xdist_group("refusals")

S3_IS_ELSEWHERE = "127.0.0.99 localhost"
"""What hosts' /etc/hosts says: nothing listens there."""

NO_ROLE = {name: value for name, value in ROLE.items() if "KEY" not in name}

NOBODY = "127.0.0.1:9"
"""Where no server listens."""

Attempt = Callable[[Mapping[str, object]], Run]


@pytest.fixture
def attempt(lake: Lake, platform: Platform) -> Attempt:
    """Runs a sync of one record with this option `spark`, however it ends."""

    def run(spark: Mapping[str, object]) -> Run:
        kind = TABLE_KINDS[0]
        warehouse = Warehouse(lake, platform, replace(kind, options={**kind.options, "spark": spark}))
        return warehouse.attempt(
            [orders()],
            [order(1), state("orders", 1), COMPLETE],
            endpoint_url=lake.endpoint_url.replace("127.0.0.1", "localhost"),
        )

    return run


def classic(master: str, **conf: str) -> Mapping[str, object]:
    return {"master": master, "python": python_of(CONNECTOR), "conf": {**CONF, **conf}}


def sentence(run: Run, failure_type: str) -> str:
    """Return the one message of a sync that has failed without a state."""
    assert run.exit_code == 1
    assert run.states == []
    (error,) = run.errors
    assert error["failure_type"] == failure_type
    message: str = error["message"]
    return message


def test_a_master_that_is_not_there_is_named(attempt: Attempt) -> None:
    message = sentence(attempt(classic(f"spark://{NOBODY}")), "transient_error")

    assert message.startswith(f"spark://{NOBODY} did not respond")
    assert "or correct spark.master" in message


def test_a_connect_server_that_is_not_there_is_named(attempt: Attempt) -> None:
    message = sentence(attempt({"remote": f"sc://{NOBODY}"}), "transient_error")

    assert f"sc://{NOBODY}" in message


def test_a_cluster_without_resources_is_told_what_was_asked_for(attempt: Attempt, tmp_path: Path) -> None:
    asked = {"spark.executor.memory": "4g", "spark.executor.cores": "3", "spark.cores.max": "6"}

    with Standalone(spark_home(SPARK), tmp_path, HIDDEN, workers=1, variables=ROLE) as cluster:
        message = sentence(attempt(classic(cluster.master, **asked)), "transient_error")

    assert message.startswith(f"{cluster.master} started no executor for this sync within 60 s")
    assert "4g of memory and 3 cores, at most 6 cores in total" in message
    assert "To request less, set spark.executor.memory" in message


def test_a_driver_that_executors_do_not_reach_is_told_its_own_address(attempt: Attempt, tmp_path: Path) -> None:
    """Executors are told to call an address at which this driver does not listen."""
    with Standalone(spark_home(SPARK), tmp_path, HIDDEN, workers=1, variables=ROLE) as cluster:
        message = sentence(attempt(classic(cluster.master, **{"spark.driver.host": "127.0.0.9"})), "config_error")

    assert "the executors cannot reach this driver at 127.0.0.9:" in message
    assert "set spark.driver.host in spark.conf" in message


def test_executors_that_do_not_reach_s3_say_so(attempt: Attempt, tmp_path: Path) -> None:
    """The driver reaches it; for executors the name of the endpoint leads nowhere."""
    with Standalone(spark_home(SPARK), tmp_path, HIDDEN, workers=1, variables=ROLE, names=S3_IS_ELSEWHERE) as cluster:
        message = sentence(attempt(classic(cluster.master)), "transient_error")

    assert "the endpoint is unreachable. Check region, endpoint_url and the network" in message
    assert f"The error occurred on an executor on host {gethostname()}." in message


def test_executors_without_a_role_say_so(attempt: Attempt, tmp_path: Path) -> None:
    """The connector's own keys do not leave it unless the user says so."""
    with Standalone(spark_home(SPARK), tmp_path, HIDDEN, workers=1, variables=NO_ROLE) as cluster:
        message = sentence(attempt(classic(cluster.master)), "config_error")

    assert "the AWS client found no credentials" in message
    assert "The error occurred on an executor" in message
