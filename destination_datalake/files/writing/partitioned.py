"""The files of a unit with partitions or an order of rows.

Rows wait in memory until the unit ends, and are then grouped all at once: a table is taken apart once, not for each
block. A unit that has more rows than memory groups them several times. Of each partition the rows are then written as
a row group if there are enough of them, and few enough open files; the others wait on disk for the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from destination_datalake.files.plan import FIRST, Arrival, DataFile, FilePlan
from destination_datalake.files.writing.partition_files import PartitionFiles
from destination_datalake.files.writing.sorting import in_order
from destination_datalake.files.writing.spill import Spill
from destination_datalake.files.writing.tables import BlockTables, Rows, WaitingRows
from destination_datalake.partitioning.grouping import by_partition
from destination_datalake.partitioning.spec import PartitionValue

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.records.decoded import Decoded

WAITING_BYTES = 128 * 1024 * 1024
"""The most Arrow bytes that wait in memory, or those of one block. Grouping takes as much again for a moment."""

MAX_OPEN_FILES = 4
"""How many files stay open while rows wait: each may buffer two parts of an upload."""


class PartitionedFileWriter:
    """Writes the files of one unit, each with rows of one partition, in the plan's order."""

    def __init__(
        self,
        name: str,
        plan: FilePlan,
        s3: S3Client,
        waiting_bytes: int = WAITING_BYTES,
        arrival: Arrival = FIRST,
    ) -> None:
        """Write nothing yet. `waiting_bytes` is the memory for rows that wait."""
        self._plan = plan
        self._fields = plan.partitioning.fields if plan.partitioning is not None else ()
        self._waiting_bytes = waiting_bytes
        self._most_open = min(MAX_OPEN_FILES, plan.partitioning.max_open if plan.partitioning is not None else 1)
        self._tables = BlockTables(plan, arrival)
        self._waiting = WaitingRows(self._tables.schema)
        self._files = PartitionFiles(name, plan, s3, run_bytes=waiting_bytes)
        self._spill = Spill()

    def write(self, decoded: Decoded) -> pa.Array[Any]:
        """Append records; return the ids of their rows (`_airbyte_raw_id`)."""
        ids, table = self._tables.table(decoded)
        if not decoded.rows:
            return ids
        if self._waiting.bytes and self._waiting.bytes + table.nbytes > self._waiting_bytes:
            self._make_room()
        self._waiting.add(table, self._tables.schema)
        return ids

    def close(self) -> list[DataFile]:
        """Write all rows that wait, and return all files of the unit."""
        for values, rows in self._groups():
            self._files.write(values, [*self._spill.take(values), rows])
            self._files.finish(values)
        for values, tables in self._spill.take_all():
            self._files.write(values, tables)
            self._files.finish(values)
        self._spill.close()
        return self._files.close()

    def abort(self) -> None:
        """Withdraw all files of the unit, and forget the rows that wait."""
        with ExitStack() as steps:
            steps.callback(self._files.abort)
            self._spill.close()

    def _make_room(self) -> None:
        """Write the rows that wait, to files or to disk."""
        for values, rows in self._groups():
            enough = self._spill.bytes_of(values) + rows.bytes >= self._waiting_bytes // 4
            if enough and (values in self._files or len(self._files) < self._most_open):
                self._files.write(values, [*self._spill.take(values), rows])
            else:
                self._spill.add(values, rows)
        self._spill.end_run()

    def _groups(self) -> Iterator[tuple[tuple[PartitionValue, ...], Rows]]:
        """Yield each partition with its rows that wait; none wait then."""
        if not self._waiting.bytes:
            return
        schema = self._waiting.schema
        table = self._waiting.take()
        self._files.use_schema(schema, table)
        if self._plan.sort_order is not None:
            table = in_order(table, self._plan.sort_order)
        groups = by_partition(table, self._fields)
        del table  # It is released as soon as its rows are taken.
        for values, rows in groups:
            yield values, Rows(rows, rows.nbytes)
