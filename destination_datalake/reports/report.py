"""The report of a sync as values: a line for the sync, and a line for each of its streams.

Where possible, names and meanings are those of Segment's sync reports (Segment data lakes: sync reports), in which a
`source` is a sync and an `event` is a stream. docs/operating/reports.md describes each member. The lines are rows of a
Glue table, so every line has all members, and times have the format of Hive's JSON SerDes, in UTC.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from destination_datalake.files.suppression import RECORD_SUPPRESSED

if TYPE_CHECKING:
    from destination_datalake.config.options import Config
    from destination_datalake.protocol.catalog import StreamId

VERSION = 1
"""The version of the report's schema. It increases when a member is removed or changes its meaning."""

Status = Literal["started", "finished", "partial", "failed", "terminated"]
"""`started`: written at the start of a sync. `partial`: some streams failed, others did not."""

_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""The range of Glue's bigint. A line with other numbers is not valid."""


class Named(msgspec.Struct, frozen=True, gc=False):
    """A column and its type, or, for a redirected column, the column that receives its values."""

    name: str
    type: str


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """The number of rejects of a column (None: of whole records) for a reason."""

    column_name: str | None
    reason: str
    count: _Count


class Stage(msgspec.Struct, frozen=True, gc=False):
    """The duration of a stage on all threads, and its CPU seconds in the connector, without Spark's."""

    stage: str
    seconds: float
    cpu_seconds: float


class ReportLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line about a sync (`source`) or one of its streams (`event`). Unknown values are null."""

    version: int = VERSION
    type: Literal["source", "event"]
    run_id: str
    connection_id: str
    """The ID of the connection: equal for syncs of the same streams to the same location, and only for those."""
    sync_id: _Number | None = None
    """Airbyte's number of the job, as in `_airbyte_meta.sync_id`."""
    status: Status
    start_time: str
    finish_time: str | None = None
    duration_mins: _Count | None = None
    seconds: float | None = None
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
    """Rows in committed files."""
    rows_rejected: _Count = 0
    """Records that were rejected as a whole."""
    rows_skipped: _Count = 0
    """Received records that may not be committed, because their stream failed."""
    values_rejected: _Count = 0
    rows_merged: _Count = 0
    """Pending rows that were merged into the table, including rows of earlier syncs."""
    rows_deduplicated: _Count = 0
    """Rows of the table that merges replaced."""
    rows_deleted: _Count = 0
    bytes_received: _Count = 0
    bytes_written: _Count = 0
    files: _Count = 0
    file_bytes_min: _Count | None = None
    file_bytes_p50: _Count | None = None
    file_bytes_p90: _Count | None = None
    file_bytes_max: _Count | None = None
    partitions: float | None = None
    """The average number of partitions per task."""
    new_columns: tuple[Named, ...] = ()
    promoted_columns: tuple[Named, ...] = ()
    redirected_columns: tuple[Named, ...] = ()
    rejects: tuple[Rejected, ...] = ()
    states_released: _Count | None = None
    states_held: _Count | None = None
    stages: tuple[Stage, ...] = ()
    cpu_seconds: float | None = None
    executor_cpu_seconds: float | None = None
    peak_memory_bytes: _Count | None = None
    executor_peak_memory_bytes: _Count | None = None
    aws_calls: dict[str, int] = {}
    """Requests to AWS by service and operation, including retries, and those of executors that Spark reported."""
    merges: _Count = 0
    merge_pending_bytes: _Count = 0
    merge_written_bytes: _Count = 0
    write_amplification: float | None = None
    """The number of bytes written by merges per merged byte."""
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
        """The start of the sync."""
        return datetime.fromisoformat(self.start_time).replace(tzinfo=UTC)

    @property
    def stream(self) -> str:
        """The stream's name with its namespace, if any."""
        return ".".join(part for part in (self.stream_namespace, self.stream_name) if part)

    @property
    def total_loss(self) -> str | None:
        """A message if every record of the stream was rejected, not all by `delete-rows --suppress`; otherwise None."""
        reason = next((reject.reason for reject in self.rejects if reject.reason != RECORD_SUPPRESSED), None)
        if not self.rows_received or self.rows_rejected < self.rows_received or reason is None:
            return None
        return f"all {self.rows_received:,} records were rejected; the main reason is {reason}"

    @property
    def table(self) -> str:
        """The table's name, with its database."""
        return f"{self.database}.{self.table_name or ''}"


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ReportLine)


def timestamp(moment: datetime) -> str:
    """Return a time in the format of lines, in milliseconds."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")


def encode(lines: Iterable[ReportLine]) -> bytes:
    """Return the lines as JSON lines. Unpaired surrogates in names become `?`."""
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
    """Yield the lines of reports. Invalid lines, for example of another version, are skipped."""
    for line in content.splitlines():
        try:
            decoded = _decoder.decode(line)
            _ = decoded.started
            msgspec.msgpack.encode(decoded)  # Fails for integers beyond 64 bits.
        except (msgspec.DecodeError, OverflowError, RecursionError, ValueError):
            continue
        yield decoded


def connection_id(config: Config, streams: Iterable[StreamId]) -> str:
    """Return the ID of a connection: a hash of its location and of its streams in any order."""
    names = sorted((stream.namespace or "", stream.name) for stream in streams)
    location = (config.bucket_name, config.key(), config.lakeformation_database_name, config.table_prefix)
    return hashlib.sha256(repr((location, names)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def sizes_of_files(sizes: Sequence[int]) -> dict[str, int]:
    """Return minimum, median, 90th percentile and maximum as members of a line; an empty dict without files."""
    if not sizes:
        return {}
    ranked = sorted(sizes)
    last = len(ranked) - 1
    indexes = {"min": 0, "p50": last // 2, "p90": last * 9 // 10, "max": last}
    return {f"file_bytes_{name}": ranked[index] for name, index in indexes.items()}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a line (2020-12)."""
    line_schema = msgspec.json.schema(ReportLine)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://github.com/destination-datalake/reports/v{VERSION}/report.schema.json",
        **line_schema,
    }


def glue_columns() -> dict[str, str]:
    """Return the column types of the Glue table of reports, by name."""
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
    return columns | {"start_time": "timestamp", "finish_time": "timestamp"}
