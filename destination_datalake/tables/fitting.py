"""How a table that is there already comes to fit a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.evolution import Evolution, Widen, evolve
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.base import TableConflict, TableName


def fitting(
    name: TableName, stream: StreamId, table: Mapping[str, ColumnType | None], columns: Sequence[Field]
) -> Evolution:
    """The changes that let the stream's columns, and ours before them, be written to a table with these columns.

    Raises TableConflict if a column of the table bears the name of one of ours and is something else.
    """
    evolution = evolve(table, (*METADATA_COLUMNS, *columns))
    ours = len(METADATA_COLUMNS)
    widened = {change.path[0] for change in evolution.changes if isinstance(change, Widen)}
    for column, fitted in zip(METADATA_COLUMNS, evolution.columns[:ours], strict=True):
        if fitted != column or column.name in widened:
            raise TableConflict(
                f"Cannot write stream {stream} to table {name}: its column {column.name} has another type than this "
                "connector writes. Rename that column, or choose another lakeformation_database_name."
            )
    return Evolution(evolution.changes, evolution.columns[ours:])
