"""Options of tables: their files and names, partitions, paths and order of rows, deduplication, maintenance.

Of several rules of retention the most specific holds: that of a branch or tag, then the table's properties
`history.expire.*`, then these options. The defaults are those of Iceberg and of Glue's optimizers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field

from destination_datalake.config.base import ROLE_ARN, AnyCase, Expects, Form, Options
from destination_datalake.partitioning.spec import is_timezone
from destination_datalake.partitioning.templates import PRESETS, RESERVED_FOLDERS, InvalidTemplate, path_template
from destination_datalake.protocol.catalog import StreamId

TableType = Literal["ICEBERG", "HIVE"]
DatabaseStrategy = Literal["namespace", "single"]
NamingStyle = Literal["snake_case", "preserve", "aws_datalake"]
SchemaConflicts = Literal["new_column", "fail"]
ParquetCodec = Literal["UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"]
JsonlCodec = Literal["UNCOMPRESSED", "GZIP"]


class Parquet(Options, title="Parquet: Columnar Storage"):
    """Columnar files."""

    format_type: Literal["Parquet"]
    compression_codec: Annotated[
        ParquetCodec,
        Form(
            "How files are compressed. Default: ZSTD in Iceberg tables, SNAPPY in Hive tables. Choose"
            " SNAPPY for engines that do not read ZSTD."
        ),
    ]


class Jsonl(Options, title="JSON Lines: Newline-delimited JSON"):
    """One JSON object per line, in Hive tables."""

    format_type: Literal["JSONL"]
    compression_codec: Annotated[
        JsonlCodec,
        Form(
            "How files are compressed. Default: UNCOMPRESSED. Choose GZIP to save storage; readers "
            "cannot split such files."
        ),
    ]


class NamingOptions(Options):
    """How names of streams and fields become names of databases, tables and columns."""

    style: Annotated[
        NamingStyle,
        Form(
            "snake_case, the default: signedUpAt becomes signed_up_at, and letters outside a to z are romanised. "
            "preserve: letters and digits of every script stay, in lower case. aws_datalake: names of"
            " Airbyte's AWS Datalake destination, to continue its tables."
        ),
    ] = "snake_case"
    split_numbers: Annotated[
        bool,
        Form("With snake_case: numbers are words of their own, so that address2 becomes address_2. Default: off."),
    ] = False


class RejectOptions(Options):
    """How many of a stream's records may have rejects before it is stopped."""

    max_ratio: Annotated[
        float,
        Field(ge=0, le=1),
        Expects("a number from 0 to 1, such as 0.05 for five in a hundred"),
        Form(
            "Maximum share of the records received so far that may have rejects. Default: 1, a stream"
            " is never stopped.",
            title="Highest Share",
            examples=(0.01,),
        ),
    ] = 1.0
    max_count: Annotated[
        int | None,
        Field(ge=0),
        Expects("a whole number of records, 0 or more"),
        Form(
            "Maximum number of records that may have rejects. Default: empty, any number. At 0 the "
            "first reject stops the stream.",
            title="Highest Number",
            examples=(0, 1000),
        ),
    ] = None


class RawArchiveOptions(Options):
    """Whether records are also kept as they were received, for how long, and what a refresh leaves of them."""

    enabled: Annotated[
        bool,
        Form(
            "Keep every record byte for byte as received, in compressed files under _raw/, before it "
            "is committed. Default: off."
        ),
    ] = False
    retention_days: Annotated[
        int,
        Field(ge=1, le=36500),
        Expects("a whole number of days from 1 to 36500"),
        Form(
            "How many days the bucket's lifecycle rule for _raw/ keeps the files. The connector "
            "deletes none by age; the connection check compares the rule with this. Default: 30.",
            title="Days of the Archive",
        ),
    ] = 30
    superseded: Annotated[
        Literal["keep", "delete"],
        Form(
            "Records that a refresh has replaced: keep leaves them as long as all others, delete lets"
            " the command maintain delete their files. Default: keep.",
            title="Replaced Records",
        ),
    ] = "keep"


