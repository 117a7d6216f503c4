"""A pool of daemon threads. The pool starts all threads when it is created."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

_POLL_SECONDS = 0.2


class ThreadPool:
    """Runs submitted calls in order, on up to `max_threads` daemon threads.

    Differs from `concurrent.futures.ThreadPoolExecutor` in two ways. The constructor starts all threads, so no call
    fails if the machine runs out of threads later. The process can exit while threads of the pool still wait for AWS.
    """

    def __init__(self, max_threads: int, name: str) -> None:
        """Start `max_threads` threads, or fewer if the system allows fewer. Raises RuntimeError if none starts."""
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._closed = False
        self._threads: list[threading.Thread] = []
        for number in range(max_threads):
            thread = threading.Thread(target=self._run, name=f"{name}_{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                if not self._threads:
                    raise
                break
            self._threads.append(thread)

    @property
    def size(self) -> int:
        """The number of threads that were started."""
        return len(self._threads)

    def submit(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Future[_R]:
        """Queue a call. Return a future with the call's result or exception."""
        future: Future[_R] = Future()
        self._queue.put(lambda: _complete(future, call, args, kwargs))
        return future

    def close(self, must_stop: Callable[[], bool]) -> None:
        """Discard queued calls. Wait until the running calls have ended, or until `must_stop` returns True."""
        self._closed = True
        # Wake the threads that wait for a call.
        for _ in self._threads:
            self._queue.put(lambda: None)
        while any(thread.is_alive() for thread in self._threads) and not must_stop():
            for thread in self._threads:
                thread.join(_POLL_SECONDS / len(self._threads))

    def _run(self) -> None:
        while not self._closed:
            call = self._queue.get()
            if not self._closed:
                call()


def _complete(future: Future[_R], call: Callable[..., _R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        future.set_result(call(*args, **kwargs))
    except BaseException as error:
        # Catch everything: an error must neither end a thread of the pool nor leave a waiting caller without a result.
        future.set_exception(error)
