"""Which kind of table a stream gets, by configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from destination_datalake.files.plan import FilePlan
from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.names import Naming
from destination_datalake.schema.types import NumericTypes
from destination_datalake.tables.aws_datalake import warn_of_second_table
from destination_datalake.tables.location import TableLocation
from destination_datalake.tables.ownership import TableOwner

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.protocol.catalog import Stream
    from destination_datalake.tables.glue.database import Databases
    from destination_datalake.tables.table import Table, TableName


def open_table(
    config: Config,
    naming: Naming,
    sync: str,
    stream: Stream,
    name: TableName,
    access: AwsAccess,
    databases: Databases,
) -> Table:
    """Return the stream's table. `sync` names this sync and no other. Warns if it leaves another one behind."""
    warn_of_second_table(stream.id, name, config, access)
    columns = stream_columns(stream.json_schema, NumericTypes(config.numeric_types), naming)
    plan = FilePlan(
        format="jsonl" if config.format.format_type == "JSONL" else "parquet",
        codec=config.format.compression_codec,
        columns=columns,
        field_ids={},
        folder="",
        deferred=False,
        target_bytes=config.target_file_size_mb * 1024 * 1024,
        generation=stream.generation,
        sync_id=stream.sync_id,
    )
    owner = TableOwner(stream.id, naming)
    location = TableLocation.of(config, name)
    if config.table_type == "ICEBERG":
        from destination_datalake.tables.iceberg.table import IcebergTable

        return IcebergTable(
            name, stream, columns, location, plan, access, owner, config.schema_conflicts, sync, databases
        )
    from destination_datalake.tables.hive.table import HiveTable

    return HiveTable(name, stream, columns, location, plan, access, owner, config.schema_conflicts, sync, databases)