PartitioningUnits = Literal[
    "NO PARTITIONING",
    "DATE",
    "YEAR",
    "MONTH",
    "DAY",
    "YEAR/MONTH",
    "YEAR/MONTH/DAY",
    "YEAR/MONTH/DAY/HOUR",
    "DAY/HOUR",
]
CatalogPartitions = Literal["register", "projection", "both"]
Nested = Literal["struct", "json", "flatten"]

PATH_LAYOUT_PATTERN = r"^(hive|plain|rudderstack|segment|firehose|[^{}]*\{.+)$"


def _known(timezone: str) -> str:
    if timezone != "UTC" and not is_timezone(timezone):
        raise ValueError("no such time zone")
    return timezone


PathLayout = Annotated[
    str,
    Field(pattern=PATH_LAYOUT_PATTERN, max_length=512),
    AnyCase(),
    Expects("hive, plain, rudderstack, segment, firehose, or a template of variables in braces"),
]
Timezone = Annotated[
    str,
    Field(pattern=r"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$"),
    AfterValidator(_known),
    Expects("UTC, or the name of a time zone such as Europe/Berlin"),
]

_Field = Annotated[
    str,
    Field(min_length=1),
    Expects("the name of a field of the stream, with dots for a field inside another"),
    Form(
        "A field of the stream, with dots for a field inside another; extracted_at for the time of extraction.",
        title="Field",
    ),
]


class PartitionBy(Options):
    """One partition field of a stream's table."""

    source: _Field
    transform: Annotated[
        str,
        Field(pattern=r"^(identity|year|month|day|hour|(bucket|truncate)\[[1-9][0-9]{0,8}\])$"),
        AnyCase(),
        Expects("identity, year, month, day, hour, bucket[N] or truncate[W]"),
        Form(
            "identity, year, month, day or hour; for Iceberg tables also bucket[N] and truncate[W]. Default: identity.",
            examples=("day", "bucket[16]"),
        ),
    ] = "identity"
    name: Annotated[
        str | None,
        Field(pattern=r"^[a-z][a-z0-9_]{0,254}$"),
        Expects("the name of the partition key: lower-case letters, digits and underscores"),
        Form("The name of the partition key. Default: the field's name with the transform."),
    ] = None


class SortBy(Options):
    """One field of the order of rows within files."""

    source: _Field
    direction: Annotated[
        Literal["ascending", "descending"],
        Form("Smallest or largest values first. Default: ascending."),
    ] = "ascending"
    nulls: Annotated[
        Literal["first", "last"],
        Form("Whether rows without a value come first or last. Default: first."),
    ] = "first"


class StreamOptions(Options):
    """Options of one stream, in place of those of all streams."""

    stream: Annotated[
        str,
        Field(min_length=1),
        Expects("the stream's name"),
        Form("The stream's name."),
    ]
    namespace: Annotated[
        str | None,
        Expects("the stream's namespace"),
        Form("Only the stream in this namespace. Default: empty, streams of this name in all namespaces."),
    ] = None
    partition_by: Annotated[
        list[PartitionBy] | None,
        Expects("a list of objects with source, and perhaps transform and name"),
        Form(
            "The partition fields of the stream's table, in order. Default: as Partitioning says; an "
            "empty list means no partitions."
        ),
    ] = None
    sort_by: Annotated[
        list[SortBy] | None,
        Expects("a list of objects with source, and perhaps direction and nulls"),
        Form("The order of rows within files, so that engines skip what a query does not need. Default: as received."),
    ] = None
    nested: Annotated[
        Nested | None,
        Form(
            "What objects and arrays of this stream become: struct, json or flatten. Default: as "
            "Nested Values says for all streams.",
            title="Nested Values",
        ),
    ] = None
    flatten_max_depth: Annotated[
        int | None,
        Field(ge=1, le=100),
        Expects("a whole number from 1 to 100"),
        Form(
            "How many levels of objects are flattened for this stream. Default: as Flatten Depth says for all streams.",
            title="Flatten Depth",
        ),
    ] = None

    def is_for(self, namespace: str | None, name: str) -> bool:
        """Whether the options are for the stream of this name."""
        return self.stream == name and (self.namespace or None) in (namespace or None, None)

    def overridden_by(self, other: Self) -> Self:
        """Return these options with those that `other` has in their place."""
        return self.model_copy(update={name: value for name, value in other if value is not None})


