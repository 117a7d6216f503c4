"""Decoded blocks as tables, with columns as narrow as all values so far allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from destination_datalake.files.formats.field_ids import with_field_ids
from destination_datalake.files.plan import Arrival, FilePlan
from destination_datalake.files.writing.metadata import OrderedIds, metadata_columns
from destination_datalake.records.decoded import Decoded
from destination_datalake.schema.arrow import arrow_field, narrowest
from destination_datalake.schema.types import Field


class Rows(NamedTuple):
    """A table and its bytes, which take as long to count as a small file takes to encode."""

    table: pa.Table
    bytes: int


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The stream's columns with the types that a file stores, and the file's schema in Arrow's terms."""

    columns: tuple[Field, ...]
    arrow: pa.Schema


class BlockTables:
    """Makes tables of decoded blocks. A column that a value does not fit is wider from that block on."""

    def __init__(self, plan: FilePlan, arrival: Arrival) -> None:
        """Rows have ids in the order of arrival, that of their unit first."""
        self._plan = plan
        self._ids = OrderedIds(arrival)
        self.schema = _file_schema(plan.columns, plan)

    def table(self, decoded: Decoded) -> tuple[pa.Array[Any], pa.Table]:
        """Return the ids of the rows (`_airbyte_raw_id`), and a table of `schema`, which is wider if need be."""
        fitted = tuple(
            replace(column, type=narrowest(array, column.type))
            for column, array in zip(self.schema.columns, decoded.columns, strict=True)
        )
        if fitted != self.schema.columns:
            self.schema = _file_schema(fitted, self._plan)
        ids = self._ids.of(decoded.line_numbers)
        metadata = metadata_columns(ids, decoded, self._plan)
        own = [
            array.cast(field.type, safe=False)
            for array, field in zip(decoded.columns, list(self.schema.arrow)[len(metadata) :], strict=True)
        ]
        return ids, pa.Table.from_arrays([*metadata, *own], schema=self.schema.arrow)


class WaitingRows:
    """Rows in memory that are not encoded yet. Each block's schema is as wide as that of the one before, or wider."""

    def __init__(self, schema: FileSchema) -> None:
        self.schema = schema
        self.bytes = 0
        self._blocks: list[pa.Table] = []

    def add(self, table: pa.Table, schema: FileSchema) -> None:
        """Append a block's rows."""
        self.schema = schema
        self.bytes += table.nbytes
        self._blocks.append(table)

    def take(self) -> pa.Table:
        """Return all rows as one table of `schema`, each column in one piece; none wait then.

        The blocks are released column by column: one column is all that is in memory twice.
        """
        blocks = [list(table.itercolumns()) for table in self._blocks]
        self._blocks.clear()
        self.bytes = 0
        columns = []
        for position, field in enumerate(self.schema.arrow):
            chunks: list[Any] = []
            for block in blocks:
                chunks += block[position].cast(field.type).chunks
                block[position] = None  # type: ignore[call-overload]
            columns.append(pa.concat_arrays(chunks) if chunks else pa.array([], field.type))
        return pa.Table.from_arrays(columns, schema=self.schema.arrow)


def _file_schema(columns: Sequence[Field], plan: FilePlan) -> FileSchema:
    schema = pa.schema([arrow_field(column) for column in (*plan.metadata, *columns)])
    return FileSchema(tuple(columns), with_field_ids(schema, plan.field_ids) if plan.field_ids else schema)
