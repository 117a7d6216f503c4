"""Landing: batches are encoded by Spark, committed to their tables, and their states released. Several at a time."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from destination_datalake.aws.errors import explain
from destination_datalake.datafiles import DataFile, RewriteFailed
from destination_datalake.rejects.tally import Tally
from destination_datalake.spark.engine import Engine, SparkFailed
from destination_datalake.spark.jobs import StagedBatch, StagedSegment, tasks_for
from destination_datalake.spark.plan import Encoded, NotEncoded, UnitResult
from destination_datalake.tables.base import OutcomeUnknown, Table, TableBusy, TableConflict

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.buffer.batches import Batch
    from destination_datalake.buffer.staging import Staging
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.protocol.errors import FailureType
    from destination_datalake.rejects.book import RejectBook
    from destination_datalake.rejects.place import RejectFile

_logger = logging.getLogger(__name__)

JOBS_AT_ONCE = 2
"""While one job's files are committed the next one keeps the executors busy."""

COMMITS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class StreamFailure:
    """Why a stream's records could not be landed: for the user, for the log, and whose turn it is."""

    message: str
    internal_message: str
    failure_type: FailureType


@dataclass(frozen=True, slots=True)
class Landed:
    """What became of a batch: its records are in the table or among the rejects, or its stream has failed."""

    batch: Batch
    failure: StreamFailure | None
    files: int = 0
    bytes: int = 0
    tally: Tally = field(default_factory=Tally)


class Landing:
    """Lands batches on threads of its own and tells `on_landed` of each, from those threads.

    Tables are opened and prepared at once, all of them, while Spark is starting and records are being read.
    """

    def __init__(
        self,
        openers: Mapping[StreamId, Callable[[], Table]],
        engine: Engine,
        staging: Staging,
        access: AwsAccess,
        file_prefix: str,
        rejects: RejectBook,
        on_landed: Callable[[Landed], None],
    ) -> None:
        self._engine = engine
        self._staging = staging
        self._access = access
        self._file_prefix = file_prefix
        self._rejects = rejects
        self._on_landed = on_landed
        self._table_locks = {stream: threading.Lock() for stream in openers}
        self._commits = ThreadPoolExecutor(COMMITS_AT_ONCE, "commit")
        self._tables: dict[StreamId, Future[Table]] = {
            stream: self._commits.submit(_prepared, opener) for stream, opener in openers.items()
        }

    def land(self, batches: Sequence[Batch]) -> None:
        """Encode the batches in one Spark job and commit each to its table. Returns when all are through."""
        ready: list[Batch] = []
        for batch in batches:
            failure = self.preparation_failure(batch.stream)
            if failure is None:
                ready.append(batch)
            else:
                self._on_landed(Landed(batch, failure))
        if not ready:
            return
        try:
            results = self._encode(ready)
        except Exception as error:
            for batch in ready:
                self._on_landed(Landed(batch, failure_of(error, batch.stream, "stage records of")))
            return
        for commit in [self._commits.submit(self._commit, batch, results[batch.stream]) for batch in ready]:
            commit.result()

    def preparation_failure(self, stream: StreamId) -> StreamFailure | None:
        """Why the stream's table could not be made ready; None if it is. Waits until that is known."""
        error = self._tables[stream].exception()
        return None if error is None else failure_of(error, stream, "prepare the table of")

    def publish(self, streams: Sequence[StreamId]) -> dict[StreamId, StreamFailure]:
        """Publish the tables of streams that are complete; return what went wrong."""
        rewrite = self._engine.rewrite
        published = {stream: self._commits.submit(self._tables[stream].result().publish, rewrite) for stream in streams}
        errors = {stream: future.exception() for stream, future in published.items()}
        return {
            stream: failure_of(error, stream, "publish the new content of")
            for stream, error in errors.items()
            if error is not None
        }

    def close(self) -> None:
        """Wait for the threads."""
        self._commits.shutdown(cancel_futures=True)

    def _encode(self, batches: Sequence[Batch]) -> Mapping[StreamId, list[UnitResult]]:
        staged = [self._stage(batch) for batch in batches]
        try:
            results = self._engine.encode(tasks_for(staged, self._engine.parallelism(), self._access))
        finally:
            self._staging.clear(segment.place for batch in staged for segment in batch.segments)
        by_stream: dict[StreamId, list[UnitResult]] = {batch.stream: [] for batch in batches}
        for result in results:
            by_stream[result.stream].append(result)
        return by_stream

    def _stage(self, batch: Batch) -> StagedBatch:
        segments = tuple(StagedSegment(self._staging.stage(segment), segment.bytes) for segment in batch.segments)
        name = f"{self._file_prefix}-{batch.number:06d}"
        table = self._tables[batch.stream].result()
        return StagedBatch(batch.stream, name, segments, table.plan(), self._rejects.place(table.name))

    def _commit(self, batch: Batch, results: Sequence[UnitResult]) -> None:
        """Commit what was encoded; encode again if the table had to become wider first (see `Table.commit`)."""
        table = self._tables[batch.stream].result()
        try:
            with self._table_locks[batch.stream]:
                landed = self._into_table(table, batch, results)
        except Exception as error:
            # Whether the commit took place may be unknown, so its files stay: a file too many is harmless.
            doing = f"commit to table {table.name} the records of"
            landed = Landed(batch, failure_of(error, batch.stream, doing))
        self._on_landed(landed)

    def _into_table(self, table: Table, batch: Batch, results: Sequence[UnitResult]) -> Landed:
        failure = _encoding_failure(batch, results)
        if failure is None:
            self._rejects.register(_rejects(results))
            passed = self._rejects.judge(batch.stream, _tally(results))
            if passed is not None:
                self._discard(table, _files(results), ())  # the rejects stay: they are the evidence
                return Landed(batch, StreamFailure(passed, "the limit of rejects is passed", "config_error"))
        while failure is None and not table.commit(_files(results), self._engine.rewrite):
            # Encoded again, the batch may be cut into other units, whose rejects go by other names.
            self._rejects.withdraw(_rejects(results))
            results = self._encode([batch])[batch.stream]
            failure = _encoding_failure(batch, results)
        files = _files(results)
        if failure is not None:
            self._discard(table, files, _rejects(results))
            return Landed(batch, failure)
        return Landed(batch, None, len(files), sum(file.size for file in files), _tally(results))

    def _discard(self, table: Table, files: Sequence[DataFile], rejects: Sequence[RejectFile]) -> None:
        try:
            table.discard(files)
            self._rejects.withdraw(rejects)
        except Exception:
            _logger.warning("Files of a failed batch of table %s could not be removed.", table.name, exc_info=True)


