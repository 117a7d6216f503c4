"""Inherited tables, created by Airbyte's AWS Datalake destination: how to recognise and continue them.

That connector used awswrangler, which records in the Glue table what the files are, but not who wrote them. Its folders
have the source's names of namespace and stream, its tables those names sanitised. It had its own rules from JSON schema
to column type: 64-bit numbers from the start, text for every open schema, no dates in arrays. A column whose type
follows from those rules is continued in that type, so that no second column is added beside it.
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
"""format_type by awswrangler's classification."""

_PARTITION_KEY = re.compile(r"(?P<column>.+)_(?P<part>date|year|month|day)")

_PARTITIONINGS: Mapping[tuple[Part, ...], str] = {
    ("date",): "DATE",
    ("year",): "YEAR",
    ("month",): "MONTH",
    ("day",): "DAY",
    ("year", "month"): "YEAR/MONTH",
    ("year", "month", "day"): "YEAR/MONTH/DAY",
}
"""The values of its option `partitioning`, by the ends of the names of the keys."""

_SHOWN = 10
_CONCURRENT_CALLS = 8
_NAMING = "naming.style aws_datalake"
_SEE = "docs/operating/migrating.md has the whole configuration"


def is_inherited(glue_table: Mapping[str, Any]) -> bool:
    """Whether AWS Datalake created the table, also if syncs of this connector have written to it since."""
    parameters: Mapping[str, str] = glue_table.get("Parameters", {})
    return (
        parameters.get("classification") in _FORMATS
        and parameters.get("typeOfData") == "file"
        and "compressionType" in parameters
        and not is_iceberg(glue_table)
        and TableOwner.of(parameters) is None
        and not _is_of_glue(glue_table)
    )


def _is_of_glue(glue_table: Mapping[str, Any]) -> bool:
    """Whether a crawler or a job of Glue created the table: both describe files with the parameters of awswrangler.

    Crawlers update tables that others have created, too. Only Glue itself says who created a table.
    """
    parameters: Mapping[str, str] = glue_table.get("Parameters", {})
    creator = glue_table.get("CreatedBy")
    by_crawler = "UPDATED_BY_CRAWLER" in parameters and (creator is None or creator.endswith("/AWS-Crawler"))
    return by_crawler or "CreatedByJob" in parameters


@dataclass(frozen=True, slots=True)
class InheritedKeys:
    """What AWS Datalake partitioned a table by: a column, and the parts of its date, as `partitioning` has them."""

    column: str
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, glue_table: Mapping[str, Any]) -> Self | None:
        """Return what the names and types of a Glue table's partition keys tell; None if they tell nothing."""
        keys = glue_table.get("PartitionKeys") or []
        found = [_PARTITION_KEY.fullmatch(key["Name"]) for key in keys]
        columns = {each["column"] for each in found if each is not None}
        parts: tuple[Part, ...] = tuple(cast(Part, each["part"]) for each in found if each is not None)
        types = ["date" if part == "date" else "bigint" for part in parts]
        if not keys or len(parts) != len(keys) or len(columns) != 1 or parts not in _PARTITIONINGS:
            return None
        return cls(columns.pop(), parts) if [key.get("Type", "").lower() for key in keys] == types else None

    @property
    def partitioning(self) -> str:
        """The option's value."""
        return _PARTITIONINGS[self.parts]


@dataclass(frozen=True, slots=True)
class InheritedTable:
    """A table that AWS Datalake created for a stream, in the folder that it chose."""

    name: TableName
    stream: StreamId
    format_type: str
    location: str
    keys: InheritedKeys | None
    """None also if it has partition keys that this connector does not know."""
    partitioned: bool
    taken_over: bool
    """Whether a sync of this connector has written to it."""

    @classmethod
    def of(cls, database: str, default_database: str, glue_table: Mapping[str, Any]) -> Self | None:
        """Read a Glue table; None if AWS Datalake has not created it.

        Namespace and stream are the last two folders of its location; in the default database, streams have no
        namespace.
        """
        descriptor = glue_table.get("StorageDescriptor", {})
        location: str = descriptor.get("Location", "")
        folders = location.rstrip("/").split("/")
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
            InheritedKeys.of(glue_table),
            bool(glue_table.get("PartitionKeys")),
            any(column["Name"] in METADATA_NAMES for column in descriptor.get("Columns", [])),
        )

    def options(self, config: Config) -> tuple[str, ...]:
        """Return the options, each with its value, that must be changed for a sync to continue the table."""
        # Columns keep their names in any style.
        finds_table = TableNaming.of(config).table_of(self.stream).table == self.name.table
        required = {
            "table_type HIVE": config.table_type == "HIVE",
            f"format.format_type {self.format_type}": config.format.format_type == self.format_type,
            _NAMING: config.naming.style == "aws_datalake" or finds_table,
            "table_prefix empty": not config.table_prefix,
            "database_strategy namespace": config.database_strategy == "namespace" or self.stream.namespace is None,
            "bucket_prefix as it was": config.follow_table_location or is_inside(self.location, config.uri("")),
        }
        if self.keys is not None:
            same = config.partitioning in ("NO PARTITIONING", self.keys.partitioning)
            required[f"partitioning {self.keys.partitioning}"] = same
            required["path_layout hive"] = config.path_layout == "hive"
            required["catalog_partitions register"] = config.catalog_partitions == "register"
        return tuple(option for option, is_set in required.items() if not is_set)


