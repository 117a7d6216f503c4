"""The report of a sync: its lines, their encoding, and the writer that stores the report in S3."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from destination_datalake.aws.objects import put
from destination_datalake.config.tables import REPORTS_FOLDER, REPORTS_TABLE
from destination_datalake.files.suppression import RECORD_SUPPRESSED

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.tables.catalog import TableCatalog


# --- Values -----------------------------------------------------------------------------------------------------------
# A report consists of one line about the sync, and one line about each of its streams.
#
# Where possible, members have the names and meanings of Segment's sync reports (Segment data lakes: sync reports).
# These reports call a sync a `source` and a stream an `event`. docs/operating/reports.md describes each member.
# The lines are also rows of a Glue table. Therefore, every line contains all members, and times are in UTC, in the
# format of Hive's JSON SerDes.

VERSION = 1
"""The version of the report's schema. Increase the version when you remove a member or change its meaning. Readers skip
lines of a higher version."""

Status = Literal["started", "finished", "partial", "failed", "terminated"]
"""The status of a sync or stream in a report. `started` is the status in the object that a sync writes at its start.
`partial` means that some streams of a sync failed and others did not."""

_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A number from 0 to the maximum of Glue's bigint. A line with any other number is invalid."""

_Quantity = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
"""A number of seconds, or an average. A line with a number above this limit (30,000 years) is invalid."""


class Named(msgspec.Struct, frozen=True, gc=False):
    """A column and its type. For a redirected column, `type` is the name of the column that receives the values."""

    name: str
    type: str


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """The number of rejects for one reason in one column. `column_name` is null for rejects of whole records."""

    column_name: str | None
    reason: str
    count: _Count


class Stage(msgspec.Struct, frozen=True, gc=False):
    """The seconds that all threads spent in one stage of a sync, and the connector's CPU seconds, without Spark's."""

    stage: str
    seconds: _Quantity
    cpu_seconds: _Quantity


class ReportLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line of a report, about a sync (`source`) or one of the sync's streams (`event`). Unknown values are null."""

    version: int = VERSION
    type: Literal["source", "event"]
    run_id: str
    connection_id: str
    """The ID of the connection. All syncs with the same streams and the same location of the lake have the same ID."""
    sync_id: _Number | None = None
    """The number of the job in Airbyte, as in `_airbyte_meta.sync_id`."""
    status: Status
    start_time: str
    finish_time: str | None = None
    duration_mins: _Count | None = None
    seconds: _Quantity | None = None
    error: str | None = None
    error_code: str | None = None
    error_type: str | None = None
    database: str
    table_name: str | None = None
    stream_namespace: str | None = None
    stream_name: str | None = None
    table_type: str
    file_format: str
    sync_mode: str | None = None
    generation_id: _Number | None = None
    streams: _Count | None = None
    streams_failed: _Count | None = None
    rows_received: _Count = 0
    row_count: _Count = 0
    """The number of rows in committed files."""
    rows_rejected: _Count = 0
    """The number of records that the sync rejected as a whole."""
    rows_skipped: _Count = 0
    """The number of received records that the table may not contain, because their stream failed."""
    values_rejected: _Count = 0
    rows_merged: _Count = 0
    """The number of pending rows (committed, but not yet merged) that the sync merged into the table. This number
    includes pending rows from earlier syncs."""
    rows_deduplicated: _Count = 0
    """The number of rows in the table that the sync's merges replaced."""
    rows_deleted: _Count = 0
    bytes_received: _Count = 0
    bytes_written: _Count = 0
    files: _Count = 0
    file_bytes_min: _Count | None = None
    file_bytes_p50: _Count | None = None
    file_bytes_p90: _Count | None = None
    file_bytes_max: _Count | None = None
    partitions: _Quantity | None = None
    """The average number of partitions per task."""
    new_columns: tuple[Named, ...] = ()
    promoted_columns: tuple[Named, ...] = ()
    redirected_columns: tuple[Named, ...] = ()
    rejects: tuple[Rejected, ...] = ()
    states_released: _Count | None = None
    states_held: _Count | None = None
    stages: tuple[Stage, ...] = ()
    cpu_seconds: _Quantity | None = None
    executor_cpu_seconds: _Quantity | None = None
    peak_memory_bytes: _Count | None = None
    executor_peak_memory_bytes: _Count | None = None
    aws_calls: dict[str, int] = {}
    """The number of requests to AWS, including retries, by service and operation. This number includes requests from
    Spark's executors if Spark reported them."""
    merges: _Count = 0
    merge_pending_bytes: _Count = 0
    merge_written_bytes: _Count = 0
    write_amplification: _Quantity | None = None
    """The number of bytes that merges wrote, per byte of merged rows."""
    snapshot_id: _Number | None = None
    table_snapshots: _Count | None = None
    table_files: _Count | None = None
    table_bytes: _Count | None = None
    table_rows: _Count | None = None
    table_rows_pending: _Count | None = None
    s3_bucket: str
    engine: str | None = None
    """The ID of the Spark application."""
    versions: dict[str, str] = {}

    @property
    def started(self) -> datetime:
        """The time at which the sync started."""
        return datetime.fromisoformat(self.start_time).replace(tzinfo=UTC)

    @property
    def finished(self) -> datetime:
        """The time at which the sync ended, or its start if the line does not contain the end."""
        return datetime.fromisoformat(self.finish_time or self.start_time).replace(tzinfo=UTC)

    @property
    def stream(self) -> str:
        """The name of the stream, preceded by its namespace if it has one."""
        return ".".join(part for part in (self.stream_namespace, self.stream_name) if part)

    @property
    def total_loss(self) -> str | None:
        """A message if the sync rejected every record of the stream, otherwise None.

        None if `delete-rows --suppress` suppressed all of these records, because suppressed records are not a loss.
        """
        reason = next((reject.reason for reject in self.rejects if reject.reason != RECORD_SUPPRESSED), None)
        if not self.rows_received or self.rows_rejected < self.rows_received or reason is None:
            return None
        return f"all {self.rows_received:,} records were rejected; the main reason is {reason}"

    @property
    def table(self) -> str:
        """The name of the table, preceded by the name of its database."""
        return f"{self.database}.{self.table_name or ''}"


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ReportLine)


def timestamp(moment: datetime) -> str:
    """Return a time as a string in the format of report lines: in UTC, with milliseconds."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")


def encode(lines: Iterable[ReportLine]) -> bytes:
    """Return the lines of a report in the format JSON Lines, in UTF-8. Replaces unpaired surrogates in names by `?`."""
    try:
        return _encoder.encode_lines(lines)
    except UnicodeEncodeError:
        return _encoder.encode_lines([_encodable(msgspec.to_builtins(line)) for line in lines])


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_encodable(key): _encodable(item) for key, item in value.items()}
        case list() | tuple():
            return [_encodable(item) for item in value]
        case _:
            return value


def decode(content: bytes) -> Iterator[ReportLine]:
    """Yield the lines of one or more reports. Skip invalid lines, and lines of a higher schema version."""
    # Unlike `str.splitlines`, this splits bytes only at line feeds and carriage returns, which JSON escapes in texts.
    for line in content.splitlines():
        try:
            decoded = _decoder.decode(line)
            _ = decoded.started, decoded.finished
            msgspec.msgpack.encode(decoded)  # Raises an error for integers of more than 64 bits.
        except (msgspec.DecodeError, OverflowError, RecursionError, ValueError):
            continue
        if decoded.version <= VERSION:
            yield decoded


def connection_id(config: Config, streams: Iterable[StreamId]) -> str:
    """Return the ID of a connection: the first 16 hexadecimal digits of a hash of the lake's location and the streams.

    The location consists of bucket, prefix, database and table_prefix. The order of `streams` has no effect.
    """
    names = sorted((stream.namespace or "", stream.name) for stream in streams)
    # Do not change this text: the reports of earlier syncs contain its hash.
    location = (config.bucket_name, config.key(), config.lakeformation_database_name, config.table_prefix)
    return hashlib.sha256(repr((location, names)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def sizes_of_files(sizes: Sequence[int]) -> dict[str, int]:
    """Return figures about files with these sizes in bytes, by the name of the member in a report line.

    The figures are the number and the total size of the files. If there are any files, the figures also include the
    minimum, median, 90th percentile and maximum of the sizes.
    """
    totals = {"files": len(sizes), "bytes_written": sum(sizes)}
    if not sizes:
        return totals
    ranked = sorted(sizes)
    last = len(ranked) - 1
    indexes = {"min": 0, "p50": last // 2, "p90": last * 9 // 10, "max": last}
    return {**totals, **{f"file_bytes_{name}": ranked[index] for name, index in indexes.items()}}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a report line. The schema conforms to version 2020-12 of JSON Schema."""
    line_schema = msgspec.json.schema(ReportLine)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://github.com/destination-datalake/reports/v{VERSION}/report.schema.json",
        **line_schema,
    }


