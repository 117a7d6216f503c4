"""The connector without what the image leaves out, with Spark in one JVM and on a standalone cluster."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

from image.trim import trim
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.launch import Process
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TableKind

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "tags": {"type": "array"}}}
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of JVMs that live for seconds: with less compilation they start in half the CPU time."""
IMPORT_ALL = """
import importlib, pkgutil
import destination_datalake

for module in pkgutil.walk_packages(destination_datalake.__path__, "destination_datalake."):
    importlib.import_module(module.name)
"""


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This environment without what the image leaves out; the connector's own code stays where it is."""
    environment = tmp_path_factory.mktemp("image") / "environment"
    shutil.copytree(sys.prefix, environment, symlinks=True, copy_function=_link)
    (packages,) = environment.glob("lib/python3.*/site-packages")
    assert trim(packages) > 300 * 2**20
    return environment


def _link(source: str, target: str) -> None:
    """A second name for the file where the disk can, a copy where it cannot."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture
def platform(tmp_path: Path, reduced: Path) -> Platform:
    """Airbyte, about to run the connector in that environment."""

    def launch(arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[bytes]) -> Process:
        command = [str(reduced / "bin" / "python"), "-m", "destination_datalake.cli", *arguments]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=dict(environment)
        )

    return Platform(tmp_path, launch)


@contextmanager
def standalone(environment: Path) -> Iterator[str]:
    """A master and a worker of the same environment, as on other machines."""
    spark = next(environment.glob("lib/python3.*/site-packages/pyspark"))
    home = environment.parent / "standalone"
    home.mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    loopback = ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = [
        ["org.apache.spark.deploy.master.Master", *loopback, "--port", str(port)],
        ["org.apache.spark.deploy.worker.Worker", *loopback, "--cores", "1", "--memory", "1g", master],
    ]
    settings = {
        "SPARK_HOME": str(spark),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_WORKER_DIR": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    daemons: list[subprocess.Popen[bytes]] = []
    with (home / "log").open("wb") as log:
        try:
            for command in commands:
                daemons.append(
                    subprocess.Popen(
                        # As `bin/spark-class` does, which starts a JVM of its own to find that out.
                        ["java", *QUICK_START, "-cp", f"{spark}/jars/*", *command],
                        env=os.environ | settings,
                        stdout=log,
                        stderr=log,
                        cwd=home,
                    )
                )
                _wait_for(lambda: _answers(port))
            yield master
        finally:
            for daemon in daemons:
                daemon.terminate()
            for daemon in daemons:
                daemon.wait(60)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "Spark's master did not come up"
        time.sleep(0.1)


def test_every_module_can_be_imported(reduced: Path) -> None:
    ended = subprocess.run(
        [reduced / "bin" / "python", "-W", "ignore", "-c", IMPORT_ALL], capture_output=True, text=True, timeout=120
    )

    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


@pytest.mark.slow
def test_spec_and_check_succeed(platform: Platform, lake: Lake) -> None:
    spec, check = platform.spec(), platform.check(lake.config())

    assert spec.exit_code == 0, spec.report()
    assert check.connection_status["status"] == "SUCCEEDED", check.report()


@pytest.mark.slow
def test_a_sync_succeeds_on_a_standalone_cluster(platform: Platform, lake: Lake, reduced: Path) -> None:
    streams = configured_catalog(configured_stream("orders", SCHEMA))
    lines = [record("orders", {"id": 1, "tags": ["x"]}), state("orders", 1), status("orders", "COMPLETE")]

    with standalone(reduced) as master:
        conf = {"spark.executor.memory": "600m", "spark.executor.extraJavaOptions": " ".join(QUICK_START)}
        spark = {"master": master, "executor_credentials": "session", "conf": conf}
        run = platform.write(lake.config(spark=spark), streams, lines)

    assert (run.exit_code, len(run.states)) == (0, 1), run.report()
    assert [row["id"] for row in lake.rows(lake.database, "orders")] == [1]


def test_every_kind_of_table_is_written(platform: Platform, lake: Lake, table_kind: TableKind) -> None:
    streams = configured_catalog(configured_stream("orders", SCHEMA))
    lines = [record("orders", {"id": 1, "tags": ["x"]}), state("orders", 1), status("orders", "COMPLETE")]

    run = platform.write(lake.config(**table_kind.options), streams, lines)

    assert (run.exit_code, len(run.states)) == (0, 1), run.report()
    assert [row["id"] for row in lake.rows(lake.database, "orders")] == [1]