# Columns and partition keys

JsonSchema = Mapping[str, object]

_Derived = Literal["text", "JSON", "timestamp", "date", "integer", "number", "boolean", "struct", "array"]
"""The kinds of columns that it derived from schemas (AWS Datalake 0.1.35, stream_writer.py)."""

_SCALARS: Mapping[str, _Derived] = {"integer": "integer", "number": "number", "boolean": "boolean"}
_TIMES: Mapping[object, _Derived] = {"date-time": "timestamp", "date": "date"}


def column_naming(naming: Naming, glue_table: Mapping[str, Any]) -> Naming:
    """Return how a table's columns are named: in an inherited one as AWS Datalake did, whatever `naming` is.

    A field for which an earlier sync has begun a second column, named by `naming`, keeps that one.
    """
    if naming == AWS_DATALAKE or not is_inherited(glue_table):
        return naming
    columns = glue_table["StorageDescriptor"]["Columns"]
    begun = {column["Name"]: column.get("Comment") for column in columns}

    def spelling(source: str) -> str:
        own = naming.identifier(source)
        return own if begun.get(own) == source else AWS_DATALAKE.identifier(source)

    return Naming(AWS_DATALAKE.style, spelling, AWS_DATALAKE.spelling_inside)


def inherited_types(stream: Stream, columns: Sequence[Field], glue_table: Mapping[str, Any]) -> tuple[Field, ...]:
    """Return the stream's columns in a Glue table; in an inherited one, with the types that AWS Datalake gave them."""
    if not is_inherited(glue_table):
        return tuple(columns)
    glue_columns = glue_table["StorageDescriptor"]["Columns"]
    existing = {column["Name"]: parse_glue_type(column.get("Type", "")) for column in glue_columns}
    return inherit_types(columns, stream.json_schema, existing)


def inherited_keys(
    glue_table: Mapping[str, Any], columns: Sequence[Field]
) -> list[tuple[PartitionField, ColumnType, ColumnType]]:
    """Return the fields that AWS Datalake partitioned a table by, with the types of their keys and of their column.

    Empty if it did not, or if the column is no date any more.
    """
    inherited = InheritedKeys.of(glue_table) if is_inherited(glue_table) else None
    if inherited is None:
        return []
    source = next((each for each in columns if each.name.lower() == inherited.column.lower()), None)
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
    """Return the stream's columns, with the table's type where AWS Datalake has derived it from the stream's schema.

    `existing` has the types of the table's columns by name. Values that do not fit such a type are null and rejected.
    Fields of flattened objects are new columns: AWS Datalake kept objects as structs.
    """
    properties = json_schema.get("properties")
    if not _is_schema(properties):
        return tuple(columns)
    schemas = {column: None if column.parents else properties.get(column.source) for column in columns}
    return tuple(
        replace(column, type=_inherited_type(schema, existing.get(column.name), column.type))
        for column, schema in schemas.items()
    )


def _inherited_type(schema: object, existing: ColumnType | None, own: ColumnType) -> ColumnType:
    if existing is None or not _is_schema(schema):
        return own
    match _derived_from(schema), existing, own:
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
        case "number", Float64(), _ if schema.get("airbyte_type") != "big_number":  # a double would round it
            return existing
        case "struct", Struct(), Struct(fields):
            return _struct(schema, existing, fields)
        case "array", List(element), List(own_element):
            return List(_inherited_type(_item(schema), element, own_element))
    return own


