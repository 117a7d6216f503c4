"""Landing: batches are encoded by Spark, committed to their tables, and their states released. Several at a time."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destination_datalake.aws.errors import explain
from destination_datalake.datafiles import DataFile
from destination_datalake.spark.engine import Engine, SparkFailed
from destination_datalake.spark.jobs import StagedBatch, StagedSegment, tasks_for
from destination_datalake.spark.plan import Encoded, NotEncoded, UnitResult
from destination_datalake.tables.base import Table, TableConflict

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.buffer.batches import Batch
    from destination_datalake.buffer.staging import Staging
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.protocol.errors import FailureType

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
    """What became of a batch: its records are in the table, or its stream has failed."""

    batch: Batch
    failure: StreamFailure | None
    files: int = 0
    bytes: int = 0
    changed_values: int = 0


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
        on_landed: Callable[[Landed], None],
    ) -> None:
        self._engine = engine
        self._staging = staging
        self._access = access
        self._file_prefix = file_prefix
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
        return StagedBatch(batch.stream, name, segments, self._tables[batch.stream].result().plan())

    def _commit(self, batch: Batch, results: Sequence[UnitResult]) -> None:
        """Commit what was encoded; encode again if the table had to become wider first (see `Table.commit`)."""
        table = self._tables[batch.stream].result()
        failure = None
        try:
            with self._table_locks[batch.stream]:
                while (failure := _encoding_failure(batch, results)) is None:
                    if table.commit(_files(results), self._engine.rewrite):
                        break
                    results = self._encode([batch])[batch.stream]
        except Exception as error:
            # Whether the commit took place may be unknown, so its files stay: a file too many is harmless.
            failure = failure_of(error, batch.stream, f"commit to table {table.name} the records of")
        else:
            if failure is not None:
                self._discard(table, _files(results))
        files = _files(results)
        changed = sum(result.changed_values for result in results if isinstance(result, Encoded))
        self._on_landed(Landed(batch, failure, len(files), sum(file.size for file in files), changed))

    @staticmethod
    def _discard(table: Table, files: Sequence[DataFile]) -> None:
        try:
            table.discard(files)
        except Exception:
            _logger.warning("Files of a failed batch stay under the folder of table %s.", table.name, exc_info=True)


def _prepared(opener: Callable[[], Table]) -> Table:
    """Open a table and make it ready. On a thread, as libraries that take seconds to import come along."""
    table = opener()
    table.prepare()
    return table


def _files(results: Sequence[UnitResult]) -> list[DataFile]:
    return [file for result in results if isinstance(result, Encoded) for file in result.files]


def _encoding_failure(batch: Batch, results: Sequence[UnitResult]) -> StreamFailure | None:
    for result in results:
        if isinstance(result, NotEncoded):
            return StreamFailure(result.message, result.internal_message, result.failure_type)
    written = sum(result.rows for result in results if isinstance(result, Encoded))
    if written != batch.records:
        message = f"Stream {batch.stream}: {batch.records} records were received and {written} encoded."
        return StreamFailure(message, "records and rows do not match", "system_error")
    return None


def failure_of(error: BaseException, stream: StreamId, doing: str) -> StreamFailure:
    """Say what an exception means for a stream. `doing` completes "Cannot … stream …"."""
    trace = "".join(traceback.format_exception(error))
    match error:
        case TableConflict():
            return StreamFailure(str(error), trace, "config_error")
        case SparkFailed():
            return StreamFailure(str(error), trace, "transient_error")
    failure = explain(error, doing=doing, resource=f"stream {stream}")
    if failure is not None:
        return StreamFailure(failure.message, f"{failure.detail}\n{trace}", failure.failure_type)
    return StreamFailure(f"Cannot {doing} stream {stream}: {type(error).__name__}.", trace, "system_error")
