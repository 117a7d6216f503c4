"""Executors whose Python cannot do the driver's work: a sentence that says which, where, and what to do."""

from collections.abc import Iterator
from dataclasses import replace
from socket import gethostname

import pytest

from integration_tests.cluster.harness.environments import SPARK, python_of, spark_home
from integration_tests.cluster.harness.host import HIDDEN
from integration_tests.cluster.harness.standalone import CONF, ROLE, Standalone
from integration_tests.conformance.airbyte.orders import COMPLETE, order, orders
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import state
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import Warehouse

pytestmark = pytest.mark.xdist_group("refusals")

WITHOUT_CONNECTOR = python_of(SPARK)
CONF_OF_SPARK_ITSELF = {"spark.python.daemon.module": "pyspark.daemon"}
"""Workers start without the connector's own daemon, as with Spark Connect: tasks find out what is missing."""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster whose hosts have PySpark and Arrow in an environment, and nothing of the connector."""
    folder = tmp_path_factory.mktemp("other-pythons")
    with Standalone(spark_home(SPARK), folder, HIDDEN, workers=1, variables=ROLE) as cluster:
        yield cluster.master


@pytest.mark.parametrize(
    ("python", "conf", "words"),
    [
        (
            WITHOUT_CONNECTOR,
            {},
            f"Executors cannot run the connector in {WITHOUT_CONNECTOR}: the package destination_datalake is missing",
        ),
        (
            WITHOUT_CONNECTOR,
            CONF_OF_SPARK_ITSELF,
            f"Executors cannot run the connector: it is not installed in {WITHOUT_CONNECTOR} on {gethostname()}",
        ),
        ("/opt/nowhere/bin/python", {}, "Executors cannot start /opt/nowhere/bin/python: No such file or directory"),
        ("same", {}, "/.venv/bin/python: No such file or directory. Set spark.python to the path"),
    ],
    ids=["connector", "connector-by-a-task", "python", "same"],
)
def test_executors_without_the_connector_are_told_apart_at_the_start(
    lake: Lake, platform: Platform, master: str, python: str, conf: dict[str, str], words: str
) -> None:
    spark = {"master": master, "python": python, "conf": {**CONF, **conf}}
    kind = TABLE_KINDS[0]
    warehouse = Warehouse(lake, platform, replace(kind, options={**kind.options, "spark": spark}))

    run = warehouse.attempt([orders()], [order(1), state("orders", 1), COMPLETE])

    (error,) = run.errors
    assert (run.exit_code, run.states, error["failure_type"]) == (1, [], "config_error")
    assert words in error["message"]
