"""A session on a Spark Connect server: connected, tried out, watched, closed."""

from __future__ import annotations

import atexit
import contextlib
import logging
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.errors import PySparkException
from pyspark.sql.connect.client import DefaultChannelBuilder, core
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.types import UserDefinedType

from destination_datalake.files.encode import encode
from destination_datalake.spark.backend import JobsProgress, SparkFailed
from destination_datalake.spark.connect import jobs
from destination_datalake.spark.connect.failure import Meaning, NoExecutors, is_handshake_failure, meaning
from destination_datalake.spark.connect.values import answers
from destination_datalake.spark.executors.python import FOLDER, ExecutorPython, shipped

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import StageInfo

_logger = logging.getLogger(__name__)

RETRY_SECONDS = 60.0
"""How long a server may be away in the middle of a call: it may be starting, or the network may fail for a while."""

PATIENCE_SECONDS = 300.0
"""How long tasks may wait with none at work: a cluster adds machines in this time, or does not have them."""

_WARNING_SECONDS = 60.0

_USER = "destination-datalake"

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
    """A session on a server, whose executors have run the connector."""

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
            if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_SPARK:
                _logger.warning("Spark %s is older than 4.0, the oldest that the connector is tested with.", version)
            settings = {**_SETTINGS}
            if python.python != "same":  # Otherwise the server has its own.
                settings["spark.sql.execution.pyspark.python"] = python.interpreter
            configure(spark, settings, conf)
            if packages is not None:
                with tempfile.TemporaryDirectory(prefix="destination-datalake-") as scratch:
                    spark.addArtifacts(f"{packages(Path(scratch))}#{FOLDER}", archive=True)
            watch = JobsWatch()
            spark.registerProgressHandler(watch)  # type: ignore[arg-type]  # it takes any callable
            cores = jobs.probe(spark, shipped(partial(answers, encode), python))
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
"""Above this, treat the limit as unlimited: 2147483647 is Spark's default."""


def connect(url: str, token: str | None = None, retry_seconds: float = RETRY_SECONDS) -> SparkSession:
    """Return a new session, which signs in with a bearer token; nothing is sent yet.

    Raises SparkFailed if the address is not valid.
    """
    take_data_alone()
    try:
        builder = DefaultChannelBuilder(url)
    except (PySparkException, ValueError) as error:
        address = url.partition(";")[0]
        raise SparkFailed(f"{address} is no address of a Spark Connect server: {error}", "config_error") from error
    if token is not None:
        builder.set(DefaultChannelBuilder.PARAM_TOKEN, token)
    # A session of its own each time: one that has ended is ended for ever, whatever the address says.
    builder.set(DefaultChannelBuilder.PARAM_SESSION_ID, str(uuid.uuid4()))
    if builder.getDefault(DefaultChannelBuilder.PARAM_GRPC_KEEPALIVE_WITHOUT_CALLS, None) is None:
        # Servers may close connections that are pinged without calls (gRPC's permitKeepAliveWithoutCalls).
        builder.set(DefaultChannelBuilder.PARAM_GRPC_KEEPALIVE_WITHOUT_CALLS, "false")
    session = SparkSession(builder, userId=_USER)
    forget_at_exit(session)
    session.client.set_retry_policies([_PatientPolicy(retry_seconds)])
    return session


def close(session: SparkSession) -> None:
    """End the session on its server, and its jobs. A server that is gone is not waited for."""
    session.client.set_retry_policies([])
    with contextlib.suppress(Exception):
        session.interruptAll()
    with contextlib.suppress(Exception):
        session.stop()


def forget_at_exit(session: SparkSession) -> None:
    """Keep PySpark from calling the server when this process exits, to clear a cache that only models are in.

    A server that is gone would hold the process for as long as calls are tried again.
    """
    atexit.unregister(session.client._on_exit)


def take_data_alone() -> None:
    """Keep PySpark from running what a server's answers name: classes of a schema, and pickles among metrics.

    The connector needs neither. Types of users are found by importing the module that the server names; updates of
    Python's accumulators are unpickled, by PySpark before 4.3 whatever they are.
    """
    UserDefinedType.fromJson = _no_type_of_users  # type: ignore[assignment, method-assign]
    core.PlanObservedMetrics = _UnreadMetrics  # type: ignore[misc]


def _no_type_of_users(_: Any) -> NoReturn:
    raise TypeError("the server's answer has a user-defined type, and no job of the connector has one")


class _UnreadMetrics(core.PlanObservedMetrics):
    """Metrics without their name, by which PySpark knows those that it unpickles."""

    @property
    def name(self) -> str:
        return ""


class _PatientPolicy(DefaultPolicy):
    """Retries as PySpark does, with exponential backoff, and for a time instead of a number of times.

    When the time is over the error is no longer one to retry: that way PySpark raises it without a warning.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(max_retries=None, max_backoff=5_000, max_server_retry_delay=10_000)
        self.seconds = seconds
        self.clock = clock

    def can_retry(self, e: BaseException) -> bool:
        return super().can_retry(e) and not is_handshake_failure(str(e))

    def to_state(self) -> RetryPolicyState:
        return _PatientState(self)


class _PatientState(RetryPolicyState):
    """The retries of one call."""

    def __init__(self, policy: _PatientPolicy) -> None:
        super().__init__(policy)
        self._patient = policy
        self._failing_since: float | None = None

    def can_retry(self, exception: BaseException) -> bool:
        now = self._patient.clock()
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since < self._patient.seconds and super().can_retry(exception)


class JobsWatch:
    """Takes the progress events of all jobs of a session, each on the thread that waits for its job."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._clock = clock
        self._patience = patience_seconds
        self._lock = threading.Lock()
        self._jobs: dict[str, JobsProgress] = {}
        self._moved = clock()
        self._warned = False
        self.most_running = 0
        """The most tasks that were seen at work at once."""

    def __call__(
        self, stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """Take an event, as PySpark's `registerProgressHandler` hands it over.

        Raises NoExecutors, which ends the job that the event is about.
        """
        name = operation_id or ""
        with self._lock:
            if done:
                self._jobs.pop(name, None)
                self._moved = self._clock()
                return
            known = list(stages or ())
            ended = sum(stage.num_completed_tasks for stage in known)
            total = sum(stage.num_tasks for stage in known)
            before = self._jobs.get(name)
            self._jobs[name] = JobsProgress(inflight_tasks, max(0, total - ended - inflight_tasks), ended)
            running = sum(job.running for job in self._jobs.values())
            self.most_running = max(self.most_running, running)
            if running or before is None or before.ended != ended:
                self._moved, self._warned = self._clock(), False
            waited = self._clock() - self._moved
            warn = waited > _WARNING_SECONDS and not self._warned
            self._warned = self._warned or warn
        if warn:
            _logger.warning("Spark has tasks, and no executor has taken one for %.0f s.", waited)
        if waited > self._patience:
            raise NoExecutors(f"{total - ended} tasks have waited for {waited:.0f} s")

    def progress(self) -> JobsProgress:
        """Return the sum over the jobs that run."""
        with self._lock:
            jobs = list(self._jobs.values())
        return JobsProgress(sum(j.running for j in jobs), sum(j.waiting for j in jobs), sum(j.ended for j in jobs))
