"""The backlog of a sync: queued records and held states. Forms batches, and decides when reading must pause.

The sync holds each STATE line until the records that precede it in the input are committed. If the held lines exceed a
memory limit, the backlog stores further lines on disk.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from destination_datalake.buffer.batching import Batch, BatchPolicy
from destination_datalake.buffer.buffer import Buffer
from destination_datalake.buffer.disk import DiskFailed, MiB, disk_errors, write_at
from destination_datalake.protocol.catalog import StreamId

MAX_HELD_STATES = 200_000
"""Maximum of this sum: the number of held states, plus, for each held state, the number of streams that it covers. Each
of them uses memory, so the sync pauses reading at the maximum."""

RESERVED_BYTES = 4 * MiB
"""The size of a reserved file. If the disk is full, the sync deletes this file, so that Spark has space for small files
and can still commit the buffered records."""

MAX_STAGED_BUFFERS = 8
"""Maximum size of the records that are queued or being written, as a multiple of the local buffer's size. For remote
executors, most of these records are staged in S3."""


def staged_bytes(buffer_bytes: int) -> int:
    """Return the maximum size of the records that are queued or being written, including records staged in S3.

    `buffer_bytes` is the maximum size of the local buffer.
    """
    return MAX_STAGED_BUFFERS * buffer_bytes


class SealFailed(Exception):
    """Raised if the buffer cannot complete a stream's open segment (file of record lines), because the disk failed.

    The buffer is unchanged, and other streams can still form batches. The text of the exception is for the user.
    """

    def __init__(self, stream: StreamId, cause: DiskFailed) -> None:
        super().__init__(f"Cannot pass the records of stream {stream} to Spark. {cause}")
        self.stream = stream


class Backlog:
    """The queued records (`buffer`) and held STATE lines (`states`) of a sync.

    Decides when records form a batch, and when reading must pause. Not thread-safe.
    """

    def __init__(self, buffer: Buffer, policy: BatchPolicy, flush_seconds: float) -> None:
        """Reserve space on the buffer's disk. Raises DiskFailed.

        A batch is due when it reaches the size that `policy` requires, or when `flush_seconds` have passed since the
        sync read the oldest record of the batch.
        """
        self.buffer = buffer
        self.policy = policy
        self.states = StateStore(buffer.directory)
        self._reserve = buffer.directory / "reserve"
        with disk_errors(buffer.directory), self._reserve.open("wb") as file:
            # `truncate` would create a sparse file, which occupies no disk space.
            os.posix_fallocate(file.fileno(), 0, RESERVED_BYTES)
        self._flush_seconds = flush_seconds
        self._batches = 0

    def is_full(self, states: int, needs: int) -> bool:
        """Return whether reading must pause because a limit is reached: disk space, buffered bytes or held states.

        `states` is the number of held states. `needs` is the sum, over these states, of the number of streams that each
        state covers.
        """
        return self._is_full(self.buffer.occupied_bytes, states, needs)

    def must_flush(self, states: int, needs: int) -> bool:
        """Return whether the sync must commit all queued records before it can continue reading.

        This is the case if the backlog will still be full after the pending uploads to S3 have freed their files.
        """
        return self._is_full(self.buffer.occupied_bytes - self.buffer.uploading_bytes, states, needs)

    def _is_full(self, occupied: int, states: int, needs: int) -> bool:
        max_bytes = self.buffer.max_disk_bytes
        return (
            occupied + self.states.disk_bytes >= max_bytes
            or self.buffer.buffered_bytes >= staged_bytes(max_bytes)
            or states + needs >= MAX_HELD_STATES
        )

    def next_batches(
        self, *, everything: bool, ended: bool = False, slots: int | None = None, tasks: int = 0
    ) -> list[Batch]:
        """Take the due batches for the next Spark job from the buffer. The list is empty if no batch is due.

        Small due batches of several streams share a job. If `everything` is set, all queued records are due. Callers
        set it when the buffer is full or the input has `ended`. `BatchPolicy.waits_for_spark` describes `slots` and
        `tasks`. Raises SealFailed.
        """
        idle = None
        if slots is not None:
            # At least one: the job then waits in Spark's queue.
            idle = max(1, slots - tasks)
            self.policy.parallelism = slots
        batches: list[Batch] = []
        job_capacity = 0
        for stream in self._due(everything=everything):
            waiting = self.buffer.waiting_bytes(stream)
            if not batches:
                job_capacity = self.policy.job_capacity(stream, waiting, idle, ended=ended)
            elif not self.policy.fits_in_job(waiting, job_capacity):
                continue
            try:
                segments = self.buffer.take(stream, job_capacity)
            except DiskFailed as error:
                if batches:
                    break  # The next call of this method starts with this stream, and raises the error.
                raise SealFailed(stream, error) from error
            self._batches += 1
            batches.append(Batch(stream, self._batches, tuple(segments)))
            job_capacity -= batches[-1].bytes
            if job_capacity <= 0:
                break
        return self.policy.with_tasks(batches, idle, everything=everything)

    def seconds_until_due(self) -> float | None:
        """Return the seconds until the oldest queued record makes a batch due, or None if no records are queued.

        The age limit of records also limits the age of held states, because a state is never older than the oldest
        record that it waits for.
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

    def _seconds_left(self, stream: StreamId) -> float:
        """Return the seconds until the stream's oldest queued record makes a batch due, or 0 if it already does."""
        return max(0.0, self.buffer.oldest(stream) + self._flush_seconds - self.buffer.clock())

    def free_space(self) -> None:
        """Delete the spare files and the reserved file, if possible. Call this method when the disk is full."""
        self.buffer.delete_spare_files()
        with contextlib.suppress(OSError):
            self._reserve.unlink(missing_ok=True)


