"""Land batches: encode their records on Spark, and commit the files to the tables. Several batches land at a time."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from destination_datalake.aws.objects import DeferredUpload, Pending
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.plan import (
    DataFile,
    Encoded,
    EncodeTask,
    EncodeUnit,
    IngestOrder,
    LineFile,
    LineFilter,
    LineSink,
    NotEncoded,
    RewriteTask,
    Rewritten,
    UnitResult,
    split_into_tasks,
)
from destination_datalake.lake_formation.governance import explaining_denials
from destination_datalake.records.undeclared import undeclared_warning
from destination_datalake.rejects.ledger import RejectCounts
from destination_datalake.sync.outcome import (
    BatchCommitted,
    BatchFailed,
    BatchOutcome,
    BatchSkipped,
    failure_of,
)
from destination_datalake.sync.thread_pool import ThreadPool
from destination_datalake.tables.table import CommitListener, Committed, Reencode, Table, TableConflict

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.buffer.batching import Batch
    from destination_datalake.buffer.staging import SegmentAccess
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.rejects.ledger import RejectFile, RejectLedger
    from destination_datalake.spark.backend import JobsProgress, SparkFailed
    from destination_datalake.sync.progress import ActiveStages

_logger = logging.getLogger(__name__)

MAX_COMMITS = 16
"""Maximum number of tables that are prepared, committed to or published concurrently."""

MAX_TASKS = 32
"""Maximum number of concurrent tasks that a sync uses. The sync reads stdin too slowly to supply more tasks with enough
records for files of the target size."""

MAX_ENCODINGS = 5
"""Maximum number of attempts to encode and commit a batch. Another attempt follows if another writer has changed the
table."""


TableFilters: TypeAlias = Mapping[str, Sequence[LineFilter]]
"""Maps the name of each table ("database.table") to the filters that exclude records with erased IDs."""


class Executors(Protocol):
    """The interface to Spark for encoding batches and rewriting data files. Its methods may raise SparkFailed."""

    @property
    def error(self) -> SparkFailed | None:
        """The reason why Spark can run no more jobs, or None while it can."""

    def is_starting(self) -> bool:
        """Return whether Spark is still starting."""

    def parallelism(self) -> int:
        """Return the number of concurrent tasks. Waits until Spark has started."""

    def progress(self) -> JobsProgress:
        """Return the task counts of the running jobs. Never raises, but may block until Spark responds."""

    def encode(self, tasks: Sequence[EncodeTask]) -> Sequence[UnitResult]:
        """Encode the units (parts of batches) of all tasks in one Spark job. Return one result per unit."""

    def rewrite(self, tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
        """Rewrite data files in one Spark job. Raises RewriteFailed if a file cannot be rewritten."""


@dataclass(frozen=True, slots=True)
class StreamTables:
    """Opens the tables of a sync's streams.

    `location` is the ARN of the folder that contains all tables. Errors about missing grants name this folder, not the
    folder of a single table. `listener` follows the commits to the tables.
    """

    factories: Mapping[StreamId, Callable[[], Table]]
    access: AwsAccess
    location: str | None = None
    listener: CommitListener = field(default_factory=CommitListener)

    def explaining_denials(self, table: Table) -> AbstractContextManager[None]:
        """Return a context manager that adds the names of missing grants to access errors for the table."""
        return explaining_denials(*table.name, self.access, self.location)

    def prepared(self, stream: StreamId) -> Table:
        """Open and prepare the table of a stream, and return it.

        The first call may take seconds, because it imports libraries.
        """
        table = self.factories[stream]()
        with self.explaining_denials(table):
            table.prepare()
        self.listener.begin(stream, table)
        return table


class Encoding:
    """Prepares batches for executors, and encodes them on Spark.

    The names of all data files and reject files begin with `file_prefix`. `filters` reads the filters that exclude
    suppressed records.
    """

    def __init__(
        self,
        executors: Executors,
        segments: SegmentAccess,
        access: AwsAccess,
        file_prefix: str,
        filters: Callable[[], TableFilters] = dict,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.executors = executors
        self._segments = segments
        self._access = access
        self._file_prefix = file_prefix
        self.filters = filters
        self._started = int(clock() * 1000)
        self._slots: int | None = None

    def stage(
        self,
        batch: Batch,
        table: Table,
        rejects: RejectLedger,
        sinks: tuple[LineSink, ...],
        filters: TableFilters,
    ) -> EncodeUnit:
        """Wait until executors can read the batch's records. Return the unit of work that encodes the batch."""
        name = f"{self._file_prefix}-{batch.number:06d}"
        segments = tuple(map(self._segments.stage, batch.segments))  # Before `table.plan`: uploads may take a while.
        plan, location = table.plan(), rejects.location(*table.name)
        plan = replace(plan, spool_folder=self._segments.shared_folder())
        # The number of the batch, not the current time: if the batch is encoded again, its rows keep their place.
        arrived = IngestOrder(self._started + batch.number, 0)
        line_filters = tuple(filters.get(str(table.name), ()))
        return EncodeUnit(
            batch.stream, name, segments, plan, location, arrived, line_filters, sinks, batch.expected_yield
        )

    def encode(self, staged: Sequence[EncodeUnit], tasks: int) -> Mapping[StreamId, list[UnitResult]]:
        """Encode batches of different streams in one Spark job of about `tasks` tasks. Return the results by stream."""
        results = self.executors.encode(split_into_tasks(staged, tasks, self._access))
        encoded = (result for result in results if isinstance(result, Encoded))
        self._require_shared(upload for result in encoded for upload in result.pending())
        by_stream: dict[StreamId, list[UnitResult]] = {batch.stream: [] for batch in staged}
        for result in results:
            by_stream[result.stream].append(result)
        return by_stream

    def _require_shared(self, uploads: Iterable[Pending | None]) -> None:
        """Raise ValueError if a task returned a deferred upload whose file is outside the shared folder.

        Without this check, a malicious Spark Connect server could make the driver publish and delete any local file.
        """
        folder = self._segments.shared_folder()
        for upload in uploads:
            if isinstance(upload, DeferredUpload) and os.path.split(upload.path)[0] != folder:
                raise ValueError("Spark returned a deferred upload outside the shared folder")

    def slots(self) -> int | None:
        """Return the number of concurrent tasks as of the last job, at most MAX_TASKS. None while Spark is starting."""
        if self._slots is None and not self.executors.is_starting():
            self.count_slots()
        return self._slots

    def count_slots(self) -> None:
        """Update the number of concurrent tasks, because a cluster can add or remove executors.

        Blocks until Spark has started.
        """
        try:
            self._slots = min(self.executors.parallelism(), MAX_TASKS)
        except Exception:
            self._slots = 1  # Spark has failed. The next job raises the error.