def glue_columns() -> dict[str, str]:
    """Return the Glue type of each column in the table of reports, by column name."""
    from msgspec import inspect

    def glue_type(kind: inspect.Type) -> str:
        match kind:
            case inspect.Metadata():
                return glue_type(kind.type)
            case inspect.UnionType():
                return glue_type(next(member for member in kind.types if not isinstance(member, inspect.NoneType)))
            case inspect.IntType():
                return "bigint"
            case inspect.FloatType():
                return "double"
            case inspect.DictType():
                return f"map<{glue_type(kind.key_type)},{glue_type(kind.value_type)}>"
            case inspect.VarTupleType():
                return f"array<{glue_type(kind.item_type)}>"
            case inspect.StructType():
                members = ",".join(f"{field.name}:{glue_type(field.type)}" for field in kind.fields)
                return f"struct<{members}>"
            case _:
                return "string"

    line_type = inspect.type_info(ReportLine)
    assert isinstance(line_type, inspect.StructType)
    columns = {field.name: glue_type(field.type) for field in line_type.fields}
    # The lines contain times as texts, but Hive's JSON SerDes read texts of this format as timestamps.
    return columns | {"start_time": "timestamp", "finish_time": "timestamp"}


# --- Writing ----------------------------------------------------------------------------------------------------------
# Write the report of a sync to S3: one object at the start of the sync, and one at its end. If a write fails, the sync
# continues.
#
# The name of the first object begins with `_`, so readers of the Glue table ignore this object. If the second object
# does not exist, the sync has died or is still running.


_logger = logging.getLogger(__name__)

SECONDS = 2.0
"""The maximum time in seconds for which a sync waits for the writes of its report. The sync waits for at most half of
this time at its start, and for the rest at its end."""

REPORT = "report.jsonl"
STARTED = "_started.json"


