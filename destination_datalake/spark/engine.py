"""Spark: started in the background, given tasks, stopped without a trace.

Tasks go through `SparkContext.parallelize(...).mapPartitions(...)`: no record crosses the JVM, so Spark SQL's session,
planner and code generator would only cost start-up time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil

from destination_datalake.files.plan import NotRewritten, RewriteFailed, RewriteTask, Rewritten
from destination_datalake.files.tasks import EncodeTask, EncodeUnit, UnitResult
from destination_datalake.spark.failure import JobFailed, SparkFailed, died, not_started, worker_died
from destination_datalake.spark.jvm import Jvm, unknown_user_options
from destination_datalake.spark.jvm_archive import archive_path

if TYPE_CHECKING:
    from pyspark import SparkContext

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config

_logger = logging.getLogger(__name__)

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

STOP_SECONDS = 20
ORDERLY_SECONDS = 120
"""How long a JVM may take that still has something to write."""

_ATTEMPTS = 3
"""How often Spark tries a task whose worker dies."""

_SPARE_DESCRIPTORS = 8

_JVM_OPTIONS = (
    # The driver JVM only schedules: the quick compiler and the smallest collector start fastest and use least memory.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xss512k",
)

_DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "destination-datalake",
    "spark.driver.memory": "512m",
    "spark.python.daemon.module": "destination_datalake.spark.worker_daemon",
    "spark.python.worker.reuse": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.task.maxFailures": str(_ATTEMPTS),
    # A worker that crashes says where.
    "spark.python.worker.faulthandler.enabled": "true",
}

_WORKER_ENVIRONMENT: Mapping[str, str] = {
    # Workers take the same memory again for every block and file. Allocators that give it back in between have the
    # system clear the same pages over and over: a tenth of the encoding's time.
    "MALLOC_TRIM_THRESHOLD_": str(256 * 1024 * 1024),
    "MALLOC_MMAP_THRESHOLD_": str(64 * 1024 * 1024),
    "MIMALLOC_PURGE_DELAY": "-1",
}

_LOCAL_DEFAULTS: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Where Spark runs. `conf` wins over our defaults."""

    master: str
    conf: Mapping[str, str]
    jvm_options: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Config) -> EngineSettings:
        """Read the settings out of the connector's configuration."""
        return cls(config.spark.master, config.spark.conf)


