"""Run the connector on a standalone Spark cluster on this machine, whose executors do not use the connector's disk."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyspark

from benchmarks.measure import Cost
from benchmarks.systems import Connector
from benchmarks.workload import Workload
from integration_tests.cluster.harness.standalone import ROLE, Standalone

EXECUTORS = 2


@dataclass(frozen=True)
class OnCluster:
    """The connector with a new cluster of two executors, with one core each.

    The cost does not include the resources of the executors.
    """

    name: str = f"ours, {EXECUTORS} executors"

    def run(self, workload: Workload, folder: Path) -> Cost:
        """Write the workload. Raises BenchmarkError unless every row is readable and every state was returned."""
        hidden = sorted({Path("/tmp"), Path(tempfile.gettempdir()).resolve()})
        spark_home = Path(pyspark.__file__).parent
        with Standalone(spark_home, folder, hidden, workers=EXECUTORS, variables=ROLE) as cluster:
            conf = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            conf["spark.executor.memory"] = "512m"
            return Connector(self.name, {"spark": {"master": cluster.master, "conf": conf}}).run(workload, folder)
