"""Releasing: states whose records are committed are written to stdout, in order, on a thread of their own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from destination_datalake.buffer.disk import DiskFailed
from destination_datalake.errors import Failure
from destination_datalake.protocol.states import with_statistics
from destination_datalake.protocol.stdout import Stdout, StdoutClosedError
from destination_datalake.sync.failures import states_not_written

if TYPE_CHECKING:
    from destination_datalake.sync.in_flight import InFlight


class Releasing:
    """The only writer of states. A state is released once it is written, and not before.

    Its thread may wait for the reader of stdout for any time without keeping records from landing. It ends with the
    sync, or when a state cannot be written: then no further one is.
    """

    def __init__(self, in_flight: InFlight, out: Stdout) -> None:
        self._in_flight = in_flight
        self._out = out
        self._thread = threading.Thread(target=self._run, name="states", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _run(self) -> None:
        try:
            while (state := self._in_flight.next_state()) is not None:
                self._out.write_line(with_statistics(state.line.read(), state.written, state.rejected))
                self._in_flight.release_state()
        except Exception as error:
            self._in_flight.fail_states(_failure(error))


def _failure(error: Exception) -> Failure:
    match error:
        case StdoutClosedError():
            return states_not_written("The platform closed the connector's output, or does not read it", error)
        case OSError():
            return states_not_written(f"The connector's output cannot be written ({error.strerror})", error)
        case DiskFailed():
            return states_not_written(f"A state could not be read back ({error})", error)
        case _:
            return states_not_written(f"A state could not be written (an unexpected {type(error).__name__})", error)
