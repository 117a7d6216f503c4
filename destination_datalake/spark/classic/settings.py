"""What our own driver is configured with: its master, its properties (https://spark.apache.org/docs/latest/configuration.html)
and the options of its JVM.
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
"""How often Spark tries a task whose worker dies."""

_JVM_OPTIONS = (
    # The driver JVM only schedules: the quick compiler and the smallest collector start fastest and use least memory.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xss512k",
)

_MEMORY = "spark.driver.memory"

_OF_THE_CONTEXT = (
    *(_MEMORY, "spark.authenticate", "spark.executorEnv.", "spark.io.encryption."),
    *("spark.python.", "spark.task."),
)
"""Beginnings of properties that mean nothing to Spark's launcher, or no more than we do ourselves."""

_OF_THE_LAUNCHER = (
    *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS"),
    *("HADOOP_CONF_DIR", "YARN_CONF_DIR"),
)
"""Variables by which a user tells Spark's launcher of another Spark, more classes or more properties."""

_DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "destination-datalake",
    _MEMORY: "512m",
    "spark.python.daemon.module": "destination_datalake.spark.classic.worker_daemon",
    "spark.python.worker.reuse": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.task.maxFailures": str(_TASK_ATTEMPTS),
    # A worker that crashes prints its stack traces.
    "spark.python.worker.faulthandler.enabled": "true",
}

_LOCAL_DEFAULTS: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}

_LOCAL_ALWAYS: Mapping[str, str] = {
    # A copy of a task that has ended may still read a segment whose file is being reused: harmless, and a waste. Other
    # machines read segments that are deleted, not reused, so that speculation is the user's choice there.
    "spark.speculation": "false",
}


@dataclass(frozen=True, slots=True)
class ClassicSettings:
    """How our own driver runs. `conf` has properties, which override our defaults; `jvm_options` are added to ours.

    `python` is what executors of a cluster run.
    """

    master: str
    conf: Mapping[str, str]
    jvm_options: tuple[str, ...] = ()
    python: ExecutorPython = field(default_factory=ExecutorPython)

    @classmethod
    def from_config(cls, config: Config) -> ClassicSettings:
        """Return the settings that the connector's configuration has."""
        spark = config.spark
        python = ExecutorPython(spark.python) if _is_cluster(spark.master) else ExecutorPython()
        return cls(spark.master, spark.conf, (), python)

    @property
    def is_local(self) -> bool:
        """Whether executors share this machine's disk."""
        return self.master.startswith("local")

    @property
    def is_cluster(self) -> bool:
        """Whether executors are processes apart from the driver's, whose Python may be another."""
        return _is_cluster(self.master)

    @property
    def needs_launcher(self) -> bool:
        """Whether Spark's own launcher (spark-submit) may have something to do that launching Java itself leaves out.

        It has on a cluster, and where a user has set what it alone reads, such as spark-env.sh.
        """
        return (
            self.is_cluster
            or (spark_home() / "conf").exists()
            or not all(name.startswith(_OF_THE_CONTEXT) for name in self.conf)
            or any(name in os.environ for name in _OF_THE_LAUNCHER)
        )

    @property
    def memory(self) -> str:
        """The JVM's largest heap, as Java and Spark write it."""
        return self.conf.get(_MEMORY, _DEFAULTS[_MEMORY])

    @property
    def environment(self) -> dict[str, str]:
        """The variables that PySpark and the JVM are started with, besides those that there are."""
        python = {"PYSPARK_PYTHON": self.python.interpreter, "PYSPARK_DRIVER_PYTHON": sys.executable}
        # Otherwise Spark resolves the machine's host name, which fails where it has no address. On a cluster, executors
        # call the driver by this name.
        name = "localhost" if self.is_local else self.conf.get("spark.driver.host")
        name = os.environ.get("SPARK_LOCAL_HOSTNAME", name)
        return python if name is None else {**python, "SPARK_LOCAL_HOSTNAME": name}

    def properties(self, scratch: Path) -> dict[str, str]:
        """Return all properties that Spark is started with; `scratch` is the folder for its temporary files."""
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
        """Return the properties by which driver and executors have a secret in common.

        Spark makes a secret for each application where it is local, on YARN and on Kubernetes. Daemons of a standalone
        cluster have to be given one by the user (https://spark.apache.org/docs/latest/security.html#spark-rpc).
        """
        if self.master.startswith("spark://"):
            return {}
        if self.master.startswith("local-cluster"):  # A standalone cluster that this driver starts.
            secret = token_hex(32)
            register_secrets(secret)
            return {"spark.authenticate": "true", "spark.authenticate.secret": secret}
        return {"spark.authenticate": "true"}

    def java_options(self, scratch: Path) -> tuple[str, ...]:
        """Return the options of the JVM, its memory aside."""
        temporary = f"-Djava.io.tmpdir={scratch}"
        # A URI: Log4j takes a path for a list at its commas.
        logging = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
        archive = archive_path()
        shared = (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable") if archive.exists() else ()
        return (*_JVM_OPTIONS, temporary, logging, *user_options(scratch), *shared, *self.jvm_options)


def _quoted(option: str) -> str:
    """Return a Java option as Spark reads it out of a list: a backslash before white space, quotes and backslashes."""
    return re.sub(r"[\s'\"\\]", lambda found: f"\\{found[0]}", option)


def _is_cluster(master: str) -> bool:
    return re.fullmatch(r"local(\[.*\])?", master) is None


def archive_path() -> Path:
    """Return where the JVM's class-data-sharing archive is looked for: by a variable, else beside the interpreter."""
    chosen = os.environ.get(ARCHIVE_VARIABLE)
    return Path(chosen) if chosen else Path(sys.prefix) / "share" / "destination-datalake" / "spark.jsa"


def local_master_with_attempts(master: str, processors: Callable[[], int]) -> str:
    """Return a local master that tries a task again as a cluster would: `local[*]` ignores `spark.task.maxFailures`.

    `local[*]` gets a thread for each processor: uploads run beside the encoding, and one worker more takes 250 MiB.
    Masters that are not local are returned as they are.
    """
    found = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    if found is None:
        return master
    threads = "1" if found[1] is None else str(processors()) if found[1] == "*" else found[1]
    return f"local[{threads},{_TASK_ATTEMPTS}]"
