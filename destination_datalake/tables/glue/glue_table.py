"""Creates, reads and changes tables in the Glue Data Catalog.

This module changes tables by compare-and-set, so that concurrent changes by other writers are not lost. It keeps
comments, the order of columns, and columns that the stream does not have.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from destination_datalake.aws.objects import S3Address, retry_on
from destination_datalake.files.plan import FileFormat, FilePlan
from destination_datalake.schema.columns import as_column
from destination_datalake.schema.evolution import AddColumn, SchemaChange, apply_changes
from destination_datalake.schema.glue import glue_type, parse_glue_type
from destination_datalake.schema.names import comment_of
from destination_datalake.schema.types import ColumnType, Field

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import ColumnTypeDef, TableInputTypeDef

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.table import TableName

TableInput = dict[str, Any]
"""A table in the format of UpdateTable (Glue API: TableInput). `Parameters` is always present."""

# The keys that UpdateTable accepts. GetTable returns more keys (Glue API: Table), and UpdateTable rejects them.
_TABLE_INPUT_KEYS = (
    "Name",
    "Description",
    "Owner",
    "LastAccessTime",
    "LastAnalyzedTime",
    "Retention",
    "StorageDescriptor",
    "PartitionKeys",
    "ViewOriginalText",
    "ViewExpandedText",
    "TableType",
    "Parameters",
    "TargetTable",
)

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table with its version ID (Glue API: VersionId). Each update of the table changes the version ID."""

    table_input: TableInput
    version_id: str | None


class GlueTable:
    """One table of the Glue Data Catalog, which may not exist yet.

    `created` is the table's creation time, and `number` is its version number, both as of the last read or update.
    """

    def __init__(self, name: TableName, access: AwsAccess) -> None:
        self.name = name
        self.created: datetime | None = None
        self.number = 0
        self._access = access

    def read(self) -> TableInput:
        """Read the table. Raises EntityNotFoundException (Glue) if it does not exist."""
        return as_table_input(self._get())

    def find(self) -> TableInput | None:
        """Read the table. Return None if it does not exist."""
        try:
            return self.read()
        except self._access.client("glue").exceptions.EntityNotFoundException:
            return None

    def read_version(self) -> TableVersion:
        """Read the table with its version. Raises EntityNotFoundException (Glue) if it does not exist."""
        table = self._get()
        return TableVersion(as_table_input(table), table.get("VersionId"))

    def update(self, change: Callable[[TableInput], _Result], version: TableVersion | None = None) -> _Result:
        """Apply `change` to the table, and return its result.

        This method calls UpdateTable only if `change` has modified the table input. After a conflict with another
        writer, it calls `change` again with the table's new state, with exponential backoff and jitter. A caller that
        has just read the table can pass the `version` that it read, which saves a request. Raises errors from Glue, for
        example ConcurrentModificationException after the last attempt.
        """

        def attempt() -> _Result:
            nonlocal version
            current, version = version or self.read_version(), None
            # Change a copy, so that the comparison below sees nested changes too.
            changed = copy.deepcopy(current.table_input)
            result = change(changed)
            if changed != current.table_input:
                self._put(changed, current)
            return result

        return retry_on(self._access.client("glue").exceptions.ConcurrentModificationException, attempt)

    def _put(self, table_input: Any, version: TableVersion) -> None:
        condition: Any = {"VersionId": version.version_id} if version.version_id is not None else {}
        glue = self._access.client("glue")
        # Glue rejects the request if the table has another version by now. Without SkipArchive, each update would add a
        # version, and the number of versions per account is limited.
        glue.update_table(DatabaseName=self.name.database, TableInput=table_input, SkipArchive=True, **condition)
        self.number += 1

    def _get(self) -> Mapping[str, Any]:
        answer = self._access.client("glue").get_table(DatabaseName=self.name.database, Name=self.name.table)
        self.created = answer["Table"].get("CreateTime")
        version = answer["Table"].get("VersionId", "")
        self.number = int(version) if version.isdecimal() else 0
        return answer["Table"]


def as_table_input(table: Mapping[str, Any]) -> TableInput:
    """Return the table of a GetTable response, reduced to the keys that UpdateTable accepts."""
    table_input = {key: table[key] for key in _TABLE_INPUT_KEYS if key in table}
    return {**table_input, "Parameters": {**table_input.get("Parameters", {})}}


# Location and columns, in the storage descriptor (Glue API: StorageDescriptor)


def table_location(table_input: TableInput) -> str:
    """Return the table's location as an S3 URI with the scheme `s3` and without a trailing slash."""
    return str(S3Address.parse(table_input["StorageDescriptor"]["Location"])).removesuffix("/")


def described(table_input: TableInput) -> str:
    """Return a noun phrase for a table, with its name and location, for messages."""
    location = table_input.get("StorageDescriptor", {}).get("Location")
    return f"table {table_input.get('Name')}" + (f" at {location}" if location else "")


def storage_column(field: Field) -> ColumnTypeDef:
    """Return a field as a new Glue column.

    The field's path in the records becomes the column's comment if it differs from the column's name.
    """
    comment = {"Comment": comment_of(field.origin)} if field.origin != field.name else {}
    return {"Name": field.name, "Type": glue_type(field.type), **comment}  # type: ignore[typeddict-item]


