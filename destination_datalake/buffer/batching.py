"""Batches of records, and the policies that determine their size.

A batch consists of segments (files of record lines) of one stream. One Spark job encodes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from destination_datalake.buffer.staging import Segment
from destination_datalake.protocol.catalog import StreamId


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one stream that one Spark job encodes and one commit publishes, as segments (files of lines).

    `number` counts the batches of a sync from 1. `tasks` is the number of tasks of the whole job, which can include
    other batches, or None to use all concurrent tasks. `expected_yield` is the expected size of a task's files per
    partition, divided by the size of the task's record lines, or None if unknown.
    """

    stream: StreamId
    number: int
    segments: tuple[Segment, ...]
    tasks: int | None = None
    expected_yield: float | None = None

    @property
    def first_record(self) -> int:
        """Return the number of the batch's first record among the stream's records. The first record is 0."""
        return self.segments[0].first_record

    @property
    def records(self) -> int:
        """Return the number of records in the batch."""
        return sum(segment.records for segment in self.segments)

    @property
    def bytes(self) -> int:
        """Return the size of the record lines in the batch, in bytes."""
        return sum(segment.bytes for segment in self.segments)


READ_AHEAD_BATCHES = 4
"""Maximum number of full batches, queued and running. Reading can thus continue while Spark starts, and Spark does not
run out of work later."""

EXPECTED_YIELDS: Mapping[tuple[str, str], float] = {
    ("Parquet", "ZSTD"): 0.15,
    ("Parquet", "GZIP"): 0.15,
    ("Parquet", "SNAPPY"): 0.2,
    ("Parquet", "UNCOMPRESSED"): 0.3,
    ("JSONL", "UNCOMPRESSED"): 1.0,
    ("JSONL", "GZIP"): 0.2,
}
"""Expected size of data files divided by the size of the record lines, by format_type and compression_codec. Accurate
within a factor of two."""

_PARALLELISM = 3
"""The number of concurrent tasks that is assumed until Spark has started."""

_MIN_LEARNED_BYTES = 1024 * 1024
"""Minimum size of a batch from which file sizes are estimated. Smaller files consist mostly of headers and footers."""


