"""Outcomes: what became of a batch, and what has failed in a sync."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destination_datalake.buffer.batching import Batch
from destination_datalake.errors import Failure
from destination_datalake.rejects.counts import RejectCounts

if TYPE_CHECKING:
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.protocol.stdout import Stdout


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """Every record of the batch is in the table, or refused and among the rejects. `files` and `bytes` were written.

    `partitions` is the number of partitions that a task's records were of, on average.
    """

    batch: Batch
    files: int
    bytes: int
    counts: RejectCounts
    partitions: float = 1.0


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """The batch is not known to be in the table: its stream has failed."""

    batch: Batch
    failure: Failure


@dataclass(frozen=True, slots=True)
class BatchSkipped:
    """No state can acknowledge the batch any more, so it was not committed. Its files are deleted."""

    batch: Batch


BatchOutcome = BatchCommitted | BatchFailed | BatchSkipped


class SyncOutcome:
    """The failures of a sync: of its streams, and one that ends all of it. The first of each counts. Thread-safe."""

    def __init__(self, streams: Iterable[StreamId]) -> None:
        self._streams = frozenset(streams)
        self._lock = threading.Lock()
        self._failures: dict[StreamId, Failure] = {}
        self._fatal: Failure | None = None

    @property
    def is_failure(self) -> bool:
        """Whether a stream or the sync has failed."""
        return self.is_stopped or bool(self._failures)

    @property
    def is_stopped(self) -> bool:
        """Whether the sync has failed as a whole."""
        return self._fatal is not None

    @property
    def all_failed(self) -> bool:
        """Whether the sync has failed as a whole, or every one of its streams has."""
        return self.is_stopped or len(self._failures) == len(self._streams)

    @property
    def first_failed(self) -> StreamId | None:
        """The stream that failed first."""
        return next(iter(self._failures), None)

    def has_failed(self, stream: StreamId) -> bool:
        """Whether the stream has failed."""
        return stream in self._failures

    def fail(self, stream: StreamId, failure: Failure) -> bool:
        """Record that a stream has failed. Return False if it had already."""
        with self._lock:
            return self._failures.setdefault(stream, failure) is failure

    def stop(self, failure: Failure) -> None:
        """Record that the sync has failed as a whole."""
        with self._lock:
            self._fatal = self._fatal or failure

    def write_traces(self, out: Stdout) -> None:
        """Write a TRACE ERROR for each failure."""
        with self._lock:
            failures = list(self._failures.items())
        for stream, failure in failures:
            descriptor = (stream.namespace, stream.name)
            out.trace_error(failure.advice, failure.detail, failure.type, descriptor)
        if self._fatal is not None:
            out.trace_error(self._fatal.advice, self._fatal.detail, self._fatal.type)
