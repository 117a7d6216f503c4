"""The settings of classic Spark: the master, Spark's properties, and the options of the JVM.

https://spark.apache.org/docs/latest/configuration.html
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from destination_datalake.aws.access import register_secrets
from destination_datalake.spark.classic.jvm import user_options
from destination_datalake.spark.classic.pyspark_internals import spark_home
from destination_datalake.spark.executors.python import WORKER_ENVIRONMENT, ExecutorPython

if TYPE_CHECKING:
    from destination_datalake.config.options import Config

ARCHIVE_VARIABLE = "DESTINATION_DATALAKE_JVM_ARCHIVE"

_TASK_ATTEMPTS = 3
"""Maximum number of attempts at a task whose Python worker dies."""

_JVM_OPTIONS = (
    # The driver JVM only schedules tasks. The C1 compiler and the serial collector start fastest and need the least
    # memory.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xss512k",
)

_MEMORY = "spark.driver.memory"

_CONTEXT_PROPERTIES = (
    *(_MEMORY, "spark.authenticate", "spark.executorEnv.", "spark.io.encryption."),
    *("spark.python.", "spark.task."),
)
"""Prefixes of properties that do not require Spark's launcher. The launcher ignores these properties, or handles them
in the same way as this module."""

_LAUNCHER_VARIABLES = (
    *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS"),
    *("HADOOP_CONF_DIR", "YARN_CONF_DIR"),
)
"""Environment variables that only Spark's launcher reads. They select another installation of Spark, or add classes or
properties."""

_DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "destination-datalake",
    _MEMORY: "512m",
    "spark.python.daemon.module": "destination_datalake.spark.classic.worker_daemon",
    "spark.python.worker.reuse": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.task.maxFailures": str(_TASK_ATTEMPTS),
    # Print the stack traces of a worker that crashes.
    "spark.python.worker.faulthandler.enabled": "true",
}

_LOCAL_DEFAULTS: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}

_LOCAL_ALWAYS: Mapping[str, str] = {
    # Disable speculation in local mode. After a task has ended, a speculative copy of the task may still be running,
    # and may read a segment whose file the buffer has already reused. Such reads are harmless but wasteful. On
    # clusters, the connector deletes segments instead of reusing their files, so the user may enable speculation.
    "spark.speculation": "false",
}


@dataclass(frozen=True, slots=True)
class ClassicSettings:
    """The settings of classic Spark.

    `conf` contains Spark properties that override the connector's defaults. `jvm_options` contains additional options
    of the driver JVM. `python` selects the Python of executors on a cluster.
    """

    master: str
    conf: Mapping[str, str]
    jvm_options: tuple[str, ...] = ()
    python: ExecutorPython = field(default_factory=ExecutorPython)

    @classmethod
    def from_config(cls, config: Config) -> ClassicSettings:
        """Return the settings from the options under `spark` in the connector's configuration."""
        spark = config.spark
        python = ExecutorPython(spark.python) if _is_cluster(spark.master) else ExecutorPython()
        return cls(spark.master, spark.conf, (), python)

    @property
    def is_local(self) -> bool:
        """Whether executors share the disk of this machine."""
        return self.master.startswith("local")

    @property
    def is_cluster(self) -> bool:
        """Whether executors are separate processes, whose Python can differ from the driver's."""
        return _is_cluster(self.master)

    @property
    def needs_launcher(self) -> bool:
        """Whether the backend must start Spark with Spark's own launcher (spark-submit).

        The launcher is necessary on a cluster, and for settings that only the launcher reads, such as spark-env.sh. In
        all other cases, the backend launches Java directly, which is faster.
        """
        return (
            self.is_cluster
            or (spark_home() / "conf").exists()
            or not all(name.startswith(_CONTEXT_PROPERTIES) for name in self.conf)
            or any(name in os.environ for name in _LAUNCHER_VARIABLES)
        )

    @property
    def memory(self) -> str:
        """The maximum heap size of the JVM in the notation of Java and Spark, such as "512m"."""
        return self.conf.get(_MEMORY, _DEFAULTS[_MEMORY])

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables to set for PySpark and the JVM."""
        python = {"PYSPARK_PYTHON": self.python.interpreter, "PYSPARK_DRIVER_PYTHON": sys.executable}
        # Without this variable, Spark resolves the machine's host name, and fails if the name has no address. On a
        # cluster, executors connect to the driver by the name in this variable.
        name = "localhost" if self.is_local else self.conf.get("spark.driver.host")
        name = os.environ.get("SPARK_LOCAL_HOSTNAME", name)
        return python if name is None else {**python, "SPARK_LOCAL_HOSTNAME": name}

    def properties(self, scratch: Path) -> dict[str, str]:
        """Return all Spark properties: the connector's defaults, overridden by `conf`.

        `scratch` is the folder for Spark's temporary files.
        """
        return {
            **_DEFAULTS,
            "spark.local.dir": str(scratch),
            "spark.master": self.master,
            **{f"spark.executorEnv.{name}": value for name, value in WORKER_ENVIRONMENT.items()},
            **(_LOCAL_DEFAULTS if self.is_local else {}),
            **self._authentication(),
            "spark.driver.extraJavaOptions": " ".join(map(_quoted, self.java_options(scratch))),
            **self.conf,
            **(_LOCAL_ALWAYS if self.is_local else {}),
        }

    def _authentication(self) -> dict[str, str]:
        """Return the properties for the shared secret with which the driver and executors authenticate each other.

        In local mode, on YARN and on Kubernetes, Spark creates a secret for each application. Returns no properties for
        a standalone cluster, because the user must configure the secret of such a cluster
        (https://spark.apache.org/docs/latest/security.html#spark-rpc).
        """
        if self.master.startswith("spark://"):
            return {}
        if self.master.startswith("local-cluster"):  # The driver itself starts this standalone cluster.
            secret = token_hex(32)
            register_secrets(secret)
            return {"spark.authenticate": "true", "spark.authenticate.secret": secret}
        return {"spark.authenticate": "true"}

    def java_options(self, scratch: Path) -> tuple[str, ...]:
        """Return the options of the JVM, except its heap size. `scratch` is the folder for temporary files."""
        temporary = f"-Djava.io.tmpdir={scratch}"
        # Pass the path of the configuration as a URI, because Log4j splits a plain path at commas.
        logging = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
        archive = archive_path()
        shared = (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable") if archive.exists() else ()
        return (*_JVM_OPTIONS, temporary, logging, *user_options(scratch), *shared, *self.jvm_options)


def _quoted(option: str) -> str:
    """Return a Java option in the form that Spark expects in a list of options.

    Puts a backslash before white space, quotes and backslashes.
    """
    return re.sub(r"[\s'\"\\]", lambda match: f"\\{match[0]}", option)


def _is_cluster(master: str) -> bool:
    return re.fullmatch(r"local(\[.*\])?", master) is None


def archive_path() -> Path:
    """Return the path of the JVM's class-data-sharing archive, with which the JVM starts faster.

    The file may not exist. The environment variable DESTINATION_DATALAKE_JVM_ARCHIVE can set the path. By default, the
    archive is in the `share` folder of this Python installation.
    """
    path = os.environ.get(ARCHIVE_VARIABLE)
    return Path(path) if path else Path(sys.prefix) / "share" / "destination-datalake" / "spark.jsa"


def local_master_with_attempts(master: str, processors: Callable[[], int]) -> str:
    """Return a local master with task retries, because `local[*]` ignores `spark.task.maxFailures`.

    `processors` returns the number of processors. `local[*]` becomes a master with one thread per processor. More
    threads would not help, because uploads run concurrently with the encoding anyway, and each worker takes 250 MiB.
    If `master` is not local, returns it unchanged.
    """
    match = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    if match is None:
        return master
    threads = "1" if match[1] is None else str(processors()) if match[1] == "*" else match[1]
    return f"local[{threads},{_TASK_ATTEMPTS}]"
