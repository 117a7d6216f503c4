"""Which way of writing a sync has."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.fencing import FencingToken
from destination_datalake.tables.iceberg.dedup.definition import Definition
from destination_datalake.tables.iceberg.write_modes.append import Append
from destination_datalake.tables.iceberg.write_modes.dedup import AppendDedup
from destination_datalake.tables.iceberg.write_modes.generations import lowest_generation
from destination_datalake.tables.iceberg.write_modes.mode import WriteMode
from destination_datalake.tables.iceberg.write_modes.overwrite import Overwrite
from destination_datalake.tables.table import TableName


def write_mode(
    table: TableName, stream: Stream, sync: str, metadata: TableMetadata, definition: Definition | None
) -> WriteMode:
    """Return how the stream writes to a table. `sync` identifies this sync uniquely.

    `definition` is by what its rows are deduplicated; None if they are not.
    """
    if stream.outdates(lowest_generation(metadata)):
        return Overwrite(table, stream, FencingToken.after(metadata.properties, sync), definition)
    if definition is not None:
        return AppendDedup(table, stream, definition)
    return Append(table, stream)
