"""The backend for classic Spark, whose driver JVM this process starts. Executors are local or on a cluster.

Jobs use `SparkContext.parallelize(...).mapPartitions(...)`. No record passes through the JVM, so the backend does not
need the session, planner and code generator of Spark SQL, which would slow down the start.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from pickle import PicklingError
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
    first_reason,
)
from destination_datalake.spark.classic.jvm import Jvm, require_java, unknown_user
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
from destination_datalake.unforeseen import exhaustion

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
    from pyspark import SparkContext


PATIENCE_PROPERTY = "spark.scheduler.maxRegisteredResourcesWaitingTime"
"""The Spark property that limits the time for which Spark waits for executors before it starts tasks.
https://spark.apache.org/docs/latest/configuration.html#scheduling"""

_PATIENCE_SECONDS = 60.0
"""Maximum time, in seconds, that a job waits while the cluster provides no executor. If the value of PATIENCE_PROPERTY
is longer, the backend uses this value instead."""

_POLL_SECONDS = 1.0

_IDLE_SECONDS = 0.1
"""The time without a job, in seconds, after which a local Spark runs its warm-up job."""


class ClassicBackend:
    """Runs jobs on a Spark whose driver JVM this process starts.

    To launch Java early, call `launch` before `start`. `stop` ends the JVM and its workers.
    """

    def __init__(self, settings: ClassicSettings) -> None:
        """Create a folder for temporary files, but launch no process yet.

        Raises OSError if the folder cannot be created.
        """
        self._settings = settings
        self._scratch = Path(tempfile.mkdtemp(prefix="destination-datalake-spark-"))
        try:
            self._jvm = Jvm(self._scratch)
        except OSError:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        self._context: SparkContext | None = None
        self._stopping = threading.Event()
        self.application_id: str | None = None
        self._busy = threading.Event()
        self._watch: ExecutorWatch | None = None
        self._patience = _PATIENCE_SECONDS
        self._application: Mapping[str, str] = {}

    @property
    def is_local(self) -> bool:
        """Whether executors share the disk of this machine."""
        return self._settings.is_local

    @property
    def context(self) -> SparkContext:
        """PySpark's SparkContext. Available after `start`."""
        assert self._context is not None
        return self._context

    def launch(self) -> None:
        """Launch Java early, and fork the worker daemon while Java starts.

        Does nothing if the settings require Spark's own launcher. Call this method on the main thread, before other
        threads exist. Without this call, `start` launches Java. Raises SparkFailed if Java cannot be run, and otherwise
        OSError. After an error, the folder for temporary files is deleted.
        """
        if self._settings.needs_launcher:
            return
        daemon = self._scratch / "daemon"
        try:
            self._launch_java({ADDRESS: str(daemon)})
        except OSError:
            self.stop(orderly=False)
            require_java()
            raise
        # A fork copies only the calling thread. A lock that another thread holds would stay locked in the daemon.
        if threading.active_count() == 1:
            with contextlib.suppress(OSError):  # Without the fork, Spark starts a daemon itself.
                self._jvm.daemon = fork_daemon(daemon)

    def start(self) -> None:
        """Launch the JVM unless `launch` has done so, and start Spark in the JVM. Raises SparkFailed.

        On a cluster, also runs a first job without work, which verifies the executors. If Spark is local, runs this job
        in the background, unless another job begins first.
        """
        try:
            self._context = self._new_context()
        except BaseException as error:
            if (difference := self._difference(java_exception_text(error))) is not None:
                raise difference from error
            failure = self._ended_by_cluster() or start_failure(error, self._jvm.output(), self._settings.master)
            raise failure from error
        self.application_id = self._context.applicationId
        if not self._settings.is_cluster:
            threading.Thread(target=self._warm_up_if_idle, name="spark-warm-up", daemon=True).start()

    def ended(self) -> SparkFailed | None:
        """Return the failure if the JVM or Spark's context has ended, or if the cluster provided no executor.

        Returns None if Spark can run jobs.
        """
        if (exit_code := self._jvm.exit_code) is not None:
            return end_failure(exit_code)
        try:
            may_run = not is_stopped(self.context) and (self._watch is None or not self._watch.gave_up)
        except Exception:
            return end_failure(None)
        return None if may_run else self._ended_by_cluster() or end_failure(None)

    def parallelism(self) -> int:
        """Return Spark's default parallelism: by default, the total number of cores of all registered executors.

        Raises SparkFailed.
        """
        with self._spark_errors():
            return int(self.context.defaultParallelism)

    def run(self, work: Work[Task, Result], tasks: Sequence[Task]) -> list[Result]:
        """Run a job with one Spark task per item of `tasks`. Return all results. Raises JobFailed or SparkFailed."""
        with self._spark_errors(), self._job():
            return self.context.parallelize(tasks, len(tasks)).mapPartitions(self._prepared(work)).collect()

    def exchange(
        self, produce: Produce[Task], tasks: Sequence[Task], consume: Consume[Result], partitions: int
    ) -> list[Result]:
        """Run a job of two stages with a shuffle between them (see `Backend.exchange`)."""
        with self._spark_errors(), self._job():
            payloads = self.context.parallelize(tasks, len(tasks)).mapPartitions(self._prepared(produce))
            # The keys are the numbers of partitions, so `int` sends each payload to the Spark task with the same
            # number.
            shuffled = payloads.partitionBy(partitions, int)
            return shuffled.mapPartitions(self._prepared(partial(consumed, consume))).collect()

    def progress(self) -> JobsProgress:
        """Return the numbers of tasks in the active stages, from Spark's status tracker.

        All numbers are 0 if Spark does not respond.
        """
        try:
            tracker = self.context.statusTracker()
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Exception:
            return JobsProgress()
        known = [stage for stage in stages if stage is not None]
        running, ended = (sum(stage.numActiveTasks for stage in known), sum(stage.numCompletedTasks for stage in known))
        return JobsProgress(running, max(0, sum(stage.numTasks for stage in known) - running - ended), ended)

    def stop(self, *, orderly: bool) -> None:
        """Stop Spark, wait until Spark's JVM and workers have ended, and delete temporary files.

        If `orderly` is set, first waits for at most two minutes until the JVM exits by itself. Kills all processes that
        are still running.
        """
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
        """Convert errors of the `with` block to SparkFailed, or to JobFailed if Spark can run other jobs.

        Does not convert the errors of this process, which has no memory for the results, or cannot pickle the tasks.
        """
        try:
            yield
        except (MemoryError, PicklingError):
            raise
        except Exception as error:
            # Check this first: when Spark ends, running jobs can fail with an exception of the JVM, too.
            if (ended := self.ended()) is not None:
                raise ended from error
            if is_java_exception(error):
                text = java_exception_text(error) or str(error)
                raise self._difference(text) or JobFailed(text) from error
            raise end_failure(None) from error

    def _job(self) -> contextlib.AbstractContextManager[None]:
        # A real job also starts the workers, so the warm-up job is then unnecessary.
        self._busy.set()
        return contextlib.nullcontext() if self._watch is None else self._watch.job()

    def _ended_by_cluster(self) -> SparkFailed | None:
        """Return the failure if the cluster has ended the application or provided no executor, otherwise None.

        The JVM's output shows whether the cluster has ended the application.
        """
        output = self._jvm.recent_output()
        if self._watch is not None and self._watch.gave_up:
            ended: SparkFailed | None = no_executor(self._application, self._patience)
        else:
            ended = application_ended(self._application, output)
        # On a cluster, `start` sets the context only after executors have run the warm-up job.
        never_ran = ended is not None and self._context is None
        return (executors_end(self._application, output) if never_ran else None) or ended

    def _watch_over(self, context: SparkContext) -> None:
        """From now on, check during each job that the cluster provides executors."""
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
            raise InterruptedError("Spark was stopped before its JVM started")
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
            # Pass the archive as a URI, because Spark ignores the fragment after a path with a space or a quote.
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
        """Build the archive of packages for executors in the background, while the JVM starts."""
        from destination_datalake.spark.executors.archive import archive

        threads = ThreadPoolExecutor(1, "archive")
        try:
            return threads.submit(archive, self._scratch)
        finally:
            threads.shutdown(wait=False)

    def warm_up(self) -> None:
        """Run a job without work, so that Spark loads its classes and starts the Python workers for later jobs."""
        self._warm_up(self.context)

    def _warm_up(self, context: SparkContext) -> None:
        """Run one task without work per core.

        The job starts the Python workers. On a cluster, it also verifies that their Python matches the driver's.
        """
        from destination_datalake.files.encode import encode

        with self._job():
            context.parallelize([], context.defaultParallelism).mapPartitions(self._prepared(encode)).collect()

    def _warm_up_if_idle(self) -> None:
        """Run the warm-up job while the sync is still reading the first records, unless another job begins first."""
        if not self._busy.wait(_IDLE_SECONDS):
            with contextlib.suppress(Exception):  # If Spark has failed, the next job reports the error.
                self.warm_up()

    def _prepared(self, work: Work[Task, Result]) -> Work[Task, Result]:
        """Return `work` in a form that Spark can send to executors on a cluster.

        If the executors are local, returns `work` unchanged.
        """
        return shipped(work, self._settings.python) if self._settings.is_cluster else work

    def _difference(self, text: str | None) -> SparkFailed | None:
        """Return the failure if Spark's error text shows that executors differ from the driver, otherwise None."""
        if text is None or not self._settings.is_cluster:
            return None
        message = difference(text, self._settings.python)
        return None if message is None else SparkFailed(message, "config_error")


