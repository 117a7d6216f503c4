"""Landing: batches are encoded by Spark, committed to their tables, and their states released. Several at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from destination_datalake.errors import Failure
from destination_datalake.files.plan import DataFile
from destination_datalake.files.tasks import (
    Encoded,
    NotEncoded,
    StagedBatch,
    StagedSegment,
    UnitResult,
    split_into_tasks,
)
from destination_datalake.records.undeclared import undeclared_warning
from destination_datalake.rejects.counts import RejectCounts
from destination_datalake.spark.engine import Engine
from destination_datalake.sync.failures import failure_of
from destination_datalake.sync.workers import Workers
from destination_datalake.tables.table import Committed, Reencode, Table

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.buffer.batches import Batch
    from destination_datalake.buffer.staging import Staging
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.rejects.ledger import RejectLedger
    from destination_datalake.rejects.location import RejectFile
    from destination_datalake.sync.report import Activities

_logger = logging.getLogger(__name__)

JOBS_AT_ONCE = 2
"""While one job's files are committed the next one keeps the executors busy."""

COMMITS_AT_ONCE = 8

ENCODINGS = 5
"""How often a batch is encoded before its stream is given up, because its table has changed under each of them."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What became of a batch: its records are in the table or among the rejects, or its stream has failed.

    Or else nobody wanted it any more: it was `skipped`, and nothing of it is left.
    """

    batch: Batch
    failure: Failure | None
    skipped: bool = False
    files: int = 0
    bytes: int = 0
    counts: RejectCounts = field(default_factory=RejectCounts)


class Landing:
    """Lands batches on threads of its own and tells `on_landed` of each, from those threads.

    Tables are opened and prepared at once, all of them, while Spark is starting and records are being read. A batch
    that is not `wanted` any more when it could be committed is not: no state can speak for it.
    """

    def __init__(
        self,
        openers: Mapping[StreamId, Callable[[], Table]],
        engine: Engine,
        staging: Staging,
        access: AwsAccess,
        file_prefix: str,
        rejects: RejectLedger,
        on_landed: Callable[[BatchOutcome], None],
        wanted: Callable[[Batch], bool],
        activities: Activities,
    ) -> None:
        self._engine = engine
        self._staging = staging
        self._access = access
        self._file_prefix = file_prefix
        self._rejects = rejects
        self._on_landed = on_landed
        self._wanted = wanted
        self._activities = activities
        self._with_undeclared: set[StreamId] = set()
        self._table_locks = {stream: threading.Lock() for stream in openers}
        self._commits = Workers(COMMITS_AT_ONCE, "commit")
        self._tables: dict[StreamId, Future[Table]] = {
            stream: self._commits.submit(_prepared, opener) for stream, opener in openers.items()
        }

    def land(self, batches: Sequence[Batch]) -> None:
        """Encode the batches in one Spark job and commit each to its table. Returns when all are through.

        Whatever is raised for one of them fails its stream, and no other.
        """
        staged: dict[StreamId, tuple[Batch, StagedBatch]] = {}
        for batch in batches:
            failure = self.preparation_failure(batch.stream)
            if failure is None:
                try:
                    staged[batch.stream] = (batch, self._stage(batch))
                    continue
                except Exception as error:
                    failure = failure_of(error, batch.stream, "stage records of")
            self._on_landed(BatchOutcome(batch, failure))
        if not staged:
            return
        try:
            results = self._encode([stage for _, stage in staged.values()])
        except Exception as error:
            for batch, _ in staged.values():
                self._on_landed(BatchOutcome(batch, failure_of(error, batch.stream, "encode records of")))
            return
        commits = [self._commits.submit(self._commit, batch, results[batch.stream]) for batch, _ in staged.values()]
        wait(commits)
        for commit in commits:
            commit.result()

    def spark_is_starting(self) -> bool:
        """Whether nothing can be encoded yet."""
        return self._engine.is_starting()

    def spark_has_gone(self) -> bool:
        """Whether nothing can be encoded any more."""
        return self._engine.error is not None

    def preparation_failure(self, stream: StreamId) -> Failure | None:
        """Why the stream's table could not be made ready; None if it is. Waits until that is known."""
        error = self._tables[stream].exception()
        return None if error is None else failure_of(error, stream, "prepare the table of")

    def publish(self, streams: Sequence[StreamId]) -> dict[StreamId, Failure]:
        """Publish the tables of streams that are complete; return what went wrong."""
        rewrite = self._engine.rewrite
        published = {stream: self._commits.submit(self._tables[stream].result().publish, rewrite) for stream in streams}
        with self._activities.during("publishing"):
            errors = {stream: future.exception() for stream, future in published.items()}
        return {
            stream: failure_of(error, stream, "publish the new content of")
            for stream, error in errors.items()
            if error is not None
        }

    def close(self, given_up: Callable[[], bool]) -> None:
        """End the threads: begin nothing more, and wait for what has begun until it is `given_up`."""
        self._commits.close(given_up)

    def _encode(self, staged: Sequence[StagedBatch]) -> Mapping[StreamId, list[UnitResult]]:
        try:
            tasks = split_into_tasks(staged, self._engine.parallelism(), self._access)
            with self._activities.during("encoding"):
                results = self._engine.encode(tasks)
        finally:
            self._clear(segment for batch in staged for segment in batch.segments)
        by_stream: dict[StreamId, list[UnitResult]] = {batch.stream: [] for batch in staged}
        for result in results:
            by_stream[result.stream].append(result)
        return by_stream

    def _stage(self, batch: Batch) -> StagedBatch:
        name = f"{self._file_prefix}-{batch.number:06d}"
        table = self._tables[batch.stream].result()
        plan, rejects = table.plan(), self._rejects.location(*table.name)
        segments: list[StagedSegment] = []
        try:
            for segment in batch.segments:
                segments.append(StagedSegment(self._staging.stage(segment), segment.bytes))  # noqa: PERF401
        except Exception:
            self._clear(segments)
            raise
        return StagedBatch(batch.stream, name, tuple(segments), plan, rejects)

    def _clear(self, segments: Iterable[StagedSegment]) -> None:
        try:
            self._staging.delete(segment.location for segment in segments)
        except Exception:
            _logger.warning("Staged records could not be removed.", exc_info=True)

    def _commit(self, batch: Batch, results: Sequence[UnitResult]) -> None:
        """Commit what was encoded; encode again if the table answers Reencode."""
        table = self._tables[batch.stream].result()
        with self._table_locks[batch.stream], self._activities.during("committing"):
            try:
                landed = self._into_table(table, batch, results)
            except Exception as error:
                # Whether the commit took place may be unknown, so its files stay: a file too many is harmless.
                doing = f"commit to table {table.name} the records of"
                landed = BatchOutcome(batch, failure_of(error, batch.stream, doing))
            # Still under the lock: the stream's next batch must find out that this one has failed.
            self._on_landed(landed)

    def _into_table(self, table: Table, batch: Batch, results: Sequence[UnitResult]) -> BatchOutcome:
        if not self._wanted(batch):
            self._discard(table, _files(results), _rejects(results))
            return BatchOutcome(batch, None, skipped=True)
        self._tell_undeclared(batch.stream, results)
        if _encoding_failure(batch, results) is None:
            self._rejects.register(_rejects(results))
            exceeded = self._rejects.add(batch.stream, _counts(results))
            if exceeded is not None:
                self._discard(table, _files(results), ())  # the rejects stay: they are the evidence
                return BatchOutcome(batch, Failure(exceeded, "the limit of rejects is exceeded", "config_error"))
        reason = ""
        for attempt in range(ENCODINGS):
            if attempt:
                _logger.info("Table %s: batch %d is encoded again, as %s.", table.name, batch.number, reason)
                results = self._encode([self._stage(batch)])[batch.stream]
            files = _files(results)
            if (failure := _encoding_failure(batch, results)) is not None:
                self._discard(table, files, _rejects(results))
                return BatchOutcome(batch, failure)
            match table.commit(files, self._engine.rewrite):
                case Committed():
                    size = sum(file.size for file in files)
                    return BatchOutcome(batch, None, files=len(files), bytes=size, counts=_counts(results))
                case Reencode(reason=reason):
                    # Encoded again, the batch may be cut into other units, whose rejects go by other names.
                    self._rejects.withdraw(_rejects(results))
        return BatchOutcome(batch, _too_many_encodings(table, batch, reason))

    def _tell_undeclared(self, stream: StreamId, results: Sequence[UnitResult]) -> None:
        """Warn, once for a stream, of fields that its records have and its schema has not."""
        places = {place for result in results if isinstance(result, Encoded) for place in result.undeclared}
        if places and stream not in self._with_undeclared:
            self._with_undeclared.add(stream)
            _logger.warning("%s", undeclared_warning(stream, places))

    def _discard(self, table: Table, files: Sequence[DataFile], rejects: Sequence[RejectFile]) -> None:
        try:
            with ExitStack() as steps:
                steps.callback(self._rejects.withdraw, rejects)
                steps.callback(table.discard, files)
        except Exception:
            _logger.warning("Files of a failed batch of table %s could not be removed.", table.name, exc_info=True)


