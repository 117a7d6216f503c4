"""Options of tables: their files and names, partitions, paths and order of rows, deduplication, maintenance.

Of several rules of retention the most specific holds: that of a branch or tag, then the table's properties
`history.expire.*`, then these options. The defaults are those of Iceberg and of Glue's optimizers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field

from destination_datalake.config.base import ROLE_ARN, AnyCase, Options
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
    compression_codec: ParquetCodec


class Jsonl(Options, title="JSON Lines: Newline-delimited JSON"):
    """One JSON object per line, in Hive tables."""

    format_type: Literal["JSONL"]
    compression_codec: JsonlCodec


class NamingOptions(Options):
    """How names of streams and fields become names of databases, tables and columns."""

    style: NamingStyle = "snake_case"
    split_numbers: bool = False


class RejectOptions(Options):
    """How many of a stream's records may have rejects before it is stopped."""

    max_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    max_count: Annotated[int | None, Field(ge=0)] = None


class RawArchiveOptions(Options):
    """Whether records are also kept as they were received, for how long, and what a refresh leaves of them."""

    enabled: bool = False
    retention_days: Annotated[int, Field(ge=1, le=36500)] = 30
    superseded: Literal["keep", "delete"] = "keep"


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


PathLayout = Annotated[str, Field(pattern=PATH_LAYOUT_PATTERN, max_length=512), AnyCase()]
Timezone = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$"), AfterValidator(_known)]

_Field = Annotated[str, Field(min_length=1)]


class PartitionBy(Options):
    """One partition field of a stream's table."""

    source: _Field
    transform: Annotated[
        str, Field(pattern=r"^(identity|year|month|day|hour|(bucket|truncate)\[[1-9][0-9]{0,8}\])$"), AnyCase()
    ] = "identity"
    name: Annotated[str | None, Field(pattern=r"^[a-z][a-z0-9_]{0,254}$")] = None


class SortBy(Options):
    """One field of the order of rows within files."""

    source: _Field
    direction: Literal["ascending", "descending"] = "ascending"
    nulls: Literal["first", "last"] = "first"


class StreamOptions(Options):
    """Options of one stream, in place of those of all streams."""

    stream: Annotated[str, Field(min_length=1)]
    namespace: str | None = None
    partition_by: list[PartitionBy] | None = None
    sort_by: list[SortBy] | None = None
    nested: Nested | None = None
    flatten_max_depth: Annotated[int | None, Field(ge=1, le=100)] = None

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
            yield f"streams.{number} names stream {stream.stream} again. Put its options into one entry."
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

    deletes: Deletes = "copy_on_write"
    cdc_deletion: CdcDeletion = "hard"


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
        f"{'Stream' if one else 'Streams'} {names} {'has' if one else 'have'} the destination sync mode append_dedup, "
        "but these options create Hive tables, which cannot be deduplicated. "
        f"{_remedy(format_type)} (with another lakeformation_database_name or table_prefix if the tables exist), or "
        "choose a sync mode without deduplication (append, overwrite)."
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

    snapshot_retention_days: Annotated[int, Field(ge=1, le=3650)] = 5
    min_snapshots_to_keep: Annotated[int, Field(ge=1, le=100000)] = 1
    orphan_retention_days: Annotated[int, Field(ge=1, le=365)] = 3


class GlueOptimizers(Retention, title="Glue: Table Optimizers of the Data Catalog"):
    """By the table optimizers of the Glue Data Catalog, which AWS runs with a role and bills."""

    mode: Literal["glue"]
    role_arn: Annotated[str, Field(pattern=ROLE_ARN)]


class ConnectorMaintenance(Retention, title="Connector: at the End of Syncs"):
    """By the connector: at the end of syncs what is due, and all of it by the command `maintain`."""

    mode: Literal["connector"]


Maintenance = NoMaintenance | GlueOptimizers | ConnectorMaintenance
