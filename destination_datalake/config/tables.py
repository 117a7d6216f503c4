"""Options for tables: files, names, partitions, paths, sort order, deduplication and maintenance.

For the retention of snapshots, the most specific rule applies: the rule of a branch or tag, then the table's properties
`history.expire.*`, then these options. The options have the same defaults as Iceberg and Glue's optimizers.
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
    """Columnar data files."""

    format_type: Literal["Parquet"]
    compression_codec: ParquetCodec


class Jsonl(Options, title="JSON Lines: Newline-delimited JSON"):
    """One JSON object per line, in Hive tables."""

    format_type: Literal["JSONL"]
    compression_codec: JsonlCodec


class NamingOptions(Options):
    """The rules that convert the names of streams and fields to names of databases, tables and columns."""

    style: NamingStyle = "snake_case"
    split_numbers: bool = False


class RejectOptions(Options):
    """Limits for the rejects of a stream. If a limit is exceeded, the stream fails."""

    max_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    max_count: Annotated[int | None, Field(ge=0)] = None


class RawArchiveOptions(Options):
    """Options of the archive: whether it is enabled, how long it is kept, and how a refresh affects it."""

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


def _known_timezone(timezone: str) -> str:
    if timezone != "UTC" and not is_timezone(timezone):
        raise ValueError("unknown time zone")
    return timezone


PathLayout = Annotated[str, Field(pattern=PATH_LAYOUT_PATTERN, max_length=512), AnyCase()]
Timezone = Annotated[
    str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$"), AfterValidator(_known_timezone)
]

_Field = Annotated[str, Field(min_length=1)]


class PartitionBy(Options):
    """A field by which a stream's table is partitioned."""

    source: _Field
    transform: Annotated[
        # At most nine digits, because the numbers are 32-bit integers (Iceberg spec: Bucket and Truncate Transform
        # Details).
        str, Field(pattern=r"^(identity|year|month|day|hour|(bucket|truncate)\[[1-9][0-9]{0,8}\])$"), AnyCase()
    ] = "identity"
    name: Annotated[str | None, Field(pattern=r"^[a-z][a-z0-9_]{0,254}$")] = None


class SortBy(Options):
    """A field by which rows are sorted within a file."""

    source: _Field
    direction: Literal["ascending", "descending"] = "ascending"
    nulls: Literal["first", "last"] = "first"


class StreamOptions(Options):
    """Options of one stream, which override the options of all streams."""

    stream: Annotated[str, Field(min_length=1)]
    namespace: str | None = None
    partition_by: list[PartitionBy] | None = None
    sort_by: list[SortBy] | None = None
    nested: Nested | None = None
    flatten_max_depth: Annotated[int | None, Field(ge=1, le=100)] = None

    def is_for(self, namespace: str | None, name: str) -> bool:
        """Return whether these options apply to a stream. Options without a namespace apply in all namespaces."""
        return self.stream == name and (self.namespace or None) in (namespace or None, None)

    def overridden_by(self, other: Self) -> Self:
        """Return a copy of these options in which the options of `other` that are not None replace the own ones."""
        return self.model_copy(update={name: value for name, value in other if value is not None})


def default_partitioning(path_layout: str) -> str:
    """Return the default of the option `partitioning` for a path layout.

    For a preset, which is the layout of another data lake, the default results in one partition per hour. For any other
    layout, the default is not to partition tables.
    """
    return PRESETS[path_layout].default if path_layout in PRESETS else "NO PARTITIONING"


def contradictory_paths(path_layout: str, partitioning: str, table_prefix: str) -> Iterator[str]:
    """Yield a message for each contradiction among these options, and for an invalid path template."""
    try:
        template = path_template(path_layout, partitioning)
    except InvalidTemplate as problem:
        yield f"path_layout {problem}."
        return
    if template is None or path_layout in PRESETS:
        return
    if partitioning != "NO PARTITIONING":
        yield (
            f"partitioning {partitioning} has no effect if path_layout is a template, because the variables of the "
            "template determine the partitions. Remove partitioning."
        )
    if table_prefix and "{table}" not in template.root:
        yield (
            "path_layout contains {stream} but not {table}, so connections with a different table_prefix "
            "would write to the same folders. Replace {stream} with {table} in path_layout, or remove table_prefix."
        )


def contradictory_layout(
    table_type: str, hive_only: Mapping[str, bool], streams: Sequence[StreamOptions]
) -> Iterator[str]:
    """Yield a message for each contradiction among partitioning options, and for each duplicate entry in `streams`.

    `hive_only` contains the options that only Hive tables support. It maps the name of each option to whether the
    option's value differs from its default.
    """
    names = [name for name, is_set in hive_only.items() if is_set]
    if table_type == "ICEBERG" and names:
        verb = "requires" if len(names) == 1 else "require"
        yield (
            f"{' and '.join(names)} {verb} Hive tables, because Iceberg stores partitions in its metadata, in UTC. "
            f"Set table_type to HIVE, or remove {' and '.join(names)}."
        )
    seen: set[tuple[str | None, str]] = set()
    for number, stream in enumerate(streams):
        if (key := (stream.namespace, stream.stream)) in seen:
            yield f"streams.{number} is the second entry for stream {stream.stream}. Merge the entries into one."
        seen.add(key)
        for field in stream.partition_by or ():
            if table_type == "HIVE" and field.transform.startswith(("bucket", "truncate")):
                yield (
                    f"streams.{number}.partition_by: {field.transform} requires Iceberg tables. "
                    "Set table_type to ICEBERG, or use identity, year, month, day or hour."
                )


