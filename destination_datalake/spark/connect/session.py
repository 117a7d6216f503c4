"""A session on a Spark Connect server: opened, tried out, closed."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from destination_datalake.files.encode import encode
from destination_datalake.spark.connect.connection import close
from destination_datalake.spark.connect.failure import Meaning, meaning
from destination_datalake.spark.connect.jobs import frames
from destination_datalake.spark.connect.jobs.values import answers
from destination_datalake.spark.connect.progress import JobsWatch
from destination_datalake.spark.executors.python import FOLDER, ExecutorPython
from destination_datalake.spark.failure import SparkFailed

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession


_logger = logging.getLogger(__name__)

OLDEST_SPARK = (4, 0)

_SETTINGS: Mapping[str, str] = {
    # Each task is one of Spark's: nothing may join or split partitions.
    "spark.sql.adaptive.enabled": "false",
    # A row is a megabyte, not a record: that of a result, or a payload.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
    # A worker that crashes prints its stack traces.
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}


class RemoteSession:
    """A session of ours on a server, with executors that have run the connector."""

    def __init__(self, spark: SparkSession, watch: JobsWatch, cores: int) -> None:
        self.spark = spark
        self.watch = watch
        self._cores = cores

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        python: ExecutorPython,
        conf: Mapping[str, str],
        packages: Callable[[Path], Path] | None = None,
    ) -> RemoteSession:
        """Make a session one in which jobs can run, once executors have.

        Raises SparkFailed or what PySpark raises; the session is closed then.
        """
        try:
            version = spark.version
            _logger.info("Spark Connect: connected to Spark %s.", version)
            if _numbers(version) < OLDEST_SPARK:
                _logger.warning("Spark %s is older than 4.0, the oldest that the connector is tested with.", version)
            configure(spark, {**_SETTINGS, **_interpreter(python)}, conf)
            if packages is not None:
                _send(spark, packages)
            watch = JobsWatch()
            spark.registerProgressHandler(watch)  # type: ignore[arg-type]  # it takes any callable
            cores = frames.probe(spark, frames.shipped(partial(answers, encode), python))
        except BaseException:
            close(spark)
            raise
        return cls(spark, watch, max(cores, _most_cores(spark)))

    def parallelism(self) -> int:
        """Return how many tasks run at once: what Spark said at the start, or more if more were seen at work."""
        return max(self._cores, self.watch.most_running)

    def close(self) -> None:
        """End the session on the server, and its jobs. Takes as long as the server takes, or is unreachable."""
        close(self.spark)


def _interpreter(python: ExecutorPython) -> Mapping[str, str]:
    """Return the property that names the Python of executors. `same` leaves it to the server, which has its own."""
    return {} if python.python == "same" else {"spark.sql.execution.pyspark.python": python.interpreter}


def _send(spark: SparkSession, packages: Callable[[Path], Path]) -> None:
    """Send the archive of packages, for the session's executors to unpack."""
    with tempfile.TemporaryDirectory(prefix="destination-datalake-") as scratch:
        spark.addArtifacts(f"{packages(Path(scratch))}#{FOLDER}", archive=True)


def configure(spark: SparkSession, ours: Mapping[str, str], conf: Mapping[str, str]) -> None:
    """Set properties in the session; `conf` overrides ours. Raises SparkFailed for one that a session cannot have."""
    for name, value in {**ours, **conf}.items():
        try:
            spark.conf.set(name, value)
        except PySparkException as error:
            if name not in conf or meaning(error) is not Meaning.JOB_FAILED:
                raise
            raise SparkFailed(
                f"{name} cannot be set by spark.conf: the server that spark.remote names runs already, and says: "
                f"{str(error).splitlines()[0]} Set it where that server is started, and leave it out of spark.conf.",
                "config_error",
            ) from error


def _most_cores(spark: SparkSession) -> int:
    """Return the cores that Spark may add by dynamic allocation, if that has a limit; otherwise 0."""
    names = ("spark.dynamicAllocation.enabled", "spark.dynamicAllocation.maxExecutors", "spark.executor.cores")
    enabled, executors, cores = (spark.conf.get(name, None) for name in names)
    if enabled != "true" or executors is None or int(executors) > _MOST_EXECUTORS:
        return 0
    return int(executors) * int(cores or 1)


_MOST_EXECUTORS = 10_000
"""A limit above this is none: 2147483647 is Spark's default."""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
