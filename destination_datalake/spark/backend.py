"""The interface of Spark backends: the engine submits jobs, and a backend runs them and returns their results.

The connector imports this module before it launches Java. To launch Java early, this module imports few other modules.
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
"""A function that executors run on tasks. Executors find the function by its name, so the function must be defined at
the top level of a module. Backends pickle tasks. Classic Spark also pickles results, but Spark Connect does not (see
`connect.values`)."""

Produce = Callable[[Iterable[Task]], Iterable[tuple[int, bytes]]]
"""The function of a shuffle's first stage. The function yields pairs of a partition number and a payload. A payload
contains about a megabyte of rows, as bytes that Spark does not interpret."""

Consume = Callable[[int, Iterator[bytes]], Iterable[Result]]
"""The function of a shuffle's second stage. The arguments of the function are the number of a partition and the
payloads of this partition, in no particular order."""


@dataclass(frozen=True, slots=True)
class JobsProgress:
    """The numbers of running, waiting and completed tasks in the jobs that Spark is running."""

    running: int = 0
    waiting: int = 0
    ended: int = 0


class Backend(Protocol):
    """The interface of a backend, which starts Spark or connects to a server, and runs jobs.

    The engine calls `start` on a background thread. After `start` has returned, any thread may call the other methods.
    """

    application_id: str | None
    """The ID of Spark's application. Available after `start`; None if the ID is unknown."""

    @property
    def is_local(self) -> bool:
        """Whether executors share the disk of this machine. Available before `start`."""

    def start(self) -> None:
        """Start Spark, and wait until Spark can run jobs.

        Raises SparkFailed if the start fails, or if another thread calls `stop` during the start.
        """

    def ended(self) -> SparkFailed | None:
        """Return the reason why Spark can run no more jobs, or None if it can run jobs."""

    def parallelism(self) -> int:
        """Return the number of tasks that Spark can run concurrently, as far as the backend can determine this number.

        Raises SparkFailed.
        """

    def run(self, work: Work[Task, Result], tasks: Sequence[Task]) -> list[Result]:
        """Run a job with one Spark task per item of `tasks`. Return all results, in the order of the tasks.

        Spark may run a task several times, even concurrently. If the job fails, raises JobFailed if Spark can run other
        jobs, and SparkFailed if it cannot.
        """

    def exchange(
        self, produce: Produce[Task], tasks: Sequence[Task], consume: Consume[Result], partitions: int
    ) -> list[Result]:
        """Run a job with a shuffle. Return the results of the second stage.

        The first stage calls `produce` for each task. The second stage calls `consume` with the payloads of each
        partition that is not empty. Partitions are numbered from 0 to `partitions` - 1. Raises the same errors as
        `run`.
        """

    def progress(self) -> JobsProgress:
        """Return the progress of the running jobs. Never raises an error."""

    def stop(self, *, orderly: bool) -> None:
        """Stop Spark, or close the session on the Spark Connect server, and delete temporary files.

        If `orderly` is set, gives Spark time to shut down. The engine may call this method during `start`, and
        repeatedly.
        """


def consumed(consume: Consume[Result], rows: Iterable[tuple[int, bytes]]) -> Iterable[Result]:
    """Return the results of `consume` for one partition of a shuffle. Runs on an executor.

    Each row contains the number of the partition and a payload. Returns no results if the partition is empty.
    """
    remaining = iter(rows)
    first = next(remaining, None)
    if first is None:
        return ()
    return consume(first[0], (payload for _, payload in chain((first,), remaining)))


class SparkFailed(ConnectorError):
    """Raised if Spark did not start, or has ended. The message contains the remedy for the user.

    The cause of the exception (`__cause__`) contains the details.
    """

    def __init__(self, message: str, type: FailureType = "transient_error") -> None:
        super().__init__(Failure(message, message, type))


class JobFailed(SparkFailed):
    """Raised if a job failed, but Spark can run other jobs."""

    def __init__(self, detail: str) -> None:
        """Create the error of a failed job. `detail` is Spark's error message, which includes stack traces."""
        self.detail = detail
        super().__init__(
            "Spark could not run a job. If the machine ran out of memory, add memory or lower batch_size_mb. Run the "
            "sync again. It continues from the last state."
        )


def worker_failure(stream: StreamId, error: JobFailed) -> NotEncoded:
    """Return the result of a unit (one task's part of a batch) whose Python worker died in every attempt.

    `error` is the failure of the job that encoded the unit. The message for the user states whether the worker crashed.
    """
    from destination_datalake.files.plan import NotEncoded

    detail = error.detail
    crash = _CRASH.search(detail)
    if crash is not None:
        message = (
            f"Stream {stream} could not be written: the process that encodes its records crashed ({crash[1]}) in each "
            "attempt. This crash is a bug in the connector or in one of its libraries. Report it with the log. Other "
            "streams continue."
        )
        return NotEncoded(Failure(message, detail, "system_error"), stream)
    message = (
        f"Stream {stream} could not be written: the process that encodes its records was killed or could not start in "
        "each attempt. If the machine or container ran out of memory, add memory or lower batch_size_mb. Other streams "
        "continue. The next sync of this stream continues from its last state."
    )
    return NotEncoded(Failure(message, detail, "transient_error"), stream)


_CRASH = re.compile(r"Fatal Python error: ([A-Za-z ]+)")


_MAX_REASON_LENGTH = 300


def first_reason(lines: Iterable[str], default: str) -> str:
    """Return the first of the lines that is not blank, or `default` if all are blank. At most 300 characters."""
    line = next((line.strip() for line in lines if line.strip()), default)
    return line.rstrip(".")[:_MAX_REASON_LENGTH]


def end_failure(exit_code: int | None) -> SparkFailed:
    """Return the failure for the user if Spark has ended during the sync.

    `exit_code` is the exit code of Spark's JVM. It is negative if a signal ended the JVM, and None if the JVM is still
    running or its exit code is unknown.
    """
    subject = "Spark" if exit_code is None else "Spark's Java process"
    code = "" if exit_code is None else f" (signal {-exit_code})" if exit_code < 0 else f" (exit code {exit_code})"
    return SparkFailed(
        f"{subject} ended{code} during the sync. If the machine ran out of memory, add memory or lower batch_size_mb. "
        "Run the sync again. It continues from the last state."
    )
