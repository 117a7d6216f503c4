"""Which table a stream lands in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.protocol.errors import SyncRefused
from destination_datalake.schema.names import identifier
from destination_datalake.tables.base import TableName


def table_names(streams: Sequence[Stream], default_database: str) -> Mapping[StreamId, TableName]:
    """Every stream's table: its namespace is the database, or `default_database` where it has none.

    Raises SyncRefused (config_error) naming the streams that would meet in one table.
    """
    names = {stream.id: _table_name(stream.id, default_database) for stream in streams}
    owners: dict[TableName, StreamId] = {}
    for stream, name in names.items():
        other = owners.setdefault(name, stream)
        if other is not stream:
            raise SyncRefused(
                f"Streams {other} and {stream} would both be written to table {name}: their names differ only in "
                "letters that table names cannot keep apart. Rename one with a stream prefix or another namespace in "
                "the connection's settings, or sync them in two connections with different databases."
            )
    return names


def _table_name(stream: StreamId, default_database: str) -> TableName:
    database = identifier(stream.namespace) if stream.namespace else default_database
    return TableName(database, identifier(stream.name))
