"""A Spark Connect server from PySpark's own wheel, in a process of its own."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

_SECONDS = 90.0
_HOME = Path(pyspark.__file__).parent
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """A server with two cores, from entering to leaving, at `remote`; `folder` gets its log.

    Its Python is that of the tests. Its credentials are the account's, as of a role of its own.
    """

    remote: str

    def __init__(self, folder: Path, **conf: str) -> None:
        properties = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.ui.enabled": "false",
            **conf,
        }
        settings = [part for name, value in properties.items() for part in ("--conf", f"{name}={value}")]
        submit = [f"{_HOME}/bin/spark-submit", "--master", "local[2,3]", "--class", _SERVER]
        self._command = [*submit, *settings, "spark-internal"]
        self._folder = folder
        self._log = folder / "connect-server.log"

    def __enter__(self) -> Self:
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command,
                env=os.environ
                | {
                    "SPARK_HOME": str(_HOME),
                    "SPARK_LOCAL_HOSTNAME": "localhost",
                    "PYSPARK_PYTHON": sys.executable,
                    "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
                    "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
                    "AWS_DEFAULT_REGION": REGION,
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
            )
        try:
            self.remote = f"sc://{self.wait_for('Spark Connect server started at: (?:.*/)?([^/]+:[0-9]+)')[0]}"
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def wait_for(self, pattern: str, count: int = 1) -> list[str]:
        """Wait until the log matches so many times; return what matched. Raises AssertionError with the log."""
        deadline = time.monotonic() + _SECONDS
        while len(matches := re.findall(pattern, log := self._log.read_text())) < count:
            assert time.monotonic() < deadline, log
            assert self._process.poll() is None, log
            time.sleep(0.1)
        return matches
