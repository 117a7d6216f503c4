"""Sessions on a Spark Connect server: open and close them, watch their jobs, and classify their errors."""

from __future__ import annotations

import atexit
import contextlib
import logging
import re
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql.connect.client import DefaultChannelBuilder, core
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.types import UserDefinedType

from destination_datalake.errors import FailureType
from destination_datalake.files.encode import encode
from destination_datalake.spark.backend import JobsProgress, SparkFailed, first_reason
from destination_datalake.spark.connect import jobs
from destination_datalake.spark.connect.values import InvalidResults, answers
from destination_datalake.spark.executors.python import FOLDER, ExecutorPython, shipped

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import StageInfo

_logger = logging.getLogger(__name__)

RETRY_SECONDS = 60.0
"""Maximum time, in seconds, during which the client retries a failed call. In this time, a server can restart, or a
network can recover."""

PATIENCE_SECONDS = 300.0
"""Maximum time, in seconds, that tasks may wait while no task is running. In this time, a cluster can add machines."""

_WARNING_SECONDS = 60.0

_USER = "destination-datalake"

OLDEST_SPARK = (4, 0)

_SETTINGS: Mapping[str, str] = {
    # Each of the connector's tasks must be one Spark task, so Spark must not merge or split partitions.
    "spark.sql.adaptive.enabled": "false",
    # Batches must have few rows, because a row is not a record. A row contains up to a megabyte of results, or a
    # payload.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
    # Print the stack traces of a worker that crashes.
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}


# --- Errors -----------------------------------------------------------------------------------------------------------


class NoExecutors(Exception):
    """Raised if tasks have waited longer than `PATIENCE_SECONDS` while no task was running."""


class ErrorKind(Enum):
    """A kind of error.

    The value contains the message for the user and the failure type. They apply if an error of this kind prevents all
    jobs.
    """

    def __init__(self, message: str, failure_type: FailureType) -> None:
        self.message = message
        self.failure_type: FailureType = failure_type

    SESSION_LOST = (
        "The sessions on {server} ended repeatedly ({reason}). Run the sync again. It continues from the last state.",
        "transient_error",
    )
    """The session has ended. The backend can run the session's jobs again in a new session."""
    JOB_FAILED = "{subject} cannot run the connector's jobs: {reason}. See the log for details.", "transient_error"
    """The job failed, but Spark can run other jobs."""
    REFUSED = "{subject} refuses access ({reason}). Correct spark.token.", "config_error"
    """The server rejects the token."""
    NO_TLS = (
        "Cannot connect to {server} with TLS ({reason}). If the server does not use TLS, remove use_ssl=true from "
        "spark.remote. Without TLS, the connector sends a token only to localhost. If a private authority issued the "
        "server's certificate, set the environment variable GRPC_DEFAULT_SSL_ROOTS_FILE_PATH to a file with that "
        "authority's certificates.",
        "config_error",
    )
    """The TLS handshake failed."""
    UNREACHABLE = (
        "{subject} did not respond ({reason}). Check that the server is running and that this machine can reach the "
        "server, or correct spark.remote. Then run the sync again. It continues from the last state.",
        "transient_error",
    )
    """The server has not responded, even after retries."""
    NO_EXECUTORS = (
        "{subject} has no executor for the connector: {reason}. Add executors, or wait until other jobs end. Then run "
        "the sync again. It continues from the last state.",
        "transient_error",
    )
    """Tasks have waited too long for an executor."""
    STOPPED = (
        "Spark ended on {server} ({reason}). Start Spark again, and then run the sync again. It continues from the "
        "last state.",
        "transient_error",
    )
    """The server responds, but its Spark application has ended."""


