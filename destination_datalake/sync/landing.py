"""Land batches: encode them on Spark and commit them to their tables, several at a time."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
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
from destination_datalake.tables.table import Committed, Reencode, Table, TableConflict

if TYPE_CHECKING:
    from destination_datalake.archive.ledger import ArchiveLedger
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.buffer.batching import Batch
    from destination_datalake.buffer.staging import Staging
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.rejects.ledger import RejectFile, RejectLedger
    from destination_datalake.spark.backend import JobsProgress, SparkFailed
    from destination_datalake.sync.progress import ActiveStages

_logger = logging.getLogger(__name__)

MAX_COMMITS = 16
"""Maximum number of tables that are prepared, committed to or published at the same time."""

MAX_TASKS = 32
"""Maximum number of tasks that run at the same time. More would encode faster than stdin is read, and each would have
too few records for a file of the target size."""

MAX_ENCODINGS = 5
"""Maximum number of encodings of a batch. Each further one is due to a change of the table by another writer."""


TableFilters: TypeAlias = Mapping[str, Sequence[LineFilter]]
"""The filters of the lines of each table, by the table's name as "database.table"."""


class Executors(Protocol):
    """Spark, as landing uses it. Jobs may raise SparkFailed."""

    @property
    def error(self) -> SparkFailed | None:
        """The reason why no further job can run; None if jobs can run."""

    def is_starting(self) -> bool:
        """Return whether Spark is still starting."""

    def parallelism(self) -> int:
        """Return the number of tasks that run at the same time. Waits for Spark's start."""

    def progress(self) -> JobsProgress:
        """Return the progress of the running jobs. Does not raise, but may wait for Spark."""

    def encode(self, tasks: Sequence[EncodeTask]) -> Sequence[UnitResult]:
        """Encode the tasks' units in one job; return a result for each."""

    def rewrite(self, tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
        """Rewrite data files in one job. Raises RewriteFailed if one of them cannot be rewritten."""


@dataclass(frozen=True, slots=True)
class StreamTables:
    """Open the tables of a sync's streams.

    `location` is the ARN for grants in denials of Lake Formation (see `explaining_denials`). The `archive` keeps the
    journals of archived tables.
    """

    factories: Mapping[StreamId, Callable[[], Table]]
    access: AwsAccess
    location: str | None = None
    archive: ArchiveLedger | None = None

    def explaining_denials(self, table: Table) -> AbstractContextManager[None]:
        """Name the missing grants in the errors that the body raises."""
        return explaining_denials(*table.name, self.access, self.location)

    def prepared(self, stream: StreamId) -> Table:
        """Open and prepare the table of a stream. The first call imports libraries, which may take seconds."""
        table = self.factories[stream]()
        with self.explaining_denials(table):
            table.prepare()
        if self.archive is not None and (self.archive.keeps_lines or table.is_archived()):
            self.archive.begin(stream, *table.name, table.position(), found_empty=table.is_empty())
        return table


class Encoding:
    """Stage batches and encode them on Spark. The names of all data files and rejects begin with `file_prefix`.

    `filters` reads the filters of the lines of each table.
    """

    def __init__(
        self,
        executors: Executors,
        staging: Staging,
        access: AwsAccess,
        file_prefix: str,
        filters: Callable[[], TableFilters] = dict,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.executors = executors
        self._staging = staging
        self._access = access
        self._file_prefix = file_prefix
        self.filters = filters
        self._started = int(clock() * 1000)
        self._slots: int | None = None

    def stage(
        self, batch: Batch, table: Table, rejects: RejectLedger, archive: ArchiveLedger | None, filters: TableFilters
    ) -> EncodeUnit:
        """Return the batch as executors read it. Wait until its segments are uploaded."""
        name = f"{self._file_prefix}-{batch.number:06d}"
        segments = tuple(map(self._staging.stage, batch.segments))  # Before the plan: uploads may take a while.
        plan, location = table.plan(), rejects.location(*table.name)
        plan = replace(plan, held_in=self._staging.shared_folder())
        arrived = IngestOrder(self._started + batch.number, 0)
        sinks = () if archive is None else archive.sinks(batch.stream)
        own = tuple(filters.get(str(table.name), ()))
        return EncodeUnit(batch.stream, name, segments, plan, location, arrived, own, sinks, batch.expected_yield)

    def encode(self, staged: Sequence[EncodeUnit], tasks: int) -> Mapping[StreamId, list[UnitResult]]:
        """Encode batches of different streams in one Spark job of about `tasks` tasks; return the results of each."""
        results = self.executors.encode(split_into_tasks(staged, tasks, self._access))
        encoded = (result for result in results if isinstance(result, Encoded))
        self._require_shared(pending for each in encoded for pending in each.pending())
        by_stream: dict[StreamId, list[UnitResult]] = {batch.stream: [] for batch in staged}
        for result in results:
            by_stream[result.stream].append(result)
        return by_stream

    def _require_shared(self, uploads: Iterable[Pending | None]) -> None:
        """Raise ValueError for a deferred upload outside the shared folder.

        A server of Spark Connect could otherwise make the driver publish and delete any file of this machine.
        """
        folder = self._staging.shared_folder()
        for held in uploads:
            if isinstance(held, DeferredUpload) and os.path.split(held.path)[0] != folder:
                raise ValueError("Spark returned a file that no task has written")

    def slots(self) -> int | None:
        """Return the number of tasks that ran at the same time in the last job; None before it is known."""
        if self._slots is None and not self.executors.is_starting():
            self.count_slots()
        return self._slots

    def count_slots(self) -> None:
        """Count the tasks that run at the same time. A cluster changes its executors. Waits for Spark's start."""
        try:
            self._slots = min(self.executors.parallelism(), MAX_TASKS)
        except Exception:
            self._slots = 1  # Spark has failed. The next job raises the error.


class Landing:
    """Land batches: stage, encode and commit them, and call `settle` with the outcome, on any thread.

    All tables are opened and prepared at once, while Spark is starting and records are being read. `can_acknowledge` is
    called before each commit. If no state can acknowledge the records any more, the batch is not committed.
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
        """Start to prepare the tables, and to read the filters of their lines."""
        self.encoding = encoding
        self._executors = encoding.executors
        self._naming_grants = tables.explaining_denials
        self._archive = tables.archive
        self._rejects = rejects
        self._settle = settle
        self._can_acknowledge = can_acknowledge
        self._stages = stages
        self._with_undeclared: set[StreamId] = set()
        self._table_locks = {stream: threading.Lock() for stream in tables.factories}
        self._committed = {stream: _Committed() for stream in tables.factories}
        self._commits = ThreadPool(MAX_COMMITS, "commit")
        self._filters = self._commits.submit(encoding.filters)
        self._tables: dict[StreamId, Future[Table]] = {
            stream: self._commits.submit(tables.prepared, stream) for stream in tables.factories
        }

    def land(self, batches: Sequence[Batch]) -> None:
        """Encode the batches in one Spark job and commit each to its table. Returns when all are settled.

        An error raised for one of them fails its stream and no other.
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
        wait(commits)
        for commit in commits:
            commit.result()

    def preparation_failure(self, stream: StreamId) -> Failure | None:
        """Return the failure to prepare the stream's table, or None. Waits for the preparation."""
        error = self._tables[stream].exception()
        if isinstance(error, TableConflict) and isinstance(bucket := self._filters.exception(), ConnectorError):
            error = bucket  # With a misspelt bucket_name, the table is not at fault for being in another bucket.
        return None if error is None else failure_of(error, stream, "prepare the table of")

    def publish(self, streams: Sequence[StreamId]) -> dict[StreamId, Failure]:
        """Publish the tables of complete streams; return the failures."""
        published = {stream: self._commits.submit(self._publish, stream) for stream in streams}
        with self._stages.active("publishing"):
            errors = {stream: future.exception() for stream, future in published.items()}
        return {
            stream: failure_of(error, stream, "publish the new content of")
            for stream, error in errors.items()
            if error is not None
        }

    def close(self, given_up: Callable[[], bool]) -> None:
        """Start no further work; wait until running work has ended, or `given_up` returns true."""
        self._commits.close(given_up)

    def _publish(self, stream: StreamId) -> None:
        table = self._tables[stream].result()
        with self._naming_grants(table):
            with self._stages.active("merging"):
                table.merge()
            table.publish(self._executors.rewrite)
        if self._archive is not None:
            plan = table.plan()
            self._archive.end(stream, (*plan.metadata, *plan.columns), plan.folder, table.position())

    def _staged(self, batch: Batch) -> EncodeUnit:
        filters = self._filters.result()  # No record becomes a row before the suppression rules are read.
        return self.encoding.stage(batch, self._tables[batch.stream].result(), self._rejects, self._archive, filters)

    def _encoded(self, staged: Sequence[EncodeUnit], tasks: int | None) -> Mapping[StreamId, list[UnitResult]]:
        tasks = tasks or self._executors.parallelism()  # Unknown while Spark is starting: wait for it.
        with self._stages.active("encoding"):
            return self.encoding.encode(staged, tasks)

    def _commit(self, batch: Batch, results: Sequence[UnitResult]) -> None:
        """Commit an encoded batch. If the table returns Reencode, encode the batch again."""
        table = self._tables[batch.stream].result()
        with self._table_locks[batch.stream], self._stages.active("committing"):
            try:
                outcome = self._commit_encoded(table, _EncodedBatch(batch, results))
            except Exception as error:
                # The commit may have been made, so its files must stay. A file that no table refers to is harmless.
                doing = f"commit to table {table.name} the records of"
                outcome = BatchFailed(batch, failure_of(error, batch.stream, doing))
            # Under the lock: after a failure, the next batch of the stream must not be committed.
            self._settle(outcome)
            if isinstance(outcome, BatchCommitted):
                committed = self._committed[batch.stream]
                committed.add(batch)
                # A merge forgets the deletions that it applies. An older row that is committed later would come back.
                if committed.is_contiguous:
                    self._merge_if_due(table, batch.stream)

    def _merge_if_due(self, table: Table, stream: StreamId) -> None:
        """Merge the pending rows if they are many. A failed merge is repeated later: the batch is committed."""
        try:
            if table.merge_is_due():
                with self._stages.active("merging"), self._naming_grants(table):
                    table.merge()
        except Exception as error:
            failure = failure_of(error, stream, "deduplicate the committed records of")
            _logger.warning("%s They are deduplicated later.", failure.message)
            _logger.debug("%s", failure.detail)

    def _commit_encoded(self, table: Table, encoded: _EncodedBatch) -> BatchOutcome:
        batch = encoded.batch
        if not self._can_acknowledge(batch):
            self._discard(table, encoded)
            return BatchSkipped(batch)
        self._warn_of_undeclared(encoded)
        reason = ""
        for attempt in range(MAX_ENCODINGS):
            if attempt:
                _logger.info("Table %s: batch %d is encoded again: %s.", table.name, batch.number, reason)
                encoded = _EncodedBatch(batch, self._encoded([self._staged(batch)], batch.tasks)[batch.stream])
            if (failure := encoded.failure or self._publish_beside(encoded)) is not None:
                self._discard(table, encoded)
                return BatchFailed(batch, failure)
            if not attempt and (exceeded := self._rejects.add(batch.stream, encoded.counts)) is not None:
                self._discard(table, encoded, with_rejects=False)  # The rejects show the cause.
                return BatchFailed(batch, Failure(exceeded, "the limit of rejects is exceeded", "config_error"))
            with self._naming_grants(table):
                answer = table.commit(encoded.files, self._executors.rewrite)
            match answer:
                case Committed():
                    sizes = tuple(file.size for file in encoded.files)
                    rows = sum(file.rows for file in encoded.files)
                    if self._archive is not None:
                        # Before the states are released: every acknowledged batch is in the journal.
                        self._archive.add(batch.stream, batch.number, encoded.line_files, table.position(), rows)
                    return BatchCommitted(batch, encoded.counts, rows, sizes, encoded.partitions)
                case Reencode(reason=reason):
                    self._rejects.delete_uncommitted(encoded.rejects)
                    self._delete_archived(encoded)
        return BatchFailed(batch, _too_many_encodings(table, batch, reason))

    def _publish_beside(self, encoded: _EncodedBatch) -> Failure | None:
        """Publish the rejects and the archived lines before the records are committed.

        So no value is lost without a reject, and the archive has every row.
        """
        doing = "write the rejects of"
        try:
            self._rejects.publish(encoded.rejects)
            doing = "archive the records of"
            if self._archive is not None:
                self._archive.publish(encoded.line_files)
        except Exception as error:
            return failure_of(error, encoded.batch.stream, doing)
        return None

    def _warn_of_undeclared(self, encoded: _EncodedBatch) -> None:
        """Warn once per stream about fields of its records that its schema does not declare."""
        stream = encoded.batch.stream
        if encoded.undeclared and stream not in self._with_undeclared:
            self._with_undeclared.add(stream)
            _logger.warning("%s", undeclared_warning(stream, encoded.undeclared))

    def _delete_archived(self, encoded: _EncodedBatch) -> None:
        if self._archive is not None:
            self._archive.delete_uncommitted(encoded.line_files)

    def _discard(self, table: Table, encoded: _EncodedBatch, *, with_rejects: bool = True) -> None:
        try:
            with ExitStack() as steps:
                if with_rejects:
                    steps.callback(self._rejects.delete_uncommitted, encoded.rejects)
                steps.callback(self._delete_archived, encoded)
                steps.callback(table.discard, encoded.files)
        except Exception:
            _logger.warning("Files of a failed batch of table %s could not be removed.", table.name, exc_info=True)


def _too_many_encodings(table: Table, batch: Batch, reason: str) -> Failure:
    message = (
        f"Cannot commit to table {table.name} the records of stream {batch.stream}: {reason}, in each of "
        f"{MAX_ENCODINGS} attempts. No acknowledged record is lost. Run the sync again when no other "
        "writer changes the table."
    )
    return Failure(message, f"a batch was encoded {MAX_ENCODINGS} times", "transient_error")


class _Committed:
    """The committed records of a stream. Batches may overtake one another."""

    def __init__(self) -> None:
        self._end = 0
        self._beyond: dict[int, int] = {}

    def add(self, batch: Batch) -> None:
        """Add the records of a batch, each once."""
        self._beyond[batch.first_record] = batch.first_record + batch.records
        while (end := self._beyond.pop(self._end, None)) is not None:
            self._end = end

    @property
    def is_contiguous(self) -> bool:
        """Whether all records before the last one are committed."""
        return not self._beyond


class _EncodedBatch:
    """The results of a batch's tasks. `failure` is the reason not to commit it, or None."""

    def __init__(self, batch: Batch, results: Sequence[UnitResult]) -> None:
        encoded = [result for result in results if isinstance(result, Encoded)]
        self.batch = batch
        self.files: list[DataFile] = [file for result in encoded for file in result.files]
        self.rejects: list[RejectFile] = [file for result in encoded for file in result.rejects]
        self.line_files: list[LineFile] = [file for result in encoded for file in result.line_files]
        self.partitions = sum(len({file.partition for file in each.files}) for each in encoded) / max(1, len(encoded))
        self.counts = RejectCounts.total(result.counts for result in encoded)
        self.undeclared = {path for result in encoded for path in result.undeclared}
        self.failure = next((result.failure for result in results if isinstance(result, NotEncoded)), None)
        rows = sum(file.rows for file in self.files)
        left_out = sum(result.left_out for result in encoded)
        if self.failure is None and rows + self.counts.refused + left_out != batch.records:
            self.failure = Failure(
                f"Stream {batch.stream}: {batch.records} records were received, {rows} encoded and "
                f"{self.counts.refused} rejected.",
                "records and rows do not match",
                "system_error",
            )
