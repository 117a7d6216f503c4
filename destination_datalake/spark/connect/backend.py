"""A Spark that is reached by Spark Connect: its driver and executors are elsewhere.

Jobs are DataFrames (`connect.jobs`): a Spark Connect client has no RDDs. Nothing of gRPC's or PySpark's is imported
before a session is opened.
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
"""Returns the archive of packages that executors are sent; builds it in a folder if it is nowhere yet."""

_SESSIONS = 3
"""How many sessions in a row may end before one of their jobs has ended well."""

_CHECK_SECONDS = 15.0
"""How long `check` waits for a server."""

_CLOSE_SECONDS = 10.0
"""How long the server may take to end a session before it is left to the server's own time limit."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's address, `sc://host:port/;name=value`, and the bearer token that it asks for.

    https://github.com/apache/spark/blob/master/sql/connect/docs/client-connection-string.md
    """

    url: str
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, options: SparkOptions) -> Self:
        """Return the server at `spark.remote`."""
        if options.remote is None:
            raise AssertionError("no Spark Connect server is configured")
        return cls(options.remote, options.token.get_secret_value() if options.token else None)

    @property
    def name(self) -> str:
        """What messages call the server: its address without parameters, which may hold secrets."""
        return f"the Spark Connect server {self.url.partition(';')[0].rstrip('/')}"


class ConnectBackend:
    """A Spark behind a Spark Connect server, in a session of ours, which is replaced when it has ended."""

    is_local = False

    def __init__(
        self, server: Endpoint, python: ExecutorPython, conf: Mapping[str, str], packages: Packages | None = None
    ) -> None:
        """Connect to nothing yet. `conf` has Spark's properties, as the options do; `packages` may be sent."""
        self._server = server
        self._python = python
        self._conf = conf
        self._packages = packages
        self.application_id: str | None = None  # The server's protocol tells none.
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._opened: SparkSession | None = None
        self._session: RemoteSession | None = None
        self._latest: RemoteSession | None = None
        self._lost = 0
        self._failure: SparkFailed | None = None

    def start(self) -> None:
        """Open a session, and wait until executors have run the connector. Raises SparkFailed."""
        self._do(lambda _: None)

    def ended(self) -> SparkFailed | None:
        """Return why the server cannot be used any more, if a job has found that."""
        return self._failure

    def parallelism(self) -> int:
        """Return how many tasks the server's Spark runs at once, by what it said at the start or has been seen to.

        Does not wait: the next session is of the same Spark, and the caller may hold a lock that others need.
        """
        if self._failure is not None:
            raise self._failure
        if (session := self._latest) is None:
            raise _stopped()
        return session.parallelism()

    def run(self, work: Work[Task, Result], tasks: Sequence[Task]) -> list[Result]:
        """Run a Spark task for each of `tasks`; in another session again if this one ends meanwhile."""
        from destination_datalake.spark.connect import jobs, values

        answering, packed = shipped(partial(values.answers, work), self._python), jobs.packed(tasks)
        kind = values.result_type(work)
        results: list[Result] = []
        for part in jobs.jobs_of(packed):
            results += self._do(lambda session, part=part: jobs.run(session, answering, part, kind))  # type: ignore[misc]
        return results

    def exchange(
        self, produce: Produce[Task], tasks: Sequence[Task], consume: Consume[Result], partitions: int
    ) -> list[Result]:
        """Run a job of two stages with a shuffle between them."""
        from destination_datalake.spark.connect import jobs, values

        producing = shipped(produce, self._python)
        consuming = shipped(partial(values.consume_partitions, consume), self._python)
        packed, kind = jobs.packed(tasks), values.result_type(consume)
        return self._do(lambda session: jobs.exchange(session, producing, packed, consuming, partitions, kind))

    def progress(self) -> JobsProgress:
        """Return what Spark last said of the jobs; it says so every 2 s."""
        session = self._latest
        return JobsProgress() if session is None else session.watch.progress()

    def stop(self, *, orderly: bool) -> None:
        """End the session, and with it its jobs."""
        self._stopping.set()
        seconds = _CLOSE_SECONDS if orderly else 0.0
        closing = threading.Thread(target=self._close, name="spark-close", daemon=True)
        closing.start()
        closing.join(seconds)

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            from destination_datalake.spark.connect.session import close

            close(opened)

    def _do(self, job: Callable[[SparkSession], _Answer]) -> _Answer:
        """Run the job, in another session if this one ends. Raises JobFailed or SparkFailed."""
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
        """Return the session; open one if there is none. Raises SparkFailed or what PySpark raises."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._session is None:
                self._session = self._latest = self._open()
            return self._session

    def _recover(self, session: RemoteSession | None, error: Exception) -> None:
        """Return if a job can be tried again, in another session; otherwise raise JobFailed or SparkFailed.

        `error` is what the job has raised, or, without a session, what opening one has.
        """
        from destination_datalake.spark.connect.failure import Meaning, meaning, unusable

        if self._stopping.is_set():
            raise _stopped() from error
        with self._lock:
            if session is not None and session is not self._session:
                return  # Another job has lost the session, and closed it: that is all that the error may mean.
            if isinstance(error, SparkFailed):
                self._failure = error
                raise error
            why, differs = meaning(error), difference(str(error), self._python)
            if session is not None and why is Meaning.JOB_FAILED and differs is None:
                raise JobFailed(str(error)) from error
            if why is not Meaning.SESSION_LOST or self._lost == _SESSIONS:
                failed = unusable(why, error, self._server.name)
                self._failure = failed if differs is None else SparkFailed(differs, "config_error")
                raise self._failure from error
            self._lost += 1
            self._session = None
            _logger.warning("The session on %s has ended; another is opened.", self._server.name)
            if session is not None:
                session.close()

    def _open(self) -> RemoteSession:
        """Return a session in which executors have run the connector. Raises SparkFailed or what PySpark raises."""
        # gRPC's C++ prints to standard error whenever a connection ends; what matters is raised.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from destination_datalake.spark.connect.session import RemoteSession, connect

        if self._stopping.is_set():
            raise _stopped()  # A session opened now would never be closed.
        # Known while it is opened: `stop` may come meanwhile.
        self._opened = spark = connect(self._server.url, self._server.token)
        session = RemoteSession.open(spark, self._python, self._conf, self._packages)
        if self._stopping.is_set():
            session.close()
            raise _stopped()
        return session


def _stopped() -> SparkFailed:
    return SparkFailed("Spark was stopped.")


def connect_backend(config: Config) -> ConnectBackend:
    """Return the Spark that `spark.remote` means."""
    from destination_datalake.spark.executors.archive import archive

    python = ExecutorPython(config.spark.python)
    return ConnectBackend(Endpoint.of(config.spark), python, config.spark.conf, archive if python.is_packed else None)


def server_version(config: Config) -> str:
    """Return the version of the Spark at `spark.remote`, or raise SparkFailed: no server answers, or it refuses."""
    from destination_datalake.spark.connect.failure import meaning, unusable
    from destination_datalake.spark.connect.session import close, connect

    server = Endpoint.of(config.spark)
    try:
        session = connect(server.url, server.token, _CHECK_SECONDS)
        try:
            return str(session.version)
        finally:
            close(session)
    except Exception as error:
        raise unusable(meaning(error), error, server.name) from error