_KIND_BY_STATUS: Mapping[grpc.StatusCode | None, ErrorKind] = {
    grpc.StatusCode.UNAUTHENTICATED: ErrorKind.REFUSED,
    grpc.StatusCode.PERMISSION_DENIED: ErrorKind.REFUSED,
    grpc.StatusCode.UNAVAILABLE: ErrorKind.UNREACHABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorKind.UNREACHABLE,
    grpc.StatusCode.UNIMPLEMENTED: ErrorKind.UNREACHABLE,
}
_SESSION_LOST = re.compile(
    r"INVALID_HANDLE\.SESSION_|INVALID_HANDLE\.OPERATION_|INVALID_CURSOR\.|RESPONSE_ALREADY_RECEIVED|NO_ACTIVE_SESSION|"
    r"incorrect server side session|Cannot invoke RPC on closed channel"
)
_STOPPED = re.compile(
    r"stopped SparkContext|SparkContext (?:was|has been) shut ?down|SparkContext was stopped", re.IGNORECASE
)
_HANDSHAKE = re.compile(r"handshake|SSL_ERROR|CERTIFICATE_VERIFY|WRONG_VERSION|certificate", re.IGNORECASE)


def error_kind(error: BaseException) -> ErrorKind:
    """Classify an error that PySpark's client or the module `jobs` raised."""
    if isinstance(error, NoExecutors):
        return ErrorKind.NO_EXECUTORS
    if isinstance(error, InvalidResults):
        return ErrorKind.JOB_FAILED
    text = str(error)
    if _SESSION_LOST.search(text):
        return ErrorKind.SESSION_LOST
    if _STOPPED.search(text):
        return ErrorKind.STOPPED
    kind = _KIND_BY_STATUS.get(_grpc_status(error), ErrorKind.JOB_FAILED)
    return ErrorKind.NO_TLS if kind is not ErrorKind.JOB_FAILED and _is_handshake_failure(text) else kind


def _grpc_status(error: BaseException) -> grpc.StatusCode | None:
    if isinstance(error, grpc.RpcError):
        code = getattr(error, "code", None)
        return code() if code is not None else None
    return error.getGrpcStatusCode() if isinstance(error, SparkConnectGrpcException) else None


def _is_handshake_failure(text: str) -> bool:
    """Return whether the TLS handshake failed, according to the error text. In this case, retries are useless."""
    return _HANDSHAKE.search(text) is not None


def spark_failure(kind: ErrorKind, error: BaseException, server: str) -> SparkFailed:
    """Return the failure for the user if `error`, which is of this kind, prevents all jobs.

    `server` is the name of the server for the message.
    """
    subject = f"{server[:1].upper()}{server[1:]}"
    return SparkFailed(kind.message.format(subject=subject, server=server, reason=_reason(error)), kind.failure_type)


def _reason(error: BaseException) -> str:
    """Return the first line of an error message of gRPC or Spark, at most 300 characters."""
    text = str(error)
    details = re.search(r'details = "(.*?)"\n', text, re.DOTALL)
    return first_reason((details[1] if details else text).splitlines(), type(error).__name__)


# --- Sessions ---------------------------------------------------------------------------------------------------------


class RemoteSession:
    """A session on a Spark Connect server. The server's executors have successfully run a first job in this session."""

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
        """Configure a session, send it the packages for executors, and run a first job. Return the session.

        The first job verifies that executors can run the connector. If an error occurs, closes the session, and raises
        SparkFailed or PySpark's errors.
        """
        try:
            version = spark.version
            _logger.info("Spark Connect: connected to Spark %s.", version)
            if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_SPARK:
                _logger.warning(
                    "Spark %s on the server is older than 4.0, the oldest tested version. Upgrade Spark.", version
                )
            settings = {**_SETTINGS}
            if python.python != "same":  # With "same", the server's default applies.
                settings["spark.sql.execution.pyspark.python"] = python.interpreter
            configure(spark, settings, conf)
            if packages is not None:
                with tempfile.TemporaryDirectory(prefix="destination-datalake-") as scratch:
                    spark.addArtifacts(f"{packages(Path(scratch))}#{FOLDER}", archive=True)
            # Before the first job, which may wait for executors.
            watch = JobsWatch()
            spark.registerProgressHandler(watch)  # type: ignore[arg-type]  # it takes any callable
            cores = jobs.probe(spark, shipped(partial(answers, encode), python))
        except BaseException:
            close(spark)
            raise
        return cls(spark, watch, max(cores, _max_cores(spark)))

    def parallelism(self) -> int:
        """Return the number of tasks that the server can run concurrently.

        This is the number that the server reported at the start of the session, or the highest number of tasks that
        have run at the same time since then, whichever is higher.
        """
        return max(self._cores, self.watch.most_running)


