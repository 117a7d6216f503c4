"""Tables of Airbyte's S3 Data Lake destination in the Glue Data Catalog: how to recognise them, and what options fit.

They record neither owner nor stream; their metadata columns tell them from others. `tables.iceberg.s3_data_lake` has
what depends on Iceberg's metadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from destination_datalake.schema.glue import parse_glue_type
from destination_datalake.schema.s3_data_lake import has_its_metadata_columns, table_identifier
from destination_datalake.tables.location import outside_warehouse
from destination_datalake.tables.ownership import TableOwner
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from destination_datalake.config.options import Config
    from destination_datalake.protocol.catalog import StreamId

CONNECTOR = "Airbyte's S3 Data Lake destination"
NAMING = "naming.style preserve"


def is_of_s3_data_lake(glue_table: Mapping[str, Any]) -> bool:
    """Whether S3 Data Lake created the table, also if syncs of this connector have written to it since."""
    parameters: Mapping[str, str] = glue_table.get("Parameters", {})
    columns = glue_table.get("StorageDescriptor", {}).get("Columns", [])
    return (
        parameters.get("table_type", "").upper() == "ICEBERG"
        and TableOwner.of(parameters) is None
        and has_its_metadata_columns({each["Name"]: parse_glue_type(each.get("Type", "")) for each in columns})
    )


def table_of(stream: StreamId, config: Config) -> TableName:
    """Return the table that it has for a stream; its database for streams without a namespace is the options'."""
    namespace = stream.namespace or config.lakeformation_database_name
    return TableName(table_identifier(namespace), table_identifier(stream.name))


def misfits(glue_table: Mapping[str, Any], config: Config) -> Iterator[str]:
    """Yield why the options do not continue a table, as clauses about it with the remedy."""
    if config.table_prefix:
        return
    if config.table_type != "ICEBERG":
        yield f"it is an Iceberg table, and table_type is {config.table_type}. Set table_type to ICEBERG"
    location = glue_table.get("StorageDescriptor", {}).get("Location", "")
    if not config.follow_table_location and (problem := outside_warehouse(location, config.uri(""))) is not None:
        yield problem.removesuffix(".")
    if config.naming.style == "snake_case":
        yield (
            "streams with capitals in their names, such as orderItems, get other tables with naming.style snake_case. "
            "If there are such streams, set naming.style to preserve"
        )
