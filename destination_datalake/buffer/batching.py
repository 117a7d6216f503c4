"""Batches, which are the segments of one stream that a Spark job encodes, and the policies for their size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from destination_datalake.buffer.staging import Segment
from destination_datalake.protocol.catalog import StreamId


@dataclass(frozen=True, slots=True)
class Batch:
    """Segments (files of record lines) of one stream, which one Spark job encodes and one commit publishes.

    `number` counts the batches of a sync from 1. `tasks` is the number of tasks of the whole job, which may encode
    several batches; None means the number of tasks that Spark can run at once. `expected_yield` is the expected size of
    a task's files in one partition, per byte of its records; None if unknown.
    """

    stream: StreamId
    number: int
    segments: tuple[Segment, ...]
    tasks: int | None = None
    expected_yield: float | None = None

    @property
    def first_record(self) -> int:
        """Return the number, from 0, of the batch's first record in the stream's input."""
        return self.segments[0].first_record

    @property
    def records(self) -> int:
        """Return the number of records of the batch."""
        return sum(segment.records for segment in self.segments)

    @property
    def bytes(self) -> int:
        """Return the size of the batch's record lines, in bytes."""
        return sum(segment.bytes for segment in self.segments)


READ_AHEAD_BATCHES = 4
"""Maximum number of full batches, queued and running. It lets reading continue while Spark starts, and keeps Spark busy
afterwards."""

EXPECTED_YIELDS: Mapping[tuple[str, str], float] = {
    ("Parquet", "ZSTD"): 0.15,
    ("Parquet", "GZIP"): 0.15,
    ("Parquet", "SNAPPY"): 0.2,
    ("Parquet", "UNCOMPRESSED"): 0.3,
    ("JSONL", "UNCOMPRESSED"): 1.0,
    ("JSONL", "GZIP"): 0.2,
}
"""Expected file bytes per byte of record lines, by format_type and compression_codec, within a factor of two."""

_PARALLELISM = 3
"""Assumed number of concurrent tasks until Spark has started."""

_MIN_LEARNED_BYTES = 1024 * 1024
"""Minimum size of a batch whose file sizes are used for estimates. In files of smaller batches, headers and footers
dominate."""


