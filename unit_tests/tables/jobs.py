"""Jobs that run in this process, as Spark runs them on executors: tasks and results are pickled on their way."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from destination_datalake.tables.context import Jobs

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

Watch = Callable[[str, Sequence[Any], list[Any]], object]
"""Is called after each job, with its name if it has one, its tasks and their results."""


class InProcess:
    """Runs each task alone, one after the other."""

    def __init__(self, watch: Watch = lambda *_: None) -> None:
        self._watch = watch

    def run(self, work: Callable[[Iterable[_Task]], Iterable[_Result]], tasks: Sequence[_Task]) -> list[_Result]:
        results = [_sent(result) for task in tasks for result in _sent(work)([_sent(task)])]
        self._watch(_name(work), tasks, results)
        return results

    def exchange(
        self,
        produce: Callable[[Iterable[_Task]], Iterable[tuple[int, bytes]]],
        tasks: Sequence[_Task],
        consume: Callable[[int, Iterator[bytes]], Iterable[_Result]],
        partitions: int,
    ) -> list[_Result]:
        payloads: dict[int, list[bytes]] = {}
        for task in tasks:
            for partition, payload in produce([_sent(task)]):
                assert 0 <= partition < partitions
                payloads.setdefault(partition, []).append(payload)
        results = [
            _sent(result)
            for partition, received in payloads.items()
            for result in consume(partition, iter(received[::-1]))
        ]
        self._watch(produce.__name__, tasks, results)
        return results

    def parallelism(self) -> int:
        return 2


def in_process(folder: Path | None = None) -> Jobs:
    """Return jobs that keep what they write for one another in a folder, or in a new one."""
    return Jobs(InProcess(), (folder or Path(tempfile.mkdtemp(prefix="scratch-"))).as_uri)


def _name(work: Any) -> str:
    """Return the name of a function, or of what a partial of `with_ids` runs."""
    return getattr(work.args[0] if isinstance(work, partial) else work, "__name__", "")


def _sent(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))
