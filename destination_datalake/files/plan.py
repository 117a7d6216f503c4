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
    """The primary key. The table keeps only the latest row of each key."""
    cursor: str | None = None
    """The row with the highest value in this column is the latest row. If None, the extraction time decides instead."""
    deleted_at: str | None = None
    """If the latest row of a key has a value in this column, the key is deleted. If None, keys are never deleted."""


KEY_CHANGED = "DESTINATION_RECORD_KEY_CHANGED"
"""The reject reason for records of deduplicated streams whose key, cursor or deletion time cannot be stored as sent."""


class IngestOrder(NamedTuple):
    """The position of a unit's records in the order of arrival of all records.

    Row IDs (`_airbyte_raw_id`) ascend in this order. A unit is the part of a batch that one task encodes.
    """

    milliseconds: int
    """The start of the sync in milliseconds since 1970-01-01 UTC, plus the number of the batch."""
    part: int
    """The number of the unit within the batch, less than MAX_PARTS."""


MAX_PARTS = 4096
"""Maximum number of units of a batch that get new row IDs. A row ID has 12 bits for the number of the unit."""

COUNTED_DIGITS = 8
"""The number of hexadecimal digits at the end of a row ID that contain a line number: the number of the row's line in
its unit (see `row_ids`)."""

FIRST = IngestOrder(0, 0)
"""The ingest order of a unit whose position in the order of arrival does not matter."""


@dataclass(frozen=True, slots=True)
class FilePlan:
    """Describes how executors write the records of one stream as data files of the stream's table.

    In a partitioned table, each file contains rows of only one partition. The executor stores the file in the
    partition's folder under `folder`.
    """

    format: FileFormat
    codec: str
    """A value of the option `format.compression_codec`."""
    columns: tuple[Field, ...]
    """The stream's columns with their names and types in the table, without metadata columns."""
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
    """The metadata columns with their types in the table. The extraction time may be an integer: milliseconds since
    1970-01-01 UTC."""
    spool_folder: str | None = None
    """A folder on a disk that the executors and the driver share, or None if they share no disk. Small files stay in
    this folder until they are published, so that tasks with many small files do not wait for S3."""
    vended_access: AwsAccess | None = None
    """The access to AWS for these files, if the catalog issues credentials for this table. If None, the task's own
    access is used."""
    dedup: Deduplication | None = None
    """The columns for deduplication, or None if rows are not deduplicated. If set, executors reject a record if they
    cannot store its key as sent, or if its cursor or deletion time became null. They accept a truncated cursor or
    deletion time."""


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
    """If set, the file is invisible until the driver publishes this upload. Abandoned attempts of a task therefore
    leave no visible files."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a batch.

    If values need wider types, `columns` has wider types than the columns of the plan.

    `WrittenFile` describes the other fields.
    """

    uri: str
    size: int
    rows: int
    columns: tuple[Field, ...]
    footer: bytes = field(repr=False)
    pending_upload: Pending | None
    with_nulls: frozenset[str] = frozenset()
    """The names of the top-level columns that contain nulls. The driver cannot always read them from the footer,
    because some footers contain no null counts."""
    partition: tuple[PartitionValue, ...] = ()
    """The partition values of all rows in the file, one for each field of `FilePlan.partitioning`."""
    spec_id: int = 0
    """The `Partitioning.spec_id` of the plan. Another writer may change the table's spec before the file is
    committed."""
    is_sorted: bool = False
    """Whether all rows of the file are sorted by `FilePlan.sort_order`."""


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """A task that copies a Parquet file with wider types for some columns.

    The copy keeps all field IDs. It omits the rows that `position_deletes` remove.
    """

    source: str
    """The S3 URI of the file to copy."""
    target: str
    """The S3 URI of the copy."""
    columns: Mapping[str, ColumnType]
    """Maps the names of top-level columns to their new types. Names are case-insensitive. The task ignores columns, and
    fields of nested types, that the file lacks."""
    access: AwsAccess
    to_double: frozenset[int] = frozenset()
    """The Iceberg field IDs, at any depth, of floats that become doubles. If this set is not empty, the task copies the
    file only if the type of a column changes."""
    position_deletes: tuple[SourceFile, ...] = ()
    """The position delete files that may apply to the file (see `SourceFile`)."""


