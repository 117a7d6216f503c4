"""The interface between the engine and a Spark, whichever way that is reached: jobs go in, results come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from destination_datalake.spark.failure import SparkFailed

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
