"""Data files, planned and written, and the tasks of an encoding job: the values that `tables` and executors exchange.

They are small values that travel between driver and executors; records do not.
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
from destination_datalake.partitioning.spec import Partitioning, PartitionValue, SortOrder
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import RejectCounts, RejectFile, RejectLocation
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.types import ColumnType, Field

if TYPE_CHECKING:
    import pyarrow as pa
    from mypy_boto3_s3 import S3Client

    from destination_datalake.partitioning.paths import PartitionKey


FileFormat = Literal["parquet", "jsonl"]


@dataclass(frozen=True, slots=True)
class Deduplication:
    """By which columns, named as in the table, rows are versions of one row, and which of them is the latest.

    `key` are its primary key. `cursor` is the column whose higher value wins, None for the time of extraction alone.
    A row with a value in `deleted_at` deletes its key; None if such rows are kept as others.
    """

    key: tuple[str, ...]
    cursor: str | None = None
    deleted_at: str | None = None


class IngestOrder(NamedTuple):
    """The place of a unit's records in the order of arrival: ids of rows ascend in it (`_airbyte_raw_id`).

    `milliseconds` since 1970-01-01 UTC is the start of the sync, with the number of the batch added; `part` is that of
    the batch, less than 4096.
    """

    milliseconds: int
    part: int


COUNTED_DIGITS = 8
"""The last hexadecimal digits of a row's id count the lines of its unit: see `OrderedIds`."""

FIRST = IngestOrder(0, 0)
"""The place of a unit whose order does not matter."""


@dataclass(frozen=True, slots=True)
class FilePlan:
    """How one stream's records are written as data files of its table.

    `columns` are the stream's columns as the table has them, without the metadata columns. `field_ids` maps the dotted
    path of a column to its Iceberg field id; it is empty for tables whose columns are found by name. `folder` is the S3
    URI of the files' prefix, without a slash at the end. `deferred` files are not visible until they are published.
    `target_bytes` is the size at which a file ends and the next begins. The rows of a file are of one partition, if
    there are any; its folder is the partition's, under `folder`.
    """

    format: FileFormat
    codec: str
    columns: tuple[Field, ...]
    field_ids: Mapping[str, int]
    folder: str
    deferred: bool
    target_bytes: int
    generation: int | None
    sync_id: int | None
    partitioning: Partitioning | None = None
    sort_order: SortOrder | None = None
    metadata: tuple[Field, ...] = METADATA_COLUMNS
    """The metadata columns as the table has them: the time of extraction may be in milliseconds since 1970."""
    held_in: str | None = None
    """A folder of the disk that executors share with the driver, where small files wait until they are published; None
    if they share none. Tasks that write many of them then do not wait for S3."""
    lent: AwsAccess | None = None
    """What the files are written with, where the catalog lends credentials for this table; None: as everything else."""
    dedup: Deduplication | None = None
    """Records are rejects if their key cannot be kept as sent, or their cursor is lost (one that is cut is kept).
    None if rows are not deduplicated."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written: a data file, or one of position deletes.

    `size` is in bytes. `footer` is the footer of a Parquet file, which saves reading it again; empty for other formats.
    A file with a `pending_upload` does not exist before that is published: attempts that Spark has given up cannot
    touch it.
    """

    uri: str
    size: int
    rows: int
    footer: bytes = field(default=b"", repr=False, compare=False)
    pending_upload: PendingUpload | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a batch. `columns` has the types that its values need, which may be wider than the plan's.

    The other fields are as in `WrittenFile`.
    """

    uri: str
    size: int
    rows: int
    columns: tuple[Field, ...]
    footer: bytes = field(repr=False)
    pending_upload: Pending | None
    with_nulls: frozenset[str] = frozenset()
    """Top-level columns that are null in some row: a footer does not always have that."""
    partition: tuple[PartitionValue, ...] = ()
    """The values of its partition, one for each field of `FilePlan.partitioning`."""
    spec_id: int = 0
    """`Partitioning.spec_id` of the plan: the table may have another one when the file is committed."""
    is_sorted: bool = False
    """Whether all its rows are in `FilePlan.sort_order`, from the first to the last."""


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """The rewriting of a Parquet file (`source`, an S3 URI) to `target`, with wider types for some columns.

    `columns` maps names of top-level columns, compared without case, to their new types; columns that the file lacks
    are ignored. Types of nested columns apply to the fields that the file has. Field ids are kept, nested ones too.
    `to_double` are the Iceberg field ids of floats, at any depth, that become doubles; a file that has none of them is
    not rewritten. Rows that `position_deletes` (see `SourceFile`) remove are not in the new file.
    """

    source: str
    target: str
    columns: Mapping[str, ColumnType]
    access: AwsAccess
    to_double: frozenset[int] = frozenset()
    position_deletes: tuple[SourceFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewritten(WrittenFile):
    """The file that takes the place of `source`, or `source` itself if that need not be rewritten."""

    source: str = ""


class RewriteFailed(ConnectorError):
    """Files could not be rewritten; `failure` is that of one of them."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A Parquet file to read: its S3 URI, and its bytes and rows by the table's metadata."""

    uri: str
    size: int
    rows: int
    required_ids: frozenset[int] = frozenset()
    """Field ids of columns whose values the table takes from the file's partition if the file lacks them (Iceberg spec:
    Column Projection). Such a file is left as it is."""
    position_deletes: tuple[SourceFile, ...] = ()
    """Files of position deletes that may have rows of this file (Iceberg spec: Position Delete Files)."""
    etag: str | None = None
    """The object's ETag: another object under the same key is not read in its place. None: any is read."""
    version: str | None = None
    """The id of a former version of the object, in a bucket with versioning; None for the present one."""


