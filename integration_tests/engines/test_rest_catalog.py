"""Spark with Iceberg and the connector share tables in a REST catalog: both read, write and maintain them."""

from collections.abc import Iterator
from typing import Any

import pytest
from emulated_aws.server import REGION, AwsServer

from integration_tests.catalogs.test_connector import ICEBERG, orders, stream
from integration_tests.engines.engine import Engine
from integration_tests.harness.messages import record, state
from integration_tests.harness.rest_lake import CLIENT, REALM, RestLake
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import Warehouse


@pytest.fixture
def lake(aws: AwsServer) -> Iterator[RestLake]:
    with RestLake(aws.endpoint_url) as lake:
        yield lake


class Spark:
    """The table `orders` as Spark has it, through a catalog of its own."""

    def __init__(self, engine: Engine, lake: RestLake) -> None:
        self._engine = engine
        self._catalog, self._name = f"rest_{lake.database}", f"{lake.database}.orders"
        options = {
            "type": "rest",
            "uri": lake.server.endpoint_url,
            "warehouse": "main",
            "credential": f"{CLIENT.client_id}:{CLIENT.client_secret}",
            "scope": CLIENT.scope,
            "oauth2-server-uri": f"{lake.server.endpoint_url}{CLIENT.path}",
            "header.Polaris-Realm": REALM["Polaris-Realm"],
            "cache-enabled": "false",  # Others write to the tables as well.
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": lake.endpoint_url,
            "s3.path-style-access": "true",
            "client.region": REGION,
        }
        engine.sql(f"SET spark.sql.catalog.{self._catalog}=org.apache.iceberg.spark.SparkCatalog")
        for name, value in options.items():
            engine.sql(f"SET `spark.sql.catalog.{self._catalog}.{name}`=`{value}`")

    def sql(self, statement: str) -> list[dict[str, Any]]:
        return self._engine.sql(statement.format(t=f"{self._catalog}.{self._name}")).rows

    def call(self, procedure: str, arguments: str) -> None:
        self._engine.sql(f"CALL {self._catalog}.system.{procedure}(table => '{self._name}', {arguments})")

    def ids(self) -> list[int]:
        return [row["id"] for row in self.sql("SELECT id FROM {t} ORDER BY id")]


def test_both_find_what_the_other_has_written_and_removed(engine: Engine, lake: RestLake, platform: Platform) -> None:
    warehouse, spark = Warehouse(lake, platform, ICEBERG), Spark(engine, lake)
    key: dict[str, Any] = {"mode": "append_dedup", "primary_key": ["text"], "cursor": "id"}
    warehouse.sync([stream(**key)], orders(1, 2, 3))
    warehouse.sync([stream(**key)], [record("orders", {"id": 9, "text": "text 2"}), *orders(4)])
    assert spark.ids() == warehouse.ids("orders") == [1, 3, 4, 9]

    spark.sql("DELETE FROM {t} WHERE id = 3")
    spark.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    spark.call("expire_snapshots", "older_than => now(), retain_last => 1")
    warehouse.sync([stream(**key)], [record("orders", {"id": 8, "text": "text 1"}), *orders(5)])

    assert spark.ids() == warehouse.ids("orders") == [4, 5, 8, 9]


def test_snapshots_that_spark_expires_do_not_take_the_fence_of_a_running_sync(
    engine: Engine, lake: RestLake, platform: Platform
) -> None:
    warehouse, spark = Warehouse(lake, platform, ICEBERG), Spark(engine, lake)
    warehouse.sync([stream()], orders(1))
    with warehouse.start([stream(generation=2, minimum=2)], flush_interval_seconds=1) as running:
        running.send([record("orders", {"id": 2, "text": "x"}), state("orders", 2)])
        running.wait_for_states(1)
        spark.call("expire_snapshots", "older_than => now(), retain_last => 1")
        running.send(orders(3))
        run = running.close()

    assert run.exit_code == 0, run.report()
    assert spark.ids() == warehouse.ids("orders") == [2, 3]