@dataclass(frozen=True, slots=True)
class Rewritten(WrittenFile):
    """The file that replaces `source`. If no rewrite of `source` is needed, this is `source` itself."""

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
    """The field IDs of columns that the file must contain. If a file lacks such a column, query engines take the
    column's values from the file's partition (Iceberg spec: Column Projection). The connector does not support this."""
    position_deletes: tuple[SourceFile, ...] = ()
    """The position delete files that may apply to this file (Iceberg spec: Position Delete Files)."""
    etag: str | None = None
    """The expected ETag of the object. A read fails if the object at this URI has another ETag. If None, a read accepts
    any object."""
    version: str | None = None
    """The ID of a noncurrent version of the object, in a bucket with versioning. None means the current version."""


UNKNOWN = -1
"""The row count of a source file if the metadata does not contain its row count."""


@dataclass(frozen=True, slots=True)
class ExpectedColumnStats:
    """The statistics of one column of one file in the table's metadata. Unknown statistics are None.

    The bounds are values that Arrow can order. Numbers stay numbers, strings are UTF-8 bytes, dates are days, and times
    are microseconds.
    """

    column: str
    lower: Any
    upper: Any
    nulls: int | None


@dataclass(frozen=True, slots=True)
class ExpectedPartition:
    """The partition of one file: a value for each of the `fields`.

    The verification skips fields with the transform void. For a Hive table, `folders` is set, and the values are
    strings as in the catalog. For the fields named in `nullable`, rows with null are valid in any partition.
    """

    fields: tuple[PartitionField, ...]
    values: tuple[PartitionValue, ...]
    folders: PartitionFolders | None = None
    nullable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ExpectedFileStats:
    """The statistics of one file, from the table's metadata. The verification compares the file with them."""

    source: SourceFile
    """The file. If its row count is not known, `source.rows` is UNKNOWN."""
    kind: str
    """"parquet" or "jsonl". For other kinds, only the size of the file is verified."""
    schema: pa.Schema | None
    """The table's columns. They have field IDs if readers find columns by ID. If None, the file may have any
    columns."""
    columns: tuple[ExpectedColumnStats, ...] = ()
    group: str = ""
    """The name of a group of files. The driver adds up the row counts of all files in a group."""
    partition: ExpectedPartition | None = None
    """The partition of the file. The verification compares the partition of each row with it."""
    listed: bool = False
    """Whether the file is known only from a listing of its folder. Because no metadata references such a file, another
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
    """Whether another writer deleted the file before it was read, and the file was known only from a listing. This does
    not count as a problem."""
    by_duckdb: bool = False
    """Whether DuckDB, the second reader, has also read the file."""
    started: int | None = None
    """The start of the sync that wrote the rows, according to their IDs (see `row_ids`), in milliseconds since 1970.
    None if the name of the file does not contain the number of its batch, or if the rows have no IDs of this form."""


@dataclass(frozen=True, slots=True)
class CompactTask:
    """A task that writes the rows of `sources`, in this order, to one new Parquet file."""

    name: str
    """The start of the new file's name. Each attempt of the task appends a random token."""
    sources: tuple[SourceFile, ...]
    schema: pa.Schema
    """The schema of the table, with the field IDs that identify columns at every level."""
    folder: str
    """The S3 URI of the folder for the new file, without a trailing slash."""
    codec: str
    """A value of the option `format.compression_codec`."""
    sort_order: SortOrder | None
    """If set, the task sorts the rows in this order."""
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
    """The URIs of the source files whose rows the new file contains: all of the task's sources except the `skipped`
    ones."""
    skipped: tuple[SkippedFile, ...] = ()
    is_sorted: bool = False
    deleted: int = 0
    """The number of rows of these sources that the task omitted because of position deletes."""


@dataclass(frozen=True, slots=True)
class NotCompacted:
    """The result of a compaction task that had nothing to compact, and so wrote no file.

    Apart from the `skipped` files, the task had at most one file, to which no position deletes applied.
    """

    skipped: tuple[SkippedFile, ...]