def _struct(schema: JsonSchema, existing: Struct, fields: Sequence[Field]) -> Struct:
    properties = schema["properties"]
    assert _is_schema(properties)
    inside = {field.name: field.type for field in existing.fields}
    return Struct(
        tuple(
            replace(field, type=_inherited_type(properties[field.source], inside.get(field.name), field.type))
            for field in fields
        )
    )


def _derived_from(schema: JsonSchema) -> _Derived:
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


def _array(schema: JsonSchema) -> _Derived:
    item = _item(schema)
    if not item or _is_mixed(item.get("type")):
        return "JSON"
    properties = item.get("properties")
    return "array" if not _is_schema(properties) or _closed(properties) else "JSON"


def _item(schema: JsonSchema) -> JsonSchema:
    """Return what that connector read of the schema of an array's items: no formats, `airbyte_type` of numbers only."""
    items = schema.get("items")
    first = items[0] if isinstance(items, list) and items else items
    if not _is_schema(first) or not first:
        return {}
    if first.get("properties"):
        return {"type": "object", "properties": first["properties"]}
    seen = ("type", "airbyte_type") if first.get("type") == "number" else ("type",)
    return {"type": "string", **{key: first[key] for key in seen if key in first}}


def _closed(properties: JsonSchema) -> bool:
    """Whether the properties made a struct: none of them open, none of more than one type, at any depth."""
    return all(_is_schema(schema) and _is_closed(schema) for schema in properties.values())


def _is_closed(schema: JsonSchema) -> bool:
    if schema.get("oneOf") or _is_mixed(schema.get("type")):
        return False
    declared, properties = _only_type(schema.get("type")), schema.get("properties")
    if declared == "object":
        return _is_schema(properties) and bool(properties) and _closed(properties)
    if declared == "array":
        item = _item(schema)
        inside = item.get("properties")
        return bool(item) and (not _is_schema(inside) or _closed(inside))
    return True


def _only_type(declared: object) -> str:
    """Return the one type beside null; `string` if there are several or none."""
    if isinstance(declared, list):
        others = [each for each in declared if each != "null"]
        declared = others[0] if len(others) == 1 else None
    return declared if isinstance(declared, str) else "string"


def _is_mixed(declared: object) -> bool:
    return isinstance(declared, list) and len([each for each in declared if each != "null"]) > 1


def _is_schema(schema: object) -> TypeGuard[JsonSchema]:
    return isinstance(schema, Mapping)


# What a sync refuses, and `check` tells


def migration_note(glue_tables: Sequence[TableTypeDef], config: Config) -> str | None:
    """Say which tables of AWS Datalake a sync would not continue, and with which options it would; None if none.

    `glue_tables` are those in the options' database; tables in other buckets are left out.
    """
    database = config.lakeformation_database_name
    existing = {TableName(database, glue_table["Name"]) for glue_table in glue_tables}
    inherited = (InheritedTable.of(database, database, glue_table) for glue_table in glue_tables)
    ours = (table for table in inherited if table is not None and _is_in_bucket(table, config))
    found = ((table, _target_instead(table, config, existing)) for table in ours)
    return _note([(table, target) for table, target in found if target is not None], config)


def refuse_unchanged_configuration(
    streams: Mapping[StreamId, TableName], config: Config, catalog: TableCatalog
) -> None:
    """Refuse a sync with the options of AWS Datalake alone if some stream's table would not be continued with them.

    The other streams would begin to go on here, with states from there: half of the connection would have moved.
    `streams` have their tables. Raises ConfigError. What Glue does not tell is left to the streams.
    """
    if config.has_table_options:
        return

    def abandoned(stream: StreamId, target: TableName) -> tuple[InheritedTable, TableName] | None:
        name = _inherited_name(stream, config)
        try:
            table = InheritedTable.of(name.database, config.lakeformation_database_name, catalog.find(name) or {})
            if table is None or not _is_in_bucket(table, config):
                return None
            existing = {name} if target == name or catalog.find(target) is None else {name, target}
        except Exception as error:
            if (failure := explain(error, doing="look for a table of AWS Datalake", resource=str(name))) is None:
                raise
            _logger.info(failure.message)
            return None
        instead = _target_instead(table, config, existing)
        return None if instead is None else (table, instead)

    with ThreadPoolExecutor(_CONCURRENT_CALLS) as pool:
        found = [each for each in pool.map(abandoned, streams.keys(), streams.values()) if each is not None]
    if (note := _note(found, config)) is not None:
        raise ConfigError(f"{note} Nothing was written.")