def default_partitioning(path_layout: str) -> str:
    """Return the value of `partitioning` if none is given: other lakes partition by the hour of arrival."""
    return PRESETS[path_layout].default if path_layout in PRESETS else "NO PARTITIONING"


def contradictory_paths(path_layout: str, partitioning: str, table_prefix: str) -> Iterator[str]:
    """Yield a sentence if the folders that valid options mean are refused."""
    try:
        template = path_template(path_layout, partitioning)
    except InvalidTemplate as problem:
        yield f"path_layout {problem}."
        return
    if template is None or path_layout in PRESETS:
        return
    if partitioning != "NO PARTITIONING":
        yield (
            f"partitioning {partitioning} has no effect with the template in path_layout, whose variables say by "
            "what tables are partitioned. Leave partitioning out."
        )
    if table_prefix and "{table}" not in template.root:
        yield (
            f"path_layout has {{stream}} and no {{table}}, so tables with another table_prefix than {table_prefix} "
            "would share folders with these. Write {table}, or leave table_prefix out."
        )


def contradictory_layout(
    table_type: str, hive_only: Mapping[str, bool], streams: Sequence[StreamOptions]
) -> Iterator[str]:
    """Yield a sentence for each contradiction among valid options.

    `hive_only` are the options that concern Hive tables alone, each with whether it has another value than its default.
    """
    names = [name for name, is_given in hive_only.items() if is_given]
    if table_type == "ICEBERG" and names:
        verb = "is" if len(names) == 1 else "are"
        yield (
            f"{' and '.join(names)} {verb} for Hive tables: Iceberg keeps partitions in its own metadata, in UTC. "
            f"Set table_type to HIVE, or leave {' and '.join(names)} out."
        )
    seen: set[tuple[str | None, str]] = set()
    for number, stream in enumerate(streams):
        if (key := (stream.namespace, stream.stream)) in seen:
            yield f"streams.{number} is about stream {stream.stream} again. Put its options into one entry."
        seen.add(key)
        for field in stream.partition_by or ():
            if table_type == "HIVE" and field.transform.startswith(("bucket", "truncate")):
                yield (
                    f"streams.{number}.partition_by: {field.transform} is a transform of Iceberg tables. "
                    "Set table_type to ICEBERG, or choose identity, year, month, day or hour."
                )


REPORTS_FOLDER = "_reports"
REPORTS_TABLE = "airbyte_sync_reports"
"""The Glue table over that folder, in the database for streams without a namespace."""

TAKEN_FOLDERS = frozenset({"_staging", "_raw", "_schema", "_errors", REPORTS_FOLDER}) | RESERVED_FOLDERS
"""Folders under bucket_prefix that hold no tables, or those of another layout. Lifecycle rules delete in some."""


def database_folder(database: str) -> str:
    """Return the folder of a database, or whatever else has the first folder under bucket_prefix.

    One with the name of a folder reserved for another purpose gets a folder whose name no database can have.
    """
    return f"{database}.db" if database in TAKEN_FOLDERS else database


_SHOWN = 3

Deletes = Literal["copy_on_write", "merge_on_read"]
CdcDeletion = Literal["hard", "soft"]


class DedupOptions(Options):
    """How rows that newer ones replace leave the table, and what a source's deletions do.

    `hard`: a record with a value in `_ab_cdc_deleted_at` deletes the row of its key. `soft`: it is kept like any other.
    """

    deletes: Annotated[
        Deletes,
        Form(
            "How replaced rows leave the table. copy_on_write, the default, rewrites their files without them, "
            "which every engine reads. merge_on_read writes small files of position deletes, which is far cheaper "
            "when few rows change; choose it if no reader is Databricks, which shows replaced rows too.",
            title="Removal of Rows",
        ),
    ] = "copy_on_write"
    cdc_deletion: Annotated[
        CdcDeletion,
        Form(
            "Records with a value in _ab_cdc_deleted_at, by which sources with change data capture "
            "report deletions: hard deletes the row of their primary key, soft keeps them as the "
            "latest row of their key. Default: hard.",
            title="Deletions of the Source",
        ),
    ] = "hard"


