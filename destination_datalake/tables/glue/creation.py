"""New Hive tables, as Athena, Spark and Trino expect their entries in the Glue Data Catalog."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from destination_datalake.files.plan import FilePlan
from destination_datalake.schema.glue import glue_type
from destination_datalake.schema.names import comment_of
from destination_datalake.schema.types import Field
from destination_datalake.tables.glue.storage_formats import STORAGE_FORMATS
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import ColumnTypeDef, TableInputTypeDef

    from destination_datalake.aws.access import AwsAccess


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
    storage = STORAGE_FORMATS[plan.format]
    compressed = plan.codec != "UNCOMPRESSED"
    described = {
        "classification": storage.classification,
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
            "Parameters": described,
        },
    }