def _too_many_encodings(table: Table, batch: Batch, reason: str) -> Failure:
    message = (
        f"Cannot commit to table {table.name} the records of stream {batch.stream}: {reason}, at the last of "
        f"{ENCODINGS} attempts as before. Nothing that was acknowledged is lost. Run the sync again when no other "
        "writer changes the table."
    )
    return Failure(message, f"a batch was encoded {ENCODINGS} times", "transient_error")


def _prepared(opener: Callable[[], Table]) -> Table:
    """Open a table and make it ready. On a thread, as libraries that take seconds to import come along."""
    table = opener()
    table.prepare()
    return table


def _files(results: Sequence[UnitResult]) -> list[DataFile]:
    return [file for result in results if isinstance(result, Encoded) for file in result.files]


def _rejects(results: Sequence[UnitResult]) -> list[RejectFile]:
    return [file for result in results if isinstance(result, Encoded) for file in result.rejects]


def _counts(results: Sequence[UnitResult]) -> RejectCounts:
    return RejectCounts.total(result.counts for result in results if isinstance(result, Encoded))


def _encoding_failure(batch: Batch, results: Sequence[UnitResult]) -> Failure | None:
    for result in results:
        if isinstance(result, NotEncoded):
            return result.failure
    written = sum(file.rows for file in _files(results))
    refused = _counts(results).refused
    if written + refused != batch.records:
        sent = f"{batch.records} records were received, {written} encoded and {refused} rejected"
        return Failure(f"Stream {batch.stream}: {sent}.", "records and rows do not match", "system_error")
    return None
