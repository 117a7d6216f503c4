"""Tables that Airbyte's AWS Datalake destination made: how they are known, and what goes on with them.

That connector left the work to awswrangler, whose entries in the catalog say what the files are and not who wrote them;
but its folders bear the names of namespace and stream as the source has them, and its tables those names made plain.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Self

from destination_datalake.aws.errors import explain
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.aws_datalake import inherit_types
from destination_datalake.schema.glue import parse_glue_type
from destination_datalake.schema.names import AWS_DATALAKE, METADATA_NAMES, Naming
from destination_datalake.schema.types import Field
from destination_datalake.tables.location import is_inside
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.ownership import TableOwner
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.protocol.catalog import Stream

_logger = logging.getLogger(__name__)

_FORMATS: Mapping[str, str] = {"parquet": "Parquet", "json": "JSONL"}
"""format_type by what awswrangler calls it."""

_TABLES_READ = 2_000
_SHOWN = 10
_NAMING = "naming.style aws_datalake"
_SEE = "docs/operating/migrating.md has the whole configuration"


def is_inherited(entry: Mapping[str, Any]) -> bool:
    """Whether AWS Datalake made the table with this entry in the catalog, whatever syncs have done to it since."""
    parameters: Mapping[str, str] = entry.get("Parameters", {})
    return (
        parameters.get("classification") in _FORMATS
        and parameters.get("typeOfData") == "file"
        and "compressionType" in parameters
        and parameters.get("table_type", "").upper() != "ICEBERG"
        and TableOwner.of(parameters) is None
    )


@dataclass(frozen=True, slots=True)
class InheritedTable:
    """A table that AWS Datalake made for a stream, in the folder that it gave it."""

    name: TableName
    stream: StreamId
    format_type: str
    location: str
    partitioned: bool
    taken_over: bool
    """A sync of this connector has written to it."""

    @classmethod
    def of(cls, database: str, default_database: str, entry: Mapping[str, Any]) -> Self | None:
        """Read it from the catalog's entry; None for any other table.

        Namespace and stream are the last two folders of its location; the default database's streams have none.
        """
        descriptor = entry.get("StorageDescriptor", {})
        location: str = descriptor.get("Location", "")
        folders = location.rstrip("/").split("/")
        if not is_inherited(entry) or len(folders) < len(("s3:", "", "bucket", "namespace", "stream")):
            return None
        namespace, stream = folders[-2:]
        if (namespace.lower(), AWS_DATALAKE.identifier(stream)) != (database.lower(), entry["Name"]):
            return None
        return cls(
            TableName(database, entry["Name"]),
            StreamId(namespace if namespace.lower() != default_database else None, stream),
            _FORMATS[entry["Parameters"]["classification"]],
            location,
            bool(entry.get("PartitionKeys")),
            any(column["Name"] in METADATA_NAMES for column in descriptor.get("Columns", [])),
        )

    def options(self, config: Config) -> tuple[str, ...]:
        """The options that must be other than they are for a sync to go on with the table, each with its value."""
        wanted = {
            "table_type HIVE": config.table_type == "HIVE",
            f"format.format_type {self.format_type}": config.format.format_type == self.format_type,
            _NAMING: config.naming.style == "aws_datalake",
            "table_prefix empty": not config.table_prefix,
            "database_strategy namespace": config.database_strategy == "namespace" or self.stream.namespace is None,
            "bucket_prefix as it was": config.follow_table_location or is_inside(self.location, config.uri("")),
        }
        return tuple(option for option, is_so in wanted.items() if not is_so)


def advice(glue: GlueClient, config: Config) -> str | None:
    """Say which tables of AWS Datalake a sync would not go on with, and which options make it; None if there are none.

    Looked for in the default database and under the bucket, among the first thousands of tables. Raises what Glue
    raises.
    """
    database = config.lakeformation_database_name
    pages = glue.get_paginator("get_tables").paginate(DatabaseName=database)
    entries = list(islice(chain.from_iterable(page["TableList"] for page in pages), _TABLES_READ))
    there = {TableName(database, entry["Name"]) for entry in entries}
    inherited = (InheritedTable.of(database, database, entry) for entry in entries)
    left = [
        (table, target)
        for table in inherited
        if table is not None
        and table.location.startswith(f"s3://{config.bucket_name}/")
        and (target := _left_for(table, config, there)) is not None
    ]
    if not left:
        return None
    options = dict.fromkeys(option for table, _ in left for option in table.options(config))
    shown = [_left_in_words(table, target) for table, target in left[:_SHOWN]]
    more = [f"and {len(left) - _SHOWN} more like these"] if len(left) > _SHOWN else []
    partitioned = any(table.partitioned for table, _ in left)
    return (
        f"Airbyte's AWS Datalake destination has left tables here: {'; '.join(shown + more)}. "
        + (f"To go on with them set {_listed(options)}. " if options else "")
        + ("Partitioned tables cannot be continued by this version. " if partitioned else "")
        + f"To begin others beside them set table_prefix; {_SEE}."
    )


def _left_for(table: InheritedTable, config: Config, there: Collection[TableName]) -> TableName | None:
    """The table that a sync would begin, or not get, instead of going on with this one; None if all is well or done."""
    target = TableNaming.of(config).table_of(table.stream)
    if target != table.name:
        return None if target in there else target
    wanting = set(table.options(config))
    if table.taken_over:
        wanting.discard(_NAMING)  # its columns are as that sync named them
    return target if wanting or table.partitioned else None


def _left_in_words(table: InheritedTable, target: TableName) -> str:
    kind = "partitioned table" if table.partitioned else "table"
    beside = f"would now go to {target}" if target != table.name else "cannot be added to as it is"
    return f"{kind} {table.name} ({table.format_type}), whose stream {table.stream} {beside}"


def warn_of_second_table(stream: StreamId, name: TableName, config: Config, access: AwsAccess) -> None:
    """Warn if a sync is about to begin table `name` beside the one that AWS Datalake made for the stream.

    Asks Glue only where that connector would have given another name. What Glue refuses to say is no reason to stop.
    """
    namespace = stream.namespace or config.lakeformation_database_name
    theirs = TableName(AWS_DATALAKE.database(namespace), AWS_DATALAKE.identifier(stream.name))
    if theirs == name:
        return
    glue = access.client("glue")
    try:
        entry = _entry(glue, theirs)
        if entry is None or _entry(glue, name) is not None:
            return
    except Exception as error:
        failure = explain(error, doing="look for a table of AWS Datalake beside", resource=str(name))
        if failure is None:
            raise
        _logger.info("%s Only a warning would have come of it.", failure.message)
        return
    table = InheritedTable.of(theirs.database, config.lakeformation_database_name, entry)
    if table is not None:
        _logger.warning(
            "Stream %s begins a new table %s. Table %s, which Airbyte's AWS Datalake destination made for it, stays as "
            "it is and gets no more records. To go on with that one set %s; %s.",
            stream,
            name,
            theirs,
            _listed(table.options(config)),
            _SEE,
        )


def how_to_continue(entry: Mapping[str, Any]) -> str | None:
    """What to set to go on with a table that is no Iceberg table, if AWS Datalake made it; completes "Set …"."""
    if not is_inherited(entry):
        return None
    return (
        f"table_type to HIVE, naming.style to aws_datalake and format_type to "
        f"{_FORMATS[entry['Parameters']['classification']]} to go on with it, as it was made by Airbyte's AWS Datalake "
        f"destination ({_SEE})"
    )


def inherited_columns(
    table: TableName, stream: Stream, columns: Sequence[Field], naming: Naming, entry: Mapping[str, Any]
) -> tuple[Field, ...]:
    """The stream's columns in a table whose entry is given: of the types that AWS Datalake gave them, if it made it.

    Warns of fields that get a second column because `naming` is not that connector's.
    """
    if not is_inherited(entry):
        return tuple(columns)
    words = {column["Name"]: column.get("Type", "") for column in entry["StorageDescriptor"]["Columns"]}
    ours = {column.name: column.type for column in columns}
    there = {name: parse_glue_type(text) for name, text in words.items()}
    second = [
        f"{column.name} beside {had}"
        for column in columns
        if column.name not in words and (had := AWS_DATALAKE.identifier(column.source)) in words and had not in ours
    ]
    if second and naming != AWS_DATALAKE:
        more = [f"and {len(second) - _SHOWN} more"] if len(second) > _SHOWN else []
        _logger.warning(
            "Stream %s begins new columns in table %s, which Airbyte's AWS Datalake destination made: %s. To go on "
            "with the old ones set naming.style aws_datalake; %s.",
            stream.id,
            table,
            ", ".join(second[:_SHOWN] + more),
            _SEE,
        )
    return inherit_types(columns, stream.json_schema, there)


def _entry(glue: GlueClient, name: TableName) -> Mapping[str, Any] | None:
    try:
        return glue.get_table(DatabaseName=name.database, Name=name.table)["Table"]
    except glue.exceptions.EntityNotFoundException:
        return None


def _listed(options: Iterable[str]) -> str:
    *others, last = options
    return f"{', '.join(others)} and {last}" if others else last
