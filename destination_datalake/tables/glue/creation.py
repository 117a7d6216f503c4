"""New Hive tables, as Athena, Spark and Trino expect their entries in the Glue Data Catalog."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destination_datalake.files.plan import FilePlan
from destination_datalake.schema.glue import glue_type
from destination_datalake.schema.names import comment_of
from destination_datalake.schema.types import Field
from destination_datalake.tables.hive.layout import LAYOUTS
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import ColumnTypeDef, TableInputTypeDef

    from destination_datalake.aws.access import AwsAccess


@dataclass(frozen=True, slots=True)
class _Reading:
    """How engines read a table's files, beside the SerDe: Hive's classes, and what Glue's crawlers call the format."""

    classification: str
    input_format: str
    output_format: str
    serde_parameters: Mapping[str, str]


_READINGS: Mapping[str, _Reading] = {
    "parquet": _Reading(
        "parquet",
        "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
        "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
        {"serialization.format": "1"},
    ),
    "jsonl": _Reading(
        "json",
        "org.apache.hadoop.mapred.TextInputFormat",
        "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        {},
    ),
}


def create_hive_table(
    name: TableName,
    columns: Sequence[Field],
    location: str,
    parameters: Mapping[str, str],
    plan: FilePlan,
    access: AwsAccess,
) -> None:
    """Create an empty table of these columns at `location`. One that is there already stays as it is."""
    glue = access.client("glue")
    table = _table_input(name.table, columns, location, parameters, plan)
    with contextlib.suppress(glue.exceptions.AlreadyExistsException):
        glue.create_table(DatabaseName=name.database, TableInput=table)


def glue_column(field: Field) -> ColumnTypeDef:
    """The column in a table's entry; its comment is the key in the record where that is spelled differently."""
    comment = {"Comment": comment_of(field.source)} if field.source != field.name else {}
    return {"Name": field.name, "Type": glue_type(field.type), **comment}  # type: ignore[typeddict-item]


def _table_input(
    name: str, columns: Sequence[Field], location: str, parameters: Mapping[str, str], plan: FilePlan
) -> TableInputTypeDef:
    reading = _READINGS[plan.format]
    compressed = plan.codec != "UNCOMPRESSED"
    described = {
        "classification": reading.classification,
        "compressionType": plan.codec.lower() if compressed else "none",
        "typeOfData": "file",
    }
    return {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "PartitionKeys": [],
        "Parameters": {**described, "projection.enabled": "false", **parameters},
        "StorageDescriptor": {
            "Columns": [glue_column(column) for column in columns],
            "Location": location,
            "InputFormat": reading.input_format,
            "OutputFormat": reading.output_format,
            "Compressed": compressed,
            "NumberOfBuckets": -1,
            "SerdeInfo": {
                "SerializationLibrary": LAYOUTS[plan.format].serde,
                "Parameters": reading.serde_parameters,
            },
            "BucketColumns": [],
            "SortColumns": [],
            "StoredAsSubDirectories": False,
            "Parameters": described,
        },
    }
