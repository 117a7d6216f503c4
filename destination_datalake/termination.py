"""Handle SIGTERM. After SIGTERM, a sync commits the received records, emits their states, and exits with code 143."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable

EXIT_TERMINATED = 143
EXIT_PIPE_CLOSED = 141
"""Exit codes after SIGTERM (143) and SIGPIPE (141): 128 plus the number of the signal, as in shells."""


class Termination:
    """Handles SIGTERM for this process. The pipe `descriptor` becomes readable when termination is requested.

    Create at most one instance at a time, because a process has only one handler per signal.
    """

    def __init__(self) -> None:
        """Install the SIGTERM handler. Must run on the main thread."""
        self.descriptor, self._writer = os.pipe()
        # A signal handler must not block if the pipe is full.
        os.set_blocking(self._writer, False)
        self._callbacks: list[Callable[[], None]] = []
        self._previous_handler = signal.signal(signal.SIGTERM, lambda _signal, _frame: self.request())

    @property
    def requested(self) -> bool:
        """Whether termination was requested, by SIGTERM or by `request`."""
        # Nobody reads from the pipe, so it stays readable. `select` would not support descriptors from 1024.
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def request(self) -> None:
        """Request termination, as SIGTERM does: run the callbacks. Safe to call from a signal handler."""
        for callback in self._callbacks:
            callback()
        try:
            os.write(self._writer, b"!")
        except BlockingIOError:
            return  # The pipe is full of earlier requests.

    def on_request(self, callback: Callable[[], None]) -> None:
        """Call `callback` when termination is requested. If termination was already requested, call `callback` now.

        The callback may run in a signal handler, so it must not use locks or I/O.
        """
        # Append first: if the signal arrives between both steps, the callback runs twice instead of never.
        self._callbacks.append(callback)
        if self.requested:
            callback()

    def close(self) -> None:
        """Restore the previous SIGTERM handler, and close the pipe."""
        signal.signal(signal.SIGTERM, self._previous_handler)
        os.close(self.descriptor)
        os.close(self._writer)
