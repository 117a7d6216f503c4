"""The backlog: all that waits on this machine's disk, records and states, and when it is too much."""

from __future__ import annotations

import time
from pathlib import Path

from destination_datalake.buffer.batches import Batch, Batcher
from destination_datalake.buffer.buffer import Buffer, MiB
from destination_datalake.buffer.disk import DiskReserve
from destination_datalake.buffer.state_store import StateStore
from destination_datalake.buffer.triggers import AgeTrigger, BackpressureLimit, DiskLimit, HeldStatesLimit, SizeTrigger

SEGMENT_BYTES = 16 * MiB
"""Small enough that a batch divides evenly among the cores, large enough that opening it costs nothing."""

READ_AHEAD_BATCHES = 4
"""Whole batches that wait or are being landed: while Spark starts reading goes on, and each job finds the next one."""

MAX_HELD_STATES = 200_000
"""States that wait for their records, and streams that they wait for: more take memory, so reading waits instead."""

RESERVED_BYTES = 4 * MiB
"""Of the disk, for Spark's own small files: what is buffered can land although the disk is full."""


class Backlog:
    """Records by stream in `buffer`, the lines of states in `states`, and the rules for both. Its owner locks."""

    def __init__(self, directory: Path, batch_bytes: int, buffer_bytes: int, flush_seconds: float) -> None:
        """Take some of the disk. Raises DiskFailed."""
        self.buffer = Buffer(directory, min(SEGMENT_BYTES, batch_bytes), buffer_bytes, time.monotonic)
        self.states = StateStore(directory)
        self._reserve = DiskReserve(directory, RESERVED_BYTES)
        self._disk_limit = DiskLimit(buffer_bytes)
        self._states_limit = HeldStatesLimit(MAX_HELD_STATES)
        self._backpressure = BackpressureLimit(batch_bytes, READ_AHEAD_BATCHES)
        self._batcher = Batcher(SizeTrigger(batch_bytes), AgeTrigger(flush_seconds))

    def is_full(self, states: int, needs: int) -> bool:
        """Whether everything must land before more is read; so many states are held, and wait for so many streams."""
        return self._disk_limit.reached(
            self.buffer.occupied_bytes + self.states.disk_bytes
        ) or self._states_limit.reached(states, needs)

    def is_ahead_of_spark(self, landing: int) -> bool:
        """Whether Spark has enough to do, with `landing` jobs running."""
        return self._backpressure.reached(self.buffer.waiting_sizes(), landing)

    def next_batches(self, *, everything: bool) -> list[Batch]:
        """The batches that are due, or something of all that waits. Raises SealFailed."""
        return self._batcher.next_batches(self.buffer, time.monotonic(), everything=everything)

    def seconds_until_due(self) -> float | None:
        """Seconds until something is due by its age alone; None while nothing waits."""
        return self._batcher.seconds_until_due(self.buffer, time.monotonic())

    def free_space(self) -> None:
        """Give back what nothing needs now: the disk is full, and what is on it has yet to land."""
        self.buffer.delete_spare_files()
        self._reserve.release()
