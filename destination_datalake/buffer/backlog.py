"""The backlog: all that waits on this machine's disk, records and states, and when it is too much."""

from __future__ import annotations

import time
from pathlib import Path

from destination_datalake.buffer.batches import Batch, Batcher
from destination_datalake.buffer.buffer import Buffer, MiB
from destination_datalake.buffer.disk import Reserve
from destination_datalake.buffer.held import HeldLines
from destination_datalake.buffer.triggers import AgeTrigger, BackpressureLimit, HeldTrigger, SizeTrigger, SpaceTrigger

SEGMENT_BYTES = 16 * MiB
"""Small enough that a batch divides evenly among the cores, large enough that opening it costs nothing."""

BATCHES_IN_HAND = 4
"""Whole batches that wait or are being landed: while Spark starts reading goes on, and each job finds the next one."""

HELD_STATES = 200_000
"""States that wait for their records, and streams that they wait for: more take memory, so reading waits instead."""

RESERVED_BYTES = 4 * MiB
"""Of the disk, for Spark's own small files: what is buffered can land although the disk is full."""


class Backlog:
    """Records by stream in `buffer`, the lines of states in `states`, and the rules for both. Its owner locks."""

    def __init__(self, directory: Path, batch_bytes: int, buffer_bytes: int, flush_seconds: float) -> None:
        """Take some of the disk. Raises DiskFailed."""
        self.buffer = Buffer(directory, min(SEGMENT_BYTES, batch_bytes), buffer_bytes, time.monotonic)
        self.states = HeldLines(directory)
        self._reserve = Reserve(directory, RESERVED_BYTES)
        self._space = SpaceTrigger(buffer_bytes)
        self._held = HeldTrigger(HELD_STATES)
        self._ahead = BackpressureLimit(batch_bytes, BATCHES_IN_HAND)
        self._cutter = Batcher(SizeTrigger(batch_bytes), AgeTrigger(flush_seconds))

    def is_full(self, states: int, needs: int) -> bool:
        """Whether everything must land before more is read; so many states are held, and wait for so many streams."""
        return self._space.due(self.buffer.occupied + self.states.disk) or self._held.due(states, needs)

    def is_far_ahead(self, landing: int) -> bool:
        """Whether Spark has enough to do, with `landing` jobs running."""
        return self._ahead.due(self.buffer.waiting_sizes(), landing)

    def cut(self, *, everything: bool) -> list[Batch]:
        """The batches that are due, or something of all that waits. Raises StreamNotCut."""
        return self._cutter.cut(self.buffer, time.monotonic(), everything=everything)

    def wait(self) -> float | None:
        """Seconds until something is due by its age alone; None while nothing waits."""
        return self._cutter.wait(self.buffer, time.monotonic())

    def make_room(self) -> None:
        """Give back what nothing needs now: the disk is full, and what is on it has yet to land."""
        self.buffer.drop_spare_files()
        self._reserve.release()
