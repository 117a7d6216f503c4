"""How large batches are, so that the files made of them reach their target size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from destination_datalake.protocol.catalog import StreamId

_TELLING_BYTES = 1024 * 1024
"""Smaller batches say little about the next: headers and footers are much of their files."""

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


@dataclass(slots=True)
class BatchSizes:
    """Sizes of a stream's batches, learned from what its batches have become. Not thread-safe.

    A task of `share` bytes of record lines becomes a file of `target_bytes`, in each partition of its records. Nothing
    that waits or is being landed must outgrow the buffer: there is room for a share per running task and for two more
    that wait. A batch has `least_bytes` or one share, whichever is more. `expected_yield` is bytes of files per byte of
    record lines, for streams of which no batch has been committed yet.
    """

    least_bytes: int
    target_bytes: int
    buffer_bytes: int
    expected_yield: float
    parallelism: int = _PARALLELISM
    _yields: dict[StreamId, float] = field(default_factory=dict)

    def learn(self, stream: StreamId, lines: int, files: int, partitions: float) -> None:
        """Note that bytes of lines have become bytes of files, of `partitions` in each task on average."""
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
        """Return the size at which a batch of the stream is due."""
        return max(self.least_bytes, self.share(stream))
