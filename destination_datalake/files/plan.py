"""The plans, tasks and results that the driver and the executors exchange.

All of these values are small. Records are never sent between the driver and the executors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import Pending, PendingUpload
from destination_datalake.errors import ConnectorError
from destination_datalake.files.jobs import Failed
from destination_datalake.files.segments import Content, StagedSegment
from destination_datalake.partitioning.spec import PartitionField, Partitioning, PartitionValue, SortOrder
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import RejectCounts, RejectFile, RejectLocation
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.types import ColumnType, Field

if TYPE_CHECKING:
    import pyarrow as pa
    from mypy_boto3_s3 import S3Client

    from destination_datalake.partitioning.paths import PartitionFolders


FileFormat = Literal["parquet", "jsonl"]


@dataclass(frozen=True, slots=True)
class Deduplication:
    """The columns that control the deduplication of a table's rows, by their names in the table."""

    key: tuple[str, ...]
    """The primary key. Only the latest row of each key is kept."""
    cursor: str | None = None
    """The row with the highest cursor is the latest row. If None, the row with the latest extraction time is."""
    deleted_at: str | None = None
    """If the latest row of a key has a value in this column, the key is deleted. If None, keys are never deleted."""


KEY_CHANGED = "DESTINATION_RECORD_KEY_CHANGED"
"""The reject reason for records of deduplicated streams whose key, cursor or deletion time cannot be stored as sent."""


class IngestOrder(NamedTuple):
    """The position of a unit's records in the order of arrival. Row IDs (`_airbyte_raw_id`) ascend in this order.

    A unit is the part of a batch that one task encodes.
    """

    milliseconds: int
    """The start of the sync in milliseconds since 1970-01-01 UTC, plus the number of the batch."""
    part: int
    """The number of the unit within the batch, less than 4096."""


COUNTED_DIGITS = 8
"""The number of hexadecimal digits at the end of a row ID. They contain the number of the row's line in its unit (see
`row_ids`)."""

FIRST = IngestOrder(0, 0)
"""The ingest order of a unit whose position in the order of arrival does not matter."""


@dataclass(frozen=True, slots=True)
class FilePlan:
    """Describes how executors write the records of one stream as data files of the stream's table.

    In a partitioned table, each file contains rows of one partition, and is stored in the partition's folder under
    `folder`.
    """

    format: FileFormat
    codec: str
    """A value of the option `format.compression_codec`."""
    columns: tuple[Field, ...]
    """The stream's columns as in the table, without metadata columns."""
    field_ids: Mapping[str, int]
    """Maps the dotted path of a column to its Iceberg field ID. Empty for tables whose readers find columns by name."""
    folder: str
    """The S3 URI of the files' folder, without a trailing slash."""
    deferred: bool
    """Whether files stay invisible until they are published."""
    target_bytes: int
    """The size, in bytes, at which a file is closed."""
    generation: int | None
    sync_id: int | None
    partitioning: Partitioning | None = None
    sort_order: SortOrder | None = None
    metadata: tuple[Field, ...] = METADATA_COLUMNS
    """The metadata columns as in the table. The extraction time may be an integer: milliseconds since 1970-01-01
    UTC."""
    spool_folder: str | None = None
    """A folder on a disk that the executors and the driver share, or None if they share no disk. Small files stay in
    this folder until they are published, so that tasks with many small files do not wait for S3."""
    vended_access: AwsAccess | None = None
    """The access to AWS for these files, if the catalog issues credentials for this table. None means the access of the
    task."""
    dedup: Deduplication | None = None
    """The columns for deduplication, or None if rows are not deduplicated. If set, a record is rejected if its key
    cannot be stored as sent, or if its cursor or deletion time is lost. A truncated cursor or deletion time is kept."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file or position delete file that an executor has written."""

    uri: str
    size: int
    """The size of the file in bytes."""
    rows: int
    footer: bytes = field(default=b"", repr=False, compare=False)
    """The footer of a Parquet file, so that the driver need not read it. Empty for other formats."""
    pending_upload: PendingUpload | None = field(default=None, repr=False, compare=False)
    """If set, the file is invisible until this upload is published, so abandoned attempts of a task leave no visible
    files."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a batch.

    Its `columns` can have wider types than the columns of the plan, if the values require it.

    `WrittenFile` describes the other fields.
    """

    uri: str
    size: int
    rows: int
    columns: tuple[Field, ...]
    footer: bytes = field(repr=False)
    pending_upload: Pending | None
    with_nulls: frozenset[str] = frozenset()
    """The names of the top-level columns that contain nulls. They are recorded here because footers do not always count
    nulls."""
    partition: tuple[PartitionValue, ...] = ()
    """The partition values of all rows in the file, one for each field of `FilePlan.partitioning`."""
    spec_id: int = 0
    """The `Partitioning.spec_id` of the plan. The table's spec may have changed when the file is committed."""
    is_sorted: bool = False
    """Whether all rows of the file are sorted by `FilePlan.sort_order`."""


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """A task that copies a Parquet file with wider types for some columns.

    The copy keeps all field IDs, and omits the rows that `position_deletes` remove.
    """

    source: str
    """The S3 URI of the file to copy."""
    target: str
    """The S3 URI of the copy."""
    columns: Mapping[str, ColumnType]
    """Maps the names of top-level columns to their new types. Names are case-insensitive, and columns that the file
    lacks are ignored. The new type of a nested column applies to the nested fields that the file has."""
    access: AwsAccess
    to_double: frozenset[int] = frozenset()
    """The Iceberg field IDs, at any depth, of floats that become doubles. If it is set, a file without such floats is
    not copied."""
    position_deletes: tuple[SourceFile, ...] = ()
    """The position delete files that may apply to the file (see `SourceFile`)."""


