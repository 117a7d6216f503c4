"""The backend for Spark Connect. Spark's driver and executors are on other machines.

Jobs are DataFrames (`connect.jobs`), because Spark Connect has no RDDs. This module imports gRPC and PySpark only when
it opens a session.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from destination_datalake.spark.backend import (
    Consume,
    JobFailed,
    JobsProgress,
    Produce,
    Result,
    SparkFailed,
    Task,
    Work,
)
from destination_datalake.spark.executors.python import ExecutorPython, difference, shipped

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

    from destination_datalake.config.options import Config
    from destination_datalake.config.services import SparkOptions
    from destination_datalake.spark.connect.session import RemoteSession

_logger = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

Packages = Callable[[Path], Path]
"""A function that returns the path of the archive of packages for executors. If no archive exists, the function builds
one in the given folder."""

_MAX_LOST_SESSIONS = 3
"""Maximum number of consecutive sessions that may end without a successful job. If one more session ends, the backend
fails."""

_CHECK_SECONDS = 15.0
"""Maximum time, in seconds, that the command `check` retries a call, and waits for a response."""

_CLOSE_SECONDS = 10.0
"""Maximum time, in seconds, that `stop` waits until the server has closed the session. If closing fails, the server
closes the session after a time limit of its own."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a Spark Connect server, `sc://host:port/;name=value`, and a bearer token for authentication.

    https://github.com/apache/spark/blob/master/sql/connect/docs/client-connection-string.md
    """

    url: str
    token: str | None = field(default=None, repr=False)

    @classmethod
    def from_options(cls, options: SparkOptions) -> Self:
        """Return the endpoint in the options `spark.remote` and `spark.token`. `spark.remote` must be set."""
        assert options.remote is not None
        return cls(options.remote, options.token.get_secret_value() if options.token else None)

    @property
    def name(self) -> str:
        """The name of the server in messages: its address without parameters, because a parameter may be a secret."""
        return f"the Spark Connect server {self.url.partition(';')[0].rstrip('/')}"


class ConnectBackend:
    """Runs jobs on a Spark Connect server, in one session at a time.

    If the session ends, the backend opens a new session and repeats the jobs that were running. If more than three
    consecutive sessions end without a successful job, the backend fails.
    """

    is_local = False

    def __init__(
        self, server: Endpoint, python: ExecutorPython, conf: Mapping[str, str], packages: Packages | None = None
    ) -> None:
        """Prepare the backend without connecting. `conf` contains the Spark properties from the option `spark.conf`.

        `packages` returns the archive of packages for executors. None means that executors have the packages installed.
        """
        self._server = server
        self._python = python
        self._conf = conf
        self._packages = packages
        self.application_id: str | None = None  # Spark Connect's protocol does not provide the ID.
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._opened: SparkSession | None = None
        self._session: RemoteSession | None = None
        self._latest: RemoteSession | None = None
        self._lost = 0
        self._failure: SparkFailed | None = None

    def start(self) -> None:
        """Open a session, and run a first job that verifies the executors. Raises SparkFailed."""
        self._run_job(lambda _: None)

    def ended(self) -> SparkFailed | None:
        """Return the reason why the server can run no more jobs, or None. Only a failed job reveals such a reason."""
        return self._failure

    def parallelism(self) -> int:
        """Return the number of tasks that the server can run concurrently (see `RemoteSession.parallelism`).

        If the session has ended, uses the number from this session, because the caller must not wait for a new session.
        A new session would use the same Spark anyway. Raises SparkFailed.
        """
        if self._failure is not None:
            raise self._failure
        if (session := self._latest) is None:
            raise _stopped()
        return session.parallelism()

    def run(self, work: Work[Task, Result], tasks: Sequence[Task]) -> list[Result]:
        """Run one Spark task per item of `tasks`. Return all results, in the order of the tasks.

        If the session ends during the job, runs the job again in a new session. Raises JobFailed or SparkFailed.
        """
        from destination_datalake.spark.connect import jobs, values

        answering, packed = shipped(partial(values.answers, work), self._python), jobs.packed(tasks)
        kind = values.result_type(work)
        results: list[Result] = []
        for part in jobs.jobs_of(packed):
            results += self._run_job(lambda session, part=part: jobs.run(session, answering, part, kind))  # type: ignore[misc]
        return results

    def exchange(
        self, produce: Produce[Task], tasks: Sequence[Task], consume: Consume[Result], partitions: int
    ) -> list[Result]:
        """Run a job of two stages with a shuffle between them (see `Backend.exchange`)."""
        from destination_datalake.spark.connect import jobs, values

        producing = shipped(produce, self._python)
        consuming = shipped(partial(values.consume_partitions, consume), self._python)
        packed, kind = jobs.packed(tasks), values.result_type(consume)
        return self._run_job(lambda session: jobs.exchange(session, producing, packed, consuming, partitions, kind))

    def progress(self) -> JobsProgress:
        """Return the progress of the running jobs, which Spark reports every 2 seconds."""
        session = self._latest
        return JobsProgress() if session is None else session.watch.progress()

    def stop(self, *, orderly: bool) -> None:
        """Close the session on the server, which also ends the session's jobs.

        If `orderly` is set, waits for at most 10 seconds until the session is closed.
        """
        self._stopping.set()
        # On a separate thread, because the server may respond later than this process can wait.
        seconds = _CLOSE_SECONDS if orderly else 0.0
        closing = threading.Thread(target=self._close, name="spark-close", daemon=True)
        closing.start()
        closing.join(seconds)

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            from destination_datalake.spark.connect.session import close

            close(opened)

    def _run_job(self, job: Callable[[SparkSession], _Answer]) -> _Answer:
        """Run a job. If the session ends, run the job again in a new session. Raises JobFailed or SparkFailed."""
        while True:
            session: RemoteSession | None = None
            try:
                session = self._current()
                answer = job(session.spark)
            except Exception as error:
                self._recover(session, error)
            else:
                self._lost = 0
                return answer

    def _current(self) -> RemoteSession:
        """Return the current session. If there is none, open one. Raises SparkFailed or PySpark's errors."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._session is None:
                self._session = self._latest = self._open()
            return self._session

    def _recover(self, session: RemoteSession | None, error: Exception) -> None:
        """Return normally if the caller can retry the job in a new session. Otherwise, raise JobFailed or SparkFailed.

        `error` is the job's error or, if `session` is None, an error from opening a session.
        """
        from destination_datalake.spark.connect.session import ErrorKind, close, error_kind, spark_failure

        if self._stopping.is_set():
            raise _stopped() from error
        with self._lock:
            if session is not None and session is not self._session:
                return  # Another job has already replaced the session, whose end may have caused this error.
            if isinstance(error, SparkFailed):
                self._failure = error
                raise error
            kind, differs = error_kind(error), difference(str(error), self._python)
            if session is not None and kind is ErrorKind.JOB_FAILED and differs is None:
                raise JobFailed(str(error)) from error
            # This sync cannot use the server any more: all later jobs raise the same failure.
            if kind is not ErrorKind.SESSION_LOST or self._lost == _MAX_LOST_SESSIONS:
                failed = spark_failure(kind, error, self._server.name)
                self._failure = failed if differs is None else SparkFailed(differs, "config_error")
                raise self._failure from error
            self._lost += 1
            self._session = None
            _logger.warning("The session on %s ended. Opening a new session.", self._server.name)
        if session is not None:
            # The server may still have the session, for example if only an operation was lost. Other jobs need the
            # lock, so they would have to wait for the server.
            close(session.spark)

    def _open(self) -> RemoteSession:
        """Open a session, and verify that its executors can run the connector. Return the session.

        Raises SparkFailed or PySpark's errors.
        """
        # gRPC's C++ code prints to standard error when a connection ends. gRPC raises all relevant errors anyway.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from destination_datalake.spark.connect.session import RemoteSession, close, connect

        if self._stopping.is_set():
            raise _stopped()  # `stop` would not close a session that is opened after this point.
        # Set the attribute before the session is ready, so that a concurrent `stop` can close the session.
        self._opened = spark = connect(self._server.url, self._server.token)
        session = RemoteSession.open(spark, self._python, self._conf, self._packages)
        if self._stopping.is_set():
            close(spark)
            raise _stopped()
        return session


def _stopped() -> SparkFailed:
    return SparkFailed("Spark was stopped.")


def connect_backend(config: Config) -> ConnectBackend:
    """Return a backend for the Spark Connect server in the option `spark.remote`.

    Does not connect to the server yet.
    """
    from destination_datalake.spark.executors.archive import archive

    python = ExecutorPython(config.spark.python)
    return ConnectBackend(
        Endpoint.from_options(config.spark), python, config.spark.conf, archive if python.is_packed else None
    )


def server_version(config: Config) -> str:
    """Return the Spark version of the Spark Connect server in the option `spark.remote`.

    Raises SparkFailed if the server does not respond, or rejects the connection.
    """
    from destination_datalake.spark.connect.session import close, connect, error_kind, spark_failure

    server = Endpoint.from_options(config.spark)
    try:
        session = connect(server.url, server.token, _CHECK_SECONDS, _CHECK_SECONDS)
        version = str(session.version)
        # Not after an error, because a server that does not respond would not respond to this call either.
        close(session)
        return version
    except Exception as error:
        raise spark_failure(error_kind(error), error, server.name) from error