CompactResult = Compacted | NotCompacted | Failed


class OpenFilter(Protocol):
    """An open line filter on an executor, which omits lines from a unit. Omitted lines are rejects with `reason`."""

    reason: str

    def apply(self, content: Content, /) -> Content:
        """Return the content with an empty line in place of each omitted line.

        Call this method for all contents of a unit, in order.
        """


class LineFilter(Protocol):
    """A rule that omits lines from a unit. The rule is a small value, which the driver sends to the executors."""

    def open(self, columns: Sequence[Field], s3: S3Client, /) -> OpenFilter | None:
        """Return the filter for a unit of a stream with these columns, or None if the rule omits none of its lines.

        Raises ObjectFailed and ConfigError.
        """


@dataclass(frozen=True, slots=True)
class UnitLines:
    """The description of an object that contains all lines of one unit, in order.

    A unit is the part of a batch that one task encodes.
    """

    name: str
    """The key of the object, relative to the folder of the sink that stored the object."""
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

    The object is invisible until the driver publishes its upload.
    """

    uri: str
    content: UnitLines
    pending_upload: Pending


class OpenSink(Protocol):
    """An open line sink on an executor. It stores the lines of a unit while the task encodes them."""

    def write(self, lines: bytes | bytearray | memoryview, /) -> None:
        """Append whole lines, as received from the source. Omitted lines are empty. Raises ObjectFailed."""

    def close(self) -> LineFile:
        """Upload the remaining lines. Return the object, which is not published yet. Raises ObjectFailed."""

    def abort(self) -> None:
        """Delete the object, even if `close` was called before."""


class LineSink(Protocol):
    """A second destination for the lines of a unit, besides the table. An example is the archive.

    The sink is a small value, which the driver sends to the executors.
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
"""Minimum size of the records per task, in bytes. Smaller tasks would create smaller files without saving time."""


@dataclass(frozen=True, slots=True)
class EncodeUnit:
    """A list of segments (files of record lines) of one stream. One task reads them in order and writes data files.

    Before the driver splits a batch into units, the batch is a single EncodeUnit. The lines pass through the `filters`
    in order. The `sinks` store the remaining lines, and the task decodes them.
    """

    stream: StreamId
    name: str
    """The start of the names of data files and of objects with rejects. Each attempt to encode the unit appends its own
    token."""
    segments: tuple[StagedSegment, ...]
    plan: FilePlan
    rejects: RejectLocation
    ingest_order: IngestOrder = FIRST
    filters: tuple[LineFilter, ...] = ()
    sinks: tuple[LineSink, ...] = ()
    expected_yield: float | None = None
    """The expected size of the data files in one partition, per byte of segments. None if this ratio is unknown."""


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
    """The objects with the rejects. They are invisible until the driver publishes them."""
    undeclared: tuple[str, ...] = ()
    """The paths of fields in the unit's first records that the stream's schema does not declare."""
    line_files: tuple[LineFile, ...] = ()
    """The objects that the `sinks` of the unit have written."""
    left_out: int = 0
    """The number of lines that the source of a segment had already omitted (see `Content.left_out`)."""

    def pending(self) -> list[Pending | None]:
        """Return the pending uploads of the data files and of the line sinks' objects.

        The list contains None for each file that has no pending upload.
        """
        return [*(file.pending_upload for file in self.files), *(file.pending_upload for file in self.line_files)]


@dataclass(frozen=True, slots=True)
class NotEncoded(Failed):
    """The result of a unit that could not be encoded. `failure` contains the message for the user."""

    stream: StreamId


UnitResult = Encoded | NotEncoded


def split_into_tasks(batches: Sequence[EncodeUnit], parallelism: int, access: AwsAccess) -> list[EncodeTask]:
    """Split batches into units, and distribute the units among at most `parallelism` tasks of similar size.

    Does not split segments, and keeps their order. The share of a task is at least MIN_TASK_BYTES. There are at most
    MAX_PARTS tasks.
    """
    total = sum(segment.bytes for batch in batches for segment in batch.segments)
    share = max(MIN_TASK_BYTES, -(-total // min(max(parallelism, 1), MAX_PARTS)))
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
