"""SIGTERM is noted, not obeyed at once, so that what was read is committed and its states go out (exit code 143)."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable


class Termination:
    """Notes SIGTERM from its making on. Signals belong to the whole process, so there is one of these at most."""

    def __init__(self) -> None:
        """Begin."""
        self.descriptor, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._told: list[Callable[[], None]] = []
        self._before = signal.signal(signal.SIGTERM, self._note)

    @property
    def requested(self) -> bool:
        """Whether SIGTERM has arrived. `descriptor` is readable from then on."""
        return bool(select.select([self.descriptor], [], [], 0)[0])

    def tell(self, told: Callable[[], None]) -> None:
        """Call `told` when SIGTERM arrives, or now if it has: in a signal's handler, so it may only set a value."""
        self._told.append(told)
        if self.requested:
            told()

    def close(self) -> None:
        """Give SIGTERM its former meaning back."""
        signal.signal(signal.SIGTERM, self._before)
        os.close(self.descriptor)
        os.close(self._writer)

    def _note(self, _signal: int, _frame: object) -> None:
        for told in self._told:
            told()
        try:
            os.write(self._writer, b"!")
        except BlockingIOError:
            return  # So many have arrived that the pipe is full: one is enough.
