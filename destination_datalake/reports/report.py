"""The report of a sync, as values: a line for the sync, and one for each of its streams.

Names and meanings are those of Segment's sync reports as far as those go (Segment data lakes: sync reports); a `source`
there is a sync here, and an `event` a stream. docs/operating/reports.md describes each member. The lines are the rows
of a Glue table, so every line has all members, and times are in the format of Hive's JSON SerDes, in UTC.
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
"""The version of the report's schema. It grows when a member changes its meaning or goes; new members do not count."""

Status = Literal["started", "finished", "partial", "failed", "terminated"]
"""`started`: the report of a sync that had just begun. `partial`: some streams failed, others did not."""

_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""As Glue's bigint holds them: a line with other numbers is no line of a report."""


class Named(msgspec.Struct, frozen=True, gc=False):
    """A column, and its type; or, of a redirected one, the column that gets its values."""

    name: str
    type: str


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """How many rejects there were of a column (None: of whole records) for a reason."""

    column_name: str | None
    reason: str
    count: _Count


class Stage(msgspec.Struct, frozen=True, gc=False):
    """How long a stage was at work, on any thread, and the connector's CPU seconds in it, without Spark's."""

    stage: str
    seconds: float
    cpu_seconds: float


class ReportLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line: of a sync (`source`), or of one of its streams (`event`). What is not known of it is null."""

    version: int = VERSION
    type: Literal["source", "event"]
    run_id: str
    connection_id: str
    """The same for all syncs of the same streams to the same place; of nothing else."""
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
    """Rows of the files that were committed."""
    rows_rejected: _Count = 0
    """Records that are among the rejects and are no rows."""
    rows_skipped: _Count = 0
    """Records that were received and are not known to be committed, as their stream failed."""
    values_rejected: _Count = 0
    rows_merged: _Count = 0
    """Rows that waited for their deduplication, and were merged into the table; those of earlier syncs too."""
    rows_deduplicated: _Count = 0
    """Rows of the table that merges have replaced."""
    rows_deleted: _Count = 0
    bytes_received: _Count = 0
    bytes_written: _Count = 0
    files: _Count = 0
    file_bytes_min: _Count | None = None
    file_bytes_p50: _Count | None = None
    file_bytes_p90: _Count | None = None
    file_bytes_max: _Count | None = None
    partitions: float | None = None
    """The partitions that the records of a task were of, on average."""
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
    """Requests to AWS by service and operation, repeated ones too, of executors as far as Spark has told."""
    merges: _Count = 0
    merge_pending_bytes: _Count = 0
    merge_written_bytes: _Count = 0
    write_amplification: float | None = None
    """How many bytes merges have written for each byte that they merged."""
    snapshot_id: _Number | None = None
    table_snapshots: _Count | None = None
    table_files: _Count | None = None
    table_bytes: _Count | None = None
    table_rows: _Count | None = None
    table_rows_pending: _Count | None = None
    s3_bucket: str
    engine: str | None = None
    """The id of Spark's application."""
    versions: dict[str, str] = {}

    @property
    def started(self) -> datetime:
        """When the sync began."""
        return datetime.fromisoformat(self.start_time).replace(tzinfo=UTC)

    @property
    def stream(self) -> str:
        """The stream's name for people."""
        return ".".join(part for part in (self.stream_namespace, self.stream_name) if part)

    @property
    def total_loss(self) -> str | None:
        """What to say of a stream whose every record was rejected; None for others.

        Not if all of them are of people whose records `delete-rows --suppress` has told to reject.
        """
        reason = next((each.reason for each in self.rejects if each.reason != RECORD_SUPPRESSED), None)
        if not self.rows_received or self.rows_rejected < self.rows_received or reason is None:
            return None
        return f"all {self.rows_received:,} records were rejected, most for {reason}"

    @property
    def table(self) -> str:
        """The table's name, with its database."""
        return f"{self.database}.{self.table_name or ''}"


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ReportLine)


def timestamp(moment: datetime) -> str:
    """Return a time as lines have it, to the millisecond."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")


def encode(lines: Iterable[ReportLine]) -> bytes:
    """Return the lines as JSON, each ended by a line feed. Half a surrogate pair of a name becomes a `?`."""
    try:
        return _encoder.encode_lines(lines)
    except UnicodeEncodeError:
        return _encoder.encode_lines([_encodable(msgspec.to_builtins(line)) for line in lines])


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_encodable(key): _encodable(each) for key, each in value.items()}
        case list() | tuple():
            return [_encodable(each) for each in value]
        case _:
            return value


def decode(content: bytes) -> Iterator[ReportLine]:
    """Yield the lines of reports. A line that is none, of another version perhaps, is left out."""
    for line in content.splitlines():
        try:
            decoded = _decoder.decode(line)
            _ = decoded.started
            msgspec.msgpack.encode(decoded)  # It takes integers of 64 bits alone, as this connector writes them.
        except (msgspec.DecodeError, OverflowError, RecursionError, ValueError):
            continue
        yield decoded


def connection_id(config: Config, streams: Iterable[StreamId]) -> str:
    """Return the id of a connection: a hash of where it writes to, and of its streams, whatever their order."""
    names = sorted((stream.namespace or "", stream.name) for stream in streams)
    place = (config.bucket_name, config.key(), config.lakeformation_database_name, config.table_prefix)
    return hashlib.sha256(repr((place, names)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def sizes_of_files(sizes: Sequence[int]) -> dict[str, int]:
    """Return the smallest size, the median, the ninth decile and the largest, as members of a line; none of no file."""
    if not sizes:
        return {}
    ranked = sorted(sizes)
    last = len(ranked) - 1
    places = {"min": 0, "p50": last // 2, "p90": last * 9 // 10, "max": last}
    return {f"file_bytes_{name}": ranked[place] for name, place in places.items()}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a line (2020-12)."""
    described = msgspec.json.schema(ReportLine)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://github.com/destination-datalake/reports/v{VERSION}/report.schema.json",
        **described,
    }


def glue_columns() -> dict[str, str]:
    """Return the types of the Glue table's columns over reports, by name."""
    from msgspec import inspect

    def glue_type(kind: inspect.Type) -> str:
        match kind:
            case inspect.Metadata():
                return glue_type(kind.type)
            case inspect.UnionType():
                return glue_type(next(each for each in kind.types if not isinstance(each, inspect.NoneType)))
            case inspect.IntType():
                return "bigint"
            case inspect.FloatType():
                return "double"
            case inspect.DictType():
                return f"map<{glue_type(kind.key_type)},{glue_type(kind.value_type)}>"
            case inspect.VarTupleType():
                return f"array<{glue_type(kind.item_type)}>"
            case inspect.StructType():
                members = ",".join(f"{each.name}:{glue_type(each.type)}" for each in kind.fields)
                return f"struct<{members}>"
            case _:
                return "string"

    described = inspect.type_info(ReportLine)
    assert isinstance(described, inspect.StructType)
    columns = {each.name: glue_type(each.type) for each in described.fields}
    return columns | {"start_time": "timestamp", "finish_time": "timestamp"}
