"""Spark with a driver of our own: a JVM that this process starts, whose executors are local or on a cluster.

Tasks go through `SparkContext.parallelize(...).mapPartitions(...)`: no record crosses the JVM, so Spark SQL's session,
planner and code generator would only cost start-up time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from destination_datalake.spark.backend import (
    Consume,
    JobFailed,
    JobsProgress,
    Produce,
    Result,
    SparkFailed,
    Task,
    Work,
    consumed,
    end_failure,
)
from destination_datalake.spark.classic.failure import (
    PATIENCE_PROPERTY,
    application_ended,
    executors_end,
    no_executor,
    start_failure,
)
from destination_datalake.spark.classic.jvm import Jvm, unknown_user
from destination_datalake.spark.classic.pyspark_internals import (
    available_processors,
    count_executors,
    drop_sql_converters,
    hand_over_without_files,
    is_java_exception,
    is_stopped,
    java_exception_text,
    log_in,
    seconds_property,
    silence_accumulator_server,
    silence_py4j,
)
from destination_datalake.spark.classic.settings import ClassicSettings, local_master_with_attempts
from destination_datalake.spark.classic.worker_daemon import ADDRESS, fork_daemon
from destination_datalake.spark.executors.python import FOLDER, difference, shipped

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
    from pyspark import SparkContext


_PATIENCE_SECONDS = 60.0
"""How long a job waits for a first executor, unless Spark's own limit is longer."""

_POLL_SECONDS = 1.0

_IDLE_SECONDS = 0.1
"""How long a local Spark waits for a first job before it warms up."""