def column_types(table_input: TableInput) -> dict[str, ColumnType | None]:
    """Return the types of the columns by name. None stands for a type that this connector never writes."""
    return {name: parse_glue_type(type_name) for name, type_name in column_type_names(table_input).items()}


def column_type_names(table_input: TableInput) -> dict[str, str]:
    """Return Glue's names for the types of the columns, by column name."""
    return {column["Name"]: column.get("Type", "") for column in _columns(table_input)}


def column_sources(table_input: TableInput) -> dict[str, str]:
    """Return the source of each column by column name: its comment, or its name if it has no comment."""
    return {column["Name"]: column.get("Comment") or column["Name"] for column in _columns(table_input)}


def known_columns(table_input: TableInput) -> tuple[Field, ...]:
    """Return the columns with types that this connector writes, each with its path in the records."""
    sources = column_sources(table_input)
    types = column_types(table_input)
    return tuple(as_column(name, sources[name], type_) for name, type_ in types.items() if type_ is not None)


def change_columns(table_input: TableInput, changes: Sequence[SchemaChange]) -> None:
    """Apply schema changes to `table_input`: append new columns, and change the types of existing ones."""
    columns = _columns(table_input)
    types = column_types(table_input)
    new_types = apply_changes(types, changes)
    for column in columns:
        type_ = new_types[column["Name"]]
        if type_ is not None and type_ != types[column["Name"]]:
            column["Type"] = glue_type(type_)
    for change in changes:
        if isinstance(change, AddColumn) and not change.parent:
            columns.append({**storage_column(change.field)})


def add_missing_columns(table_input: TableInput, source: TableInput) -> None:
    """Append to `table_input` the columns that only `source` contains. Names are compared without case."""
    present = {column["Name"].lower() for column in _columns(table_input)}
    _columns(table_input).extend(dict(column) for column in _columns(source) if column["Name"].lower() not in present)


def set_column_types(table_input: TableInput, types: Mapping[str, ColumnType | None]) -> None:
    """Change the types of existing columns. A column keeps its type if `types` has no entry or None for it."""
    for column in _columns(table_input):
        # Compare parsed types, because other programs spell the same type in other ways, and their spelling stays.
        type_ = types.get(column["Name"])
        if type_ is not None and parse_glue_type(column.get("Type", "")) != parse_glue_type(glue_type(type_)):
            column["Type"] = glue_type(type_)


def _columns(table_input: TableInput) -> list[dict[str, Any]]:
    columns: list[dict[str, Any]] = table_input["StorageDescriptor"]["Columns"]
    return columns


# Create Hive tables for Athena, Spark and Trino


@dataclass(frozen=True, slots=True)
class StorageFormat:
    """Hive's classes for a file format, and the parameters of the SerDe.

    `classification` is the format's name in Glue's crawlers.
    """

    classification: str
    input_format: str
    output_format: str
    serialization_library: str
    serde_parameters: Mapping[str, str]


STORAGE_FORMATS: Mapping[FileFormat, StorageFormat] = {
    "parquet": StorageFormat(
        classification="parquet",
        input_format="org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
        output_format="org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
        serialization_library="org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
        serde_parameters={"serialization.format": "1"},
    ),
    "jsonl": StorageFormat(
        classification="json",
        input_format="org.apache.hadoop.mapred.TextInputFormat",
        output_format="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serialization_library="org.openx.data.jsonserde.JsonSerDe",
        serde_parameters={},
    ),
}


def create_hive_table(
    name: TableName,
    columns: Sequence[Field],
    partition_keys: Sequence[ColumnTypeDef],
    location: str,
    parameters: Mapping[str, str],
    plan: FilePlan,
    access: AwsAccess,
) -> None:
    """Create a Hive table with these columns at `location`. Do nothing if a table with this name exists."""
    storage = STORAGE_FORMATS[plan.format]
    compressed = plan.codec != "UNCOMPRESSED"
    file_parameters = {
        "classification": storage.classification,
        "compressionType": plan.codec.lower() if compressed else "none",
        "typeOfData": "file",
    }
    table: TableInputTypeDef = {
        "Name": name.table,
        "TableType": "EXTERNAL_TABLE",
        "PartitionKeys": partition_keys,
        "Parameters": {**file_parameters, "projection.enabled": "false", **parameters},
        "StorageDescriptor": {
            "Columns": [storage_column(column) for column in columns],
            "Location": location,
            "InputFormat": storage.input_format,
            "OutputFormat": storage.output_format,
            "Compressed": compressed,
            "NumberOfBuckets": -1,
            "SerdeInfo": {
                "SerializationLibrary": storage.serialization_library,
                "Parameters": storage.serde_parameters,
            },
            "BucketColumns": [],
            "SortColumns": [],
            "StoredAsSubDirectories": False,
            "Parameters": file_parameters,
        },
    }
    glue = access.client("glue")
    with contextlib.suppress(glue.exceptions.AlreadyExistsException):
        glue.create_table(DatabaseName=name.database, TableInput=table)