UNKNOWN = -1
"""The rows of a source file whose table does not count them."""


@dataclass(frozen=True, slots=True)
class ColumnClaim:
    """What a table says of a column in one file: no value is below `lower` or above `upper`, `nulls` are null.

    Bounds are as Arrow orders them: numbers, bytes for texts, days and microseconds for times. None: nothing is said.
    """

    column: str
    lower: Any
    upper: Any
    nulls: int | None


@dataclass(frozen=True, slots=True)
class Claim:
    """What a table says of one file. `rows` of the source is UNKNOWN if it does not say.

    `kind` is "parquet" or "jsonl"; of a file of another kind, only the size is compared. `schema` has the table's
    columns, with field ids if they are found by these; None: any. `group` is what its rows are summed up by.
    """

    source: SourceFile
    kind: str
    schema: pa.Schema | None
    columns: tuple[ColumnClaim, ...] = ()
    group: str = ""
    partition: tuple[tuple[PartitionKey, str], ...] = ()
    """The keys of the partition that the file is in, with the values that the catalog has."""
    listed: bool = False
    """The file was found in a listing, and nothing refers to it: another writer may delete it."""


@dataclass(frozen=True, slots=True)
class FileVerified:
    """What was found: the rows that were read, and what does not agree, as clauses about the file."""

    uri: str
    group: str
    rows: int
    size: int
    problems: tuple[str, ...] = ()
    gone: bool = False
    """It was listed, and is not there any more."""
    by_duckdb: bool = False


@dataclass(frozen=True, slots=True)
class CompactTask:
    """The writing of one Parquet file with the rows of others, in the order of `sources`.

    `schema` is the table's, with field ids at every level: columns of the sources are found by them. The new file is in
    `folder`, an S3 URI without a slash at its end; its name is `name` and a token of the attempt. `codec` is a value of
    the option `format.compression_codec`. With `sort_order` the rows are sorted.
    """

    name: str
    sources: tuple[SourceFile, ...]
    schema: pa.Schema
    folder: str
    codec: str
    sort_order: SortOrder | None
    access: AwsAccess


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that was not compacted, and why: a clause about the file."""

    uri: str
    reason: str


@dataclass(frozen=True, slots=True)
class Compacted(WrittenFile):
    """A file with all rows of `sources`, which are those of the task of this `name` but for those that were `skipped`.

    `deleted` is how many rows of the sources are not in it: position deletes have removed them.
    """

    name: str = ""
    sources: tuple[str, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    is_sorted: bool = False
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class NotCompacted:
    """No file was written: besides those that were skipped there was one file without deleted rows, or none."""

    skipped: tuple[SkippedFile, ...]


CompactResult = Compacted | NotCompacted | Failed


class OpenFilter(Protocol):
    """A filter of a unit's lines, on the executor. Rejects of this `reason` count the lines that it leaves out."""

    reason: str

    def apply(self, content: Content, /) -> Content:
        """Return the content with more of its lines empty. Contents come in order."""


class LineFilter(Protocol):
    """Which lines of a unit are left out: a small value, which travels to the executor."""

    def open(self, columns: Sequence[Field], s3: S3Client, /) -> OpenFilter | None:
        """Return the filter for a unit with these columns; None if it leaves out nothing of them.

        Raises ObjectFailed, ConfigError.
        """


@dataclass(frozen=True, slots=True)
class UnitLines:
    """The lines of one unit, in order, as an object has them. `name` is its key below the folder of the sink.

    `bytes` are those of the lines before compression. `first_record` is the number (from 0) of the first in the
    stream's input. `first_id` is the id of line 0: see `OrderedIds`; 32 hexadecimal digits. `sha256` is the hash of the
    object's bytes, empty if it is not known: another program has changed them, or a former version has written them.
    """

    name: str
    lines: int
    bytes: int
    first_record: int
    first_id: str
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class LineFile:
    """An object with the lines of a unit that a sink has written. It is not visible before its upload is published."""

    uri: str
    content: UnitLines
    pending_upload: Pending