@dataclass(frozen=True, slots=True)
class Rewritten(WrittenFile):
    """The file that replaces `source`. If `source` need not be rewritten, this is `source` itself."""

    source: str = ""


class RewriteFailed(ConnectorError):
    """Raised if some files could not be rewritten. `failure` describes one of these failures."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A Parquet file to read, by its S3 URI. Its size in bytes and its row count come from the table's metadata."""

    uri: str
    size: int
    rows: int
    required_ids: frozenset[int] = frozenset()
    """The field IDs of columns that the file must contain. If a file lacks one, readers take the column's values from
    the file's partition (Iceberg spec: Column Projection), which the connector does not support."""
    position_deletes: tuple[SourceFile, ...] = ()
    """The position delete files that may apply to this file (Iceberg spec: Position Delete Files)."""
    etag: str | None = None
    """The expected ETag of the object. A read fails if another object has replaced it. None accepts any object."""
    version: str | None = None
    """The ID of a noncurrent version of the object, in a bucket with versioning. None means the current version."""


UNKNOWN = -1
"""The row count of a source file if the metadata does not contain its row count."""


@dataclass(frozen=True, slots=True)
class ExpectedColumnStats:
    """The statistics of one column of one file in the table's metadata. Unknown statistics are None.

    The bounds are values that Arrow can order: numbers, bytes for texts, days for dates, and microseconds for times.
    """

    column: str
    lower: Any
    upper: Any
    nulls: int | None


@dataclass(frozen=True, slots=True)
class ExpectedPartition:
    """The partition of one file: a value for each of the `fields`. Fields with the transform void are not verified.

    In a Hive table, which has `folders`, the values are texts in the catalog. Rows may be null in any partition of the
    fields named in `nullable`.
    """

    fields: tuple[PartitionField, ...]
    values: tuple[PartitionValue, ...]
    folders: PartitionFolders | None = None
    nullable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ExpectedFileStats:
    """The statistics of one file in the table's metadata, with which the verification compares the file."""

    source: SourceFile
    """The file. If its row count is not known, `source.rows` is UNKNOWN."""
    kind: str
    """"parquet" or "jsonl". For other kinds, only the size of the file is verified."""
    schema: pa.Schema | None
    """The table's columns, with field IDs if these identify columns. If None, the file may have any columns."""
    columns: tuple[ExpectedColumnStats, ...] = ()
    group: str = ""
    """The row counts of all files with the same group are summed."""
    partition: ExpectedPartition | None = None
    """The partition of the file, with which its rows are compared."""
    listed: bool = False
    """Whether the file is known only from a listing of its folder. No metadata references such a file, so another
    writer may delete it at any time."""


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """The result of verifying one file: the number of rows read, and the problems found, as clauses about the file."""

    uri: str
    group: str
    rows: int
    size: int
    problems: tuple[str, ...] = ()
    was_deleted: bool = False
    """Whether the file was known only from a listing, and was deleted before it could be read. This is not a
    problem."""
    by_duckdb: bool = False
    """Whether DuckDB, the second reader, has also read the file."""
    started: int | None = None
    """The start of the sync that wrote the rows, according to their IDs (see `row_ids`), in milliseconds since 1970.
    None if the name of the file does not contain its batch, or if the rows have no such IDs."""


