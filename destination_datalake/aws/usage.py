"""Resource usage of a process, on driver and executors: requests to AWS by operation, CPU time and memory."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from botocore.session import Session

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource usage. `calls` counts requests, including retries, by service and operation, such as `s3.PutObject`.

    `peak_bytes` is the peak resident memory of one process.
    """

    calls: Mapping[str, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    peak_bytes: int = 0

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """Return the sum of the parts, with the maximum of the peaks."""
        calls: Counter[str] = Counter()
        seconds, peak = 0.0, 0
        for part in parts:
            calls.update(part.calls)
            seconds += part.cpu_seconds
            peak = max(peak, part.peak_bytes)
        return cls(dict(calls), seconds, peak)


_lock = threading.Lock()
_calls: Counter[str] = Counter()
_reported_cpu_seconds = 0.0


def _forget_after_fork() -> None:
    """Reset the state in a forked child. A thread of its parent may have held the lock."""
    global _lock, _reported_cpu_seconds
    _lock = threading.Lock()
    _reported_cpu_seconds = 0.0
    _calls.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


def count_calls(session: Session) -> None:
    """Count each sent request of all clients of a session."""

    def count(*, event_name: str = "", **_: object) -> None:
        with _lock:
            _calls[event_name.removeprefix("before-send.")] += 1

    session.register("before-send", count)


def take_usage() -> Usage:
    """Return the usage of this process since the last call, or since its start."""
    global _reported_cpu_seconds
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    with _lock:
        calls = dict(_calls)
        _calls.clear()
        now = time.process_time()
        elapsed, _reported_cpu_seconds = now - _reported_cpu_seconds, now
    return Usage(calls, elapsed, peak)


def metered(work: Callable[..., Iterable[_Result]], *arguments: Any) -> Iterator[_Result | Usage]:
    """Run the work on an executor. Yield its results, and finally the usage of its process since the last report."""
    yield from work(*arguments)
    yield take_usage()