class ClassicBackend:
    """A Spark whose driver is a JVM that this process starts."""

    def __init__(self, settings: ClassicSettings) -> None:
        """Launch nothing yet. Raises OSError if there is no folder for temporary files."""
        self._settings = settings
        self._scratch = Path(tempfile.mkdtemp(prefix="destination-datalake-spark-"))
        self._jvm = Jvm(self._scratch)
        self._context: SparkContext | None = None
        self._stopping = threading.Event()
        self.application_id: str | None = None
        self._busy = threading.Event()
        self._watch: ExecutorWatch | None = None
        self._patience = _PATIENCE_SECONDS
        self._application: Mapping[str, str] = {}

    @property
    def is_local(self) -> bool:
        """Whether executors share this machine's disk."""
        return self._settings.is_local

    @property
    def context(self) -> SparkContext:
        """PySpark's context; there is one after `start`."""
        assert self._context is not None
        return self._context

    def launch(self) -> None:
        """Launch Java, unless Spark's launcher has to, and meanwhile import what workers need and fork their daemon.

        To be called on the main thread before there are others; `start` launches Java if it was not. Raises OSError.
        """
        if self._settings.needs_launcher:
            return
        daemon = self._scratch / "daemon"
        self._launch_java({ADDRESS: str(daemon)})
        if threading.active_count() == 1:
            with contextlib.suppress(OSError):  # Spark then starts a daemon of its own.
                self._jvm.daemon = fork_daemon(daemon)

    def start(self) -> None:
        """Launch the JVM and start Spark in it. Raises SparkFailed."""
        try:
            self._context = self._new_context()
        except BaseException as error:
            if (different := self._difference(java_exception_text(error))) is not None:
                raise different from error
            failure = self._ended_by_cluster() or start_failure(error, self._jvm.output(), self._settings.master)
            raise failure from error
        self.application_id = self._context.applicationId
        if not self._settings.is_cluster:
            threading.Thread(target=self._warm_up_if_idle, name="spark-warm-up", daemon=True).start()

    def ended(self) -> SparkFailed | None:
        """Return that Spark's JVM or its context has ended, if so."""
        if (exit_code := self._jvm.exit_code) is not None:
            return end_failure(exit_code)
        try:
            may_run = not is_stopped(self.context) and (self._watch is None or not self._watch.gave_up)
        except Exception:
            return end_failure(None)
        return None if may_run else self._ended_by_cluster() or end_failure(None)

    def parallelism(self) -> int:
        """Return Spark's default parallelism: the cores of all executors that have registered."""
        with self._spark_errors():
            return int(self.context.defaultParallelism)

    def run(self, work: Work[Task, Result], tasks: Sequence[Task]) -> list[Result]:
        """Run a job of one Spark task for each of `tasks`."""
        with self._spark_errors(), self._job():
            return self.context.parallelize(tasks, len(tasks)).mapPartitions(self._prepared(work)).collect()

    def exchange(
        self, produce: Produce[Task], tasks: Sequence[Task], consume: Consume[Result], partitions: int
    ) -> list[Result]:
        """Run a job of two stages with a shuffle between them."""
        with self._spark_errors(), self._job():
            payloads = self.context.parallelize(tasks, len(tasks)).mapPartitions(self._prepared(produce))
            shuffled = payloads.partitionBy(partitions, int)
            return shuffled.mapPartitions(self._prepared(partial(consumed, consume))).collect()

    def progress(self) -> JobsProgress:
        """Return the tasks of the stages that Spark's status tracker knows as active."""
        try:
            tracker = self.context.statusTracker()
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Exception:
            return JobsProgress()
        known = [stage for stage in stages if stage is not None]
        running, ended = (sum(stage.numActiveTasks for stage in known), sum(stage.numCompletedTasks for stage in known))
        return JobsProgress(running, max(0, sum(stage.numTasks for stage in known) - running - ended), ended)

    def stop(self, *, orderly: bool) -> None:
        """End Spark and wait until its JVM and workers have ended."""
        self._stopping.set()
        if orderly:
            if self._context is not None:
                with contextlib.suppress(Exception):
                    self._context.stop()
            self._jvm.wait_for_exit()
        self._jvm.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)

    @contextlib.contextmanager
    def _spark_errors(self) -> Iterator[None]:
        """Raise SparkFailed for whatever PySpark raises; JobFailed if Spark is still able to run other jobs."""
        try:
            yield
        except Exception as error:
            if (ended := self.ended()) is not None:
                raise ended from error
            if is_java_exception(error):
                text = java_exception_text(error) or str(error)
                raise self._difference(text) or JobFailed(text) from error
            raise end_failure(None) from error

    def _job(self) -> contextlib.AbstractContextManager[None]:
        self._busy.set()
        return contextlib.nullcontext() if self._watch is None else self._watch.job()

    def _ended_by_cluster(self) -> SparkFailed | None:
        """Return why a cluster runs nothing for us any more, as far as it has said so."""
        output = self._jvm.recent_output()
        if self._watch is not None and self._watch.gave_up:
            ended: SparkFailed | None = no_executor(self._application, self._patience)
        else:
            ended = application_ended(self._application, output)
        # There is a context once executors have run its first job.
        never_ran = ended is not None and self._context is None
        return (executors_end(self._application, output) if never_ran else None) or ended

    def _watch_over(self, context: SparkContext) -> None:
        """Notice from now on when there are no executors to run jobs."""
        self._application = dict(context.getConf().getAll())
        self._patience = max(self._patience, seconds_property(context, PATIENCE_PROPERTY) or 0)
        self._watch = ExecutorWatch(partial(count_executors, context), context.cancelAllJobs, self._patience)

    def _new_context(self) -> SparkContext:
        python = self._settings.python
        os.environ.update(self._settings.environment)
        from pyspark import SparkConf, SparkContext

        drop_sql_converters()
        properties = self._settings.properties(self._scratch)
        self._application = properties
        if self._stopping.is_set():
            raise InterruptedError("Spark was stopped before its JVM was launched")
        packing = self._pack() if python.is_packed else None
        silence_py4j()
        gateway = self._jvm.submit(properties) if self._settings.needs_launcher else self._connect()
        properties["spark.master"] = local_master_with_attempts(
            properties["spark.master"], lambda: available_processors(gateway)
        )
        if (user := unknown_user()) is not None:
            log_in(user, gateway)
        context = SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(properties.items())), gateway=gateway)
        silence_accumulator_server(context)
        hand_over_without_files(context)
        if self._settings.needs_launcher:
            context.setLogLevel("ERROR")
        if packing is not None:
            # A URI: Spark takes a path with a space or a quote for one without the fragment.
            context.addArchive(f"{packing.result().as_uri()}#{FOLDER}")
        if not self.is_local:
            self._watch_over(context)
        if self._settings.is_cluster:
            self._warm_up(context)
        return context

    def _launch_java(self, environment: Mapping[str, str]) -> None:
        settings = self._settings
        variables = {**settings.environment, **environment}
        self._jvm.launch(settings.memory, settings.java_options(self._scratch), variables)

    def _connect(self) -> JavaGateway:
        if self._jvm.process is None:
            self._launch_java({})
        return self._jvm.connect()

    def _pack(self) -> Future[Path]:
        """Build the archive for executors while the JVM starts."""
        from destination_datalake.spark.executors.archive import archive

        threads = ThreadPoolExecutor(1, "archive")
        try:
            return threads.submit(archive, self._scratch)
        finally:
            threads.shutdown(wait=False)

    def warm_up(self) -> None:
        """Run a job that does nothing: another then finds Spark's classes loaded, and workers running."""
        self._warm_up(self.context)

    def _warm_up(self, context: SparkContext) -> None:
        """Run an empty task per core: the first real job finds Python workers running, and like the driver."""
        from destination_datalake.files.encode import encode

        with self._job():
            context.parallelize([], context.defaultParallelism).mapPartitions(self._prepared(encode)).collect()

    def _warm_up_if_idle(self) -> None:
        """Warm up while records are still collected for the first job; that job would only wait for it."""
        if not self._busy.wait(_IDLE_SECONDS):
            with contextlib.suppress(Exception):  # The next job finds what this one has.
                self.warm_up()

    def _prepared(self, work: Work[Task, Result]) -> Work[Task, Result]:
        """Return what Spark is given to run: the work itself where workers are forks of a daemon on this machine."""
        return shipped(work, self._settings.python) if self._settings.is_cluster else work

    def _difference(self, text: str | None) -> SparkFailed | None:
        """Return how executors differ from the driver, if the text of Spark's error says that they do."""
        if text is None or not self._settings.is_cluster:
            return None
        message = difference(text, self._settings.python)
        return None if message is None else SparkFailed(message, "config_error")


class ExecutorWatch:
    """Gives up the jobs of a cluster when there is no executor for `patience` seconds in a row.

    Spark itself waits for ever, and only repeats a warning ("Initial job has not accepted any resources").
    """

    def __init__(
        self, executors: Callable[[], int], give_up: Callable[[], None], patience: float, every: float = _POLL_SECONDS
    ) -> None:
        """`executors` counts those that are registered now; `give_up` cancels all jobs. Both may raise: Spark ended.

        `every` is the time between counts, in seconds.
        """
        self._executors = executors
        self._give_up = give_up
        self._every = every
        self._polls = max(1, round(patience / every))
        self._gave_up = threading.Event()

    @property
    def gave_up(self) -> bool:
        """Whether jobs were given up."""
        return self._gave_up.is_set()

    @contextlib.contextmanager
    def job(self) -> Iterator[None]:
        """Watch while the block runs a job."""
        ended = threading.Event()
        watching = threading.Thread(target=self._watch, args=(ended,), name="spark-executors", daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()

    def _watch(self, ended: threading.Event) -> None:
        without = 0
        with contextlib.suppress(Exception):
            while not ended.wait(self._every):
                without = 0 if self._executors() else without + 1
                if without >= self._polls:
                    self._gave_up.set()
                    self._give_up()
                    return
