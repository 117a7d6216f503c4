"""The backlog: records and states that wait on local disk, the batches taken out of it, and back-pressure."""

from __future__ import annotations

import os

from destination_datalake.buffer.batching import Batch, BatchPolicy
from destination_datalake.buffer.buffer import Buffer
from destination_datalake.buffer.disk import DiskFailed, MiB, disk_errors
from destination_datalake.buffer.state_store import StateStore
from destination_datalake.protocol.catalog import StreamId

MAX_HELD_STATES = 200_000
"""States that are held, and streams that they wait for, before reading waits: each of them takes memory."""

RESERVED_BYTES = 4 * MiB
"""Disk space for Spark's own small files, so that what is buffered can land although the disk is full."""

STAGED_BUFFERS = 8
"""How many times the size of the local buffer may wait in S3 for executors on other machines."""


def staged_bytes(buffer_bytes: int) -> int:
    """Return how many bytes of records may wait in S3, or are being landed, where `buffer_bytes` may wait on disk."""
    return STAGED_BUFFERS * buffer_bytes


class SealFailed(Exception):
    """A stream's open segment cannot be sealed, so it has no batch; other streams have. The text is for the user."""

    def __init__(self, stream: StreamId, cause: DiskFailed) -> None:
        super().__init__(f"The records of stream {stream} cannot be handed over. {cause}")
        self.stream = stream


class Backlog:
    """The records in `buffer`, the lines of states in `states`, and the rules for both. Not thread-safe."""

    def __init__(self, buffer: Buffer, policy: BatchPolicy, flush_seconds: float) -> None:
        """Allocate the reserve on the buffer's disk. Raises DiskFailed.

        A batch is due by the policy, and once its oldest record has waited for `flush_seconds`.
        """
        self.buffer = buffer
        self.policy = policy
        self.states = StateStore(buffer.directory)
        self._reserve = buffer.directory / "reserve"
        with disk_errors(buffer.directory), self._reserve.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, RESERVED_BYTES)
        self._flush_seconds = flush_seconds
        self._batches = 0

    def is_full(self, states: int, needs: int) -> bool:
        """Whether reading must wait; `states` are held and wait for `needs` streams in all."""
        return self._is_full(self.buffer.occupied_bytes, states, needs)

    def must_land(self, states: int, needs: int) -> bool:
        """Whether everything must land before more is read: uploads that end would not make room."""
        return self._is_full(self.buffer.occupied_bytes - self.buffer.uploading_bytes, states, needs)

    def _is_full(self, occupied: int, states: int, needs: int) -> bool:
        most = self.buffer.max_disk_bytes
        return (
            occupied + self.states.disk_bytes >= most
            or self.buffer.buffered_bytes >= staged_bytes(most)
            or states + needs >= MAX_HELD_STATES
        )

    def next_batches(
        self, *, everything: bool, ended: bool = False, slots: int | None = None, tasks: int = 0
    ) -> list[Batch]:
        """Take what is due out of the buffer: at least one batch if any is, and about the bytes of one job in all.

        Small streams that are due share a job. With `everything` all that waits is due: the buffer is full, or the
        input has `ended`. `slots` and `tasks` are those of `BatchPolicy.waits_for_spark`. Raises SealFailed;
        then nothing was taken.
        """
        idle = None
        if slots is not None:
            idle = max(1, slots - tasks)
            self.policy.parallelism = slots
        batches: list[Batch] = []
        room = 0
        for stream in self._due(everything=everything):
            waiting = self.buffer.waiting_bytes(stream)
            if not batches:
                room = self.policy.room(stream, waiting, idle, ended=ended)
            elif not self.policy.shares_job(waiting, room):
                continue
            try:
                segments = self.buffer.take(stream, room)
            except DiskFailed as error:
                if batches:
                    break  # The next call begins with this stream, and raises.
                raise SealFailed(stream, error) from error
            self._batches += 1
            batches.append(Batch(stream, self._batches, tuple(segments)))
            room -= batches[-1].bytes
            if room <= 0:
                break
        return self.policy.planned(batches, idle, everything=everything)

    def seconds_until_due(self) -> float | None:
        """Return the seconds until a batch is due by age; None while nothing waits.

        A state is never older than the oldest record it waits for, so this bounds the age of states too.
        """
        for stream in self.buffer.waiting_streams():
            return self._seconds_left(stream)
        return None

    def _due(self, *, everything: bool) -> list[StreamId]:
        waiting = self.buffer.waiting_streams()
        if everything:
            return waiting
        return [stream for stream in waiting if self._is_large(stream) or self._seconds_left(stream) == 0]

    def _is_large(self, stream: StreamId) -> bool:
        return self.buffer.waiting_bytes(stream) >= self.policy.batch_bytes(stream)

    def _seconds_left(self, stream: StreamId) -> float | None:
        """Return the seconds until the stream's records are due by age; None if none wait."""
        since = self.buffer.oldest(stream)
        return None if since is None else max(0.0, since + self._flush_seconds - self.buffer.clock())

    def free_space(self) -> None:
        """Free disk space that nothing needs now: the disk is full, and what is on it has yet to land."""
        self.buffer.delete_spare_files()
        self._reserve.unlink(missing_ok=True)