class ExecutorWatch:
    """Cancels all jobs if a cluster provides no executor for `patience` seconds.

    Spark itself would wait forever, and would only repeat a warning ("Initial job has not accepted any resources").
    """

    def __init__(
        self, executors: Callable[[], int], give_up: Callable[[], None], patience: float, every: float = _POLL_SECONDS
    ) -> None:
        """Prepare the watch. `executors` returns the number of registered executors, and `give_up` cancels all jobs.

        Both functions raise an error if Spark has ended. `every` is the interval between counts, in seconds.
        """
        self._executors = executors
        self._give_up = give_up
        self._every = every
        self._polls = max(1, round(patience / every))
        self.gave_up = False
        """Whether the watch has cancelled the jobs because no executor was available."""

    @contextlib.contextmanager
    def job(self) -> Iterator[None]:
        """Count the executors periodically while the `with` block runs a job.

        If there are no executors for too long, cancel all jobs.
        """
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
                    self.gave_up = True
                    self._give_up()
                    return


# --- Failures ---------------------------------------------------------------------------------------------------------


def start_failure(error: BaseException, output: Sequence[str], master: str) -> SparkFailed:
    """Return the failure for the user if Spark did not start on `master`.

    Determines the reason from PySpark's `error`, and from the lines in `output`, which the JVM printed.
    """
    reason = _reason(error, output)
    because = f"Spark did not start: {reason}"
    if (exhausted := exhaustion(error, "\n".join([reason, *output]))) is not None:
        return SparkFailed(f"{because}. {exhausted}")
    try:
        require_java()
    except SparkFailed as unusable:
        return SparkFailed(f"Spark did not start. {unusable}", unusable.failure.type)
    if _UNREACHABLE.search(reason) and not master.startswith("local"):
        return SparkFailed(
            f"Spark did not start: {master} did not respond ({reason}). Check that this cluster is running and that "
            "this machine can reach the cluster, or correct spark.master.",
            "transient_error",
        )
    if _SETTING.search(reason):
        return SparkFailed(f"{because}. Correct spark.master or spark.conf.", "config_error")
    return SparkFailed(f"{because}. See the log for details.", "transient_error")