class Engine:
    """A Spark that may still be starting. `encode` waits for it."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._scratch = tempfile.mkdtemp(prefix="destination-datalake-spark-")
        self._context: Future[SparkContext] = Future()
        self._jvm = Jvm(Path(self._scratch))
        self._starting = threading.Thread(target=self._start, name="spark-start", daemon=True)
        self._stopped = threading.Event()
        self._spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(_SPARE_DESCRIPTORS)]

    @classmethod
    def start(cls, settings: EngineSettings) -> Engine:
        """Start Spark in the background; return as soon as its JVM is about to be launched."""
        # Only one thread at a time runs Python: loaded in the background, beside whatever the caller does next, PySpark
        # would take twice as long, and the JVM would start so much later.
        import pyspark.java_gateway  # noqa: F401

        engine = cls(settings)
        engine._starting.start()
        return engine

    @property
    def local(self) -> bool:
        """Whether executors share this machine's disk."""
        return self._settings.master.startswith("local")

    def starting(self) -> bool:
        """Whether Spark is not up yet."""
        return not self._context.done()

    @property
    def failed(self) -> SparkFailed | None:
        """Why no job can be run any more: Spark did not start, or has ended. None as long as one may."""
        if not self._context.done() or self._stopped.is_set():
            return None
        if (error := self._context.exception()) is not None:
            return error if isinstance(error, SparkFailed) else died(None)
        if self._jvm.process is not None and self._jvm.process.poll() is not None:
            return died(self._jvm.process.returncode)
        try:
            return died(None) if self._context.result()._jsc.sc().isStopped() else None
        except Exception:
            return died(None)

    def parallelism(self) -> int:
        """How many tasks run at once. Waits for Spark's start. Raises SparkFailed."""
        context = self._context.result()
        with self._reported():
            return int(context.defaultParallelism)

    def encode(self, tasks: Sequence[EncodeTask]) -> list[UnitResult]:
        """Run the tasks on the executors, as one Spark job. Raises SparkFailed if Spark cannot.

        If the job fails, which a unit's own failure does not make it do, a worker has died at one of its tasks as often
        as Spark tries one. Then each unit is encoded by a job of its own, and only those whose jobs fail are answered
        as not encoded.
        """
        from destination_datalake.files.encode import encode

        try:
            return self._run(encode, tasks)
        except JobFailed as error:
            units = [(unit, task.access) for task in tasks for unit in task.units]
            if len(units) == 1:
                return [worker_died(units[0][0].stream, error)]
        _logger.warning("A Spark job failed; its %d parts are tried one by one.", len(units))

        def alone(unit: EncodeUnit, access: AwsAccess) -> list[UnitResult]:
            try:
                return self._run(encode, [EncodeTask((unit,), access)])
            except JobFailed as error:
                return [worker_died(unit.stream, error)]

        with ThreadPoolExecutor(self.parallelism(), "unit") as jobs:
            answers = [jobs.submit(alone, unit, access) for unit, access in units]
        return [result for answer in answers for result in answer.result()]

    def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
        """Write files again on the executors, as one Spark job.

        Raises RewriteFailed if a file cannot be; the others' targets are there all the same. Raises SparkFailed.
        """
        from destination_datalake.files.rewrite import rewrite

        results = self._run(rewrite, tasks)
        for result in results:
            if isinstance(result, NotRewritten):
                raise RewriteFailed(result.failure)
        return [result for result in results if isinstance(result, Rewritten)]

    def _run(self, work: Callable[[Iterable[_Task]], Iterable[_Result]], tasks: Sequence[_Task]) -> list[_Result]:
        context = self._context.result()
        with self._reported():
            return context.parallelize(tasks, len(tasks)).mapPartitions(work).collect()

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        """Turn whatever Spark raises, or its JVM's silence, into SparkFailed."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            yield
        except Exception as error:
            if (failed := self.failed) is not None:
                raise failed from error
            if isinstance(error, Py4JJavaError):
                raise JobFailed() from error
            raise died(None) from error

    def stop(self, *, orderly: bool = False) -> None:
        """End Spark and wait until its JVM and workers are gone.

        A local Spark holds nothing worth an orderly end, which takes it a second: it is killed. A cluster is told.
        """
        # From here on py4j, which logs every call that finds the JVM gone (a garbage collection makes such calls), and
        # part of that to the root logger, tells nobody anything new.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(_not_of_py4j)
        if orderly or not self.local:
            self._stop_orderly()
        self._stopped.set()
        self._give_way()
        deadline = time.monotonic() + STOP_SECONDS
        self._kill_family()
        while self._starting.is_alive() and time.monotonic() < deadline:
            # A start in progress clears up behind itself when it finds its JVM gone, or may yet bring one up.
            self._starting.join(0.05)
            self._kill_family()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _stop_orderly(self) -> None:
        with contextlib.suppress(Exception):
            self._context.result(timeout=STOP_SECONDS).stop()
        process = self._jvm.process
        if process is not None and process.stdin is not None:
            process.stdin.close()  # The JVM ends itself at the end of its input.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ORDERLY_SECONDS)

    def _give_way(self) -> None:
        """Free the descriptors kept for the end: looking for processes opens files, and all others may be in use."""
        while self._spare:
            os.close(self._spare.pop())

    def _kill_family(self) -> None:
        try:
            _kill(self._family())
        finally:
            # It needs no descriptor, and the workers end when they find their JVM gone.
            if self._jvm.process is not None:
                self._jvm.process.kill()

    def _family(self) -> list[psutil.Process]:
        """The JVM, also one that is still starting, and the Python workers it started: our scratch folder marks it."""
        family = []
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if any(self._scratch in argument for argument in child.cmdline()):
                    family += [child, *child.children(recursive=True)]
        return family

    def _start(self) -> None:
        try:
            self._context.set_result(self._new_context())
        except BaseException as error:
            failure = not_started(error, self._jvm.said(), self._settings.master)
            failure.__cause__ = error
            self._context.set_exception(failure)

    def _new_context(self) -> SparkContext:
        settings = self._settings
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
        from pyspark import SparkConf, SparkContext

        _hand_over_as_is()
        conf = SparkConf(loadDefaults=False)
        conf.setAll([*_DEFAULTS.items(), ("spark.local.dir", self._scratch), ("spark.master", settings.master)])
        conf.setAll([(f"spark.executorEnv.{name}", value) for name, value in _WORKER_ENVIRONMENT.items()])
        if self.local:
            conf.setAll(list(_LOCAL_DEFAULTS.items()))
        conf.set("spark.driver.extraJavaOptions", " ".join(self._java_options()))
        conf.setAll(list(settings.conf.items()))
        # A second copy of a task would write the same rejects, maybe from segments whose files have been taken again.
        conf.set("spark.speculation", "false")
        if self._stopped.is_set():
            raise InterruptedError("Spark is not needed any more")
        gateway = self._jvm.launch(dict(conf.getAll()))
        cores = "*"
        if conf.get("spark.master") == "local[*]":
            # The JVM knows what a container may use. One task more than cores, because tasks wait for S3 as well.
            cores = str(gateway.jvm.java.lang.Runtime.getRuntime().availableProcessors() + 1)
        conf.set("spark.master", _with_attempts(str(conf.get("spark.master")), cores))
        context = SparkContext(conf=conf, gateway=gateway)
        # PySpark's accumulator server would print a stack trace when the JVM ends, which the next job tells of as well.
        context._accumulatorServer.handle_error = _quietly  # type: ignore[method-assign, assignment]
        context.setLogLevel("ERROR")
        # One task a core, with nothing to do, starts the Python workers: the first real job finds them running.
        from destination_datalake.files.encode import encode

        context.parallelize([], context.defaultParallelism).mapPartitions(encode).collect()
        return context

    def _java_options(self) -> tuple[str, ...]:
        scratch = f"-Djava.io.tmpdir={self._scratch}"
        quiet = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
        archive = archive_path()
        shared = (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable") if archive.exists() else ()
        unknown = unknown_user_options(Path(self._scratch))
        return (*_JVM_OPTIONS, scratch, quiet, *unknown, *shared, *self._settings.jvm_options)


def _with_attempts(master: str, cores: str) -> str:
    """A local master that tries a task again as a cluster would: `spark.task.maxFailures` means nothing to it."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    if found is None:
        return master
    threads = "1" if found[1] is None else cores if found[1] == "*" else found[1]
    return f"local[{threads},{_ATTEMPTS}]"


def _hand_over_as_is() -> None:
    """Have py4j convert nothing but Python's own collections.

    PySpark registers converters for the values of its SQL, of which we send none. One of them looks for NumPy at each
    value, the first time by loading all that PySpark's own tests need, pandas too: half of Spark's start.
    """
    from py4j import protocol  # type: ignore[import-untyped]

    protocol.INPUT_CONVERTER[:] = [c for c in protocol.INPUT_CONVERTER if type(c).__module__.startswith("py4j.")]


def _kill(processes: Sequence[psutil.Process]) -> None:
    """Kill the processes; return when they are gone."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + STOP_SECONDS
    while any(map(_runs, processes)) and time.monotonic() < deadline:
        time.sleep(0.01)


def _runs(process: psutil.Process) -> bool:
    """Whether the process does anything still. One that only waits for its new parent to notice its end does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _quietly(*_: object) -> None:
    """Say nothing about a connection that ended."""


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname
