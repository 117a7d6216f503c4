"""Recognises and continues inherited tables: tables that Airbyte's AWS Datalake destination created.

AWS Datalake wrote tables with the library awswrangler. The Glue table records the format of the files, but not the
program that wrote them. The last two folders of a table's location have the original names of the stream's namespace
and of the stream. The database and the table have the same names in a sanitised spelling.

AWS Datalake chose other column types than this connector: 64-bit numbers from the start, text for every schema that
does not declare all values, and no dates in arrays. If a column has the type that AWS Datalake would choose, a sync
keeps this type, instead of adding a second column with another type.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeGuard, cast

from destination_datalake.aws.errors import explain
from destination_datalake.errors import ConfigError, ConnectorError
from destination_datalake.partitioning.spec import CalendarPart, Part, PartitionField
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.glue import parse_glue_type
from destination_datalake.schema.names import AWS_DATALAKE, METADATA_NAMES, Naming
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Field,
    Float64,
    Int64,
    Json,
    List,
    String,
    Struct,
    Timestamp,
)
from destination_datalake.tables import s3_data_lake
from destination_datalake.tables.catalog import is_iceberg
from destination_datalake.tables.naming import TableNaming, TableOwner, is_inside
from destination_datalake.tables.table import TableConflict, TableName, cannot_write

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import TableTypeDef

    from destination_datalake.config.options import Config
    from destination_datalake.protocol.catalog import Stream
    from destination_datalake.tables.catalog import TableCatalog

_logger = logging.getLogger(__name__)

_FORMATS: Mapping[str, str] = {"parquet": "Parquet", "json": "JSONL"}
"""The value of AWS Datalake's option `format_type` for each value of the table parameter `classification`.

The library awswrangler sets this parameter.
"""

_PARTITION_KEY = re.compile(r"(?P<column>.+)_(?P<part>date|year|month|day)")

_PARTITIONINGS: Mapping[tuple[Part, ...], str] = {
    ("date",): "DATE",
    ("year",): "YEAR",
    ("month",): "MONTH",
    ("day",): "DAY",
    ("year", "month"): "YEAR/MONTH",
    ("year", "month", "day"): "YEAR/MONTH/DAY",
}
"""The value of AWS Datalake's option `partitioning` for each sequence of suffixes in the names of partition keys."""

_MAX_TABLES_IN_MESSAGE = 10
_CONCURRENT_CALLS = 8
_NAMING = "naming.style to aws_datalake"
_SEE = "see docs/operating/migrating.md"


def is_inherited(glue_table: Mapping[str, Any]) -> bool:
    """Return whether AWS Datalake created the table, even if this connector has written to it since."""
    parameters: Mapping[str, str] = glue_table.get("Parameters", {})
    return (
        parameters.get("classification") in _FORMATS
        and parameters.get("typeOfData") == "file"
        and "compressionType" in parameters
        and not is_iceberg(glue_table)
        and TableOwner.load(parameters) is None
        and not _is_of_glue(glue_table)
    )


def _is_of_glue(glue_table: Mapping[str, Any]) -> bool:
    """Return whether a Glue crawler or job created the table. Both set the same parameters as awswrangler.

    A crawler sets the parameter `UPDATED_BY_CRAWLER` even on a table that another program created. So if Glue records
    the table's creator, this function also compares the creator.
    """
    parameters: Mapping[str, str] = glue_table.get("Parameters", {})
    creator = glue_table.get("CreatedBy")
    by_crawler = "UPDATED_BY_CRAWLER" in parameters and (creator is None or creator.endswith("/AWS-Crawler"))
    return by_crawler or "CreatedByJob" in parameters


@dataclass(frozen=True, slots=True)
class InheritedKeys:
    """The column by which AWS Datalake partitioned a table.

    `parts` contains one entry per partition key: the part of the column's date that is the key's value.
    """

    column: str
    parts: tuple[Part, ...]

    @classmethod
    def from_glue(cls, glue_table: Mapping[str, Any]) -> Self | None:
        """Return the column and the parts, as indicated by the names and types of a Glue table's partition keys.

        Return None if the table is not partitioned, or if AWS Datalake never creates keys with these names and types.
        """
        keys = glue_table.get("PartitionKeys") or []
        matches = [match for key in keys if (match := _PARTITION_KEY.fullmatch(key["Name"])) is not None]
        columns = {match["column"] for match in matches}
        parts: tuple[Part, ...] = tuple(cast(Part, match["part"]) for match in matches)
        types = ["date" if part == "date" else "bigint" for part in parts]
        if not keys or len(parts) != len(keys) or len(columns) != 1 or parts not in _PARTITIONINGS:
            return None
        return cls(columns.pop(), parts) if [key.get("Type", "").lower() for key in keys] == types else None

    @property
    def partitioning(self) -> str:
        """The value of the option `partitioning` for which AWS Datalake creates these keys."""
        return _PARTITIONINGS[self.parts]


@dataclass(frozen=True, slots=True)
class InheritedTable:
    """A table that AWS Datalake created for a stream, in the folder that has the stream's name."""

    name: TableName
    stream: StreamId
    format_type: str
    location: str
    keys: InheritedKeys | None
    """None if the table is not partitioned, or if this connector does not recognise the table's partition keys."""
    partitioned: bool
    is_continued: bool
    """Whether a sync of this connector has written to the table."""

    @classmethod
    def from_glue(cls, database: str, default_database: str, glue_table: Mapping[str, Any]) -> Self | None:
        """Return the table that a Glue entry describes, or None if AWS Datalake did not create the table.

        The last two folders of the table's location are named after the namespace and the stream. In the default
        database, streams have no namespace. Also return None if the names of these folders do not match the names of
        the database and the table.
        """
        descriptor = glue_table.get("StorageDescriptor", {})
        location: str = descriptor.get("Location", "")
        folders = location.rstrip("/").split("/")
        # `s3://bucket/namespace/stream` has these five parts.
        if not is_inherited(glue_table) or len(folders) < len(("s3:", "", "bucket", "namespace", "stream")):
            return None
        namespace, stream = folders[-2:]
        if (namespace.lower(), AWS_DATALAKE.identifier(stream)) != (database.lower(), glue_table["Name"]):
            return None
        return cls(
            TableName(database, glue_table["Name"]),
            StreamId(namespace if namespace.lower() != default_database else None, stream),
            _FORMATS[glue_table["Parameters"]["classification"]],
            location,
            InheritedKeys.from_glue(glue_table),
            bool(glue_table.get("PartitionKeys")),
            any(column["Name"] in METADATA_NAMES for column in descriptor.get("Columns", [])),
        )

    def options(self, config: Config) -> tuple[str, ...]:
        """Return the options that the user must change so that a sync continues the table.

        Each entry is a clause with the required value, such as `table_type to HIVE`.
        """
        # Columns keep their names with every naming style. Only the table's name depends on the style.
        finds_table = TableNaming.from_config(config).table_of(self.stream).table == self.name.table
        required = {
            "table_type to HIVE": config.table_type == "HIVE",
            f"format.format_type to {self.format_type}": config.format.format_type == self.format_type,
            _NAMING: config.naming.style == "aws_datalake" or finds_table,
            "table_prefix to an empty text": not config.table_prefix,
            "database_strategy to namespace": config.database_strategy == "namespace" or self.stream.namespace is None,
            "bucket_prefix to its earlier value": config.follow_table_location
            or is_inside(self.location, config.uri("")),
        }
        if self.keys is not None:
            required[f"partitioning to {self.keys.partitioning}"] = config.partitioning in (
                "NO PARTITIONING",
                self.keys.partitioning,
            )
            required["path_layout to hive"] = config.path_layout == "hive"
            required["catalog_partitions to register"] = config.catalog_partitions == "register"
        return tuple(option for option, is_set in required.items() if not is_set)


# Columns and partition keys

JsonSchema = Mapping[str, object]

_Kind = Literal["text", "JSON", "timestamp", "date", "integer", "number", "boolean", "struct", "array"]
"""A kind of column. AWS Datalake derived the kind from the JSON schema (version 0.1.35, stream_writer.py)."""

_SCALARS: Mapping[str, _Kind] = {"integer": "integer", "number": "number", "boolean": "boolean"}
_TIMES: Mapping[object, _Kind] = {"date-time": "timestamp", "date": "date"}


def column_naming(naming: Naming, glue_table: Mapping[str, Any]) -> Naming:
    """Return the naming rules for a table's columns: AWS Datalake's for an inherited table, otherwise `naming`.

    An earlier sync may have added a column for a field under the name that `naming` gives to the field. Such a field
    keeps this column.
    """
    if naming == AWS_DATALAKE or not is_inherited(glue_table):
        return naming
    columns = glue_table["StorageDescriptor"]["Columns"]
    comments = {column["Name"]: column.get("Comment") for column in columns}

    def spelling(source: str) -> str:
        name = naming.identifier(source)
        return name if comments.get(name) == source else AWS_DATALAKE.identifier(source)

    return Naming(AWS_DATALAKE.style, spelling, AWS_DATALAKE.spelling_inside)


def inherited_types(stream: Stream, columns: Sequence[Field], glue_table: Mapping[str, Any]) -> tuple[Field, ...]:
    """Return the stream's columns with their types in the table.

    In an inherited table, columns keep the types that AWS Datalake chose (see `inherit_types`).
    """
    if not is_inherited(glue_table):
        return tuple(columns)
    glue_columns = glue_table["StorageDescriptor"]["Columns"]
    existing = {column["Name"]: parse_glue_type(column.get("Type", "")) for column in glue_columns}
    return inherit_types(columns, stream.json_schema, existing)


def inherited_keys(
    glue_table: Mapping[str, Any], columns: Sequence[Field]
) -> list[tuple[PartitionField, ColumnType, ColumnType]]:
    """Return the fields by which AWS Datalake partitioned the table.

    Each entry contains a field, the type of its partition key, and the type of its source column. Return an empty list
    if AWS Datalake did not partition the table, or if `columns` no longer contains the source column as a date or
    timestamp.
    """
    inherited = InheritedKeys.from_glue(glue_table) if is_inherited(glue_table) else None
    if inherited is None:
        return []
    source = next((column for column in columns if column.name.lower() == inherited.column.lower()), None)
    if source is None or not isinstance(source.type, Date | Timestamp):
        return []
    return [
        (
            PartitionField(f"{inherited.column}_{part}", (source.name,), CalendarPart(part)),
            Date() if part == "date" else Int64(),
            source.type,
        )
        for part in inherited.parts
    ]


def inherit_types(
    columns: Sequence[Field], json_schema: JsonSchema, existing: Mapping[str, ColumnType | None]
) -> tuple[Field, ...]:
    """Return the stream's columns. An existing column keeps its type if AWS Datalake would derive it from the schema.

    `existing` maps the names of the table's columns to their types. If a value does not fit a kept type, a sync writes
    null, and keeps the value as a reject. If the options flatten objects, the fields of an object get new columns,
    because AWS Datalake stored objects as structs.
    """
    properties = json_schema.get("properties")
    if not _is_schema(properties):
        return tuple(columns)
    schemas = {column: None if column.parents else properties.get(column.source) for column in columns}
    return tuple(
        replace(column, type=_inherited_type(schema, existing.get(column.name), column.type))
        for column, schema in schemas.items()
    )


def _inherited_type(schema: object, existing: ColumnType | None, derived: ColumnType) -> ColumnType:
    if existing is None or not _is_schema(schema):
        return derived
    match _kind_of(schema), existing, derived:
        case "text", String() | Json(), _:
            return String()
        case "JSON", String() | Json(), _:
            return Json()
        case "timestamp", Timestamp(), _:
            return Timestamp(zoned=schema.get("airbyte_type") != "timestamp_without_timezone")
        case ("date", Date(), _) | ("integer", Int64(), _) | ("boolean", Boolean(), _):
            return existing
        case "number", Decimal(), _:
            return existing
        case "number", Float64(), _ if schema.get("airbyte_type") != "big_number":  # A double would round big numbers.
            return existing
        case "struct", Struct(), Struct(fields):
            return _struct(schema, existing, fields)
        case "array", List(element), List(derived_element):
            return List(_inherited_type(_item(schema), element, derived_element))
    return derived


def _struct(schema: JsonSchema, existing: Struct, fields: Sequence[Field]) -> Struct:
    properties = schema["properties"]
    assert _is_schema(properties)
    types = {field.name: field.type for field in existing.fields}
    return Struct(
        tuple(
            replace(field, type=_inherited_type(properties[field.source], types.get(field.name), field.type))
            for field in fields
        )
    )


def _kind_of(schema: JsonSchema) -> _Kind:
    declared = _only_type(schema.get("type"))
    if declared == "object":
        properties = schema.get("properties")
        if not _is_schema(properties) or not properties or schema.get("additionalProperties"):
            return "JSON"
        return "struct" if _closed(properties) else "JSON"
    if declared == "array":
        return _array(schema)
    if declared == "number" and schema.get("airbyte_type") == "integer":
        return "integer"
    if declared == "string":
        return _TIMES.get(schema.get("format"), "text")
    return _SCALARS.get(declared, "text")


def _array(schema: JsonSchema) -> _Kind:
    item = _item(schema)
    if not item or _is_mixed(item.get("type")):
        return "JSON"
    properties = item.get("properties")
    return "array" if not _is_schema(properties) or _closed(properties) else "JSON"


def _item(schema: JsonSchema) -> JsonSchema:
    """Return the schema of an array's items, with only the keywords that AWS Datalake read.

    AWS Datalake ignored `format`, and used `airbyte_type` only for numbers. If `items` is a list, AWS Datalake read its
    first schema.
    """
    items = schema.get("items")
    first = items[0] if isinstance(items, list) and items else items
    if not _is_schema(first) or not first:
        return {}
    if first.get("properties"):
        return {"type": "object", "properties": first["properties"]}
    keys = ("type", "airbyte_type") if first.get("type") == "number" else ("type",)
    return {"type": "string", **{key: first[key] for key in keys if key in first}}


def _closed(properties: JsonSchema) -> bool:
    """Return whether AWS Datalake stored an object with these properties as a struct.

    AWS Datalake did so if, at every depth, no property had several types, all objects declared properties, and all
    arrays declared items.
    """
    return all(_is_schema(schema) and _is_closed(schema) for schema in properties.values())


def _is_closed(schema: JsonSchema) -> bool:
    if schema.get("oneOf") or _is_mixed(schema.get("type")):
        return False
    declared, properties = _only_type(schema.get("type")), schema.get("properties")
    if declared == "object":
        return _is_schema(properties) and bool(properties) and _closed(properties)
    if declared == "array":
        item = _item(schema)
        properties = item.get("properties")
        return bool(item) and (not _is_schema(properties) or _closed(properties))
    return True


def _only_type(declared: object) -> str:
    """Return the only declared type besides null. If the schema declares several types or none, return `string`."""
    if isinstance(declared, list):
        types = [type_ for type_ in declared if type_ != "null"]
        declared = types[0] if len(types) == 1 else None
    return declared if isinstance(declared, str) else "string"


def _is_mixed(declared: object) -> bool:
    return isinstance(declared, list) and sum(type_ != "null" for type_ in declared) > 1


def _is_schema(schema: object) -> TypeGuard[JsonSchema]:
    return isinstance(schema, Mapping)


# Conflicts between the options and existing tables, which make a sync or the command `check` fail


def migration_note(glue_tables: Sequence[TableTypeDef], config: Config) -> str | None:
    """Describe the AWS Datalake tables that a sync would not continue.

    The text includes the options that the user must set to continue these tables. `glue_tables` contains the tables of
    the configured database. This function ignores tables whose location is outside the configured bucket. Return None
    if a sync would continue all other AWS Datalake tables.
    """
    database = config.lakeformation_database_name
    existing = {TableName(database, glue_table["Name"]) for glue_table in glue_tables}
    parsed = (InheritedTable.from_glue(database, database, glue_table) for glue_table in glue_tables)
    inherited = (table for table in parsed if table is not None and _is_in_bucket(table, config))
    targets = ((table, _new_target(table, config, existing)) for table in inherited)
    return _note([(table, target) for table, target in targets if target is not None], config)


def refuse_unchanged_configuration(
    streams: Mapping[StreamId, TableName], config: Config, catalog: TableCatalog
) -> None:
    """Raise ConfigError if a sync with an unchanged AWS Datalake configuration would not continue a stream's old table.

    A configuration is unchanged if it sets no option that can make a table differ from AWS Datalake's. The sync of such
    a connection would write some streams to new tables. But the connection's states record that the old tables contain
    the rows sent so far, so the source would not send those rows to the new tables.

    `streams` maps streams to their tables. If a request to the catalog fails with an AWS error, such as a missing
    permission, this function only logs the error, because the sync of the stream reports the problem later.
    """
    if config.has_table_options:
        return

    def abandoned(stream: StreamId, target: TableName) -> tuple[InheritedTable, TableName] | None:
        name = _inherited_name(stream, config)
        try:
            table = InheritedTable.from_glue(
                name.database, config.lakeformation_database_name, catalog.find(name) or {}
            )
            if table is None or not _is_in_bucket(table, config):
                return None
            existing = {name} if target == name or catalog.find(target) is None else {name, target}
        except Exception as error:
            if (failure := explain(error, doing="look up", resource=f"table {name}")) is None:
                raise
            _logger.info(failure.message)
            return None
        new_target = _new_target(table, config, existing)
        return None if new_target is None else (table, new_target)

    with ThreadPoolExecutor(_CONCURRENT_CALLS) as pool:
        results = list(pool.map(abandoned, streams.keys(), streams.values()))
    if (note := _note([result for result in results if result is not None], config)) is not None:
        raise ConfigError(f"{note} Nothing was written.")


def _note(abandoned: Sequence[tuple[InheritedTable, TableName]], config: Config) -> str | None:
    if not abandoned:
        return None
    options = dict.fromkeys(option for table, _ in abandoned for option in table.options(config))
    descriptions = [_describe(table, target) for table, target in abandoned[:_MAX_TABLES_IN_MESSAGE]]
    more = [f"and {len(abandoned) - _MAX_TABLES_IN_MESSAGE} more"] if len(abandoned) > _MAX_TABLES_IN_MESSAGE else []
    unknown = any(table.partitioned and table.keys is None for table, _ in abandoned)
    # Setting any table option shows that the configuration is not AWS Datalake's, so the error does not occur again.
    table_type = "" if config.has_table_options else "If these tables belong to another connection, set table_type. "
    return (
        "These options do not continue tables that Airbyte's AWS Datalake destination created: "
        f"{'; '.join(descriptions + more)}. "
        + (f"To continue them, set {_listed(options)}. " if options else "")
        + ("Tables with unknown partition keys cannot be continued. " if unknown else "")
        + f"{table_type}To create new tables, set table_prefix. For the complete configuration, {_SEE}."
    )


def _is_in_bucket(table: InheritedTable, config: Config) -> bool:
    return table.location.startswith(f"s3://{config.bucket_name}/")


def _new_target(table: InheritedTable, config: Config, existing: Collection[TableName]) -> TableName | None:
    """Return the name of the table to which a sync would write instead of continuing the inherited table.

    If the sync would fail, return the name of the inherited table itself. If the sync would continue the inherited
    table, or if the table to which it would write exists already, return None.
    """
    target = TableNaming.from_config(config).table_of(table.stream)
    if target != table.name:
        return None if target in existing else target
    required = set(table.options(config))
    if table.is_continued:
        required.discard(_NAMING)  # Columns keep the names that the first sync of this connector chose.
    return target if required or (table.partitioned and table.keys is None) else None


def _describe(table: InheritedTable, target: TableName) -> str:
    kind = "partitioned table" if table.partitioned else "table"
    reason = (
        f"the stream would be written to {target}" if target != table.name else "the options do not match the table"
    )
    return f"{kind} {table.name} ({table.format_type}) of stream {table.stream}, because {reason}"


def refuse_second_table(stream: StreamId, name: TableName, config: Config, catalog: TableCatalog) -> None:
    """Raise TableConflict if table `name` does not exist, but another Airbyte connector created a table for the stream.

    This function does not call the catalog if the other connectors would use the name `name` too, or if the user has
    set the option `table_prefix`, which requests new tables. Raises ConnectorError if AWS does not answer or rejects a
    request. If a permission is missing, only logs the problem.
    """
    names = dict.fromkeys((_inherited_name(stream, config), s3_data_lake.table_of(stream, config)))
    names.pop(name, None)
    if not names or config.table_prefix:
        return
    try:
        candidates = {
            candidate: glue_table for candidate in names if (glue_table := catalog.find(candidate)) is not None
        }
        if not candidates or catalog.find(name) is not None:
            return
    except Exception as error:
        failure = explain(error, doing="look up tables of other Airbyte destinations for", resource=f"table {name}")
        if failure is None:
            raise
        # A missing permission is no reason to stop, because the table may well not exist. After any other error, the
        # sync could create a second table by mistake.
        if failure.missing is None:
            raise ConnectorError(failure) from error
        _logger.info(
            "%s If another Airbyte destination created a table for the stream, that table receives no more records.",
            failure.message,
        )
        return
    for candidate, glue_table in candidates.items():
        inherited = InheritedTable.from_glue(candidate.database, config.lakeformation_database_name, glue_table)
        if inherited is not None:
            connector, options = "Airbyte's AWS Datalake destination", inherited.options(config)
        elif s3_data_lake.is_of_s3_data_lake(glue_table):
            connector, options = s3_data_lake.CONNECTOR, (s3_data_lake.NAMING,)
        else:
            continue
        problem = (
            f"{connector} created table {candidate} for the stream, so a new table would contain only new records. To "
            f"continue table {candidate}, set {_listed(options)}. To create a new table, set table_prefix. For the "
            f"complete configuration, {_SEE}."
        )
        raise TableConflict(cannot_write(stream, name, problem))


def _inherited_name(stream: StreamId, config: Config) -> TableName:
    namespace = stream.namespace or config.lakeformation_database_name
    return TableName(AWS_DATALAKE.database(namespace), AWS_DATALAKE.identifier(stream.name))


def how_to_continue(glue_table: Mapping[str, Any]) -> str | None:
    """Return the options that the user must set to continue an inherited table.

    The result is the rest of a sentence that begins with "Set". Return None if AWS Datalake did not create the table.
    """
    database = glue_table.get("DatabaseName", "")
    if (inherited := InheritedTable.from_glue(database, database, glue_table)) is None:
        return None
    return (
        f"table_type to HIVE, naming.style to aws_datalake and format_type to {inherited.format_type} to continue the "
        f"table, which Airbyte's AWS Datalake destination created ({_SEE})"
    )


def _listed(options: Iterable[str]) -> str:
    *first, last = options
    return f"{', '.join(first)} and {last}" if first else last