_UNREACHABLE = re.compile(
    r"All masters are unresponsive|stopped SparkContext|Connection refused|UnknownHostException|No route to host|"
    r"Failed to connect|timed out",
    re.IGNORECASE,
)
_SETTING = re.compile(
    r"IllegalArgumentException|NumberFormatException|SparkException|SparkIllegalArgument|ClassNotFound|Unrecognized|"
    r"Could not create the Java Virtual Machine|Invalid|Master must|not found|unresolved|Exception in thread \"main\"|"
    r"^Error: |BindException",
)
_ERROR = re.compile(
    # Skip the line "Error occurred during initialization of VM", because the next line contains the cause.
    r"(?:Error|Exception)\b(?! occurred)|^Invalid|^Unrecognized|insufficient memory|reserve enough space"
)


def _reason(error: BaseException, output: Sequence[str]) -> str:
    """Return the first line of the JVM's exception.

    If the JVM raised no exception, returns the first line of its output that looks like an error.
    """
    thrown = java_exception_text(error)
    lines = thrown.splitlines() if thrown is not None else [line for line in output if _ERROR.search(line)]
    return first_reason(lines, f"{type(error).__name__}: {error}")


def no_executor(properties: Mapping[str, str], seconds: float) -> SparkFailed:
    """Return the failure for the user if the cluster provided no executor to the application for `seconds`.

    `properties` contains the Spark properties of the application.
    """
    cores = properties.get("spark.executor.cores")
    max_cores = properties.get("spark.cores.max")
    requested = "".join(
        (
            f"executors with {properties.get('spark.executor.memory', '1g')} of memory",
            f" and {cores} cores" if cores else "",
            f", at most {max_cores} cores in total" if max_cores else "",
        )
    )
    return SparkFailed(
        f"{properties['spark.master']} started no executor for this sync within {seconds:.0f} s. Requested: "
        f"{requested}. Check that the cluster's workers are running and that these resources are free. To request "
        "less, set spark.executor.memory, spark.executor.cores and spark.cores.max in spark.conf. To wait longer, set "
        f"{PATIENCE_PROPERTY} in spark.conf."
    )