class Landing:
    """Encodes batches on Spark and commits them to the tables. Reports the outcome of each batch to `settle`.

    The constructor starts to prepare all tables, while Spark starts and the main thread reads records. Before each
    commit, `Landing` calls `can_acknowledge(batch)`. The result False means that no state message can confirm the
    batch's records any more; `Landing` then skips the commit. It may call `settle` on any thread.
    """

    def __init__(
        self,
        tables: StreamTables,
        encoding: Encoding,
        rejects: RejectLedger,
        settle: Callable[[BatchOutcome], None],
        can_acknowledge: Callable[[Batch], bool],
        stages: ActiveStages,
    ) -> None:
        """Start to prepare the tables and to read the suppression rules, on other threads."""
        self.encoding = encoding
        self._executors = encoding.executors
        self._explaining_denials = tables.explaining_denials
        self._listener = tables.listener
        self._rejects = rejects
        self._settle = settle
        self._can_acknowledge = can_acknowledge
        self._stages = stages
        self._streams_warned: set[StreamId] = set()
        self._table_locks = {stream: threading.Lock() for stream in tables.factories}
        self._committed = {stream: _Committed() for stream in tables.factories}
        self._commits = ThreadPool(MAX_COMMITS, "commit")
        # Submit this call first: the pool runs calls in order, and each batch waits for the rules.
        self._filters = self._commits.submit(encoding.filters)
        self._tables: dict[StreamId, Future[Table]] = {
            stream: self._commits.submit(tables.prepared, stream) for stream in tables.factories
        }

    def land(self, batches: Sequence[Batch]) -> None:
        """Encode the batches in one Spark job, and commit each to its table. Return when every outcome is reported.

        An error in one batch fails only this batch's stream. If the job itself fails, all of its streams fail.
        """
        staged: dict[StreamId, tuple[Batch, EncodeUnit]] = {}
        for batch in batches:
            failure = self.preparation_failure(batch.stream)
            if failure is None:
                try:
                    staged[batch.stream] = (batch, self._staged(batch))
                    continue
                except Exception as error:
                    failure = failure_of(error, batch.stream, "stage records of")
            self._settle(BatchFailed(batch, failure))
        if not staged:
            return
        try:
            results = self._encoded([stage for _, stage in staged.values()], batches[0].tasks)
            self.encoding.count_slots()
        except Exception as error:
            for batch, _ in staged.values():
                self._settle(BatchFailed(batch, failure_of(error, batch.stream, "encode records of")))
            return
        commits = [self._commits.submit(self._commit, batch, results[batch.stream]) for batch, _ in staged.values()]
        # Wait for all commits before raising the error of one. The last job to end publishes the tables, so no commit
        # may still be running then.
        wait(commits)
        for commit in commits:
            commit.result()

    def preparation_failure(self, stream: StreamId) -> Failure | None:
        """Wait until the stream's table is prepared. Return the failure, or None if the table is ready."""
        error = self._tables[stream].exception()
        if isinstance(error, TableConflict) and isinstance(filter_error := self._filters.exception(), ConnectorError):
            error = filter_error  # The table seems to be in another bucket only because bucket_name is misspelt.
        return None if error is None else failure_of(error, stream, "prepare the table of")

    def publish(self, streams: Sequence[StreamId]) -> dict[StreamId, Failure]:
        """Publish the tables of these complete streams. Return the failure of each stream that was not published."""
        published = {stream: self._commits.submit(self._publish, stream) for stream in streams}
        with self._stages.active("publishing"):
            errors = {stream: future.exception() for stream, future in published.items()}
        return {
            stream: failure_of(error, stream, "publish the table of")
            for stream, error in errors.items()
            if error is not None
        }

    def close(self, must_stop: Callable[[], bool]) -> None:
        """Start no more commits. Wait for running commits, but only until `must_stop` returns True."""
        self._commits.close(must_stop)

    def _publish(self, stream: StreamId) -> None:
        table = self._tables[stream].result()
        with self._explaining_denials(table):
            with self._stages.active("merging"):
                table.merge()
            table.publish(self._executors.rewrite)
        self._listener.end(stream, table)

    def _staged(self, batch: Batch) -> EncodeUnit:
        filters = self._filters.result()  # Wait for the suppression rules before any record is encoded.
        table, sinks = self._tables[batch.stream].result(), self._listener.sinks(batch.stream)
        return self.encoding.stage(batch, table, self._rejects, sinks, filters)

    def _encoded(self, staged: Sequence[EncodeUnit], tasks: int | None) -> Mapping[StreamId, list[UnitResult]]:
        tasks = tasks or self._executors.parallelism()  # Waits until Spark has started.
        with self._stages.active("encoding"):
            return self.encoding.encode(staged, tasks)

    def _commit(self, batch: Batch, results: Sequence[UnitResult]) -> None:
        """Commit an encoded batch, report its outcome, and merge the table's pending rows if a merge is due."""
        table = self._tables[batch.stream].result()
        # Two jobs can commit batches of the same stream at the same time.
        with self._table_locks[batch.stream], self._stages.active("committing"):
            try:
                outcome = self._commit_encoded(table, _EncodedBatch(batch, results))
            except Exception as error:
                # Keep the batch's files, because the commit may have succeeded. If it has not, no table references the
                # files, and they are harmless.
                doing = f"commit to table {table.name} for"
                outcome = BatchFailed(batch, failure_of(error, batch.stream, doing))
            # Settle under the lock: after a failure, the next batch of the stream must not be committed.
            self._settle(outcome)
            if isinstance(outcome, BatchCommitted):
                committed = self._committed[batch.stream]
                committed.add(batch)
                # Merge only if all earlier batches are committed. A merge forgets the deletions that it has applied, so
                # a deleted row would reappear if a later commit added an older version of the row.
                if committed.is_contiguous:
                    self._merge_if_due(table, batch.stream)

    def _merge_if_due(self, table: Table, stream: StreamId) -> None:
        """Merge the table's pending rows if a merge is due.

        Only logs failures, because the batch is already committed, and a later merge includes the pending rows.
        """
        try:
            if table.merge_is_due():
                with self._stages.active("merging"), self._explaining_denials(table):
                    table.merge()
        except Exception as error:
            failure = failure_of(error, stream, "deduplicate the committed records of")
            _logger.warning("%s The connector deduplicates these records in the next merge.", failure.message)
            _logger.debug("%s", failure.detail)

    def _commit_encoded(self, table: Table, encoded: _EncodedBatch) -> BatchOutcome:
        batch = encoded.batch
        if not self._can_acknowledge(batch):
            self._discard(table, encoded)
            return BatchSkipped(batch)
        self._warn_about_undeclared(encoded)
        reason = ""
        for attempt in range(MAX_ENCODINGS):
            if attempt:
                _logger.info("Encoding batch %d again for table %s: %s.", batch.number, table.name, reason)
                encoded = _EncodedBatch(batch, self._encoded([self._staged(batch)], batch.tasks)[batch.stream])
            if (failure := encoded.failure or self._publish_rejects_and_lines(encoded)) is not None:
                self._discard(table, encoded)
                return BatchFailed(batch, failure)
            # The ledger adds up the counts, so it must count a batch once, however often the batch is encoded.
            if not attempt and (exceeded := self._rejects.add(batch.stream, encoded.counts)) is not None:
                self._discard(table, encoded, with_rejects=False)  # Keep the rejects, because they show the cause.
                return BatchFailed(batch, Failure(exceeded, "the rejects exceed the limit", "config_error"))
            with self._explaining_denials(table):
                result = table.commit(encoded.files, self._executors.rewrite)
            match result:
                case Committed():
                    sizes = tuple(file.size for file in encoded.files)
                    rows = sum(file.rows for file in encoded.files)
                    self._listener.add(batch.stream, batch.number, encoded.line_files, table.position(), rows)
                    return BatchCommitted(batch, encoded.counts, rows, sizes, encoded.partitions)
                case Reencode(reason=reason):
                    self._rejects.delete_uncommitted(encoded.rejects)
                    self._listener.delete_uncommitted(encoded.line_files)
        return BatchFailed(batch, _too_many_encodings(table, batch, reason))

    def _publish_rejects_and_lines(self, encoded: _EncodedBatch) -> Failure | None:
        """Publish a batch's rejects and archived lines. Return the failure, or None.

        Call this method before the commit of the batch. The rejects then include every lost value, and the archive
        contains every committed row.
        """
        doing = "write the rejects of"
        try:
            self._rejects.publish(encoded.rejects)
            doing = "archive the records of"
            self._listener.publish(encoded.line_files)
        except Exception as error:
            return failure_of(error, encoded.batch.stream, doing)
        return None

    def _warn_about_undeclared(self, encoded: _EncodedBatch) -> None:
        """Log a warning, once per stream, about fields in its records that its schema does not declare."""
        stream = encoded.batch.stream
        if encoded.undeclared and stream not in self._streams_warned:
            self._streams_warned.add(stream)
            _logger.warning("%s", undeclared_warning(stream, encoded.undeclared))

    def _discard(self, table: Table, encoded: _EncodedBatch, *, with_rejects: bool = True) -> None:
        try:
            # The stack calls all three functions in reverse order, even if one of them raises an error.
            with ExitStack() as steps:
                if with_rejects:
                    steps.callback(self._rejects.delete_uncommitted, encoded.rejects)
                steps.callback(self._listener.delete_uncommitted, encoded.line_files)
                steps.callback(table.discard, encoded.files)
        except Exception:
            _logger.warning("Cannot delete all files of a failed batch of table %s.", table.name, exc_info=True)


