"""Batches: the segments of a stream that one Spark job encodes, and the policies that say how large they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from destination_datalake.buffer.staging import Segment
from destination_datalake.protocol.catalog import StreamId


@dataclass(frozen=True, slots=True)
class Batch:
    """Segments of one stream that are encoded by one Spark job and committed together; `number` counts from 1.

    `tasks` is how many tasks should encode it, together with the batches that were taken with it; None: as many as run
    at the same time. `expected_yield` is the size of the files that a byte of a task's records is expected to become in
    each of their partitions, if there is an expectation.
    """

    stream: StreamId
    number: int
    segments: tuple[Segment, ...]
    tasks: int | None = None
    expected_yield: float | None = None

    @property
    def first_record(self) -> int:
        """The number (from 0) of the batch's first record in the stream's input."""
        return self.segments[0].first_record

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(segment.records for segment in self.segments)

    @property
    def bytes(self) -> int:
        """The size of the record lines, in bytes."""
        return sum(segment.bytes for segment in self.segments)

    def line_of(self, record: int) -> int:
        """Return the number in the input of the line of one of the batch's records. Raises ValueError for others."""
        for segment in self.segments:
            left = record - segment.first_record
            if 0 <= left < segment.records:
                for first_line, lines in zip(segment.places[::2], segment.places[1::2], strict=True):
                    if left < lines:
                        return first_line + left
                    left -= lines
        raise ValueError(f"record {record} is not in the batch")


READ_AHEAD_BATCHES = 4
"""Whole batches that wait or are being landed: reading continues while Spark starts, and no job waits for a batch."""

EXPECTED_YIELDS: Mapping[tuple[str, str], float] = {
    ("Parquet", "ZSTD"): 0.15,
    ("Parquet", "GZIP"): 0.15,
    ("Parquet", "SNAPPY"): 0.2,
    ("Parquet", "UNCOMPRESSED"): 0.3,
    ("JSONL", "UNCOMPRESSED"): 1.0,
    ("JSONL", "GZIP"): 0.2,
}
"""Bytes of files per byte of record lines, by format_type and compression_codec: guesses, right to a factor of two."""

_PARALLELISM = 3
"""How many tasks are assumed to run at once as long as Spark has not said so."""

_TELLING_BYTES = 1024 * 1024
"""Smaller batches say little about the next: headers and footers are much of their files."""