def _prepared(opener: Callable[[], Table]) -> Table:
    """Open a table and make it ready. On a thread, as libraries that take seconds to import come along."""
    table = opener()
    table.prepare()
    return table


def _files(results: Sequence[UnitResult]) -> list[DataFile]:
    return [file for result in results if isinstance(result, Encoded) for file in result.files]


def _rejects(results: Sequence[UnitResult]) -> list[RejectFile]:
    return [file for result in results if isinstance(result, Encoded) for file in result.rejects]


def _tally(results: Sequence[UnitResult]) -> Tally:
    return Tally.total(result.tally for result in results if isinstance(result, Encoded))


def _encoding_failure(batch: Batch, results: Sequence[UnitResult]) -> StreamFailure | None:
    for result in results:
        if isinstance(result, NotEncoded):
            return StreamFailure(result.message, result.internal_message, result.failure_type)
    written = sum(file.rows for file in _files(results))
    refused = _tally(results).refused
    if written + refused != batch.records:
        sent = f"{batch.records} records were received, {written} encoded and {refused} rejected"
        return StreamFailure(f"Stream {batch.stream}: {sent}.", "records and rows do not match", "system_error")
    return None


def failure_of(error: BaseException, stream: StreamId, doing: str) -> StreamFailure:
    """Say what an exception means for a stream. `doing` completes "Cannot … stream …"."""
    trace = "".join(traceback.format_exception(error))
    match error:
        case TableConflict():
            return StreamFailure(str(error), trace, "config_error")
        case RewriteFailed(failure=cause):
            return StreamFailure(cause.message, cause.internal_message, cause.failure_type)
        case SparkFailed() | TableBusy() | OutcomeUnknown():
            return StreamFailure(str(error), trace, "transient_error")
    failure = explain(error, doing=doing, resource=f"stream {stream}")
    if failure is not None:
        return StreamFailure(failure.message, f"{failure.detail}\n{trace}", failure.failure_type)
    return StreamFailure(f"Cannot {doing} stream {stream}: {type(error).__name__}.", trace, "system_error")