@dataclass(slots=True)
class BatchPolicy:
    """Forms batches of a fixed size, and limits how far reading runs ahead of Spark.

    A batch contains about `least_bytes`. All concurrent tasks (`parallelism`) encode a part of it, so files are smaller
    than the target size. Not thread-safe.
    """

    jobs: ClassVar[int] = 2
    """Maximum number of concurrent jobs. While one job commits, the next keeps the executors busy."""

    least_bytes: int
    parallelism: int = field(default=_PARALLELISM, kw_only=True)

    def batch_bytes(self, stream: StreamId) -> int:  # noqa: ARG002
        """Return the size in bytes at which a batch of the stream is due."""
        return self.least_bytes

    def job_capacity(self, stream: StreamId, waiting: int, idle: int | None, *, ended: bool) -> int:  # noqa: ARG002
        """Return the maximum size of the next job, in bytes.

        The job starts with a batch of `stream`, which has `waiting` queued bytes. `idle` is the number of free task
        slots, or None if unknown. `ended` is true after the end of the input.
        """
        return self.least_bytes

    def fits_in_job(self, waiting: int, job_capacity: int) -> bool:  # noqa: ARG002
        """Return whether a due stream with `waiting` queued bytes can join a job with `job_capacity` bytes left.

        Always True in this class. Small streams share a job, so that a hundred streams do not need a hundred jobs.
        """
        return True

    def with_tasks(self, batches: Sequence[Batch], idle: int | None, *, everything: bool) -> list[Batch]:  # noqa: ARG002
        """Set the number of tasks for the batches of a job, and return the batches.

        In this class, returns them unchanged: a job then uses all concurrent tasks.
        """
        return [*batches]

    def has_enough_queued(self, waiting: Iterable[tuple[StreamId, int]], landing: int, tasks: int) -> bool:  # noqa: ARG002
        """Return whether reading can pause because Spark has enough work.

        `waiting` contains the queued bytes of each stream, `landing` is the number of running jobs, and `tasks` is the
        number of their tasks. In this class, READ_AHEAD_BATCHES full batches are enough, if at least one of them is
        queued. Reading further ahead would use disk space without making Spark faster.
        """
        whole = sum(size // self.least_bytes for _, size in waiting)
        return whole > 0 and whole + landing >= READ_AHEAD_BATCHES

    def waits_for_spark(self, slots: int | None, tasks: int, *, everything: bool) -> bool:  # noqa: ARG002
        """Return whether batches should wait and grow until Spark has free task slots, to make larger files.

        `slots` is the number of task slots, or None while Spark is starting. `tasks` is the number of running and
        queued tasks. With `everything`, batches do not wait for Spark's start. Always False in this class, because
        batches of a fixed size do not grow.
        """
        return False

    def learn(self, stream: StreamId, lines: int, files: int, partitions: float) -> None:
        """Record that `lines` bytes of record lines became `files` bytes of data files. Does nothing here.

        `partitions` is the average number of partitions per task.
        """


@dataclass(slots=True)
class LearnedBatches(BatchPolicy):
    """Forms batches of which each task fills one file. Estimates file sizes from the stream's earlier batches.

    A task encodes one `share`: as many bytes of record lines as result in `target_bytes` of files per partition. A
    batch has at least one share and `least_bytes`. Shares are small enough that the buffer holds one per concurrent
    task and two more in the queue. `expected_yield` is the ratio of file bytes to line bytes that is assumed before a
    stream's first commit.
    """

    # One more than for batches of a fixed size. A job can consist of one task, so two jobs keep two cores busy while a
    # third commits.
    jobs: ClassVar[int] = 3

    target_bytes: int
    buffer_bytes: int
    expected_yield: float
    _yields: dict[StreamId, float] = field(default_factory=dict)

    def learn(self, stream: StreamId, lines: int, files: int, partitions: float) -> None:
        """Record the ratio of file bytes to line bytes of a batch, unless the batch has less than 1 MiB."""
        if lines >= _MIN_LEARNED_BYTES and files:
            self._yields[stream] = files / lines / max(1.0, partitions)

    def expected_output_ratio(self, stream: StreamId) -> float:
        """Return the expected size of a task's files per partition, divided by the size of its record lines."""
        return self._yields.get(stream, self.expected_yield)

    def share(self, stream: StreamId) -> int:
        """Return the number of bytes of the stream's record lines that one task should encode."""
        return min(max(1, int(self.target_bytes / self.expected_output_ratio(stream))), self.largest_share)

    @property
    def largest_share(self) -> int:
        """Maximum size of a share in bytes, so that queued and running shares fit in the buffer."""
        return max(1, self.buffer_bytes // (self.parallelism + 2))

    def batch_bytes(self, stream: StreamId) -> int:
        """Return the size in bytes at which a batch is due: one share, but at least `least_bytes`."""
        return max(self.least_bytes, self.share(stream))

    def job_capacity(self, stream: StreamId, waiting: int, idle: int | None, *, ended: bool) -> int:
        """Return the maximum size of the next job: one share per idle task slot, but at least a due batch.

        After the end of the input, a job takes the largest possible share per slot, so that no records stay queued.
        """
        if ended:
            return self.largest_share * (idle or self.parallelism)
        share = self.share(stream)
        return max(self.batch_bytes(stream), min(idle or 1, waiting // share) * share)

    def fits_in_job(self, waiting: int, job_capacity: int) -> bool:
        """Return whether all queued bytes of the stream fit in the job. A part of them would become a small file."""
        return waiting <= job_capacity

    def with_tasks(self, batches: Sequence[Batch], idle: int | None, *, everything: bool) -> list[Batch]:
        """Return the batches with one task per share. With `everything`, use at least all idle slots.

        There may be more tasks than idle slots. With fewer tasks, a batch of several shares would occupy a single slot
        while other slots become idle.
        """
        tasks = idle
        if idle is not None:
            shares = round(sum(batch.bytes / self.share(batch.stream) for batch in batches))
            tasks = max(idle if everything else 1, min(self.parallelism, shares))
        return [
            replace(batch, tasks=tasks, expected_yield=self.expected_output_ratio(batch.stream)) for batch in batches
        ]

    def has_enough_queued(self, waiting: Iterable[tuple[StreamId, int]], landing: int, tasks: int) -> bool:  # noqa: ARG002
        """Return whether running tasks and queued full batches together outnumber the concurrent tasks."""
        # This runs for each chunk of input. Comparing with `least_bytes` first skips small streams quickly.
        whole = sum(size // self.batch_bytes(stream) for stream, size in waiting if size >= self.least_bytes)
        return whole > 0 and whole + min(tasks, self.parallelism) > self.parallelism

    def waits_for_spark(self, slots: int | None, tasks: int, *, everything: bool) -> bool:
        """Return whether Spark is starting, or has more tasks than slots. With `everything`, ignore its start."""
        return not everything if slots is None else tasks > slots
