"""Batches of records, and the policies that determine the size of batches.

A batch consists of segments (files of record lines) of one stream. One Spark job encodes the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from destination_datalake.buffer.staging import Segment
from destination_datalake.protocol.catalog import StreamId


@dataclass(frozen=True, slots=True)
class Batch:
    """Segments (files of record lines) of one stream, which one Spark job encodes and one commit publishes.

    - `number`: the number of the batch in its sync, from 1.
    - `tasks`: the number of tasks of the whole job, which may encode other batches too. None to use all concurrent
      tasks.
    - `expected_yield`: the expected size of a task's files in one partition, divided by the size of the task's record
      lines. None if unknown.
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
"""The number of full batches, queued or running, at which reading pauses. The sync can thus continue reading while
Spark starts, and Spark does not run out of work later."""

EXPECTED_YIELDS: Mapping[tuple[str, str], float] = {
    ("Parquet", "ZSTD"): 0.15,
    ("Parquet", "GZIP"): 0.15,
    ("Parquet", "SNAPPY"): 0.2,
    ("Parquet", "UNCOMPRESSED"): 0.3,
    ("JSONL", "UNCOMPRESSED"): 1.0,
    ("JSONL", "GZIP"): 0.2,
}
"""The expected ratio of the size of data files to the size of their record lines. Keys are pairs of `format_type` and
`compression_codec`. The ratios are accurate within a factor of two."""

_PARALLELISM = 3
"""The number of concurrent tasks that a policy assumes until Spark has started."""

_MIN_LEARNED_BYTES = 1024 * 1024
"""Minimum size, in bytes, of a batch from which a policy estimates file sizes. The files of smaller batches consist
mostly of headers and footers."""


