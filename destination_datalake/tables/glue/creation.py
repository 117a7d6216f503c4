"""Creation of Hive tables in the Glue Data Catalog, as Athena, Spark and Trino expect them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from destination_datalake.files.plan import FilePlan
from destination_datalake.schema.types import Field
from destination_datalake.tables.glue.storage_descriptor import storage_column
from destination_datalake.tables.glue.storage_formats import STORAGE_FORMATS
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import ColumnTypeDef, TableInputTypeDef

    from destination_datalake.aws.access import AwsAccess


def create_hive_table(
    name: TableName,
    columns: Sequence[Field],
    partition_keys: Sequence[ColumnTypeDef],
    location: str,
    parameters: Mapping[str, str],
    plan: FilePlan,
    access: AwsAccess,
) -> None:
    """Create a table with these columns at `location`, unless a table of that name exists already."""
    glue = access.client("glue")
    table = _table_input(name.table, columns, partition_keys, location, parameters, plan)
    with contextlib.suppress(glue.exceptions.AlreadyExistsException):
        glue.create_table(DatabaseName=name.database, TableInput=table)


def _table_input(
    name: str,
    columns: Sequence[Field],
    partition_keys: Sequence[ColumnTypeDef],
    location: str,
    parameters: Mapping[str, str],
    plan: FilePlan,
) -> TableInputTypeDef:
    storage = STORAGE_FORMATS[plan.format]
    compressed = plan.codec != "UNCOMPRESSED"
    file_parameters = {
        "classification": storage.classification,
        "compressionType": plan.codec.lower() if compressed else "none",
        "typeOfData": "file",
    }
    return {
        "Name": name,
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
