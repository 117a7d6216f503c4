"""Orderly termination after SIGTERM: a sync commits the received records, releases their states, and exits with 143."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable

EXIT_TERMINATED = 143
EXIT_PIPE_CLOSED = 141
"""The exit codes after SIGTERM and SIGPIPE: 128 plus the number of the signal, as in shells."""


class Termination:
    """The handler of SIGTERM. A process has at most one, because signal handlers are global."""

    def __init__(self) -> None:
        """Install the handler of SIGTERM. Must be called on the main thread."""
        self.descriptor, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._callbacks: list[Callable[[], None]] = []
        self._previous_handler = signal.signal(signal.SIGTERM, lambda _signal, _frame: self.request())

    @property
    def requested(self) -> bool:
        """Whether termination was requested. The pipe `descriptor` becomes readable at the request."""
        return bool(select.select([self.descriptor], [], [], 0)[0])

    def request(self) -> None:
        """Request termination, as SIGTERM does. May be called from a signal handler."""
        for callback in self._callbacks:
            callback()
        try:
            os.write(self._writer, b"!")
        except BlockingIOError:
            return  # The pipe is full of earlier requests.

    def on_request(self, callback: Callable[[], None]) -> None:
        """Call `callback` when termination is requested, or now if it was already requested.

        The callback may run in a signal handler, so it must not use locks or I/O.
        """
        self._callbacks.append(callback)
        if self.requested:
            callback()

    def close(self) -> None:
        """Restore the previous handler of SIGTERM."""
        signal.signal(signal.SIGTERM, self._previous_handler)
        os.close(self.descriptor)
        os.close(self._writer)
