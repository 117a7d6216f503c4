"""Releasing: states that have become true are written to stdout, in order, on a thread that may wait for its reader."""

from __future__ import annotations

import threading
from collections.abc import Callable

from destination_datalake.buffer.disk import DiskFailed
from destination_datalake.errors import Failure
from destination_datalake.protocol.ledger import StateLedger
from destination_datalake.protocol.states import with_statistics
from destination_datalake.protocol.stdout import Stdout, StdoutClosedError
from destination_datalake.sync.failures import no_states


class Releasing:
    """The one writer of states. A state leaves the ledger when it is written, and not before.

    `lock` guards the ledger; stdout is written without it, as its reader may take any time. `on_idle` is called with
    the lock held when nothing is due any more, `on_failure` when states cannot be written: from then on none is.
    """

    def __init__(
        self,
        ledger: StateLedger,
        lock: threading.RLock,
        out: Stdout,
        on_idle: Callable[[], None],
        on_failure: Callable[[Failure], None],
    ) -> None:
        self._ledger = ledger
        self._news = threading.Condition(lock)
        self._out = out
        self._on_idle = on_idle
        self._on_failure = on_failure
        self._closed = False
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="states", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Have the writer look, if there is something for it. The lock must be held."""
        if self._ledger.due() is not None:
            self._news.notify()

    def idle(self) -> bool:
        """Whether every state that is true has been written, or none will be any more. The lock must be held."""
        return self._failed or self._ledger.due() is None

    def close(self) -> None:
        """End the thread; do not wait for that."""
        with self._news:
            self._closed = True
            self._news.notify()

    def _run(self) -> None:
        try:
            self._write_all()
        except Exception as error:
            with self._news:
                self._failed = True
            self._on_failure(_failure(error))

    def _write_all(self) -> None:
        while True:
            with self._news:
                while (state := self._ledger.due()) is None:
                    if self._closed:
                        return
                    self._news.wait()
            self._out.write_line(with_statistics(state.line.read(), state.written, state.rejected))
            with self._news:
                self._ledger.release()
                if self._ledger.due() is None:
                    self._on_idle()


def _failure(error: Exception) -> Failure:
    match error:
        case StdoutClosedError():
            return no_states("The platform closed the connector's output, or does not read it", error)
        case OSError():
            return no_states(f"The connector's output cannot be written ({error.strerror})", error)
        case DiskFailed():
            return no_states(f"A state could not be read back ({error})", error)
        case _:
            return no_states(f"A state could not be written (an unexpected {type(error).__name__})", error)
