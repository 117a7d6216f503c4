"""Spark's standalone cluster: a master and workers, each on a host of its own."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import urlopen

import psutil
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

from integration_tests.cluster.harness.host import LOCALHOST, Host

ROLE: Mapping[str, str] = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
    "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What hosts have of their own role: the environment that executors inherit."""

LOSES_EXECUTORS_SOON: Mapping[str, str] = {
    "spark.network.timeout": "8s",
    "spark.network.timeoutInterval": "1s",
    "spark.executor.heartbeatInterval": "1s",
}
"""Spark takes an executor that is silent for lost after two minutes; so do tests after seconds."""

CONF: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    **LOSES_EXECUTORS_SOON,
}
"""What a user of these standalone clusters has in `spark.conf`."""

_EXECUTOR = "CoarseGrainedExecutorBackend"


class Standalone:
    """A cluster, from entering to leaving: `master` is its `spark://` URL.

    `spark_home` is the Spark that hosts have installed, `variables` the environment that hosts give to executors, as
    an instance's role does. Each of the workers has a core and 1 GB for executors.
    """

    master: str

    def __init__(
        self,
        spark_home: Path,
        folder: Path,
        hidden: Sequence[Path],
        *,
        workers: int = 2,
        variables: Mapping[str, str] | None = None,
        names: str = LOCALHOST,
    ) -> None:
        self._spark_home = spark_home
        self._folder = folder
        self._hidden = hidden
        self._variables = variables or {}
        self._names = names
        self._count = workers
        self._hosts = ExitStack()
        self.workers: list[Host] = []

    def __enter__(self) -> Self:
        with ExitStack() as started:
            self._hosts = started
            self._master = master = self._start(
                "master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
            )
            self.master = master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
            self._page = master.wait_for(r"MasterWebUI to .*:(\d+)|MasterWebUI.*http://\S+:(\d+)")
            for number in range(self._count):
                self.add_worker(number)
            master.wait_for(r"Registering worker ", self._count)
            self._hosts = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hosts.close()

    def add_worker(self, number: int) -> Host:
        """Start a worker on a new host, whose address tells its number."""
        address = f"127.0.0.{number + 2}"
        worker = self._start(
            f"worker-{number}", "worker.Worker", "--host", address, "--port", "0", "--webui-port", "0",
            "--work-dir", "/tmp/work", "--cores", "1", "--memory", "1g", self.master,
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def lose_master(self) -> None:
        """Lose the master's host."""
        self._master.fail()

    def executors(self) -> list[psutil.Process]:
        """Return the living JVMs of executors."""
        return [process for worker in self.workers for process in worker.processes(_EXECUTOR)]

    def status(self) -> Any:
        """Return what the master knows: `workers`, `activeapps`, `completedapps`."""
        port = self._page[1] or self._page[2]
        with urlopen(f"http://127.0.0.1:{port}/json/", timeout=30) as page:
            return json.load(page)

    def _start(self, name: str, daemon: str, *arguments: str) -> Host:
        jars = f"{self._spark_home}/jars/*"
        options = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        command = ["java", *options, "-cp", jars, f"org.apache.spark.deploy.{daemon}", *arguments]
        # What `bin/spark-class` would set, which starts a JVM of its own to find it out.
        variables = {"SPARK_HOME": str(self._spark_home), "SPARK_SCALA_VERSION": "2.13", **self._variables}
        host = Host(command, variables, self._hidden, self._folder / f"{name}.log", self._names)
        return self._hosts.enter_context(host)
