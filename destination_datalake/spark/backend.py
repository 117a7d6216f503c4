"""The interface between the engine and a Spark, whichever way that is reached: jobs go in, results come out.

Imports little, as all does that is imported before Java is launched.
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
"""What executors do with tasks: a function of a module, found there by its name. Tasks and results are pickled."""

Produce = Callable[[Iterable[Task]], Iterable[tuple[int, bytes]]]
"""Yields pairs of a partition's number and a payload: rows in any form, about a megabyte of them."""

Consume = Callable[[int, Iterator[bytes]], Iterable[Result]]
"""Takes a partition's number and its payloads, in no particular order."""


@dataclass(frozen=True, slots=True)
class JobsProgress:
    """The tasks of the jobs that Spark has now: those at work, those that wait for an executor, those that ended."""

    running: int = 0
    waiting: int = 0
    ended: int = 0


class Backend(Protocol):
    """A Spark that takes jobs.

    `start` and `stop` are called by the engine, on threads of its own; after `start` every other method may be called
    on any thread.
    """

    application_id: str | None
    """The id of Spark's application, after `start`; None if Spark tells none."""

    @property
    def is_local(self) -> bool:
        """Whether executors share this machine's disk. May be asked before `start`."""

    def start(self) -> None:
        """Return once jobs can run. Raises SparkFailed if they never will, or `stop` was called meanwhile."""

    def ended(self) -> SparkFailed | None:
        """Return why no job can run any more; None as long as one may."""

    def parallelism(self) -> int:
        """Return how many tasks can run at once, as far as that is known now. Raises SparkFailed."""

    def run(self, work: Work[Task, Result], tasks: Sequence[Task]) -> list[Result]:
        """Run a job of one Spark task for each of `tasks`; return all results, in the order of the tasks.

        Spark may run a task more than once, also at the same time. Raises JobFailed if another job may yet succeed,
        otherwise SparkFailed.
        """

    def exchange(
        self, produce: Produce[Task], tasks: Sequence[Task], consume: Consume[Result], partitions: int
    ) -> list[Result]:
        """Run a job of two stages: what `produce` makes of each task is shuffled, and consumed partition by partition.

        Partitions are numbered from 0 to `partitions` - 1; one without payloads is not consumed. Raises as `run`.
        """

    def progress(self) -> JobsProgress:
        """Return how far the running jobs are. Never raises."""

    def stop(self, *, orderly: bool) -> None:
        """End this Spark, or our use of it, and leave nothing behind. May be called during `start`, and again."""


def consumed(consume: Consume[Result], rows: Iterable[tuple[int, bytes]]) -> Iterable[Result]:
    """Consume the rows of one partition of a shuffle, all of which have the partition's number."""
    remaining = iter(rows)
    first = next(remaining, None)
    if first is None:
        return ()
    return consume(first[0], (payload for _, payload in chain((first,), remaining)))


class SparkFailed(ConnectorError):
    """Spark did not start, or has ended. The message says what the user can do; the cause has the details."""

    def __init__(self, message: str, type: FailureType = "transient_error") -> None:
        super().__init__(Failure(message, message, type))


class JobFailed(SparkFailed):
    """Spark has given up a job, and is able to run others."""

    def __init__(self, detail: str) -> None:
        """`detail` is what Spark says of it, with stack traces."""
        self.detail = detail
        super().__init__(
            "Spark could not run a job. If the machine ran out of memory give it more, or lower batch_size_mb; "
            "the sync can be run again and continues from its last state."
        )


def worker_failure(stream: StreamId, error: JobFailed) -> NotEncoded:
    """Return the result of a unit whose worker died in every attempt; `error` is what its job failed of."""
    from destination_datalake.files.plan import NotEncoded

    detail = error.detail
    crash = _CRASH.search(detail)
    if crash is not None:
        message = (
            f"Stream {stream} could not be written: the process that encodes its records crashed ({crash[1]}), each "
            "time it was tried. This is a defect of the connector or of a library in it; please report it. Other "
            "streams continue without this one."
        )
        return NotEncoded(Failure(message, detail, "system_error"), stream)
    message = (
        f"Stream {stream} could not be written: the process that encodes its records was ended from outside, or could "
        "not run, each time it was tried. If the machine or container ran out of memory give it more, or lower "
        "batch_size_mb. Other streams continue without this one; the next sync continues from its last state."
    )
    return NotEncoded(Failure(message, detail, "transient_error"), stream)


_CRASH = re.compile(r"Fatal Python error: ([A-Za-z ]+)")


def end_failure(exit_code: int | None) -> SparkFailed:
    """Return that Spark has ended. `exit_code` is the JVM's, negative for a signal; None if the JVM has not ended."""
    what = "Spark" if exit_code is None else "Spark's Java process"
    how = "" if exit_code is None else f" (signal {-exit_code})" if exit_code < 0 else f" (exit code {exit_code})"
    return SparkFailed(
        f"{what} has ended{how} in the middle of the sync. If the machine ran out of memory give it "
        "more, or lower batch_size_mb; the sync can be run again and continues from its last state."
    )