@dataclass(slots=True)
class BatchPolicy:
    """The policy for batches of a fixed size: their size, their number of tasks, and the limit of read-ahead.

    A batch contains about `least_bytes`. All concurrent tasks encode it together, so its files are smaller than the
    target size. `parallelism` is the number of concurrent tasks. Not thread-safe.
    """

    jobs: ClassVar[int] = 2
    """Maximum number of jobs that run or commit concurrently: while one job commits, the next keeps the executors
    busy."""

    least_bytes: int
    parallelism: int = field(default=_PARALLELISM, kw_only=True)

    def batch_bytes(self, stream: StreamId) -> int:  # noqa: ARG002
        """Return the size, in bytes, at which a batch of the stream is due."""
        return self.least_bytes

    def job_capacity(self, stream: StreamId, waiting: int, idle: int | None, *, ended: bool) -> int:  # noqa: ARG002
        """Return the maximum size of the next job.

        Its first batch belongs to this stream, which has `waiting` queued bytes.

        `idle` is the number of free task slots, or None if unknown. `ended` means that the input has ended.
        """
        return self.least_bytes

    def fits_in_job(self, waiting: int, job_capacity: int) -> bool:  # noqa: ARG002
        """Return whether a stream with `waiting` queued bytes joins a job that has `job_capacity` bytes left.

        In this class, always True: small due streams share a job, so that a hundred streams do not need a hundred jobs.
        """
        return True

    def with_tasks(self, batches: Sequence[Batch], idle: int | None, *, everything: bool) -> list[Batch]:  # noqa: ARG002
        """Return the batches of a job, with the number of tasks of the job set if it differs from the default.

        The default is the number of concurrent tasks.
        """
        return [*batches]

    def has_enough_queued(self, waiting: Iterable[tuple[StreamId, int]], landing: int, tasks: int) -> bool:  # noqa: ARG002
        """Return whether Spark has enough work, with `waiting` queued bytes per stream and `landing` running jobs.

        Reading further ahead would use more disk without making Spark faster. READ_AHEAD_BATCHES full batches, queued
        or running, are enough. Running batches count only if at least one full batch is queued. `tasks` is the number
        of tasks of the running jobs.
        """
        whole = sum(size // self.least_bytes for _, size in waiting)
        return whole > 0 and whole + landing >= READ_AHEAD_BATCHES

    def waits_for_spark(self, slots: int | None, tasks: int, *, everything: bool) -> bool:  # noqa: ARG002
        """Return whether batches must wait because Spark has no free task slot.

        Batches that wait grow and make larger files.

        `slots` is the number of task slots, or None while Spark is starting. `tasks` is the number of running and
        queued tasks. With `everything`, batches do not wait for Spark to start. In this class, always False: batches of
        a fixed size would not grow.
        """
        return False

    def learn(self, stream: StreamId, lines: int, files: int, partitions: float) -> None:
        """Record the output size of a batch: `lines` bytes of record lines became `files` bytes of files.

        `partitions` is the average number of partitions per task.
        """


@dataclass(slots=True)
class LearnedBatches(BatchPolicy):
    """The policy for batches in which each task fills one file. Estimates sizes from the stream's earlier batches.

    A task encodes a `share` of record lines: the size that becomes a file of `target_bytes` in each partition of the
    records. Queued and running records must fit into the buffer, which holds one share per concurrent task and two
    queued shares. A batch has at least `least_bytes`, and at least one share. `expected_yield` is the number of file
    bytes per byte of record lines that is assumed for streams without a committed batch.
    """

    # This is one job more than for batches of a fixed size: a job can be a single task, and two such jobs keep two
    # cores busy.
    jobs: ClassVar[int] = 3

    target_bytes: int
    buffer_bytes: int
    expected_yield: float
    _yields: dict[StreamId, float] = field(default_factory=dict)

    def learn(self, stream: StreamId, lines: int, files: int, partitions: float) -> None:
        """Record the ratio of file bytes to record bytes of a batch, unless the batch is tiny."""
        if lines >= _MIN_LEARNED_BYTES and files:
            self._yields[stream] = files / lines / max(1.0, partitions)

    def expected_output_ratio(self, stream: StreamId) -> float:
        """Return the expected size of a task's files in one partition, per byte of its record lines."""
        return self._yields.get(stream, self.expected_yield)

    def share(self, stream: StreamId) -> int:
        """Return how many bytes of the stream one task should encode."""
        return min(max(1, int(self.target_bytes / self.expected_output_ratio(stream))), self.largest_share)

    @property
    def largest_share(self) -> int:
        """The maximum number of bytes that one task encodes."""
        return max(1, self.buffer_bytes // (self.parallelism + 2))

    def batch_bytes(self, stream: StreamId) -> int:
        """Return the size at which a batch is due: the share of one task, but at least `least_bytes`."""
        return max(self.least_bytes, self.share(stream))

    def job_capacity(self, stream: StreamId, waiting: int, idle: int | None, *, ended: bool) -> int:
        """Return the size of one share for each idle task slot.

        After the end of the input, return the largest share for each slot, so that tasks take all queued records.
        """
        if ended:
            return self.largest_share * (idle or self.parallelism)
        share = self.share(stream)
        return max(self.batch_bytes(stream), min(idle or 1, waiting // share) * share)

    def fits_in_job(self, waiting: int, job_capacity: int) -> bool:
        """Return whether all queued bytes of the stream fit into the job.

        A part of a larger batch would become a small file.
        """
        return waiting <= job_capacity

    def with_tasks(self, batches: Sequence[Batch], idle: int | None, *, everything: bool) -> list[Batch]:
        """Return the batches with one task per share. For `everything`, use at least as many tasks as idle slots.

        There may be more tasks than idle slots. Otherwise a batch of several shares would occupy one slot while other
        slots become idle.
        """
        tasks = idle
        if idle is not None:
            shares = round(sum(batch.bytes / self.share(batch.stream) for batch in batches))
            tasks = max(idle if everything else 1, min(self.parallelism, shares))
        return [
            replace(batch, tasks=tasks, expected_yield=self.expected_output_ratio(batch.stream)) for batch in batches
        ]

    def has_enough_queued(self, waiting: Iterable[tuple[StreamId, int]], landing: int, tasks: int) -> bool:  # noqa: ARG002
        """Return whether running tasks and queued full batches together exceed the number of concurrent tasks."""
        # This runs for each chunk of input. Comparing with `least_bytes` first skips small streams quickly.
        whole = sum(size // self.batch_bytes(stream) for stream, size in waiting if size >= self.least_bytes)
        return whole > 0 and whole + min(tasks, self.parallelism) > self.parallelism

    def waits_for_spark(self, slots: int | None, tasks: int, *, everything: bool) -> bool:
        """Return whether Spark cannot accept another job. One job may wait in Spark for task slots."""
        return not everything if slots is None else tasks > slots
