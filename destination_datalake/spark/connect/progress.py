"""What Spark says of the jobs that run, and how long none of their tasks has found an executor."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from destination_datalake.spark.backend import JobsProgress

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import StageInfo

_logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 300.0
"""How long tasks may wait with none at work: a cluster adds machines in this time, or does not have them."""

_WARNING_SECONDS = 60.0


class NoExecutors(Exception):
    """Tasks have waited too long, and no executor has taken one."""


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