@dataclass(frozen=True, slots=True)
class CompactTask:
    """A task that writes the rows of `sources`, in this order, to one new Parquet file."""

    name: str
    """The start of the new file's name. A random token of the attempt follows it."""
    sources: tuple[SourceFile, ...]
    schema: pa.Schema
    """The schema of the table, with the field IDs that identify columns at every level."""
    folder: str
    """The S3 URI of the folder for the new file, without a trailing slash."""
    codec: str
    """A value of the option `format.compression_codec`."""
    sort_order: SortOrder | None
    """If set, the rows are sorted in this order."""
    access: AwsAccess


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that was not compacted. `reason` explains why, as a clause about the file."""

    uri: str
    reason: str


@dataclass(frozen=True, slots=True)
class Compacted(WrittenFile):
    """The new file of a compaction task."""

    name: str = ""
    """The name of the task."""
    sources: tuple[str, ...] = ()
    """The URIs of the task's sources whose rows the file contains: all except the `skipped` ones."""
    skipped: tuple[SkippedFile, ...] = ()
    is_sorted: bool = False
    deleted: int = 0
    """The number of rows of these sources that were omitted because of position deletes."""


@dataclass(frozen=True, slots=True)
class NotCompacted:
    """The result of a compaction task that wrote no file, because there was nothing to compact.

    Besides the `skipped` files, the task had at most one file, and this file had no position delete files.
    """

    skipped: tuple[SkippedFile, ...]


CompactResult = Compacted | NotCompacted | Failed


class OpenFilter(Protocol):
    """An open line filter on an executor. It omits lines from a unit, and counts them as rejects with this `reason`."""

    reason: str

    def apply(self, content: Content, /) -> Content:
        """Return the content with an empty line in place of each omitted line. Pass the contents of a unit in order."""


class LineFilter(Protocol):
    """A rule that omits lines from a unit. The rule is a small value that the driver sends to the executors."""

    def open(self, columns: Sequence[Field], s3: S3Client, /) -> OpenFilter | None:
        """Return the filter for a unit of a stream with these columns, or None if the rule omits none of its lines.

        Raises ObjectFailed and ConfigError.
        """


@dataclass(frozen=True, slots=True)
class UnitLines:
    """The lines of one unit, in order, as stored in one object. A unit is the part of a batch that one task encodes."""

    name: str
    """The key of the object, below the folder of the sink that stored it."""
    lines: int
    bytes: int
    """The size of the lines before compression."""
    first_record: int
    """The number, from 0, of the first record in the stream's input."""
    first_id: str
    """The row ID of line 0 (see `row_ids`), as 32 hexadecimal digits."""
    sha256: str = ""
    """The hash of the object's bytes. Empty if another program or an earlier version of the connector wrote the
    object."""


@dataclass(frozen=True, slots=True)
class LineFile:
    """An object with the lines of a unit, which a line sink has written.

    It is invisible until its upload is published.
    """

    uri: str
    content: UnitLines
    pending_upload: Pending


class OpenSink(Protocol):
    """An open line sink on an executor. It stores the lines of a unit while they are encoded."""

    def write(self, lines: bytes | bytearray | memoryview, /) -> None:
        """Append whole lines, as received from the source. Omitted lines are empty. Raises ObjectFailed."""

    def close(self) -> LineFile:
        """Upload the remaining lines. Return the object, which is not published yet. Raises ObjectFailed."""

    def abort(self) -> None:
        """Delete the object, even if `close` was called before."""


class LineSink(Protocol):
    """A second destination for the lines of a unit, besides the table. An example is the archive.

    The sink is a small value that the driver sends to the executors.
    """

    def open(
        self,
        segments: Sequence[StagedSegment],
        attempt: str,
        first_id: bytes,
        s3: S3Client,
        spool_folder: str | None,
        /,
    ) -> OpenSink:
        """Return the open sink for the lines of these segments. `first_id` is the row ID of line 0.

        If `spool_folder` is set, small objects stay in this folder until they are published.
        """


MIN_TASK_BYTES = 16 * 1024 * 1024
"""Minimum size of the records per task, in bytes. More, smaller tasks would create smaller files without saving
time."""


