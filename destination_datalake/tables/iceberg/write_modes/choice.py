"""Which way of writing a sync has."""

from __future__ import annotations

from collections.abc import Mapping

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
    table: TableName, stream: Stream, sync: str, properties: Mapping[str, str], definition: Definition | None
) -> WriteMode:
    """Return how the stream writes to a table with these properties. `sync` identifies this sync uniquely.

    `definition` is by what its rows are deduplicated; None if they are not.
    """
    if stream.outdates(lowest_generation(properties)):
        return Overwrite(table, stream, FencingToken.after(properties, sync), definition)
    if definition is not None:
        return AppendDedup(table, stream, definition)
    return Append(table, stream)
