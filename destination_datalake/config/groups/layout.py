"""Options of the layout of tables: partitions, paths, order of rows, and what becomes of nested values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field

from destination_datalake.config.base import AnyCase, Form, Options
from destination_datalake.config.messages import Expects
from destination_datalake.partitioning.spec import is_timezone
from destination_datalake.partitioning.templates import PRESETS, RESERVED_FOLDERS, InvalidTemplate, path_template

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

_FIELD = Expects("the name of a field of the stream, with dots for a field inside another")


class PartitionBy(Options):
    """One partition field of a stream's table."""

    source: Annotated[
        str,
        Field(min_length=1),
        _FIELD,
        Form(
            "A field of the stream, with dots for a field inside another; extracted_at for the time of extraction.",
            title="Field",
        ),
    ]
    transform: Annotated[
        str,
        Field(pattern=r"^(identity|year|month|day|hour|(bucket|truncate)\[[1-9][0-9]{0,8}\])$"),
        AnyCase(),
        Expects("identity, year, month, day, hour, bucket[N] or truncate[W]"),
        Form(
            "identity, year, month, day, hour; for Iceberg tables also bucket[N] and truncate[W].",
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

    source: Annotated[
        str,
        Field(min_length=1),
        _FIELD,
        Form(
            "A field of the stream, with dots for a field inside another; extracted_at for the time of extraction.",
            title="Field",
        ),
    ]
    direction: Annotated[
        Literal["ascending", "descending"],
        Form("Smallest or largest values first."),
    ] = "ascending"
    nulls: Annotated[
        Literal["first", "last"],
        Form("Where rows without a value come."),
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
        Form("Only the stream in this namespace."),
    ] = None
    partition_by: Annotated[
        list[PartitionBy] | None,
        Expects("a list of objects with source, and perhaps transform and name"),
        Form("The partition fields of the stream's table, in order. An empty list: none."),
    ] = None
    sort_by: Annotated[
        list[SortBy] | None,
        Expects("a list of objects with source, and perhaps direction and nulls"),
        Form("The order of rows within files, so that engines skip what a query does not need."),
    ] = None
    nested: Annotated[
        Nested | None,
        Form("As the option of the same name.", title="Nested Values"),
    ] = None
    flatten_max_depth: Annotated[
        int | None,
        Field(ge=1, le=100),
        Expects("a whole number from 1 to 100"),
        Form("As the option of the same name.", title="Flatten Depth"),
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


TAKEN_FOLDERS = frozenset({"_staging", "_raw", "_errors", "_reports"}) | RESERVED_FOLDERS
"""Folders under bucket_prefix that hold no tables, or those of another layout. Lifecycle rules delete in some."""


def database_folder(database: str) -> str:
    """Return the folder of a database, or whatever else has the first folder under bucket_prefix.

    One with the name of a folder reserved for another purpose gets a folder whose name no database can have.
    """
    return f"{database}.db" if database in TAKEN_FOLDERS else database
