"""Spark as the connector uses it: started in the background, given tasks, stopped without leaving anything behind."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
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
    from destination_datalake.files.plan import EncodeTask, EncodeUnit, RewriteTask, Rewritten, UnitResult
    from destination_datalake.spark.classic.settings import ClassicSettings

_logger = logging.getLogger(__name__)

_STOP_SECONDS = 20
"""How long a start in progress may take to end: that of a cluster before it is stopped regardless."""


class Engine:
    """A Spark that may still be starting; what needs it waits for it."""

    def __init__(self, backend: Backend, executor_access: ExecutorAccess | None = None) -> None:
        self._backend = backend
        self._executor_access = executor_access
        self._started: Future[None] = Future()
        self._starting = threading.Thread(target=self._start, name="spark-start", daemon=True)
        self._stopped = threading.Event()
        self._used: list[Usage] = []

    @classmethod
    def start(cls, backend: Backend, executor_access: ExecutorAccess | None = None) -> Engine:
        """Start Spark in the background, and return at once.

        Tasks go to executors with the access to AWS that they have, unless executors have another.
        """
        engine = cls(backend, executor_access)
        engine._starting.start()
        return engine

    @property
    def local(self) -> bool:
        """Whether executors share this machine's disk."""
        return self._backend.is_local

    def is_starting(self) -> bool:
        """Return whether Spark has neither started nor failed to."""
        return not self._started.done()

    @property
    def error(self) -> SparkFailed | None:
        """Why no job can be run any more: Spark has not started, or has ended. None as long as one may be."""
        if not self._started.done() or self._stopped.is_set():
            return None
        if (error := self._started.exception()) is not None:
            return error if isinstance(error, SparkFailed) else end_failure(None)
        return self._backend.ended()

    def parallelism(self) -> int:
        """Return how many tasks run at once. Waits for Spark's start. Raises SparkFailed."""
        self._started.result()
        return self._backend.parallelism()

    def progress(self) -> JobsProgress:
        """Return how far the running jobs are; nothing runs before Spark has started."""
        return JobsProgress() if self.is_starting() or self.error is not None else self._backend.progress()

    def run(self, work: Work[Task, Result], tasks: Sequence[Task]) -> list[Result]:
        """Run the tasks on the executors, as one Spark job: see `Backend.run`. Waits for Spark's start."""
        self._started.result()
        return self._without_usage(self._backend.run(partial(metered, work), self._given(tasks)))

    def exchange(
        self, produce: Produce[Task], tasks: Sequence[Task], consume: Consume[Result], partitions: int
    ) -> list[Result]:
        """Run a job with a shuffle: see `Backend.exchange`. Waits for Spark's start."""
        self._started.result()
        results = self._backend.exchange(produce, self._given(tasks), partial(metered, consume), partitions)
        return self._without_usage(results)

    @property
    def application_id(self) -> str | None:
        """The id of Spark's application; None if it has not started, or tells none."""
        return None if self.is_starting() else self._backend.application_id

    def usage(self) -> Usage:
        """Return what executors have used in the jobs so far, as far as their results have told."""
        return Usage.total(self._used)

    def _without_usage(self, results: Sequence[Result | Usage]) -> list[Result]:
        self._used += [result for result in results if isinstance(result, Usage)]
        return [result for result in results if not isinstance(result, Usage)]

    def _given(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return the tasks with the access to AWS that executors have."""
        return tasks if self._executor_access is None else self._executor_access.given(tasks)

    def encode(self, tasks: Sequence[EncodeTask]) -> list[UnitResult]:
        """Run the tasks on the executors, as one Spark job. Raises SparkFailed if Spark cannot run any.

        A unit that fails does not fail the job. If the job fails, a worker has died in every attempt at one of its
        tasks: then each unit becomes a job of its own, and only units whose jobs fail are returned as not encoded.
        """
        from destination_datalake.files.encode import encode
        from destination_datalake.files.plan import EncodeTask

        try:
            return self.run(encode, tasks)
        except JobFailed as error:
            units = [(unit, task.access) for task in tasks for unit in task.units]
            if len(units) == 1:
                return [worker_failure(units[0][0].stream, error)]
        _logger.warning("A Spark job failed; its %d units are tried one by one.", len(units))

        def encode_alone(unit: EncodeUnit, access: AwsAccess) -> list[UnitResult]:
            try:
                return self.run(encode, [EncodeTask((unit,), access)])
            except JobFailed as error:
                return [worker_failure(unit.stream, error)]

        with ThreadPoolExecutor(self.parallelism(), "unit") as jobs:
            results = [jobs.submit(encode_alone, unit, access) for unit, access in units]
        return [result for each in results for result in each.result()]

    def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
        """Rewrite files on the executors, as one Spark job.

        Raises RewriteFailed if a file cannot be rewritten; then no target exists. Raises SparkFailed, and what S3's
        client raises.
        """
        from destination_datalake.files.rewrite import published, rewrite

        return published(self.run(rewrite, tasks), tasks[0].access) if tasks else []

    def stop(self, *, orderly: bool = False) -> None:
        """End Spark and wait until its processes on this machine have ended.

        A local Spark holds nothing worth an orderly end, which takes a second: it is killed unless `orderly`.
        """
        orderly = orderly or not self.local
        deadline = time.monotonic() + _STOP_SECONDS
        if orderly:
            with contextlib.suppress(Exception):
                self._started.result(_STOP_SECONDS)
        self._stopped.set()
        self._backend.stop(orderly=orderly)
        while self._starting.is_alive() and time.monotonic() < deadline:
            # A start in progress ends when it finds what it waits for gone, or may yet begin another step.
            self._starting.join(0.05)
            self._backend.stop(orderly=False)

    def _start(self) -> None:
        try:
            self._backend.start()
            self._started.set_result(None)
        except BaseException as error:
            self._started.set_exception(error)


class ExecutorAccess:
    """Gives tasks the access to AWS that executors are to have.

    `role` is what executors find in their own environment; `session` are short-lived credentials of the connector's
    identity. Can be used by several threads.
    """

    def __init__(self, credentials: ExecutorCredentials, access: AwsAccess) -> None:
        """`access` is the connector's."""
        self._kind = credentials
        self._access = access
        self._lock = threading.Lock()
        self._lent: Credentials | None = None

    def current(self) -> AwsAccess:
        """Return the access that executors are to have now.

        A session has a quarter of an hour left, or a third of its time if that is less: enough for a job. Raises for
        `session` what STS raises, or NoCredentialsError (botocore).
        """
        from destination_datalake.aws.access import AccessKeys, Environment

        match self._kind:
            case "role":
                return replace(self._access, identity=Environment())
            case "session":
                with self._lock:
                    if self._lent is None:
                        self._lent = self._access.delegable_credentials()
                    return replace(self._access, identity=AccessKeys.of(self._lent))
        assert_never(self._kind)

    def given(self, tasks: Sequence[Task]) -> list[Any]:
        """Return the tasks with `current` as their access. Raises as `current` does."""
        access = self.current()
        return [replace(cast("Any", task), access=access) if hasattr(task, "access") else task for task in tasks]


def start_engine(config: Config) -> Engine:
    """Start the Spark that the options ask for, in the background. Raises OSError without a temporary folder."""
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
    """Start the Spark of a configuration that has no options of it. Nothing is imported that takes long.

    Raises OSError without a temporary folder.
    """
    from destination_datalake.spark.classic.settings import ClassicSettings

    return Engine.start(_classic_backend(ClassicSettings("local[*]", {})))


def _classic_backend(settings: ClassicSettings) -> Backend:
    from destination_datalake.spark.classic.backend import ClassicBackend

    backend = ClassicBackend(settings)
    backend.launch()
    return backend
