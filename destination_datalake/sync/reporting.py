"""Build the report of a sync. When the last state is written, log the report, store it, and send notices."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from destination_datalake.aws.access import catalog_id, mask_secrets, take_usage
from destination_datalake.config.tables import REPORTS_FOLDER
from destination_datalake.errors import ConnectorError, Failure, counted, printable
from destination_datalake.iam_policy.conditions import HAS_LINES_TABLES
from destination_datalake.protocol.stdout import LogLevel
from destination_datalake.reports.notices import emit, notify
from destination_datalake.reports.report import (
    Named,
    Rejected,
    ReportLine,
    ReportWriter,
    Stage,
    Status,
    connection_id,
    sizes_of_files,
    timestamp,
    within,
)
from destination_datalake.sync.outcome import SyncOutcome
from destination_datalake.sync.progress import Progress, StreamProgress, rejected
from destination_datalake.tables.context import Journal, MergeFigures
from destination_datalake.tables.glue.catalog import GlueTableCatalog
from destination_datalake.termination import EXIT_TERMINATED

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.protocol.catalog import Stream, StreamId
    from destination_datalake.spark.engine import Engine
    from destination_datalake.sync.progress import ActiveStages
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.table import TableName

_VERSIONS = ("destination-datalake", "pyspark", "pyarrow", "pyiceberg")
_MAX_ERROR_LENGTH = 1000
"""Maximum length of an error message in the report, in characters. Some errors name every column of a table."""

_MAX_REASONS = 100
"""Maximum number of reject entries in a report line. Each entry counts one reason in one column. The most frequent ones
are kept."""


class Reporting:
    """Builds and stores the report of one sync. A failure to store the report does not fail the sync.

    `run` is the unique ID of the sync. `log` writes a line to Airbyte's log of the sync.
    """

    def __init__(self, config: Config, engine: Engine, run: str, log: Callable[[LogLevel, str], None]) -> None:
        self._config = config
        self._engine = engine
        self.run = run
        self._log = log
        self._began = datetime.now(UTC)
        self._clock = time.monotonic()
        self._streams: Sequence[Stream] = ()
        self._tables: Mapping[StreamId, TableName] = {}
        self._writer: ReportWriter | None = None
        self._access: AwsAccess | None = None
        self.journal = Journal()

    def __enter__(self) -> Reporting:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Store the report of the sync if an error ended the `with` block."""
        if error is not None:
            self.fail(error)

    def begin(
        self, streams: Sequence[Stream], tables: Mapping[StreamId, TableName], access: AwsAccess, catalog: TableCatalog
    ) -> None:
        """Store a report with the status "started", in the background. Does nothing if reports are disabled."""
        self._streams, self._tables, self._access = streams, tables, access
        if self._config.sync_reports:
            glue = GlueTableCatalog(access, catalog.governance) if HAS_LINES_TABLES.holds(self._config) else None
            self._writer = ReportWriter(self._config, access, glue, self._began.date().isoformat(), self.run)
            streams_started = [self._stream_line(stream, "started", finish_time=None) for stream in streams]
            self._writer.start([self._line("started", finish_time=None), *streams_started])

    def wait_until_begun(self) -> None:
        """Wait until the report with the status "started" is stored.

        If the process is then killed, the report still shows that the sync is unfinished.
        """
        if self._writer is not None:
            self._writer.wait()

    def finish(self, progress: Progress, outcome: SyncOutcome, exit_code: int, stages: ActiveStages) -> None:
        """Log and store the report of an ended sync. Then send the configured notice and lineage event."""
        lines = [*self._lines(progress, outcome, exit_code, stages)]
        for level, text in summary(lines, progress):
            self._log(level, text)
        self._write(lines)

    def fail(self, error: BaseException) -> None:
        """Store the report of a sync that `error` ended, unless its report is already stored."""
        if self._access is None:
            return
        failure = Failure(type(error).__name__, "", "system_error")
        if isinstance(error, ConnectorError):
            failure = error.failure
        streams, error_members = len(self._streams), _error(failure)
        sync = self._line("failed", **error_members, **self._usage(), streams=streams, streams_failed=streams)
        lines = [sync, *(self._stream_line(stream, "failed", **error_members) for stream in self._streams)]
        self._log("INFO", f"Sync {_outcome_text(sync)} after {sync.seconds:.1f} s.")
        self._write(lines)

    def _write(self, lines: Sequence[ReportLine]) -> None:
        """Store the report. If enabled, also publish the notice and emit the lineage event, within a time limit.

        Only the first call has an effect.
        """
        if self._writer is not None:
            self._writer.finish(lines)
        access, config, self._access = self._access, self._config, None
        if access is None:
            return
        tasks: dict[str, Callable[[], None]] = {}
        if config.notify.sns_topic_arn is not None:
            tasks["notice"] = lambda: notify(config, access, config.uri(REPORTS_FOLDER), lines)
        if config.lineage.endpoint is not None:
            columns = {str(table): self.journal.history(table).columns for table in self._tables.values()}
            # If no option sets the ID of the Data Catalog, STS returns it.
            account = config.glue_catalog_id or config.aws_account_id
            tasks["lineage"] = lambda: emit(config, account or catalog_id(access), lines, columns)
        seconds = _SECONDS_TERMINATED if lines[0].status == "terminated" else _SECONDS
        within(seconds, tasks)

    def _lines(
        self, progress: Progress, outcome: SyncOutcome, exit_code: int, stages: ActiveStages
    ) -> Iterator[ReportLine]:
        failures = outcome.failures
        success: Status = "terminated" if exit_code == EXIT_TERMINATED else "finished"
        streams = [
            self._final_stream_line(stream, stream_progress, failures.get(stream.id) or outcome.fatal, success)
            for stream, stream_progress in zip(self._streams, progress.streams, strict=True)
        ]
        failed = sum(line.status == "failed" for line in streams)
        status = success
        if exit_code not in (0, EXIT_TERMINATED):
            status = "failed" if outcome.fatal is not None or failed == len(streams) else "partial"
        first = outcome.fatal or next(iter(failures.values()), None)
        merges = (self.journal.history(table).merged for table in self._tables.values())
        yield self._line(
            status,
            **_error(first),
            **self._usage(),
            **{name: sum(getattr(stream, name) for stream in progress.streams) for name in _COUNTS},
            **sizes_of_files([size for stream in progress.streams for size in stream.sizes]),
            **_merged(MergeFigures.total(merges)),
            streams=len(streams),
            streams_failed=failed,
            states_released=progress.states_released,
            states_held=progress.states_held,
            stages=tuple(Stage(name, *map(_rounded, spent)) for name, spent in stages.spent().items()),
        )
        yield from streams

    def _final_stream_line(
        self, stream: Stream, progress: StreamProgress, failure: Failure | None, success: Status
    ) -> ReportLine:
        history = self.journal.history(self._tables[stream.id])
        return self._stream_line(
            stream,
            success if failure is None else "failed",
            **_error(failure),
            **{name: getattr(progress, name) for name in _COUNTS},
            **sizes_of_files(progress.sizes),
            **_merged(history.merged),
            **asdict(history.state),
            states_released=progress.states_released,
            partitions=_rounded(progress.partitions) if progress.sizes else None,
            new_columns=_columns(history.new_columns),
            promoted_columns=_columns(history.promoted_columns),
            redirected_columns=_columns(history.redirected),
            rejects=tuple(Rejected(*key, n) for key, n in progress.counts.most_frequent()[:_MAX_REASONS]),
        )

    def _stream_line(self, stream: Stream, status: Status, **members: Any) -> ReportLine:
        table = self._tables[stream.id]
        return self._line(
            status,
            type="event",
            database=table.database,
            table_name=table.table,
            stream_namespace=stream.id.namespace,
            stream_name=stream.id.name,
            sync_mode="append_dedup" if stream.dedup else "overwrite" if stream.overwrites_table else "append",
            generation_id=stream.generation,
            **members,
        )

    def _line(self, status: Status, **members: Any) -> ReportLine:
        seconds = time.monotonic() - self._clock
        values: dict[str, Any] = {
            **self._common,
            "type": "source",
            "finish_time": timestamp(datetime.now(UTC)),
            **({} if status == "started" else {"seconds": _rounded(seconds), "duration_mins": int(seconds // 60)}),
            **members,
        }
        return ReportLine(status=status, **values)

    @cached_property
    def _common(self) -> Mapping[str, Any]:
        return {
            "run_id": self.run,
            "connection_id": connection_id(self._config, self._tables),
            "sync_id": next((stream.sync_id for stream in self._streams), None),
            "start_time": timestamp(self._began),
            "database": self._config.lakeformation_database_name,
            "table_type": self._config.table_type,
            "file_format": self._config.format.format_type,
            "s3_bucket": self._config.bucket_name,
            "engine": None,
            "versions": {**{name: installed for name in _VERSIONS if (installed := _version(name))}, "python": _PYTHON},
        }

    def _usage(self) -> dict[str, Any]:
        own, executors = take_usage(), self._engine.usage()
        calls = type(own).total([own, executors]).calls
        return {
            "engine": self._engine.application_id,
            "cpu_seconds": _rounded(own.cpu_seconds),
            "executor_cpu_seconds": _rounded(executors.cpu_seconds),
            "peak_memory_bytes": own.peak_bytes,
            "executor_peak_memory_bytes": executors.peak_bytes or None,
            "aws_calls": dict(sorted(calls.items())),
        }


def summary(lines: Sequence[ReportLine], progress: Progress) -> Iterator[tuple[LogLevel, str]]:
    """Yield a log level and line for each stream, then for the sync.

    `lines` is the report: first the sync, then its streams. If all records of a stream were rejected, the lines of the
    stream and of the sync are warnings.
    """
    sync, *streams = lines
    for line, stream in zip(streams, progress.streams, strict=True):
        states = f", {counted(line.states_released, 'state')} released" if line.states_released else ""
        loss = f" No row was written: {line.total_loss}." if line.total_loss else ""
        yield (
            "WARN" if loss else "INFO",
            f"Stream {stream.stream} {_outcome_text(line)}: {_counts_text(line)}{states}{_schema_changes_text(line)}, "
            f"{stream.seconds:.1f} s.{loss}",
        )
    seconds = progress.seconds or 1.0
    failed = f" ({sync.streams_failed:,} failed)" if sync.streams_failed else ""
    held = f", {sync.states_held:,} not released" if sync.states_held else ""
    rejected_streams = [line.stream for line in streams if line.total_loss]
    loss = f" All records of these streams were rejected: {_first_names(rejected_streams)}." if rejected_streams else ""
    yield (
        "WARN" if loss else "INFO",
        f"Sync {_outcome_text(sync)}: {counted(len(streams), 'stream')}{failed}, {_counts_text(sync)}, "
        f"{counted(sync.states_released or 0, 'state')} released{held}, {progress.seconds:.1f} s "
        f"({sync.row_count / seconds:,.0f} records/s).{loss}",
    )


def _outcome_text(line: ReportLine) -> str:
    return f"{line.status.upper()} ({line.error_code})" if line.error_code else line.status


def _counts_text(line: ReportLine) -> str:
    merged = f", {line.rows_merged:,} merged" if line.rows_merged else ""
    return (
        f"{counted(line.rows_received, 'record')} received ({line.bytes_received / 1e6:.1f} MB), {line.row_count:,} "
        f"committed in {counted(line.files, 'file')} ({line.bytes_written / 1e6:.1f} MB){merged}"
        f"{rejected(line.rows_rejected, line.values_rejected)}"
    )


def _schema_changes_text(line: ReportLine) -> str:
    changes = {
        "new columns": [column.name for column in line.new_columns],
        "promoted": [f"{column.name} to {column.type}" for column in line.promoted_columns],
        "redirected": [f"{column.name} to {column.type}" for column in line.redirected_columns],
    }
    return "".join(f", {label}: {_first_names(names)}" for label, names in changes.items() if names)


def _first_names(names: Sequence[str]) -> str:
    hidden = len(names) - _MAX_COLUMNS
    shown = ", ".join(printable(name).replace("\n", "\\n") for name in names[:_MAX_COLUMNS])
    return f"{shown} and {hidden:,} more" if hidden > 0 else shown


_SECONDS, _SECONDS_TERMINATED = 10.0, 2.0
"""Maximum seconds that the end of a sync waits for the notice and the lineage event: normally, and after SIGTERM, when
the platform kills the process soon."""

_MAX_COLUMNS = 10
"""Maximum number of names (columns or streams) in a list in a log line."""

_PYTHON = ".".join(map(str, sys.version_info[:3]))

_COUNTS = ("rows_received", "row_count", "rows_rejected", "rows_skipped", "values_rejected", "bytes_received")
"""The counts of a stream's progress that its report line contains. The sync's line contains their sums."""


def _merged(figures: MergeFigures) -> dict[str, Any]:
    pending, written = figures.merge_pending_bytes, figures.merge_written_bytes
    return {**asdict(figures), "write_amplification": _rounded(written / pending) if pending else None}


def _error(failure: Failure | None) -> dict[str, str]:
    if failure is None:
        return {}
    message = mask_secrets(failure.message)[:_MAX_ERROR_LENGTH]
    return {"error": message, "error_code": failure.error_class, "error_type": failure.type}


def _columns(columns: Mapping[str, str]) -> tuple[Named, ...]:
    return tuple(Named(name, type_) for name, type_ in columns.items())


def _rounded(number: float) -> float:
    return round(number, 3)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
