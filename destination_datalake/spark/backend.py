"""The interface of Spark backends: the engine submits jobs, and a backend runs them and returns their results.

This module is imported before Java is launched. To launch Java early, it imports little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Protocol, TypeVar

from destination_datalake.errors import ConnectorError, Failure, FailureType

if TYPE_CHECKING:
    from destination_datalake.files.plan import NotEncoded
    from destination_datalake.protocol.catalog import StreamId

Task = TypeVar("Task")
Result = TypeVar("Result")

Work = Callable[[Iterable[Task]], Iterable[Result]]
"""A function that executors run on tasks. Executors find it by its name, so it must be defined at the top level of a
module. Tasks and results are pickled."""

Produce = Callable[[Iterable[Task]], Iterable[tuple[int, bytes]]]
"""Yields pairs of a partition number and a payload. A payload is opaque bytes, about a megabyte of rows."""

Consume = Callable[[int, Iterator[bytes]], Iterable[Result]]
"""Receives the number of a partition and its payloads, in no particular order."""


@dataclass(frozen=True, slots=True)
class JobsProgress:
    """The numbers of running, waiting and completed tasks in Spark's current jobs."""

    running: int = 0
    waiting: int = 0
    ended: int = 0


class Backend(Protocol):
    """The interface of a Spark that runs jobs.

    The engine calls `start` and `stop` on threads of its own. After `start`, all other methods may be called on any
    thread.
    """

    application_id: str | None
    """The ID of Spark's application, available after `start`; None if unknown."""

    @property
    def is_local(self) -> bool:
        """Whether executors share this machine's disk. Available before `start`."""

    def start(self) -> None:
        """Start Spark. Return when jobs can run.

        Raises SparkFailed if the start fails, or if `stop` is called during the start.
        """

    def ended(self) -> SparkFailed | None:
        """Return the reason why no more jobs can run, or None if jobs can run."""

    def parallelism(self) -> int:
        """Return the number of tasks that Spark is known to run concurrently. Raises SparkFailed."""

    def run(self, work: Work[Task, Result], tasks: Sequence[Task]) -> list[Result]:
        """Run a job with one Spark task per item of `tasks`. Return all results, in the order of the tasks.

        Spark may run a task several times, even concurrently. Raises JobFailed if other jobs may still succeed,
        otherwise SparkFailed.
        """

    def exchange(
        self, produce: Produce[Task], tasks: Sequence[Task], consume: Consume[Result], partitions: int
    ) -> list[Result]:
        """Run a job of two stages: `produce` the payloads of each task, shuffle them, and `consume` each partition.

        Partitions are numbered from 0 to `partitions` - 1. Empty partitions are not consumed. Raises the same errors as
        `run`.
        """

    def progress(self) -> JobsProgress:
        """Return the progress of the running jobs. Never raises."""

    def stop(self, *, orderly: bool) -> None:
        """Stop Spark, or close the session on its server, and clean up.

        May be called during `start`, and repeatedly.
        """


def consumed(consume: Consume[Result], rows: Iterable[tuple[int, bytes]]) -> Iterable[Result]:
    """Consume the rows of one partition of a shuffle. Each row is the number of the partition and a payload."""
    remaining = iter(rows)
    first = next(remaining, None)
    if first is None:
        return ()
    return consume(first[0], (payload for _, payload in chain((first,), remaining)))


class SparkFailed(ConnectorError):
    """Raised if Spark did not start, or has ended.

    The message tells the user the remedy. The cause of the exception contains the details.
    """

    def __init__(self, message: str, type: FailureType = "transient_error") -> None:
        super().__init__(Failure(message, message, type))


class JobFailed(SparkFailed):
    """Raised if a job failed, but Spark can run other jobs."""

    def __init__(self, detail: str) -> None:
        """Create the failure of a job. `detail` is Spark's error message, with stack traces."""
        self.detail = detail
        super().__init__(
            "Spark could not run a job. If the machine ran out of memory, give it more, or lower batch_size_mb; "
            "the sync can be run again and continues from its last state."
        )


def worker_failure(stream: StreamId, error: JobFailed) -> NotEncoded:
    """Return the result of a unit whose worker died in every attempt. `error` is the failure of the unit's job."""
    from destination_datalake.files.plan import NotEncoded

    detail = error.detail
    crash = _CRASH.search(detail)
    if crash is not None:
        message = (
            f"Stream {stream} could not be written: the process that encodes its records crashed ({crash[1]}) in each "
            "attempt. This is a defect of the connector or of a library in it; please report it. Other streams "
            "continue without this one."
        )
        return NotEncoded(Failure(message, detail, "system_error"), stream)
    message = (
        f"Stream {stream} could not be written: the process that encodes its records was killed, or could not run, in "
        "each attempt. If the machine or container ran out of memory, give it more, or lower batch_size_mb. Other "
        "streams continue without this one; the next sync continues from its last state."
    )
    return NotEncoded(Failure(message, detail, "transient_error"), stream)


_CRASH = re.compile(r"Fatal Python error: ([A-Za-z ]+)")


def end_failure(exit_code: int | None) -> SparkFailed:
    """Return the failure of a Spark that has ended.

    `exit_code` is the exit code of its JVM, negative for a signal, or None if the JVM is still running.
    """
    subject = "Spark" if exit_code is None else "Spark's Java process"
    code = "" if exit_code is None else f" (signal {-exit_code})" if exit_code < 0 else f" (exit code {exit_code})"
    return SparkFailed(
        f"{subject} has ended{code} in the middle of the sync. If the machine ran out of memory, give it "
        "more, or lower batch_size_mb; the sync can be run again and continues from its last state."
    )