class ReportWriter:
    """Writes the two objects of a sync's report on background threads. Logs failures, and never raises them.

    A sync calls `start` and `wait` at its start, and `finish` at its end. `day` is the day on which the sync started,
    as YYYY-MM-DD. `run` is the ID of the sync. If `catalog` is set, `finish` also registers the day as a partition of
    the table of reports.
    """

    def __init__(self, config: Config, access: AwsAccess, catalog: TableCatalog | None, day: str, run: str) -> None:
        self._database = config.lakeformation_database_name
        self._root = config.uri(REPORTS_FOLDER)
        self._access = access
        self._catalog = catalog
        self._day = day
        self._folder = f"{self._root}/day={day}/run_id={run}"
        self._warned = False
        self._lock = threading.Lock()
        self._finished = False
        self._starting: threading.Thread | None = None
        self._remaining = SECONDS

    def start(self, lines: Sequence[ReportLine]) -> None:
        """Start to write the first object of the report in the background. Return immediately."""
        self._starting = self._in_background(lambda: self._put(STARTED, lines))

    def wait(self) -> None:
        """Wait until a background thread has written the first object, but for at most half of `SECONDS`."""
        if self._starting is not None:
            self._join(self._starting, SECONDS / 2)

    def finish(self, lines: Sequence[ReportLine]) -> None:
        """Write the final object of the report. Only the first call has an effect.

        Returns after the write, or when the sync has waited for `SECONDS` in total for both objects.
        """
        with self._lock:
            if self._finished:
                return
            self._finished = True
        writing = [self._in_background(lambda: self._put(REPORT, lines))]
        if (catalog := self._catalog) is not None:
            writing.append(self._in_background(lambda: self._register(catalog)))
        for thread in writing:
            self._join(thread, SECONDS)
        if any(thread.is_alive() for thread in writing):
            self._warn(f"was not written within {SECONDS:.0f} s and may be missing", None)

    def _join(self, thread: threading.Thread, seconds: float) -> None:
        """Wait until a thread ends, for at most `seconds`. All calls together wait for at most `SECONDS`."""
        began = time.monotonic()
        thread.join(min(seconds, self._remaining))
        self._remaining = max(0.0, self._remaining - (time.monotonic() - began))

    def _put(self, name: str, lines: Sequence[ReportLine]) -> None:
        put(self._access.client("s3"), f"{self._folder}/{name}", encode(lines))

    def _register(self, catalog: TableCatalog) -> None:
        """Register the day as a partition of the table of reports, unless the partition exists."""
        from destination_datalake.tables.glue.catalog import LinesTable, LinesTableKind

        kind = LinesTableKind(REPORTS_TABLE, "reports", _DESCRIPTION, glue_columns(), ("day",), "none")
        table = LinesTable(kind, self._database, self._root, self._access, catalog)
        if not table.has((self._day,)):
            table.register_folders({(self._day,): f"{self._root}/day={self._day}/"})

    def _in_background(self, task: Callable[[], None]) -> threading.Thread:
        return _in_background("sync-report", task, lambda error: self._warn("could not be written completely", error))

    def _warn(self, problem: str, error: Exception | None) -> None:
        """Log a warning on the first call only, because both writes usually fail for the same reason."""
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            reason = "" if error is None else f" ({type(error).__name__}: {error})"
            _logger.warning(
                "The report of this sync under %s/ %s%s. The problem does not affect the sync.",
                self._root,
                problem,
                reason,
            )


_DESCRIPTION = "Reports of destination-datalake: one row for each sync, and one row for each stream of a sync"


_NOT_SENT = "The connector did not send the %s of this sync (%s). The problem does not affect the sync."


def within(seconds: float, tasks: Mapping[str, Callable[[], None]]) -> None:
    """Run each task on its own thread. Return when all tasks have ended, or after `seconds`.

    Logs a warning for each task that fails or exceeds the time limit. The warning names the task by its key in `tasks`.
    """
    deadline = time.monotonic() + seconds

    def warn(name: str, error: Exception) -> None:
        _logger.warning(_NOT_SENT, name, f"{type(error).__name__}: {error}")

    threads = {name: _in_background(name, task, partial(warn, name)) for name, task in tasks.items()}
    for name, thread in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            _logger.warning(_NOT_SENT, name, f"the time limit of {seconds:.0f} s was exceeded")


def _in_background(name: str, task: Callable[[], None], warn: Callable[[Exception], None]) -> threading.Thread:
    """Start a task on a thread with this name, and return the thread. Pass an error of the task to `warn`."""

    def attempt() -> None:
        try:
            task()
        except Exception as error:
            warn(error)

    # A daemon thread does not keep the process alive if its request never ends.
    thread = threading.Thread(target=attempt, name=name, daemon=True)
    thread.start()
    return thread
