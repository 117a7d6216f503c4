"""The doors to a Spark on other machines: what the configuration says, and the cluster behind it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from integration_tests.cluster.harness.connect_server import ConnectServer
from integration_tests.cluster.harness.environments import CONNECTOR, OLDEST_SPARK, SPARK, python_of, spark_home
from integration_tests.cluster.harness.host import HIDDEN
from integration_tests.cluster.harness.standalone import CONF, LOSES_EXECUTORS_SOON, ROLE, Standalone

TOKEN = "open-sesame-4711"


@dataclass(frozen=True)
class Cluster:
    """A cluster that is up: the connector's option `spark` for it, and the JVMs of its executors."""

    option: Mapping[str, Any]
    executors: Callable[[], list[psutil.Process]]


@dataclass(frozen=True)
class Door:
    """A way to a cluster. `open` starts the cluster, with its logs in a folder, and stops it."""

    name: str
    open: Callable[[Path], Any]


@contextmanager
def _standalone(folder: Path, python: str) -> Iterator[Cluster]:
    with Standalone(spark_home(SPARK), folder, HIDDEN, variables=ROLE) as cluster:
        yield Cluster({"master": cluster.master, "python": python, "conf": {**CONF}}, cluster.executors)


@contextmanager
def _connect(folder: Path, spark: Path, interpreter: Path, python: str) -> Iterator[Cluster]:
    variables = {**ROLE, "PYSPARK_PYTHON": python_of(interpreter)}
    home = spark_home(spark)
    with ConnectServer(home, folder, HIDDEN, variables=variables, token=TOKEN, conf=LOSES_EXECUTORS_SOON) as server:
        yield Cluster({"remote": server.remote, "token": TOKEN, "python": python}, server.executors)


DOORS = (
    Door("standalone-path", lambda folder: _standalone(folder, python_of(CONNECTOR))),
    Door("standalone-pack", lambda folder: _standalone(folder, "pack")),
    Door("connect", lambda folder: _connect(folder, SPARK, SPARK, "pack")),
    Door("connect-4.0", lambda folder: _connect(folder, OLDEST_SPARK, SPARK, python_of(CONNECTOR))),
)
