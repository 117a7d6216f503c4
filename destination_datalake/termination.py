"""SIGTERM ends a sync in order: what was read is committed and its states are released, then the exit code is 143."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable

EXIT_TERMINATED = 143
EXIT_PIPE_CLOSED = 141
"""128 and the numbers of SIGTERM and SIGPIPE, as shells have it."""


class Termination:
    """A request to end, which SIGTERM makes. A process has one of these at most, as signals are the process's."""

    def __init__(self) -> None:
        """Handle SIGTERM from now on. Must be called on the main thread."""
        self.descriptor, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._callbacks: list[Callable[[], None]] = []
        self._previous_handler = signal.signal(signal.SIGTERM, lambda _signal, _frame: self.request())

    @property
    def requested(self) -> bool:
        """Whether the request was made. `descriptor` is readable from then on."""
        return bool(select.select([self.descriptor], [], [], 0)[0])

    def request(self) -> None:
        """Request the end, as SIGTERM does. Safe in a signal handler."""
        for callback in self._callbacks:
            callback()
        try:
            os.write(self._writer, b"!")
        except BlockingIOError:
            return  # The pipe is full of earlier requests.

    def on_request(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the end is requested, or now if it was: in a signal handler, so no locks and no I/O."""
        self._callbacks.append(callback)
        if self.requested:
            callback()

    def close(self) -> None:
        """Restore the previous handler of SIGTERM."""
        signal.signal(signal.SIGTERM, self._previous_handler)
        os.close(self.descriptor)
        os.close(self._writer)