@dataclass(slots=True)
class BatchPolicy:
    """Determines a fixed size of batches, and limits how far reading runs ahead of Spark. Not thread-safe.

    A batch contains about `least_bytes` of record lines. Each concurrent task encodes a part of the batch, so data
    files are smaller than the target size. `parallelism` is the number of concurrent tasks.
    """

    jobs: ClassVar[int] = 2
    """Maximum number of concurrent jobs. While the files of one job are committed, the next job uses the executors."""

    least_bytes: int
    parallelism: int = field(default=_PARALLELISM, kw_only=True)

    def batch_bytes(self, stream: StreamId) -> int:  # noqa: ARG002
        """Return the size, in bytes, of the queued record lines at which a batch of the stream is due."""
        return self.least_bytes

    def job_capacity(self, stream: StreamId, waiting: int, idle: int | None, *, ended: bool) -> int:  # noqa: ARG002
        """Return the maximum size of the next job, in bytes.

        The first batch of the job is a batch of `stream`, which has `waiting` queued bytes. `idle` is the number of
        free task slots, or None if unknown. `ended` states whether the input has ended.
        """
        return self.least_bytes

    def fits_in_job(self, waiting: int, job_capacity: int) -> bool:  # noqa: ARG002
        """Return whether a job with `job_capacity` bytes left can also encode a due stream with `waiting` queued bytes.

        Always True in this class, so that small streams share a job: a hundred streams need not run a hundred jobs.
        """
        return True

    def with_tasks(self, batches: Sequence[Batch], idle: int | None, *, everything: bool) -> list[Batch]:  # noqa: ARG002
        """Return the batches of a job, and the number of tasks to use for them.

        This class returns the batches unchanged, and None as the number of tasks, so the job uses all concurrent tasks.
        """
        return [*batches]

    def has_enough_queued(self, waiting: Iterable[tuple[StreamId, int]], landing: int, tasks: int) -> bool:  # noqa: ARG002
        """Return whether reading can pause because Spark has enough work.

        `waiting` contains the queued bytes of each stream, `landing` is the number of running jobs, and `tasks` is the
        number of tasks of these jobs. In this class, reading can pause if queued full batches and running jobs together
        are at least READ_AHEAD_BATCHES, and at least one full batch is queued. Reading further ahead would use disk
        space without making Spark faster.
        """
        whole = sum(size // self.least_bytes for _, size in waiting)
        return whole > 0 and whole + landing >= READ_AHEAD_BATCHES

    def waits_for_spark(self, slots: int | None, tasks: int, *, everything: bool) -> bool:  # noqa: ARG002
        """Return whether batches should wait until Spark has free task slots. A batch that grows makes larger files.

        `slots` is the number of task slots, or None while Spark is starting. `tasks` is the number of running and
        queued tasks. If `everything` is set, batches do not wait for the start of Spark. This class always returns
        False, because batches of a fixed size do not grow.
        """
        return False

    def learn(self, stream: StreamId, lines: int, files: int, partitions: float) -> None:
        """Record that a batch with `lines` bytes of record lines became `files` bytes of data files.

        `partitions` is the average number of partitions per task. This class ignores the call.
        """


@dataclass(slots=True)
class LearnedBatches(BatchPolicy):
    """Determines batches so large that each task fills one data file per partition.

    A task encodes one share of a batch: as many bytes of record lines as become `target_bytes` of data files in one
    partition. The policy estimates this number from the stream's earlier batches. Before a stream's first commit, it
    assumes that files have `expected_yield` times the size of their record lines.

    A batch contains at least one share, and at least `least_bytes`. A share is small enough that a buffer of
    `buffer_bytes` can hold one share per concurrent task, and two queued shares.
    """

    # One job more than for batches of a fixed size. A job can consist of one task, so two jobs keep two cores busy
    # while the files of a third job are committed.
    jobs: ClassVar[int] = 3

    target_bytes: int
    buffer_bytes: int
    expected_yield: float
    _yields: dict[StreamId, float] = field(default_factory=dict)

    def learn(self, stream: StreamId, lines: int, files: int, partitions: float) -> None:
        """Record the ratio of file bytes to line bytes of a batch, unless the batch has less than 1 MiB or no files."""
        if lines >= _MIN_LEARNED_BYTES and files:
            self._yields[stream] = files / lines / max(1.0, partitions)

    def expected_output_ratio(self, stream: StreamId) -> float:
        """Return the expected ratio of the size of a task's files in one partition to the size of its record lines."""
        return self._yields.get(stream, self.expected_yield)

    def share(self, stream: StreamId) -> int:
        """Return the number of bytes of the stream's record lines that one task should encode."""
        return min(max(1, int(self.target_bytes / self.expected_output_ratio(stream))), self.largest_share)

    @property
    def largest_share(self) -> int:
        """The maximum size of a share, in bytes, with which queued and running shares fit in the buffer."""
        return max(1, self.buffer_bytes // (self.parallelism + 2))

    def batch_bytes(self, stream: StreamId) -> int:
        """Return the size, in bytes, at which a batch of the stream is due: one share, but at least `least_bytes`."""
        return max(self.least_bytes, self.share(stream))

    def job_capacity(self, stream: StreamId, waiting: int, idle: int | None, *, ended: bool) -> int:
        """Return the maximum size of the next job, in bytes: one share per idle task slot, but at least a due batch.

        Does not count more shares than are queued. After the end of the input, returns the size of the largest possible
        share per slot, so that one job takes as many queued records as possible.
        """
        if ended:
            return self.largest_share * (idle or self.parallelism)
        share = self.share(stream)
        return max(self.batch_bytes(stream), min(idle or 1, waiting // share) * share)

    def fits_in_job(self, waiting: int, job_capacity: int) -> bool:
        """Return whether all queued records of the stream fit in the job. A part of them would become a small file."""
        return waiting <= job_capacity

    def with_tasks(self, batches: Sequence[Batch], idle: int | None, *, everything: bool) -> list[Batch]:
        """Return the batches with one task per share. If `everything` is set, use at least all idle slots.

        The job may have more tasks than there are idle slots. If the job had only as many tasks as idle slots, a batch
        of several shares could occupy a single slot while other slots become idle.
        """
        tasks = idle
        if idle is not None:
            shares = round(sum(batch.bytes / self.share(batch.stream) for batch in batches))
            tasks = max(idle if everything else 1, min(self.parallelism, shares))
        return [
            replace(batch, tasks=tasks, expected_yield=self.expected_output_ratio(batch.stream)) for batch in batches
        ]

    def has_enough_queued(self, waiting: Iterable[tuple[StreamId, int]], landing: int, tasks: int) -> bool:  # noqa: ARG002
        """Return whether a full batch is queued, and running tasks and full batches outnumber the concurrent tasks."""
        # The sync calls this method for each chunk of input. The comparison with `least_bytes` skips small streams
        # quickly.
        whole = sum(size // self.batch_bytes(stream) for stream, size in waiting if size >= self.least_bytes)
        return whole > 0 and whole + min(tasks, self.parallelism) > self.parallelism

    def waits_for_spark(self, slots: int | None, tasks: int, *, everything: bool) -> bool:
        """Return whether Spark has more tasks than slots or, unless `everything` is set, is still starting."""
        return not everything if slots is None else tasks > slots
