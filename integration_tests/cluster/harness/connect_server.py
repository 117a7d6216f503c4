"""A Spark Connect server on a host of its own, with executors in processes of their own."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from integration_tests.cluster.harness.host import Host

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """A server, from entering to leaving: `remote` is its `sc://` URL, without a token.

    `spark_home` is the Spark that the host has installed, `variables` the environment of server and executors, `token`
    what clients must know.
    """

    remote: str

    def __init__(
        self,
        spark_home: Path,
        folder: Path,
        hidden: Sequence[Path],
        *,
        conf: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        token: str = "",
    ) -> None:
        properties = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            **(conf or {}),
        }
        settings = [part for name, value in properties.items() for part in ("--conf", f"{name}={value}")]
        submit = [f"{spark_home}/bin/spark-submit", "--master", "local-cluster[2,1,1024]", "--class", _SERVER]
        environment = {"SPARK_HOME": str(spark_home), "SPARK_SCALA_VERSION": "2.13", **(variables or {})}
        if token:
            environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = token
        self.host = Host([*submit, *settings], environment, hidden, folder / "connect-server.log")

    def __enter__(self) -> Self:
        with ExitStack() as started:
            started.enter_context(self.host)
            listening = self.host.wait_for(r"Spark Connect server started at: \S+?:(\d+)")
            self.remote = f"sc://localhost:{listening[1]}"  # where a token may go without TLS
            self._running = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def executors(self) -> list[psutil.Process]:
        """Return the living JVMs of executors."""
        return self.host.processes("CoarseGrainedExecutorBackend")
