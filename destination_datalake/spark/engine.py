"""Spark as the connector uses it: started in the background, given tasks, stopped without leaving anything behind.

Tasks go through `SparkContext.parallelize(...).mapPartitions(...)`: no record crosses the JVM, so Spark SQL's session,
planner and code generator would only cost start-up time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from destination_datalake.files.plan import NotRewritten, RewriteFailed, RewriteTask, Rewritten
from destination_datalake.files.tasks import EncodeTask, EncodeUnit, UnitResult
from destination_datalake.spark.failure import JobFailed, SparkFailed, end_failure, start_failure, worker_failure
from destination_datalake.spark.jvm import KILL_SECONDS, Jvm
from destination_datalake.spark.pyspark_internals import (
    available_processors,
    drop_sql_converters,
    hand_over_without_files,
    is_java_exception,
    is_stopped,
    preload,
    silence_accumulator_server,
    silence_py4j,
)
from destination_datalake.spark.settings import EngineSettings, local_master_with_attempts

if TYPE_CHECKING:
    from pyspark import SparkContext

    from destination_datalake.aws.access import AwsAccess

_logger = logging.getLogger(__name__)

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

_STOP_SECONDS = 20
"""How long a cluster's Spark may take to start before it is stopped regardless."""


class Engine:
    """A Spark that may still be starting; what needs it waits for it."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._scratch = Path(tempfile.mkdtemp(prefix="destination-datalake-spark-"))
        self._context: Future[SparkContext] = Future()
        self._jvm = Jvm(self._scratch)
        self._starting = threading.Thread(target=self._start, name="spark-start", daemon=True)
        self._stopped = threading.Event()

    @classmethod
    def start(cls, settings: EngineSettings) -> Engine:
        """Start Spark in the background; return as soon as its JVM is about to be launched."""
        preload()
        engine = cls(settings)
        engine._starting.start()
        return engine

    @property
    def local(self) -> bool:
        """Whether executors share this machine's disk."""
        return self._settings.is_local

    def is_starting(self) -> bool:
        """Return whether Spark has neither started nor failed to."""
        return not self._context.done()

    @property
    def error(self) -> SparkFailed | None:
        """Why no job can be run any more: Spark has not started, or has ended. None as long as one may be."""
        if not self._context.done() or self._stopped.is_set():
            return None
        if (error := self._context.exception()) is not None:
            return error if isinstance(error, SparkFailed) else end_failure(None)
        if (exit_code := self._jvm.exit_code) is not None:
            return end_failure(exit_code)
        try:
            return end_failure(None) if is_stopped(self._context.result()) else None
        except Exception:
            return end_failure(None)

    def parallelism(self) -> int:
        """Return how many tasks run at once. Waits for Spark's start. Raises SparkFailed."""
        context = self._context.result()
        with self._spark_errors():
            return int(context.defaultParallelism)

    def encode(self, tasks: Sequence[EncodeTask]) -> list[UnitResult]:
        """Run the tasks on the executors, as one Spark job. Raises SparkFailed if Spark cannot run any.

        A unit that fails does not fail the job. If the job fails, a worker has died in every attempt at one of its
        tasks: then each unit becomes a job of its own, and only units whose jobs fail are returned as not encoded.
        """
        from destination_datalake.files.encode import encode

        try:
            return self._run(encode, tasks)
        except JobFailed as error:
            units = [(unit, task.access) for task in tasks for unit in task.units]
            if len(units) == 1:
                return [worker_failure(units[0][0].stream, error)]
        _logger.warning("A Spark job failed; its %d units are tried one by one.", len(units))

        def encode_alone(unit: EncodeUnit, access: AwsAccess) -> list[UnitResult]:
            try:
                return self._run(encode, [EncodeTask((unit,), access)])
            except JobFailed as error:
                return [worker_failure(unit.stream, error)]

        with ThreadPoolExecutor(self.parallelism(), "unit") as jobs:
            results = [jobs.submit(encode_alone, unit, access) for unit, access in units]
        return [result for each in results for result in each.result()]

    def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
        """Rewrite files on the executors, as one Spark job.

        Raises RewriteFailed if a file cannot be rewritten; the targets of the others exist all the same. Raises
        SparkFailed.
        """
        from destination_datalake.files.rewrite import rewrite

        results = self._run(rewrite, tasks)
        for result in results:
            if isinstance(result, NotRewritten):
                raise RewriteFailed(result.failure)
        return [result for result in results if isinstance(result, Rewritten)]

    def stop(self, *, orderly: bool = False) -> None:
        """End Spark and wait until its JVM and workers have ended.

        A local Spark holds nothing worth an orderly end, which takes a second: it is killed unless `orderly`.
        """
        silence_py4j()
        if orderly or not self.local:
            with contextlib.suppress(Exception):
                self._context.result(timeout=_STOP_SECONDS).stop()
            self._jvm.wait_for_exit()
        self._stopped.set()
        deadline = time.monotonic() + KILL_SECONDS
        self._jvm.kill()
        while self._starting.is_alive() and time.monotonic() < deadline:
            # A start in progress ends when it finds its JVM gone, or may yet launch one.
            self._starting.join(0.05)
            self._jvm.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _run(self, function: Callable[[Iterable[_Task]], Iterable[_Result]], tasks: Sequence[_Task]) -> list[_Result]:
        context = self._context.result()
        with self._spark_errors():
            return context.parallelize(tasks, len(tasks)).mapPartitions(function).collect()

    @contextlib.contextmanager
    def _spark_errors(self) -> Iterator[None]:
        """Raise SparkFailed for whatever PySpark raises; JobFailed if Spark is still able to run other jobs."""
        try:
            yield
        except Exception as error:
            if (ended := self.error) is not None:
                raise ended from error
            if is_java_exception(error):
                raise JobFailed() from error
            raise end_failure(None) from error

    def _start(self) -> None:
        try:
            self._context.set_result(self._new_context())
        except BaseException as error:
            failure = start_failure(error, self._jvm.output(), self._settings.master)
            failure.__cause__ = error
            self._context.set_exception(failure)

    def _new_context(self) -> SparkContext:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        # Otherwise Spark resolves the machine's host name, which fails where it has no address.
        os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
        from pyspark import SparkConf, SparkContext

        drop_sql_converters()
        properties = self._settings.properties(self._scratch)
        if self._stopped.is_set():
            raise InterruptedError("Spark was stopped before its JVM was launched")
        gateway = self._jvm.launch(properties)
        properties["spark.master"] = local_master_with_attempts(
            properties["spark.master"], lambda: available_processors(gateway)
        )
        context = SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(properties.items())), gateway=gateway)
        silence_accumulator_server(context)
        hand_over_without_files(context)
        context.setLogLevel("ERROR")
        # An empty task per core starts the Python workers: the first real job finds them running.
        from destination_datalake.files.encode import encode

        context.parallelize([], context.defaultParallelism).mapPartitions(encode).collect()
        return context