def executors_end(properties: Mapping[str, str], output: Sequence[str]) -> SparkFailed | None:
    """Return a failure with a message for the user if, as the JVM reports, executors exit at once after starting.

    Returns None if the output contains no such report.
    """
    reason = _last(_EXECUTOR_ENDED, output)
    if reason is None:
        return None
    driver = f"{properties.get('spark.driver.host', 'its host name')}:{properties.get('spark.driver.port', 'any port')}"
    return SparkFailed(
        f"Executors that {properties['spark.master']} starts for this sync exit immediately (last: {reason}). See the "
        f"logs of the executors on the cluster. If the executors cannot reach this driver at {driver}, set "
        "spark.driver.host in spark.conf to an address of this machine that they can reach, and set spark.driver.port "
        "and spark.driver.blockManager.port to ports that firewalls allow.",
        "config_error",
    )


def application_ended(properties: Mapping[str, str], output: Sequence[str]) -> SparkFailed | None:
    """Return the failure for the user if, according to the JVM's output, the cluster has ended the application.

    Returns None if the output contains no such report.
    """
    reason = _last(_APPLICATION_ENDED, output)
    if reason is None:
        return None
    if "unresponsive" in reason:
        return SparkFailed(
            f"{properties['spark.master']} did not respond ({reason.rstrip('.')}). Check that this cluster is "
            "running and that this machine can reach the cluster, or correct spark.master."
        )
    executor = _last(_EXECUTOR_ENDED, output)
    last = "" if executor is None else f"; last ended executor: {executor}"
    return SparkFailed(
        f"{properties['spark.master']} ended this sync's application ({reason}{last}). Run the sync again. It "
        "continues from the last state."
    )


_EXECUTOR_ENDED = re.compile(r"Executor updated: \S+ is now ((?:EXITED|FAILED|LOST)\b.*)")
_APPLICATION_ENDED = re.compile(r"Application has been killed\. Reason: (.*)")


def _last(pattern: re.Pattern[str], output: Sequence[str]) -> str | None:
    return next((match[1].strip() for line in reversed(output) if (match := pattern.search(line))), None)
