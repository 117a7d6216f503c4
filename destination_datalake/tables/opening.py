"""Which kind of table a stream gets, by configuration."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from destination_datalake.datafiles import FilePlan
from destination_datalake.schema.collisions import collisions
from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.names import Naming
from destination_datalake.schema.types import Field, NumericTypes
from destination_datalake.tables.holding import Holding

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config import Config
    from destination_datalake.protocol.catalog import Stream, StreamId
    from destination_datalake.tables.base import Table, TableName

_logger = logging.getLogger(__name__)

_COLLISIONS_SHOWN = 20


def open_table(config: Config, naming: Naming, stream: Stream, name: TableName, access: AwsAccess) -> Table:
    """Return the stream's table. Nothing is asked of AWS before its `prepare`."""
    columns = stream_columns(stream.json_schema, NumericTypes(config.numeric_types), naming)
    _warn_of_collisions(stream.id, columns, naming)
    plan = FilePlan(
        format="jsonl" if config.format.format_type == "JSONL" else "parquet",
        codec=config.format.compression_codec,
        columns=columns,
        field_ids={},
        folder="",
        hidden=False,
        target_bytes=config.target_file_size_mb * 1024 * 1024,
        generation=stream.generation,
        sync_id=stream.sync_id,
    )
    holding = Holding(stream.id, naming)
    location = config.uri(name.database, name.table)
    if config.table_type == "ICEBERG":
        from destination_datalake.tables.iceberg import IcebergTable

        return IcebergTable(name, stream, columns, location, plan, access, holding)
    from destination_datalake.tables.hive import HiveTable

    return HiveTable(name, stream, columns, location, plan, access, holding)


def _warn_of_collisions(stream: StreamId, columns: Sequence[Field], naming: Naming) -> None:
    found = collisions(columns, naming)
    shown = [str(collision) for collision in islice(found, _COLLISIONS_SHOWN)]
    if not shown:
        return
    if more := sum(1 for _ in found):
        shown.append(f"and {more} more like these")
    _logger.warning(
        "Stream %s has fields whose names meet; a suffix tells their columns apart: %s. It stays the same as long as "
        "these fields are there.",
        stream,
        "; ".join(shown),
    )