class OpenSink(Protocol):
    """A sink of a unit's lines, on the executor."""

    def write(self, lines: bytes | bytearray | memoryview, /) -> None:
        """Take whole lines as they were received; those that are left out are empty. Raises ObjectFailed."""

    def close(self) -> LineFile:
        """Upload the rest. Raises ObjectFailed."""

    def abort(self) -> None:
        """Delete what was written, also after `close`."""


class LineSink(Protocol):
    """What else gets the lines of a unit: a small value, which travels to the executor."""

    def open(
        self, segments: Sequence[StagedSegment], attempt: str, first_id: bytes, s3: S3Client, held_in: str | None, /
    ) -> OpenSink:
        """Return the sink for the lines of these segments; line 0 has this id. Small objects are held in a folder."""


MIN_TASK_BYTES = 16 * 1024 * 1024
"""Below this, another task would make smaller files and save no time."""


@dataclass(frozen=True, slots=True)
class EncodeUnit:
    """Segments of one stream, read in order and written to as few files as `FilePlan.target_bytes` allows.

    `name` begins the names of its files and rejects; each attempt at it adds its own. A batch is a unit that is not yet
    split: `expected_yield` is how many bytes a file is expected to get, in each partition, of each byte of segments.
    Lines pass the `filters` in their order; then the `sinks` get them, and they are decoded.
    """

    stream: StreamId
    name: str
    segments: tuple[StagedSegment, ...]
    plan: FilePlan
    rejects: RejectLocation
    ingest_order: IngestOrder = FIRST
    filters: tuple[LineFilter, ...] = ()
    sinks: tuple[LineSink, ...] = ()
    expected_yield: float | None = None


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """The work of one Spark task: units, of several streams where each is small."""

    units: tuple[EncodeUnit, ...]
    access: AwsAccess


@dataclass(frozen=True, slots=True)
class Encoded:
    """The result of a unit: every record of its segments is in one of `files` or, refused, among the rejects.

    `rejects` are durable, and visible once they are published; `counts` counts them. `undeclared` has the paths of
    fields that occur in the unit's first records and not in the stream's schema. `line_files` are the sinks'.
    `left_out` lines were empty in the segments.
    """

    stream: StreamId
    files: tuple[DataFile, ...]
    counts: RejectCounts
    rejects: tuple[RejectFile, ...]
    undeclared: tuple[str, ...] = ()
    line_files: tuple[LineFile, ...] = ()
    left_out: int = 0

    def pending(self) -> list[Pending | None]:
        """Return the uploads of files and of the sinks' files that are to be published."""
        return [*(file.pending_upload for file in self.files), *(file.pending_upload for file in self.line_files)]


@dataclass(frozen=True, slots=True)
class NotEncoded(Failed):
    """The result of a unit that failed."""

    stream: StreamId


@dataclass(frozen=True, slots=True)
class MalformedRecord:
    """The result of a unit of which a line with the right frame is no record: its data are not JSON.

    `record` is its number (from 0) in the stream's input, `length` the line's in bytes.
    """

    stream: StreamId
    record: int
    length: int
    reason: str


UnitResult = Encoded | NotEncoded | MalformedRecord


def split_into_tasks(batches: Sequence[EncodeUnit], parallelism: int, access: AwsAccess) -> list[EncodeTask]:
    """Split the batches into at most `parallelism` tasks, even to within a segment; segments keep their order."""
    total = sum(segment.bytes for batch in batches for segment in batch.segments)
    share = max(MIN_TASK_BYTES, -(-total // max(parallelism, 1)))
    tasks: dict[int, list[EncodeUnit]] = {}
    start = 0
    for batch in batches:
        parts: dict[int, list[StagedSegment]] = {}
        for segment in batch.segments:
            # The task that the segment's middle belongs to: rounding does not add up to one more, small task.
            number = max(0, -(-(2 * start + segment.bytes) // (2 * share)) - 1)
            parts.setdefault(number, []).append(segment)
            start += segment.bytes
        units = [(number, unit) for number, segments in parts.items() for unit in _units(segments)]
        for part, (number, segments) in enumerate(units):
            tasks.setdefault(number, []).append(_unit(batch, part, segments))
    return [EncodeTask(tuple(units), access) for units in tasks.values()]


def _units(segments: Sequence[StagedSegment]) -> Sequence[Sequence[StagedSegment]]:
    """Return the segments of a task by unit: one whose lines have ids already is a unit of its own."""
    return [segments] if segments[0].first_id is None else [[segment] for segment in segments]


def even_file_bytes(expected: float, target: int) -> int:
    """Return the size at which files should end so that `expected` bytes become files of even sizes.

    Files of 3.3 times the target would be four, one of them small; these are three, each 1.1 times the target. What is
    expected to be one file remains one if it becomes half as large again.
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
