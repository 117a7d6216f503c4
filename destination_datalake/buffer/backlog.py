"""The backlog: records and states that wait on local disk, and the rules for batches and back-pressure."""

from __future__ import annotations

import time
from pathlib import Path

from destination_datalake.buffer.batching.batches import Batch, Batcher
from destination_datalake.buffer.batching.sizes import BatchSizes
from destination_datalake.buffer.batching.triggers import (
    AgeTrigger,
    BackpressureLimit,
    DiskLimit,
    HeldStatesLimit,
    SizeTrigger,
)
from destination_datalake.buffer.buffer import Buffer, MiB
from destination_datalake.buffer.disk import DiskReserve
from destination_datalake.buffer.staging.staging import LocalStaging, Staging
from destination_datalake.buffer.state_store import StateStore

SEGMENT_BYTES = 16 * MiB
"""Small enough that a batch divides evenly among the cores, large enough that the cost of opening it is negligible."""

READ_AHEAD_BATCHES = 4
"""Whole batches that wait or are being landed: reading continues while Spark starts, and no job waits for a batch."""

MAX_HELD_STATES = 200_000
"""States that are held, and streams that they wait for, before reading waits: each of them takes memory."""

RESERVED_BYTES = 4 * MiB
"""Disk space for Spark's own small files, so that what is buffered can land although the disk is full."""

STAGED_BUFFERS = 8
"""What waits in S3 for executors on other machines, in buffers of the size of the local one."""


def staged_bytes(buffer_bytes: int) -> int:
    """Return how many bytes of records may wait in S3, or are being landed, where `buffer_bytes` may wait on disk."""
    return STAGED_BUFFERS * buffer_bytes


class Backlog:
    """The records in `buffer`, the lines of states in `states`, and the rules for both. Not thread-safe."""

    def __init__(
        self,
        directory: Path,
        batch_bytes: int,
        buffer_bytes: int,
        flush_seconds: float,
        sizes: BatchSizes | None = None,
        staging: Staging | None = None,
    ) -> None:
        """Allocate the reserve in `directory`. Batches have `batch_bytes`, or `sizes`. Raises DiskFailed."""
        self.staging = staging or LocalStaging()
        self.buffer = Buffer(directory, min(SEGMENT_BYTES, batch_bytes), buffer_bytes, time.monotonic, self.staging)
        self.states = StateStore(directory)
        self._reserve = DiskReserve(directory, RESERVED_BYTES)
        self._disk_limit = DiskLimit(buffer_bytes)
        self._staged_limit = DiskLimit(staged_bytes(buffer_bytes))
        self._states_limit = HeldStatesLimit(MAX_HELD_STATES)
        self._backpressure = BackpressureLimit(batch_bytes, READ_AHEAD_BATCHES)
        self._sizes = sizes
        self._batcher = Batcher(SizeTrigger(batch_bytes), AgeTrigger(flush_seconds), sizes)

    def is_full(self, states: int, needs: int) -> bool:
        """Whether reading must wait; `states` are held and wait for `needs` streams in all."""
        used = self.buffer.occupied_bytes + self.states.disk_bytes
        return self._disk_limit.reached(used) or self._is_full_but_for_uploads(states, needs)

    def must_land(self, states: int, needs: int) -> bool:
        """Whether everything must land before more is read: uploads that end would not make room."""
        used = self.buffer.occupied_bytes - self.buffer.uploading_bytes + self.states.disk_bytes
        return self._disk_limit.reached(used) or self._is_full_but_for_uploads(states, needs)

    def _is_full_but_for_uploads(self, states: int, needs: int) -> bool:
        return self._staged_limit.reached(self.buffer.buffered_bytes) or self._states_limit.reached(states, needs)

    def is_ahead_of_spark(self, landing: int, tasks: int = 0) -> bool:
        """Whether Spark has enough work waiting, with `landing` jobs of `tasks` running, so that reading waits."""
        sizes = self._sizes
        if sizes is None:
            return self._backpressure.reached(self.buffer.waiting_sizes(), landing)
        # For each chunk that is read: most of many streams are small, which is quickly seen.
        least = sizes.least_bytes
        whole = sum(size // sizes.batch_bytes(stream) for stream, size in self.buffer.waiting() if size >= least)
        return whole > 0 and whole + min(tasks, sizes.parallelism) > sizes.parallelism

    def waits_for_spark(self, slots: int | None, tasks: int, *, everything: bool) -> bool:
        """Whether it is too early to take batches: Spark could not begin, and later ones fit the files better.

        `slots` tasks run at once, `tasks` do or will; one more job may wait in Spark for the first that ends. While
        Spark is starting `slots` is None: then only `everything` is a reason not to wait.
        """
        if self._sizes is None:
            return False
        return not everything if slots is None else tasks > slots

    def next_batches(
        self, *, everything: bool, ended: bool = False, slots: int | None = None, tasks: int = 0
    ) -> list[Batch]:
        """Take the next batches out of the buffer, see `Batcher.next_batches`. Raises SealFailed.

        `slots` and `tasks` are those of `waits_for_spark`.
        """
        idle = None if slots is None else max(1, slots - tasks)
        if self._sizes is not None and slots is not None:
            self._sizes.parallelism = slots
        return self._batcher.next_batches(self.buffer, time.monotonic(), everything=everything, ended=ended, idle=idle)

    def learn(self, batch: Batch, file_bytes: int, partitions: float) -> None:
        """Note what a batch has become: files of so many bytes, in `partitions` per task."""
        if self._sizes is not None:
            self._sizes.learn(batch.stream, batch.bytes, file_bytes, partitions)

    def seconds_until_due(self) -> float | None:
        """Return the seconds until a batch is due by age; None while nothing waits."""
        return self._batcher.seconds_until_due(self.buffer, time.monotonic())

    def free_space(self) -> None:
        """Free disk space that nothing needs now: the disk is full, and what is on it has yet to land."""
        self.buffer.delete_spare_files()
        self._reserve.release()
