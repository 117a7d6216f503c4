"""Threads that work off a queue: all there from the beginning, or fewer, but never one that is missed later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

_LOOK_SECONDS = 0.2


class Workers:
    """Runs what is submitted, in order, on up to `most` threads.

    `concurrent.futures` starts threads when they are needed first: a machine that has no more of them then fails the
    work that asked for one. It also waits, whatever happens, for threads that wait for AWS.
    """

    def __init__(self, most: int, name: str) -> None:
        """Start the threads. Raises RuntimeError if the system has not even one."""
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._closed = False
        self._threads: list[threading.Thread] = []
        for number in range(most):
            thread = threading.Thread(target=self._work, name=f"{name}_{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                if not self._threads:
                    raise
                break
            self._threads.append(thread)

    @property
    def count(self) -> int:
        """How many threads there are."""
        return len(self._threads)

    def submit(self, work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Future[_R]:
        """Have `work` run; return its result to come, or what it raises."""
        future: Future[_R] = Future()
        self._queue.put(lambda: _run(future, work, args, kwargs))
        return future

    def close(self, given_up: Callable[[], bool]) -> None:
        """Begin nothing more; wait for what has begun until it has ended, or is `given_up`."""
        self._closed = True
        for _ in self._threads:
            self._queue.put(lambda: None)
        while any(thread.is_alive() for thread in self._threads) and not given_up():
            for thread in self._threads:
                thread.join(_LOOK_SECONDS / len(self._threads))

    def _work(self) -> None:
        while not self._closed:
            work = self._queue.get()
            if not self._closed:
                work()


def _run(future: Future[_R], work: Callable[..., _R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        future.set_result(work(*args, **kwargs))
    except BaseException as error:
        future.set_exception(error)
