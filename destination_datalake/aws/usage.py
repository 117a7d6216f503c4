"""What a process uses: its requests to AWS by operation, CPU time, and memory; on executors as on the driver."""

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
    """What was used. `calls` counts requests, repeated ones too, by service and operation, such as `s3.PutObject`.

    `peak_bytes` is the most resident memory of one process.
    """

    calls: Mapping[str, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    peak_bytes: int = 0

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """Return the sum, and of the peaks the highest."""
        calls: Counter[str] = Counter()
        seconds, peak = 0.0, 0
        for part in parts:
            calls.update(part.calls)
            seconds += part.cpu_seconds
            peak = max(peak, part.peak_bytes)
        return cls(dict(calls), seconds, peak)


_lock = threading.Lock()
_calls: Counter[str] = Counter()
_cpu_taken = 0.0


def _forget_after_fork() -> None:
    """Begin anew in a forked child; a thread of its parent may have held the lock."""
    global _lock, _cpu_taken
    _lock = threading.Lock()
    _cpu_taken = 0.0
    _calls.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


def count_calls(session: Session) -> None:
    """Count the requests of all clients of a session, each time that one is sent."""

    def count(*, event_name: str = "", **_: object) -> None:
        with _lock:
            _calls[event_name.removeprefix("before-send.")] += 1

    session.register("before-send", count)


def take_usage() -> Usage:
    """Return what this process has used since it was asked last, or since it began."""
    global _cpu_taken
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    with _lock:
        calls = dict(_calls)
        _calls.clear()
        now = time.process_time()
        taken, _cpu_taken = now - _cpu_taken, now
    return Usage(calls, taken, peak)


def metered(work: Callable[..., Iterable[_Result]], *given: Any) -> Iterator[_Result | Usage]:
    """Run the work, on an executor; yield its results, and at last what its process has used since the last time."""
    yield from work(*given)
    yield take_usage()
