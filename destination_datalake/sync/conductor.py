"""Connect the stages of one sync, and run them.

Records and states pass through four stages:

    stdin ─► Intake ─► InFlight ─► Landing ─► InFlight ─► release_states ─► stdout
             messages  buffered    encoded,   states      states
             are read  by stream   committed  become due  are written

Intake runs on the main thread, Landing on job threads, and `release_states` on its own thread.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from destination_datalake.archive.ledger import ArchiveLedger
from destination_datalake.archive.objects import ARCHIVE_FOLDER
from destination_datalake.buffer.backlog import Backlog, staged_bytes
from destination_datalake.buffer.batching import EXPECTED_YIELDS, BatchPolicy, LearnedBatches
from destination_datalake.buffer.buffer import SEGMENT_BYTES, Buffer
from destination_datalake.buffer.disk import DiskFailed, MiB, buffer_directory, raise_limit
from destination_datalake.buffer.staging import CONCURRENT_CALLS, LocalStaging, RemoteStaging, Staging
from destination_datalake.config.options import aws_access
from destination_datalake.config.tables import streams_without_dedup
from destination_datalake.errors import ConfigError, ConnectorError, Failure, FailureType
from destination_datalake.files.suppression import DELETIONS_FOLDER, read_suppressed
from destination_datalake.iam_policy.conditions import HAS_LINES_TABLES
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.maintenance.after_sync import maintain_after_sync
from destination_datalake.protocol.catalog import Stream, StreamId, configured, parse_catalog
from destination_datalake.protocol.messages import InputUnreadable, MalformedLine, chunks
from destination_datalake.protocol.states import State
from destination_datalake.rejects.ledger import REJECTS_FOLDER, RejectLedger, RejectLimit
from destination_datalake.sync.in_flight import InFlight, release_states
from destination_datalake.sync.intake import Intake, Statuses, UnexpectedMessage
from destination_datalake.sync.landing import Encoding, Landing, StreamTables
from destination_datalake.sync.outcome import (
    SyncOutcome,
    incomplete,
    input_not_read,
    reading_failed,
    unexpected,
)
from destination_datalake.sync.progress import ActiveStages, Progress, Reporter
from destination_datalake.sync.reporting import Reporting
from destination_datalake.sync.thread_pool import ThreadPool
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.context import Jobs, TableContext
from destination_datalake.tables.factory import open_table
from destination_datalake.tables.glue.catalog import GlueTableCatalog, RejectsTable
from destination_datalake.tables.layout import misnamed_streams, require_partition_source
from destination_datalake.tables.migration import refuse_unchanged_configuration
from destination_datalake.tables.naming import TableNaming
from destination_datalake.termination import EXIT_TERMINATED
from destination_datalake.unforeseen import exhaustion

if TYPE_CHECKING:
    from pathlib import Path

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.files.suppression import SuppressionRules
    from destination_datalake.protocol.stdout import Stdout
    from destination_datalake.spark.engine import Engine
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.termination import Termination

_logger = logging.getLogger(__name__)

TERMINATION_SECONDS = 45
"""Maximum seconds that a sync continues after SIGTERM. The platform kills the process after 60 seconds."""


def run_sync(
    config: Config,
    catalog: Mapping[str, object],
    stdin: int,
    out: Stdout,
    engine: Engine,
    termination: Termination,
) -> int:
    """Read records from the file descriptor `stdin`, and write them to the lake's tables. Return the exit code.

    Exit codes:

    - 0: every stream is committed and published.
    - 1: a stream or the whole sync failed. A TRACE ERROR reports the cause.
    - 143: the process received SIGTERM before the sync published its streams and emitted all states. Within
      TERMINATION_SECONDS, the sync commits as many of the records read until then as possible, and emits the states
      that cover these records.

    Raises ConnectorError before reading `stdin` in these cases:

    - The connector cannot sync the catalog.
    - The sync would abandon another connector's tables.
    - Lake Formation cannot govern the data location.
    - No disk is available for the buffer.
    """
    raise_limit()
    # Before all other steps, so that a SIGTERM during any of them limits how long writers wait for the reader.
    termination.on_request(partial(out.give_up_after, TERMINATION_SECONDS))
    sync, archives = uuid.uuid4().hex[:12], config.raw_archive.enabled
    with Reporting(config, engine, sync, out.log) as reporting:
        streams = _accepted_streams(config, catalog, out)
        names = TableNaming.from_config(config).tables_of(streams)
        access = aws_access(config)
        table_catalog = catalog_of(config, access)
        reporting.begin(streams, names, access, table_catalog)
        require_partition_source(config, streams, names, table_catalog)
        refuse_unchanged_configuration(names, config, table_catalog)
        table_catalog.governance.govern_location()
        with (
            _explaining_full_disk(),
            buffer_directory() as directory,
            staging_for(engine, directory, config.uri("_staging"), sync, access) as staging,
        ):
            jobs = Jobs(engine, staging.scratch)
            context = TableContext(sync, access, table_catalog, jobs, reporting.journal, archives)
            factories = {s.id: partial(open_table, s, names[s.id], config, context) for s in streams}
            archived = configured(streams, catalog)
            archive = ArchiveLedger(config.uri(ARCHIVE_FOLDER), sync, archived, access, keeps_lines=archives)
            tables = StreamTables(factories, access, Policy.from_config(config).location_arn, archive)
            encoding = Encoding(engine, staging, access, sync, partial(_suppressed, config, access))
            rejects = _reject_ledger(config, sync, access, table_catalog)
            backlog = _backlog(config, directory, staging)
            conductor = Conductor(streams, backlog, tables, encoding, rejects, out, termination)
            # Wait only here: the conductor's constructor has started to prepare the tables, so both run concurrently.
            reporting.wait_until_begun()
            exit_code = conductor.run(stdin)
        conductor.report(reporting, exit_code)
        # The sync has written all states, so a failed maintenance step does not fail the sync.
        published = [names[stream] for stream in conductor.published]
        maintain_after_sync(config, published, table_catalog, access, engine, lambda: termination.requested)
        return exit_code


def _accepted_streams(config: Config, catalog: Mapping[str, object], out: Stdout) -> Sequence[Stream]:
    """Return the streams of a configured catalog. Log a warning for each per-stream option that matches no stream.

    Raises ConfigError in two cases: the stream name in an option differs from a stream's name only in case and
    separators, or a stream requires deduplication but the options create Hive tables.
    """
    streams = parse_catalog(catalog)
    for warning in misnamed_streams(config, [stream.id for stream in streams]):
        out.log("WARN", warning)
    dedup = [stream.id for stream in streams if stream.dedup]
    if (reason := streams_without_dedup(dedup, config.table_type, config.format.format_type)) is not None:
        raise ConfigError(reason)
    return streams


def _reject_ledger(config: Config, sync: str, access: AwsAccess, table_catalog: TableCatalog) -> RejectLedger:
    """Return the ledger that stores the rejected records and values of this sync.

    If the table catalog is Glue, the ledger also creates a table through which engines query the rejects. Other
    catalogs do not support tables of JSON Lines files.
    """
    root, day = config.uri(REJECTS_FOLDER), datetime.now(UTC).date().isoformat()
    table = None
    if HAS_LINES_TABLES.holds(config):
        glue = GlueTableCatalog(access, table_catalog.governance)
        table = RejectsTable(config.lakeformation_database_name, root, access, glue)
    limit = RejectLimit(config.rejects.max_ratio, config.rejects.max_count)
    return RejectLedger(root, sync, day, limit, table, access)


def _backlog(config: Config, directory: Path, staging: Staging) -> Backlog:
    """Return an empty backlog. It buffers records in `directory`, and takes the batch size and limits from `config`."""
    batch_bytes, buffer_bytes = config.batch_size_mb * MiB, config.buffer_size_mb * MiB
    buffer = Buffer(directory, min(SEGMENT_BYTES, batch_bytes), buffer_bytes, time.monotonic, staging)
    policy = batch_policy(config, buffer_bytes if staging.uses_files else staged_bytes(buffer_bytes))
    return Backlog(buffer, policy, float(config.flush_interval_seconds))


@contextmanager
def _explaining_full_disk() -> Iterator[None]:
    """Convert a DiskFailed raised by the `with` block to a ConnectorError.

    If the process or machine lacks memory, threads or file descriptors, the ConnectorError has the failure type
    `transient_error`, because a retry may succeed. In all other cases, such as a full disk, the failure type is
    `config_error`.
    """
    try:
        yield
    except DiskFailed as error:
        failure_type: FailureType = "config_error" if exhaustion(error) is None else "transient_error"
        raise ConnectorError(Failure(str(error), str(error), failure_type)) from error


def _suppressed(config: Config, access: AwsAccess) -> SuppressionRules:
    """Read the suppression rules, which list the IDs of erased persons. The sync rejects records that match a rule.

    Raises ConnectorError if the rules are unreadable, with one exception: if S3 denies access and the table catalog
    vends credentials, this function logs a warning and returns no rules. With vended credentials, the connector needs
    no access of its own to the bucket.
    """
    try:
        return read_suppressed(config.uri(DELETIONS_FOLDER), access)
    except ConnectorError as error:
        if error.failure.missing is None or not config.catalog.vended_credentials:
            raise
        _logger.warning("%s This sync does not reject records that contain erased IDs.", error.failure.message)
        return {}


def batch_policy(config: Config, max_bytes: int) -> BatchPolicy:
    """Return the policy that determines the size of batches.

    A batch has a size of `batch_size_mb`, or more if a data file of `target_file_size_mb` requires more records.
    `max_bytes` is the maximum total size, in bytes, of the records that are queued or being written.
    """
    batch_bytes = config.batch_size_mb * MiB
    if config.batch_size_mb < config.target_file_size_mb:
        return BatchPolicy(batch_bytes)
    expected = EXPECTED_YIELDS[config.format.format_type, config.format.compression_codec]
    return LearnedBatches(batch_bytes, config.target_file_size_mb * MiB, max_bytes, expected)


@contextmanager
def staging_for(engine: Engine, directory: Path, root: str, sync_name: str, access: AwsAccess) -> Iterator[Staging]:
    """Yield the `Staging` object that makes buffered records readable for the engine's executors.

    Executors on this machine read the files in the buffer's `directory`. For executors on other machines, the `Staging`
    object uploads the records to S3, to this sync's folder under the URI `root`.
    """
    if engine.local:
        yield LocalStaging(directory)
    else:
        pool = ThreadPool(CONCURRENT_CALLS, "staging")
        try:
            with RemoteStaging(root, sync_name, access, pool) as staging:
                yield staging
        finally:
            pool.close(lambda: True)


class Conductor:
    """Runs the stages of one sync. After the end of the input, publishes the tables of all complete streams."""

    def __init__(
        self,
        streams: Sequence[Stream],
        backlog: Backlog,
        tables: StreamTables,
        encoding: Encoding,
        rejects: RejectLedger,
        out: Stdout,
        termination: Termination,
        patience: float = TERMINATION_SECONDS,
    ) -> None:
        """Create the stages. After SIGTERM, the sync has `patience` seconds to commit the records it has read."""
        self._streams = [stream.id for stream in streams]
        self._out = out
        self._termination = termination
        self._patience = patience
        self._statuses = Statuses(streams)
        self._outcome = SyncOutcome(self._streams)
        self._stages = ActiveStages()
        self._intake = Intake(self._streams, self._statuses, partial(out.log, "WARN"))
        self._in_flight = InFlight(self._streams, backlog, self._outcome, termination, encoding.slots)
        self._landing = Landing(
            tables, encoding, rejects, self._in_flight.settle, self._in_flight.can_acknowledge, self._stages
        )
        self._executors = encoding.executors
        self._jobs = ThreadPool(backlog.policy.jobs, "job")
        # The pool can have fewer threads than the policy allows, and a barrier for more threads would never open.
        self._all_jobs_ended = threading.Barrier(self._jobs.size)
        self._read_to_the_end = False
        self._published = False

    def run(self, stdin: int) -> int:
        """Run the sync until all states are written. Return the exit code that `run_sync` describes."""
        with Reporter(self._out, self._progress, self._executors.progress):
            releasing = (self._in_flight, self._out)
            threading.Thread(target=release_states, args=releasing, name="states", daemon=True).start()
            # `_land` returns only at the end of the sync, so each thread of the pool takes exactly one of these calls.
            for _ in range(self._jobs.size):
                self._jobs.submit(self._land)
            with self._stages.active("reading"):
                self._read(stdin)
            self._in_flight.end_input()
            self._in_flight.wait_until_finished(self._patience)
        # If the sync has stopped early, threads may still be preparing tables.
        self._landing.close(lambda: self._termination.requested)
        return self._conclude()

    @property
    def published(self) -> list[StreamId]:
        """The streams whose tables this sync published. The list is empty if the sync ended before the input did.

        The table of a published stream contains all records that the sync received for the stream, except rejects.
        """
        return [stream for stream in self._streams if self._published and not self._outcome.has_failed(stream)]

    def report(self, reporting: Reporting, exit_code: int) -> None:
        """Write the report of the ended sync."""
        reporting.finish(self._progress(), self._outcome, exit_code, self._stages)

    def _read(self, stdin: int) -> None:
        """Read stdin on the main thread, until stdin ends or the sync cannot commit further records."""
        try:
            for chunk in chunks(stdin, self._termination.descriptor):
                for step in self._intake.steps(chunk):
                    if isinstance(step, State):
                        self._in_flight.add_state(step)
                    else:
                        self._in_flight.add_records(step)
                if not self._in_flight.wait_for_room():
                    # `_read_to_the_end` stays False, so the sync publishes nothing.
                    return
            # After SIGTERM, `chunks` stops as at the end of the input.
            self._read_to_the_end = not self._termination.requested
        except (MalformedLine, UnexpectedMessage, InputUnreadable, DiskFailed) as error:
            if isinstance(error, DiskFailed):
                self._in_flight.free_space()
            self._in_flight.stop(reading_failed(error))
        except Exception as error:
            # For example, the memory is too small for a line. The caller must still wait for the job threads, because
            # they read the buffer's directory.
            self._in_flight.stop(unexpected("read the input", error))

    def _land(self) -> None:
        """Land batches on a job thread until none are left. The last thread to finish publishes the streams."""
        try:
            while (batches := self._in_flight.next_batches()) is not None:
                try:
                    self._landing.land(batches)
                finally:
                    self._in_flight.end_job(batches, engine_failed=self._executors.error is not None)
        except DiskFailed as error:
            self._in_flight.stop(reading_failed(error))
        except Exception as error:
            self._in_flight.stop(unexpected("write the received records", error))
        finally:
            # Reach the barrier even after an exception: the last job thread must end the sync, or the main thread would
            # wait forever.
            if self._all_jobs_ended.wait() == 0:
                self._finish()

    def _finish(self) -> None:
        """Publish the complete streams, and record the end of all commits and publications.

        This method runs on a job thread, because the main thread must not wait for AWS after SIGTERM.
        """
        try:
            if not self._outcome.is_stopped:
                self._in_flight.fail_uncommitted()
                # SIGTERM may have arrived after the end of the input. A publication could then last until the platform
                # kills the process.
                if self._read_to_the_end and not self._termination.requested:
                    self._publish()
                    self._published = True
                elif not (self._outcome.is_failure or self._termination.requested):
                    # No stream has failed, but reading stopped early. Spark has ended after the commit of all records
                    # read so far.
                    self._in_flight.stop(input_not_read())
        except Exception as error:
            self._in_flight.stop(unexpected("complete the sync", error))
        self._in_flight.finish()

    def _publish(self) -> None:
        """Publish each stream that is complete and has not failed. Mark incomplete streams as failed."""
        for stream in self._streams:
            if (failure := self._landing.preparation_failure(stream)) is not None:
                # A stream without records has no batch that would have reported this failure.
                self._outcome.fail(stream, failure)
        completed = [stream for stream in self._streams if self._statuses.is_complete(stream)]
        publishable = [stream for stream in completed if not self._outcome.has_failed(stream)]
        for stream, failure in self._landing.publish(publishable).items():
            self._outcome.fail(stream, failure)
        for stream in self._streams:
            if stream not in completed:
                self._outcome.fail(stream, incomplete(stream))

    def _conclude(self) -> int:
        """Write a TRACE ERROR for every failure. Return the exit code, as described at `run_sync`."""
        self._outcome.write_traces(self._out)
        self._out.flush()
        if self._termination.requested and not (self._published and self._in_flight.is_finished):
            return EXIT_TERMINATED
        return 1 if self._outcome.is_failure else 0

    def _progress(self) -> Progress:
        starting = ("starting Spark",) if self._executors.is_starting() else ()
        return self._in_flight.progress((*starting, *self._stages.now()))