REPORTS_FOLDER = "_reports"
REPORTS_TABLE = "airbyte_sync_reports"
"""The name of the Glue table over the sync reports in REPORTS_FOLDER. The database lakeformation_database_name contains
this table."""

TAKEN_FOLDERS = frozenset({"_staging", "_raw", "_schema", "_errors", "_deletions", REPORTS_FOLDER}) | RESERVED_FOLDERS
"""The reserved folders under bucket_prefix, in which no database may store its tables. They contain the connector's own
files, or tables in another path layout. Lifecycle rules delete objects in some of these folders."""


def database_folder(database: str) -> str:
    """Return the name of the first folder under bucket_prefix for a database, or another variable of a path template.

    If the name is reserved (TAKEN_FOLDERS), appends `.db`. The result is unique, because the name of a database cannot
    contain a dot.
    """
    return f"{database}.db" if database in TAKEN_FOLDERS else database


_MAX_SHOWN = 3

Deletes = Literal["copy_on_write", "merge_on_read"]
CdcDeletion = Literal["hard", "soft"]


class DedupOptions(Options):
    """Options of deduplication: how replaced rows are deleted, and how a source's deletions are applied.

    If `cdc_deletion` is `hard`, a record with a value in `_ab_cdc_deleted_at` deletes the row with the same key. If it
    is `soft`, the connector writes the record as a row.
    """

    deletes: Deletes = "copy_on_write"
    cdc_deletion: CdcDeletion = "hard"


def contradictory_dedup(dedup: DedupOptions, table_type: str, format_type: str) -> Iterator[str]:
    """Yield a message if the table type does not support a deduplication option that is set.

    Accepts default values for every table type, because forms send these values.
    """
    changed = [
        f"dedup.{name}" for name, field in DedupOptions.model_fields.items() if getattr(dedup, name) != field.default
    ]
    if table_type == "HIVE" and changed:
        names = " and ".join(changed)
        verb = "requires" if len(changed) == 1 else "require"
        yield f"{names} {verb} Iceberg tables. {_remedy(format_type)}, or remove {names}."


def streams_without_dedup(streams: Sequence[StreamId], table_type: str, format_type: str) -> str | None:
    """Return a message if the table type does not support the deduplication of these streams, otherwise None.

    `streams` contains the streams with the sync mode append_dedup.
    """
    if table_type != "HIVE" or not streams:
        return None
    is_single = len(streams) == 1
    names = ", ".join([*map(str, streams[:_MAX_SHOWN]), *(["…"] if len(streams) > _MAX_SHOWN else [])])
    return (
        f"{'Stream' if is_single else 'Streams'} {names} {'uses' if is_single else 'use'} the destination sync mode "
        "append_dedup, but with these options the connector creates Hive tables, which do not support deduplication. "
        f"{_remedy(format_type)}. If the tables exist, also choose a new lakeformation_database_name or table_prefix. "
        "Alternatively, choose a sync mode without deduplication: append or overwrite."
    )


def _remedy(format_type: str) -> str:
    changes = "table_type to ICEBERG and format_type to Parquet" if format_type == "JSONL" else "table_type to ICEBERG"
    return f"Set {changes}"


class NoMaintenance(Options, title="None"):
    """No maintenance by the connector, for example if another job does it."""

    mode: Literal["none"]


class Retention(Options):
    """The number of days for which snapshots and orphan files are kept.

    An orphan file is a file in a table's folder that no snapshot references. Its minimum age is one day, because
    writers upload files before they commit them. Iceberg's procedure `remove_orphan_files` rejects shorter intervals,
    too.
    """

    snapshot_retention_days: Annotated[int, Field(ge=1, le=3650)] = 5
    min_snapshots_to_keep: Annotated[int, Field(ge=1, le=100000)] = 1
    orphan_retention_days: Annotated[int, Field(ge=1, le=365)] = 3


class GlueOptimizers(Retention, title="Glue: Table Optimizers of the Data Catalog"):
    """Maintenance by the table optimizers of the Glue Data Catalog, which AWS runs with a role and bills."""

    mode: Literal["glue"]
    role_arn: Annotated[str, Field(pattern=ROLE_ARN)]


class ConnectorMaintenance(Retention, title="Connector: at the End of Syncs"):
    """Maintenance by the connector: due steps at the end of a sync, and all steps by the command `maintain`."""

    mode: Literal["connector"]


Maintenance = NoMaintenance | GlueOptimizers | ConnectorMaintenance