@dataclass(slots=True)
class BatchPolicy:
    """How large batches are, how many tasks encode them, and how far reading is ahead of them. Not thread-safe.

    All batches have `least_bytes`, and are encoded by all tasks that run at once: their files are smaller.
    `parallelism` is how many tasks run at once.
    """

    jobs: ClassVar[int] = 2
    """How many jobs run, or commit what they have encoded, at the same time: while one job's files are committed the
    next one keeps the executors busy."""

    least_bytes: int
    parallelism: int = field(default=_PARALLELISM, kw_only=True)

    def batch_bytes(self, stream: StreamId) -> int:  # noqa: ARG002
        """Return the size at which a batch of the stream is due."""
        return self.least_bytes

    def room(self, stream: StreamId, waiting: int, idle: int | None, *, ended: bool) -> int:  # noqa: ARG002
        """Return the bytes of the next job, whose first batch is of this stream, of which `waiting` bytes wait.

        `idle` tasks can run now, if that is known; the input may have `ended`.
        """
        return self.least_bytes

    def shares_job(self, waiting: int, room: int) -> bool:  # noqa: ARG002
        """Whether a stream of which `waiting` bytes wait joins the job of others, which has `room` bytes left.

        Every stream does: small streams that are due share a job, so that a hundred do not cost a hundred jobs.
        """
        return True

    def planned(self, batches: Sequence[Batch], idle: int | None, *, everything: bool) -> list[Batch]:  # noqa: ARG002
        """Return the batches of one job with the number of its tasks, if it is not that of all that run at once."""
        return [*batches]

    def is_ahead(self, waiting: Iterable[tuple[StreamId, int]], landing: int, tasks: int) -> bool:  # noqa: ARG002
        """Whether Spark has enough work: bytes of streams wait, and `landing` jobs of `tasks` run.

        Reading further ahead would not make Spark faster, and would write to disk what is about to be deleted. Enough
        are about READ_AHEAD_BATCHES whole batches that wait or land. The landing ones count only beside others.
        """
        whole = sum(size // self.least_bytes for _, size in waiting)
        return whole > 0 and whole + landing >= READ_AHEAD_BATCHES

    def waits_for_spark(self, slots: int | None, tasks: int, *, everything: bool) -> bool:  # noqa: ARG002
        """Whether it is too early to take batches: Spark could not begin, and later ones fit the files better.

        `slots` tasks run at once, `tasks` do or will. While Spark is starting `slots` is None: then only `everything`
        is a reason not to wait. Batches of a fixed size never wait: they do not become better.
        """
        return False

    def learn(self, stream: StreamId, lines: int, files: int, partitions: float) -> None:
        """Note that bytes of lines have become bytes of files, of `partitions` in each task on average."""


@dataclass(slots=True)
class LearnedBatches(BatchPolicy):
    """Batches of which each task's share fills a file, learned from what a stream's batches have become.

    A task of `share` bytes of record lines becomes a file of `target_bytes`, in each partition of its records. Nothing
    that waits or is being landed must outgrow the buffer: there is room for a share per running task and for two more
    that wait. A batch has `least_bytes` or one share, whichever is more. `expected_yield` is bytes of files per byte of
    record lines, for streams of which no batch has been committed yet.
    """

    # One more than for fixed sizes, as one task may be a job, because it fills a file: two keep two cores busy.
    jobs: ClassVar[int] = 3

    target_bytes: int
    buffer_bytes: int
    expected_yield: float
    _yields: dict[StreamId, float] = field(default_factory=dict)

    def learn(self, stream: StreamId, lines: int, files: int, partitions: float) -> None:
        """Note what a batch has become. Tiny ones say little."""
        if lines >= _TELLING_BYTES and files:
            self._yields[stream] = files / lines / max(1.0, partitions)

    def yield_of(self, stream: StreamId) -> float:
        """Return the bytes of files, in each partition of its records, that a task is expected to make of a byte."""
        return self._yields.get(stream, self.expected_yield)

    def share(self, stream: StreamId) -> int:
        """Return the bytes of the stream that one task should encode."""
        return min(max(1, int(self.target_bytes / self.yield_of(stream))), self.largest_share)

    @property
    def largest_share(self) -> int:
        """The most bytes that any task should encode."""
        return max(1, self.buffer_bytes // (self.parallelism + 2))

    def batch_bytes(self, stream: StreamId) -> int:
        """Return a share, or the least size if that is more."""
        return max(self.least_bytes, self.share(stream))

    def room(self, stream: StreamId, waiting: int, idle: int | None, *, ended: bool) -> int:
        """Return a share for each idle task. At the end no task waits for what may come."""
        if ended:
            return self.largest_share * (idle or self.parallelism)
        share = self.share(stream)
        return max(self.batch_bytes(stream), min(idle or 1, waiting // share) * share)

    def shares_job(self, waiting: int, room: int) -> bool:
        """A stream does if all of it fits: what is cut off a larger batch becomes a small file."""
        return waiting <= room

    def planned(self, batches: Sequence[Batch], idle: int | None, *, everything: bool) -> list[Batch]:
        """Return the batches with tasks: as many as have about a share each, or for `everything` the idle ones if more.

        They may be more than are idle: a batch of several shares would otherwise keep one task busy when others are
        idle.
        """
        tasks = idle
        if idle is not None:
            shares = round(sum(batch.bytes / self.share(batch.stream) for batch in batches))
            tasks = max(idle if everything else 1, min(self.parallelism, shares))
        return [replace(batch, tasks=tasks, expected_yield=self.yield_of(batch.stream)) for batch in batches]

    def is_ahead(self, waiting: Iterable[tuple[StreamId, int]], landing: int, tasks: int) -> bool:  # noqa: ARG002
        """Whether a whole batch waits for each task that runs at once, those that run counted."""
        # For each chunk that is read: most of many streams are small, which is quickly seen.
        whole = sum(size // self.batch_bytes(stream) for stream, size in waiting if size >= self.least_bytes)
        return whole > 0 and whole + min(tasks, self.parallelism) > self.parallelism

    def waits_for_spark(self, slots: int | None, tasks: int, *, everything: bool) -> bool:
        """Whether Spark could not begin. One more job may wait in Spark for the first that ends."""
        return not everything if slots is None else tasks > slots
