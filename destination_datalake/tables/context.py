"""What the tables of one sync share: access to AWS, the catalog, and jobs on Spark's executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from destination_datalake.tables.journal import Journal

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.catalog import TableCatalog

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class Executors(Protocol):
    """Runs jobs on Spark. Waits for Spark's start; raises ConnectorError if a job, or Spark, has failed."""

    def run(self, work: Callable[[Iterable[_Task]], Iterable[_Result]], tasks: Sequence[_Task]) -> list[_Result]:
        """Run a job of one Spark task for each of `tasks`; return all results, in the order of the tasks."""

    def exchange(
        self,
        produce: Callable[[Iterable[_Task]], Iterable[tuple[int, bytes]]],
        tasks: Sequence[_Task],
        consume: Callable[[int, Iterator[bytes]], Iterable[_Result]],
        partitions: int,
    ) -> list[_Result]:
        """Run a job of two stages: what `produce` makes of each task is shuffled, and consumed by partition."""

    def parallelism(self) -> int:
        """Return the number of tasks that run at the same time."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Executors, and what returns a folder for what one job writes for the next: `Staging.scratch`."""

    executors: Executors
    scratch: Callable[[], str]


@dataclass(frozen=True, slots=True)
class TableContext:
    """What the tables of one sync share. `sync` is a name that no other sync has. It `archives` records or does not."""

    sync: str
    access: AwsAccess
    catalog: TableCatalog
    jobs: Jobs
    journal: Journal = field(default_factory=Journal)
    archives: bool = False
