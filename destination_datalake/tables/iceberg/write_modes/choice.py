"""Which way of writing a sync has."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.fencing import FencingToken, Overwrites
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

    `definition` is by what its rows are deduplicated; None if they are not. Raises TableConflict if its generation may
    not write to the table.
    """
    properties = metadata.properties
    overwrite = Overwrite(table, stream, FencingToken.after(properties, sync), definition)
    lowest, pending = lowest_generation(metadata), overwrite.is_pending(metadata)
    if Overwrites.of(properties).overwritten_by(stream, table, lowest, pending=pending):
        return overwrite
    if definition is not None:
        return AppendDedup(table, stream, definition)
    return Append(table, stream)