def _note(abandoned: Sequence[tuple[InheritedTable, TableName]], config: Config) -> str | None:
    if not abandoned:
        return None
    options = dict.fromkeys(option for table, _ in abandoned for option in table.options(config))
    shown = [_describe(table, target) for table, target in abandoned[:_SHOWN]]
    more = [f"and {len(abandoned) - _SHOWN} more like these"] if len(abandoned) > _SHOWN else []
    unknown = any(table.partitioned and table.keys is None for table, _ in abandoned)
    others = "" if config.has_table_options else "table_type, if they are none of this connection's, or "
    return (
        f"Airbyte's AWS Datalake destination has left tables here: {'; '.join(shown + more)}. "
        + (f"To continue them, set {_listed(options)}. " if options else "")
        + ("Tables with other partition keys than that connector's cannot be continued. " if unknown else "")
        + f"To begin others beside them, set {others}table_prefix; {_SEE}."
    )


def _is_in_bucket(table: InheritedTable, config: Config) -> bool:
    return table.location.startswith(f"s3://{config.bucket_name}/")


def _target_instead(table: InheritedTable, config: Config, existing: Collection[TableName]) -> TableName | None:
    """Return the table that a sync would write to instead of continuing this one; this one if it would be refused.

    None if the sync continues it, or if the other table exists, so that an earlier sync has left this one already.
    """
    target = TableNaming.of(config).table_of(table.stream)
    if target != table.name:
        return None if target in existing else target
    required = set(table.options(config))
    if table.taken_over:
        required.discard(_NAMING)  # its columns are named as that sync named them
    return target if required or (table.partitioned and table.keys is None) else None


def _describe(table: InheritedTable, target: TableName) -> str:
    kind = "partitioned table" if table.partitioned else "table"
    instead = f"would now go to {target}" if target != table.name else "cannot be added to as it is"
    return f"{kind} {table.name} ({table.format_type}), whose stream {table.stream} {instead}"


def refuse_second_table(stream: StreamId, name: TableName, config: Config, catalog: TableCatalog) -> None:
    """Refuse to begin table `name` beside the one that another connector of Airbyte's created for the stream.

    Asks the catalog only if that connector would have chosen another name, and if no table_prefix asks for new tables.
    Raises TableConflict, or ConnectorError if it does not answer. A missing permission is logged: then there is no
    answer.
    """
    others = dict.fromkeys((_inherited_name(stream, config), s3_data_lake.table_of(stream, config)))
    others.pop(name, None)
    if not others or config.table_prefix:
        return
    try:
        found = {other: glue_table for other in others if (glue_table := catalog.find(other)) is not None}
        if not found or catalog.find(name) is not None:
            return
    except Exception as error:
        failure = explain(error, doing="look for a table of another connector beside", resource=str(name))
        if failure is None:
            raise
        if failure.missing is None:
            raise ConnectorError(failure) from error
        _logger.info("%s If there is such a table, it gets no more records.", failure.message)
        return
    for other, glue_table in found.items():
        inherited = InheritedTable.of(other.database, config.lakeformation_database_name, glue_table)
        if inherited is not None:
            connector, options = "Airbyte's AWS Datalake destination", inherited.options(config)
        elif s3_data_lake.is_of_s3_data_lake(glue_table):
            connector, options = s3_data_lake.CONNECTOR, (s3_data_lake.NAMING,)
        else:
            continue
        problem = (
            f"it would be a second table beside {other}, which {connector} created for the stream, and would have only "
            f"new records. To continue {other}, set {_listed(options)}; to start a new table, set table_prefix; {_SEE}."
        )
        raise TableConflict(cannot_write(stream, name, problem))


def _inherited_name(stream: StreamId, config: Config) -> TableName:
    namespace = stream.namespace or config.lakeformation_database_name
    return TableName(AWS_DATALAKE.database(namespace), AWS_DATALAKE.identifier(stream.name))


def how_to_continue(glue_table: Mapping[str, Any]) -> str | None:
    """Return the options that continue an inherited table, completing "Set …"; None for any other table."""
    database = glue_table.get("DatabaseName", "")
    if (inherited := InheritedTable.of(database, database, glue_table)) is None:
        return None
    return (
        f"table_type to HIVE, naming.style to aws_datalake and format_type to {inherited.format_type} to continue it, "
        f"as it was created by Airbyte's AWS Datalake destination ({_SEE})"
    )


def _listed(options: Iterable[str]) -> str:
    *others, last = options
    return f"{', '.join(others)} and {last}" if others else last