@dataclass(frozen=True, slots=True)
class EncodeUnit:
    """Segments (files of record lines) of one stream that a task reads in order and writes as data files.

    A batch that is not split into units yet is a single EncodeUnit. The lines pass through the `filters` in order. The
    remaining lines are stored by the `sinks`, and are decoded.
    """

    stream: StreamId
    name: str
    """The start of the names of data files and rejects. Each attempt adds a token of its own."""
    segments: tuple[StagedSegment, ...]
    plan: FilePlan
    rejects: RejectLocation
    ingest_order: IngestOrder = FIRST
    filters: tuple[LineFilter, ...] = ()
    sinks: tuple[LineSink, ...] = ()
    expected_yield: float | None = None
    """The expected size of the data files in one partition, per byte of segments. None if it is unknown."""


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """The units that one Spark task encodes. Small units of several streams share a task."""

    units: tuple[EncodeUnit, ...]
    access: AwsAccess


@dataclass(frozen=True, slots=True)
class Encoded:
    """The result of a unit: each record of its segments is either in one of `files` or among the rejects."""

    stream: StreamId
    files: tuple[DataFile, ...]
    counts: RejectCounts
    """The numbers of rejects."""
    rejects: tuple[RejectFile, ...]
    """The stored rejects. They are invisible until they are published."""
    undeclared: tuple[str, ...] = ()
    """The paths of fields in the unit's first records that the stream's schema does not declare."""
    line_files: tuple[LineFile, ...] = ()
    """The objects that the line sinks have written."""
    left_out: int = 0
    """The number of lines that were already empty in the segments."""

    def pending(self) -> list[Pending | None]:
        """Return the pending uploads of the data files and of the line sinks' objects.

        Files without one are returned as None.
        """
        return [*(file.pending_upload for file in self.files), *(file.pending_upload for file in self.line_files)]


@dataclass(frozen=True, slots=True)
class NotEncoded(Failed):
    """The result of a unit that could not be encoded. `failure` contains the message for the user."""

    stream: StreamId


UnitResult = Encoded | NotEncoded


def split_into_tasks(batches: Sequence[EncodeUnit], parallelism: int, access: AwsAccess) -> list[EncodeTask]:
    """Split the batches into units, and distribute these among at most `parallelism` tasks of similar size.

    Segments are not split and stay in order. The share of a task is at least MIN_TASK_BYTES.
    """
    total = sum(segment.bytes for batch in batches for segment in batch.segments)
    share = max(MIN_TASK_BYTES, -(-total // max(parallelism, 1)))
    tasks: dict[int, list[EncodeUnit]] = {}
    start = 0
    for batch in batches:
        parts: dict[int, list[StagedSegment]] = {}
        for segment in batch.segments:
            # The middle of a segment determines the segment's task, so that rounding does not add a small extra task.
            number = max(0, -(-(2 * start + segment.bytes) // (2 * share)) - 1)
            parts.setdefault(number, []).append(segment)
            start += segment.bytes
        units = [(number, unit) for number, segments in parts.items() for unit in _units(segments)]
        for part, (number, segments) in enumerate(units):
            tasks.setdefault(number, []).append(_unit(batch, part, segments))
    return [EncodeTask(tuple(units), access) for units in tasks.values()]


def _units(segments: Sequence[StagedSegment]) -> Sequence[Sequence[StagedSegment]]:
    """Group the segments of a task into units.

    Segments whose lines already have row IDs become one unit each. Other segments form a single unit.
    """
    return [segments] if segments[0].first_id is None else [[segment] for segment in segments]


def even_file_bytes(expected: float, target: int) -> int:
    """Return the file size with which `expected` bytes are divided into files of equal size, close to `target`.

    For example, 3.3 times the target becomes three files of 1.1 times the target, instead of three full files and a
    small one. If a single file is expected, it may become 1.5 times the target.
    """
    files = round(expected / target)
    return int(expected / files) if files > 1 else target + target // 2


def _unit(batch: EncodeUnit, part: int, segments: Sequence[StagedSegment]) -> EncodeUnit:
    plan = batch.plan
    if batch.expected_yield is not None:
        expected = sum(segment.bytes for segment in segments) * batch.expected_yield
        plan = replace(plan, target_bytes=even_file_bytes(expected, plan.target_bytes))
    return replace(
        batch,
        name=f"{batch.name}-{part:04d}",
        segments=tuple(segments),
        plan=plan,
        ingest_order=batch.ingest_order._replace(part=part),
        expected_yield=None,
    )