def _too_many_encodings(table: Table, batch: Batch, reason: str) -> Failure:
    message = (
        f"Cannot commit records of stream {batch.stream} to table {table.name} after {MAX_ENCODINGS} attempts: "
        f"{reason}. No acknowledged record is lost. Run the sync again when no other writer changes the table."
    )
    return Failure(message, f"a batch was encoded {MAX_ENCODINGS} times", "transient_error")


class _Committed:
    """Tracks which records of a stream are committed. Batches may be added in any order."""

    def __init__(self) -> None:
        self._end = 0
        self._beyond: dict[int, int] = {}

    def add(self, batch: Batch) -> None:
        """Mark the records of a committed batch. Do not add a batch twice."""
        self._beyond[batch.first_record] = batch.first_record + batch.records
        while (end := self._beyond.pop(self._end, None)) is not None:
            self._end = end

    @property
    def is_contiguous(self) -> bool:
        """Whether no record before the last committed record is uncommitted."""
        return not self._beyond


class _EncodedBatch:
    """The files and counts that encoding a batch produced.

    `failure` is the reason not to commit the batch, or None. A batch also fails if its rows, rejected records and empty
    lines do not add up to its number of records.
    """

    def __init__(self, batch: Batch, results: Sequence[UnitResult]) -> None:
        encoded = [result for result in results if isinstance(result, Encoded)]
        self.batch = batch
        self.files: list[DataFile] = [file for result in encoded for file in result.files]
        self.rejects: list[RejectFile] = [file for result in encoded for file in result.rejects]
        self.line_files: list[LineFile] = [file for result in encoded for file in result.line_files]
        partitions = (len({file.partition for file in result.files}) for result in encoded)
        self.partitions = sum(partitions) / max(1, len(encoded))
        self.counts = RejectCounts.total(result.counts for result in encoded)
        self.undeclared = {path for result in encoded for path in result.undeclared}
        self.failure = next((result.failure for result in results if isinstance(result, NotEncoded)), None)
        rows = sum(file.rows for file in self.files)
        empty_lines = sum(result.left_out for result in encoded)
        if self.failure is None and rows + self.counts.refused + empty_lines != batch.records:
            self.failure = Failure(
                f"Stream {batch.stream}: the connector received {batch.records:,} records, but encoded {rows:,} and "
                f"rejected {self.counts.refused:,}. The batch was not committed. Run the sync again. If the error "
                "recurs, report it to the maintainers of the connector.",
                "records and rows do not match",
                "system_error",
            )