def configure(spark: SparkSession, defaults: Mapping[str, str], conf: Mapping[str, str]) -> None:
    """Set Spark properties of the session. Properties in `conf`, which the user configured, override `defaults`.

    Raises SparkFailed if the server rejects a property in `conf`, and PySpark's errors in other cases.
    """
    for name, value in {**defaults, **conf}.items():
        try:
            spark.conf.set(name, value)
        except PySparkException as error:
            if name not in conf or error_kind(error) is not ErrorKind.JOB_FAILED:
                raise
            raise SparkFailed(
                f"Cannot set {name} from spark.conf: the running server at spark.remote rejects this property: "
                f"{str(error).splitlines()[0]} Set the property where the server is started, and remove it from "
                "spark.conf.",
                "config_error",
            ) from error


def _max_cores(spark: SparkSession) -> int:
    """Return the maximum number of cores with dynamic allocation, or 0 if the latter is disabled or has no limit."""
    names = ("spark.dynamicAllocation.enabled", "spark.dynamicAllocation.maxExecutors", "spark.executor.cores")
    enabled, executors, cores = (spark.conf.get(name, None) for name in names)
    if enabled != "true" or executors is None or int(executors) > _MAX_EXECUTORS:
        return 0
    return int(executors) * int(cores or 1)


_MAX_EXECUTORS = 10_000
"""The highest configured maximum number of executors that counts as a limit. Spark's default is 2147483647."""


def connect(
    url: str,
    token: str | None = None,
    retry_seconds: float = RETRY_SECONDS,
    response_seconds: float = PATIENCE_SECONDS,
) -> SparkSession:
    """Return a new session for the server at `url`. Sends nothing to the server yet.

    If `token` is given, the session authenticates with this bearer token. The session retries failed calls for
    `retry_seconds`, and waits for a response for at most `response_seconds` (see `limit_responses`). Raises SparkFailed
    if the address is invalid.
    """
    reject_code()
    try:
        builder = DefaultChannelBuilder(url)
    except (PySparkException, ValueError) as error:
        address = url.partition(";")[0]
        message = f"spark.remote: {address} is not a valid address of a Spark Connect server: {error}"
        raise SparkFailed(message, "config_error") from error
    if token is not None:
        builder.set(DefaultChannelBuilder.PARAM_TOKEN, token)
    # Use a new session ID, even if the address contains one, because no client can reopen a session that has ended.
    builder.set(DefaultChannelBuilder.PARAM_SESSION_ID, str(uuid.uuid4()))
    if builder.getDefault(DefaultChannelBuilder.PARAM_GRPC_KEEPALIVE_WITHOUT_CALLS, None) is None:
        # Do not ping between calls, because servers may then close the connection (gRPC's permitKeepAliveWithoutCalls).
        builder.set(DefaultChannelBuilder.PARAM_GRPC_KEEPALIVE_WITHOUT_CALLS, "false")
    session = SparkSession(builder, userId=_USER)
    forget_at_exit(session)
    limit_responses(session, response_seconds)
    session.client.set_retry_policies([_PatientPolicy(retry_seconds)])
    return session


