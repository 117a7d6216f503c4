"""The Spark engine: starts Spark in the background, runs jobs, and stops Spark.

When the engine has stopped, none of Spark's processes remain on this machine.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, assert_never, cast

from destination_datalake.aws.access import Usage, metered
from destination_datalake.spark.backend import (
    Backend,
    Consume,
    JobFailed,
    JobsProgress,
    Produce,
    Result,
    SparkFailed,
    Task,
    Work,
    end_failure,
    worker_failure,
)

if TYPE_CHECKING:
    from botocore.credentials import Credentials

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.config.services import ExecutorCredentials
    from destination_datalake.files.plan import EncodeTask, RewriteTask, Rewritten, UnitResult
    from destination_datalake.spark.classic.settings import ClassicSettings

_logger = logging.getLogger(__name__)

_STOP_SECONDS = 20
"""Maximum time, in seconds, that `stop` waits for a start of Spark that is still in progress."""


class Engine:
    """Starts Spark in the background, and runs jobs on it. Methods that need Spark wait until Spark has started."""

    def __init__(self, backend: Backend, executor_access: ExecutorAccess | None = None) -> None:
        self._backend = backend
        self._executor_access = executor_access
        self._started: Future[None] = Future()
        self._starting = threading.Thread(target=self._start, name="spark-start", daemon=True)
        self._stopped = threading.Event()
        self._used: list[Usage] = []

    @classmethod
    def start(cls, backend: Backend, executor_access: ExecutorAccess | None = None) -> Engine:
        """Start Spark in the background. Return the engine immediately.

        Each task contains the AWS access that executors use for it. If `executor_access` is given, the engine replaces
        the access in all tasks by `executor_access`.
        """
        engine = cls(backend, executor_access)
        engine._starting.start()
        return engine

    @property
    def local(self) -> bool:
        """Whether executors share the disk of this machine."""
        return self._backend.is_local

    def is_starting(self) -> bool:
        """Return whether the start of Spark has neither succeeded nor failed yet."""
        return not self._started.done()

    @property
    def error(self) -> SparkFailed | None:
        """The reason why Spark can run no more jobs: the start failed, or Spark has ended. None if Spark can run jobs.

        Also None while Spark is starting, and after the call of `stop`.
        """
        if not self._started.done() or self._stopped.is_set():
            return None
        if (error := self._started.exception()) is not None:
            return error if isinstance(error, SparkFailed) else end_failure(None)
        return self._backend.ended()

    def parallelism(self) -> int:
        """Return the number of tasks that Spark can run concurrently. Waits until Spark has started.

        Raises SparkFailed.
        """
        self._started.result()
        return self._backend.parallelism()

    def progress(self) -> JobsProgress:
        """Return the progress of the running jobs. All counts are 0 if Spark is still starting, or cannot run jobs."""
        return JobsProgress() if self.is_starting() or self.error is not None else self._backend.progress()

    def run(self, work: Work[Task, Result], tasks: Sequence[Task]) -> list[Result]:
        """Run `work` on the tasks as one Spark job, and return the results (see `Backend.run`).

        Waits until Spark has started.
        """
        self._started.result()
        return self._without_usage(self._backend.run(partial(metered, work), self._with_access(tasks)))

    def exchange(
        self, produce: Produce[Task], tasks: Sequence[Task], consume: Consume[Result], partitions: int
    ) -> list[Result]:
        """Run a job with a shuffle, and return the results (see `Backend.exchange`). Waits until Spark has started."""
        self._started.result()
        results = self._backend.exchange(produce, self._with_access(tasks), partial(metered, consume), partitions)
        return self._without_usage(results)

    @property
    def application_id(self) -> str | None:
        """The ID of Spark's application. None if the ID is unknown, or if Spark has not started."""
        return None if self.is_starting() else self._backend.application_id

    def usage(self) -> Usage:
        """Return the total of the resources that the completed tasks on executors have used.

        Each task reports the resources that it has used together with its results.
        """
        return Usage.total(self._used)

    def _without_usage(self, results: Sequence[Result | Usage]) -> list[Result]:
        self._used += [result for result in results if isinstance(result, Usage)]
        return [result for result in results if not isinstance(result, Usage)]

    def _with_access(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return the tasks with the executors' access to AWS in place of the driver's."""
        return tasks if self._executor_access is None else self._executor_access.apply(tasks)

    def encode(self, tasks: Sequence[EncodeTask]) -> list[UnitResult]:
        """Encode the units of the tasks in one Spark job. Return one result per unit.

        A unit is one task's part of a batch. If a unit fails, the job continues. The job fails only if a Python worker
        dies in every attempt at a task. In this case, the engine runs each unit again in a separate job. If a unit's
        job fails too, the result of the unit is a NotEncoded. Raises SparkFailed if Spark can run no more jobs.
        """
        from destination_datalake.files.encode import encode
        from destination_datalake.files.plan import EncodeTask

        try:
            return self.run(encode, tasks)
        except JobFailed as error:
            units = [(unit, task.access) for task in tasks for unit in task.units]
            if len(units) == 1:
                return [worker_failure(units[0][0].stream, error)]
        _logger.warning("A Spark job failed. Retrying each of its %d units in a separate job.", len(units))
        tasks_of_units = [[EncodeTask((unit,), access)] for unit, access in units]
        with ThreadPoolExecutor(self.parallelism(), "unit") as jobs:
            return [*chain.from_iterable(jobs.map(self.encode, tasks_of_units))]

    def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
        """Copy files with wider column types in one Spark job, and publish the copies. Return the rewritten files.

        Raises RewriteFailed if the job cannot rewrite a file; no copy is then visible. Also raises SparkFailed and
        errors of the S3 client.
        """
        from destination_datalake.files.rewrite import publish_rewritten, rewrite

        return publish_rewritten(self.run(rewrite, tasks), tasks[0].access) if tasks else []

    def stop(self, *, orderly: bool = False) -> None:
        """Stop Spark. Wait until Spark's processes on this machine have ended.

        Unless `orderly` is set, kills a local Spark, which has no state to save. An orderly stop would take a second.
        Always gives time to shut down to a Spark whose executors are on other machines.
        """
        orderly = orderly or not self.local
        deadline = time.monotonic() + _STOP_SECONDS
        if orderly:
            with contextlib.suppress(Exception):
                self._started.result(_STOP_SECONDS)
        self._stopped.set()
        self._backend.stop(orderly=orderly)
        while self._starting.is_alive() and time.monotonic() < deadline:
            # A start in progress may begin more steps. Stop the backend repeatedly until the start has ended.
            self._starting.join(0.05)
            self._backend.stop(orderly=False)

    def _start(self) -> None:
        try:
            self._backend.start()
            self._started.set_result(None)
        except BaseException as error:
            self._started.set_exception(error)


class ExecutorAccess:
    """Sets the AWS access in tasks, which executors use. Thread-safe.

    With the option value `role`, executors use the credentials from their own environment. With `session`, executors
    use short-lived credentials, which the driver obtains for the connector's identity.
    """

    def __init__(self, credentials: ExecutorCredentials, access: AwsAccess) -> None:
        """Store the arguments, but request no credentials yet. `access` is the connector's own AWS access."""
        self._kind = credentials
        self._access = access
        self._lock = threading.Lock()
        self._delegated: Credentials | None = None

    def current(self) -> AwsAccess:
        """Return the AWS access for the tasks of the next job.

        With `session`, the credentials stay valid for at least 15 minutes or a third of their duration, whichever is
        shorter. Also with `session`, raises the errors of STS, and botocore's NoCredentialsError.
        """
        from destination_datalake.aws.access import AccessKeys, Environment

        match self._kind:
            case "role":
                return replace(self._access, identity=Environment())
            case "session":
                with self._lock:
                    if self._delegated is None:
                        self._delegated = self._access.delegable_credentials()
                    return replace(self._access, identity=AccessKeys.from_credentials(self._delegated))
        assert_never(self._kind)

    def apply(self, tasks: Sequence[Task]) -> list[Any]:
        """Return copies of the tasks with `current()` as their AWS access. Raises the same errors as `current`."""
        access = self.current()
        return [replace(cast("Any", task), access=access) if hasattr(task, "access") else task for task in tasks]


def start_engine(config: Config) -> Engine:
    """Start the configured Spark in the background: local, on a cluster, or by Spark Connect. Return the engine.

    Raises SparkFailed if Java cannot be run, and OSError if no folder for temporary files can be used.
    """
    executor_access = None
    if not config.spark.is_local:
        from destination_datalake.config.options import aws_access

        executor_access = ExecutorAccess(config.spark.executor_credentials, aws_access(config))
    if config.spark.is_connect:
        from destination_datalake.spark.connect.backend import connect_backend

        return Engine.start(connect_backend(config), executor_access)
    from destination_datalake.spark.classic.settings import ClassicSettings

    return Engine.start(_classic_backend(ClassicSettings.from_config(config)), executor_access)


def start_local_engine() -> Engine:
    """Start a local Spark with default options in the background. Return the engine. Imports no slow modules.

    Raises SparkFailed if Java cannot be run, and OSError if no folder for temporary files can be used.
    """
    from destination_datalake.spark.classic.settings import ClassicSettings

    return Engine.start(_classic_backend(ClassicSettings("local[*]", {})))


def _classic_backend(settings: ClassicSettings) -> Backend:
    from destination_datalake.spark.classic.backend import ClassicBackend

    backend = ClassicBackend(settings)
    backend.launch()
    return backend