# --- States -----------------------------------------------------------------------------------------------------------

MEMORY_BYTES = 8 * MiB
FILE_BYTES = 16 * MiB


class StateStore:
    """Stores STATE lines: up to `memory_bytes` in memory, and all other lines in files of about `file_bytes` each.

    When all lines of a file are released, the store deletes the file. The attributes `memory_bytes` and `disk_bytes`
    are the sizes of the lines in memory and of all files. Not thread-safe: callers must hold a lock for all calls
    except the `read` method of a stored line.
    """

    def __init__(self, directory: Path, memory_bytes: int = MEMORY_BYTES, file_bytes: int = FILE_BYTES) -> None:
        self._directory = directory
        self._max_memory_bytes = memory_bytes
        self._max_file_bytes = file_bytes
        self._files = 0
        self._file: _File | None = None
        self.memory_bytes = 0
        self.disk_bytes = 0

    def keep(self, line: bytes) -> _InMemory | _OnDisk:
        """Store a line. Return a handle, whose methods read and release the line. Raises DiskFailed."""
        if self.memory_bytes + len(line) <= self._max_memory_bytes:
            self.memory_bytes += len(line)
            return _InMemory(self, line)
        if self._file is None or self._file.size >= self._max_file_bytes:
            self._files += 1
            self._file = _File(self._directory / f"held-{self._files:08d}")
        with disk_errors(self._directory):
            offset = self._file.append(line)
        self.disk_bytes += len(line)
        return _OnDisk(self, self._file, offset, len(line))

    def _release_on_disk(self, file: _File) -> None:
        file.lines -= 1
        if not file.lines:
            self.disk_bytes -= file.size
            file.path.unlink(missing_ok=True)
            if file is self._file:
                self._file = None


class _File:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.lines = 0

    def append(self, line: bytes) -> int:
        offset = self.size
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self.size = write_at(descriptor, line, offset)
        finally:
            os.close(descriptor)
        self.lines += 1
        return offset


class _InMemory:
    __slots__ = ("_store", "_text")

    def __init__(self, store: StateStore, text: bytes) -> None:
        self._store = store
        self._text = text

    def read(self) -> bytes:
        return self._text

    def release(self) -> None:
        self._store.memory_bytes -= len(self._text)


class _OnDisk:
    __slots__ = ("_file", "_length", "_offset", "_store")

    def __init__(self, store: StateStore, file: _File, offset: int, length: int) -> None:
        self._store = store
        self._file = file
        self._offset = offset
        self._length = length

    def read(self) -> bytes:
        with disk_errors(self._file.path.parent), self._file.path.open("rb") as file:
            file.seek(self._offset)
            return file.read(self._length)

    def release(self) -> None:
        self._store._release_on_disk(self._file)