def close(session: SparkSession) -> None:
    """Close the session on its server, which also ends the session's jobs. Ignores errors, and does not retry."""
    session.client.set_retry_policies([])
    with contextlib.suppress(Exception):
        session.interruptAll()
    with contextlib.suppress(Exception):
        session.stop()


def forget_at_exit(session: SparkSession) -> None:
    """Prevent PySpark from calling the server when this process exits.

    PySpark's call would clear a cache of models, which the connector does not use. If the server were unreachable, the
    process would not exit until the retries of this call end.
    """
    atexit.unregister(session.client._on_exit)


def limit_responses(session: SparkSession, seconds: float) -> None:
    """Limit how long a session waits for a server that accepts calls, but does not respond.

    Retries do not help against such a server, and PySpark's own limits are up to an hour. The limit does not apply to
    jobs and to uploads. Before version 4.3, PySpark has no such limits.
    """
    if hasattr(core, "RpcDeadlines"):
        session.client._rpc_deadlines = replace(
            session.client._rpc_deadlines,
            analyze_plan=seconds,
            config=seconds,
            interrupt=seconds,
            release_session=seconds,
            fetch_error_details=seconds,
        )


def reject_code() -> None:
    """Prevent PySpark from running code that is named by or contained in a server's response.

    The connector needs no such code. PySpark would import the module that is named by a user-defined type in a schema.
    It would also unpickle updates of accumulators, which servers send as metrics. Before version 4.3, PySpark unpickles
    all metrics with the same name as such updates.
    """
    UserDefinedType.fromJson = _reject_user_defined_type  # type: ignore[assignment, method-assign]
    core.PlanObservedMetrics = _UnnamedMetrics  # type: ignore[misc]


def _reject_user_defined_type(_: Any) -> NoReturn:
    raise TypeError("the server returned a user-defined type, but no job of the connector uses such types")


class _UnnamedMetrics(core.PlanObservedMetrics):
    """Metrics without a name. PySpark does not unpickle them, because it unpickles only metrics with a certain name."""

    @property
    def name(self) -> str:
        return ""


class _PatientPolicy(DefaultPolicy):
    """Retries failed calls for a limited time, with the exponential backoff of PySpark's policy.

    PySpark's policy limits the number of attempts instead. After the time limit, this policy classifies all errors as
    not retryable, because PySpark raises such errors without a warning.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(max_retries=None, max_backoff=5_000, max_server_retry_delay=10_000)
        self.seconds = seconds
        self.clock = clock

    def can_retry(self, e: BaseException) -> bool:
        return super().can_retry(e) and not _is_handshake_failure(str(e))

    def to_state(self) -> RetryPolicyState:
        return _PatientState(self)


class _PatientState(RetryPolicyState):
    """The state of the retries of one call: measures the time since its first failure."""

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
    """Receives the progress events of all jobs of a session.

    PySpark calls this object on the thread that waits for the job. If tasks have waited for an executor for a minute,
    the call logs a warning. After `patience_seconds`, the call raises NoExecutors.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._clock = clock
        self._patience = patience_seconds
        self._lock = threading.Lock()
        self._jobs: dict[str, JobsProgress] = {}
        self._moved = clock()
        self._warned = False
        self.most_running = 0
        """The highest number of concurrent tasks in the events so far."""

    def __call__(
        self, stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """Process an event from PySpark (see PySpark's `registerProgressHandler`).

        Raises NoExecutors if tasks have waited too long for an executor. This error ends the job of the event.
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
            _logger.warning(
                "Spark tasks have waited for an executor for %.0f s. Check that the cluster can start executors.",
                waited,
            )
        if waited > self._patience:
            raise NoExecutors(f"{total - ended} tasks have waited for {waited:.0f} s")

    def progress(self) -> JobsProgress:
        """Return the numbers of tasks, summed over all running jobs."""
        with self._lock:
            jobs = list(self._jobs.values())
        return JobsProgress(sum(j.running for j in jobs), sum(j.waiting for j in jobs), sum(j.ended for j in jobs))
