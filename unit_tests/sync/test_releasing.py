"""Releasing: how states are written, and what is reported if one cannot be."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from destination_datalake.buffer.backlog import Backlog
from destination_datalake.buffer.batching import FixedBatches
from destination_datalake.buffer.buffer import Buffer
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.protocol.states import State
from destination_datalake.protocol.stdout import Stdout
from destination_datalake.sync.in_flight import InFlight
from destination_datalake.sync.outcome import SyncOutcome
from destination_datalake.sync.releasing import Releasing
from destination_datalake.termination import Termination
from unit_tests.sync.fakes.messages import failures, parsed, state

A = StreamId(None, "a")


class Sync:
    """Two states that are due, and what becomes of a sync that has nothing else to do."""

    def __init__(self, directory: Path) -> None:
        self._termination = Termination()
        self._outcome = SyncOutcome([A])
        backlog = Backlog(Buffer(directory, 1000, 1000, time.monotonic), FixedBatches(1000), 1.0)
        self._in_flight = InFlight([A], backlog, self._outcome, self._termination)
        for number in (1, 2):
            self._in_flight.add_state(State(state(number, "a"), A))

    def release_to(self, stdout: int) -> None:
        """Release the states; return when there is nothing more to release."""
        self._in_flight.end_input()
        self._in_flight.finish()
        Releasing(self._in_flight, Stdout(stdout)).start()
        self._in_flight.wait_until_finished(0.0)

    def reported(self) -> str:
        """Return the message of the failure of the whole sync."""
        reader, writer = os.pipe()
        self._outcome.write_traces(Stdout(writer))
        os.close(writer)
        with os.fdopen(reader, "rb") as traces:
            return failures(parsed(traces.read()))[None][1]

    def close(self) -> None:
        self._termination.close()


@pytest.fixture
def sync(tmp_path: Path) -> Iterator[Sync]:
    sync = Sync(tmp_path)
    yield sync
    sync.close()


def test_states_are_written_in_order_with_statistics(sync: Sync, tmp_path: Path) -> None:
    with (tmp_path / "stdout").open("wb") as stdout:
        sync.release_to(stdout.fileno())

    lines = (tmp_path / "stdout").read_bytes().splitlines()
    assert lines == [
        state(number, "a").removesuffix(b"}}") + b',"destinationStats":{"recordCount":0.0}}}' for number in (1, 2)
    ]


def test_a_closed_stdout_is_reported(sync: Sync) -> None:
    reader, writer = os.pipe()
    os.close(reader)

    sync.release_to(writer)

    os.close(writer)
    assert "The platform closed the connector's output" in sync.reported()


def test_a_full_disk_under_stdout_is_reported(sync: Sync) -> None:
    full = os.open("/dev/full", os.O_WRONLY)

    sync.release_to(full)

    os.close(full)
    assert os.strerror(errno.ENOSPC) in sync.reported()