def contradictory_dedup(dedup: DedupOptions, table_type: str, format_type: str) -> Iterator[str]:
    """Yield a sentence if options are given that tables of this type do not have.

    Forms send defaults too, so those are no contradiction.
    """
    given = [
        f"dedup.{name}" for name, each in DedupOptions.model_fields.items() if getattr(dedup, name) != each.default
    ]
    if table_type == "HIVE" and given:
        names = " and ".join(given)
        verb = "is" if len(given) == 1 else "are"
        yield f"{names} {verb} for Iceberg tables. {_remedy(format_type)}, or leave {names} out."


def streams_without_dedup(streams: Sequence[StreamId], table_type: str, format_type: str) -> str | None:
    """Return why these streams, which are to be deduplicated, cannot be, and what to do; None if they can."""
    if table_type != "HIVE" or not streams:
        return None
    one = len(streams) == 1
    names = ", ".join([*map(str, streams[:_SHOWN]), *(["…"] if len(streams) > _SHOWN else [])])
    return (
        f"{'Stream' if one else 'Streams'} {names} {'asks' if one else 'ask'} for the destination sync mode "
        "append_dedup, and the tables of these options are Hive tables, from which no rows can be removed. "
        f"{_remedy(format_type)} (with another lakeformation_database_name or table_prefix if there are tables "
        "already), or choose a sync mode without deduplication (append, overwrite)."
    )


def _remedy(format_type: str) -> str:
    changes = "table_type to ICEBERG and format_type to Parquet" if format_type == "JSONL" else "table_type to ICEBERG"
    return f"Set {changes}"


class NoMaintenance(Options, title="None"):
    """By others, or nobody."""

    mode: Literal["none"]


class Retention(Options):
    """How long expired snapshots and orphans are kept, in days.

    An orphan is a file in a table's folder that no snapshot refers to. A day is the least: writers upload files before
    they commit them (Iceberg refuses a shorter interval in `remove_orphan_files`).
    """

    snapshot_retention_days: Annotated[
        int,
        Field(ge=1, le=3650),
        Expects("a whole number of days from 1 to 3650"),
        Form(
            "Snapshots older than this expire; time travel ends there. Default: 5. A table's own "
            "property history.expire.max-snapshot-age-ms takes precedence.",
            title="Days of Snapshots",
        ),
    ] = 5
    min_snapshots_to_keep: Annotated[
        int,
        Field(ge=1, le=100000),
        Expects("a whole number from 1 to 100000"),
        Form(
            "How many snapshots of a branch are kept, however old they are. Default: 1. A table's own"
            " property history.expire.min-snapshots-to-keep takes precedence.",
            title="Snapshots to Keep",
        ),
    ] = 1
    orphan_retention_days: Annotated[
        int,
        Field(ge=1, le=365),
        Expects("a whole number of days from 1 to 365"),
        Form(
            "Files that no snapshot refers to are removed when they are older than this. Default: 3.",
            title="Days of Orphans",
        ),
    ] = 3


class GlueOptimizers(Retention, title="Glue: Table Optimizers of the Data Catalog"):
    """By the table optimizers of the Glue Data Catalog, which AWS runs with a role and bills."""

    mode: Literal["glue"]
    role_arn: Annotated[
        str,
        Field(pattern=ROLE_ARN),
        Expects("the ARN of the role that Glue's table optimizers use, such as arn:aws:iam::123456789012:role/glue"),
        Form(
            "The role that Glue's table optimizers use to read and write the tables. AWS bills what they use.",
            title="Role ARN",
            examples=("arn:aws:iam::123456789012:role/table-optimizers",),
        ),
    ]


class ConnectorMaintenance(Retention, title="Connector: at the End of Syncs"):
    """By the connector: at the end of syncs what is due, and all of it by the command `maintain`."""

    mode: Literal["connector"]


Maintenance = NoMaintenance | GlueOptimizers | ConnectorMaintenance
