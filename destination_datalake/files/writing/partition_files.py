"""The files of a unit by partition: one is open for each, and rolls as files of other units do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyarrow as pa

from destination_datalake.files.formats.registry import FileOpener, extension, opener
from destination_datalake.files.plan import DataFile, FilePlan
from destination_datalake.files.writing.open_file import OpenFile
from destination_datalake.files.writing.sorting import in_order
from destination_datalake.files.writing.tables import FileSchema, Rows
from destination_datalake.files.writing.uploads import Uploads
from destination_datalake.partitioning.spec import PartitionValue

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Arrow bytes of a row group."""

SORTED_ROW_GROUP_BYTES = 16 * 1024 * 1024
"""Arrow bytes of a row group of a sorted file: readers skip the groups whose bounds exclude what they look for."""


class PartitionFiles:
    """Writes rows to the open file of their partition; opens one if there is none."""

    def __init__(self, name: str, plan: FilePlan, s3: S3Client, run_bytes: int) -> None:
        """`run_bytes` is how much of a partition is sorted together at most."""
        self._name = name
        self._plan = plan
        self._s3 = s3
        self._run_bytes = run_bytes
        self._row_group_bytes = ROW_GROUP_BYTES if plan.sort_order is None else SORTED_ROW_GROUP_BYTES
        self._schema: FileSchema | None = None
        self._opener: FileOpener | None = None
        self._open: dict[str, OpenFile] = {}
        self._opened = 0
        self._uploads = Uploads(s3)

    def __len__(self) -> int:
        """Return how many files are open."""
        return len(self._open)

    def __contains__(self, values: tuple[PartitionValue, ...]) -> bool:
        """Return whether a file is open for the partition."""
        return repr(values) in self._open

    def use_schema(self, schema: FileSchema, sample: pa.Table) -> None:
        """Write rows of this schema from now on. Open files of narrower ones end."""
        if schema is self._schema:
            return
        for key in [*self._open]:
            self._finish(key)
        if self._opener is not None:
            self._opener.close()
        self._schema = schema
        self._opener = opener(self._plan.format, self._plan.codec, schema.arrow, sample)

    def write(self, values: tuple[PartitionValue, ...], tables: Sequence[Rows]) -> None:
        """Encode rows of a partition; each table is in the plan's order, if it has one."""
        key = repr(values)
        for run in self._runs(tables):
            begins_run = True
            for piece in _pieces(run, self._row_group_bytes):
                if key not in self._open:
                    self._open[key] = self._new_file(values)
                file = self._open[key]
                file.write_row_group(piece, begins_run=begins_run)
                begins_run = False
                if file.is_complete(self._plan.target_bytes):
                    self._finish(key)

    def finish(self, values: tuple[PartitionValue, ...]) -> None:
        """End the partition's open file."""
        if (key := repr(values)) in self._open:
            self._finish(key)

    def close(self) -> list[DataFile]:
        """End all files and return them when they are uploaded."""
        for key in [*self._open]:
            self._finish(key)
        if self._opener is not None:
            self._opener.close()
        return self._uploads.finish()

    def abort(self) -> None:
        """Withdraw all files."""
        with ExitStack() as steps:
            for file in self._open.values():
                steps.callback(file.abort)
            steps.callback(self._uploads.abort)

    def _runs(self, tables: Sequence[Rows]) -> Iterator[Sequence[Rows]]:
        """Yield the rows in runs, each in the plan's order; without an order they are one."""
        order = self._plan.sort_order
        if order is None or len(tables) == 1:
            yield [self._cast(table) for table in tables]
            return
        for piece in _pieces(map(self._cast, tables), self._run_bytes):
            yield [Rows(in_order(piece.table.combine_chunks(), order), piece.bytes)]

    def _cast(self, rows: Rows) -> Rows:
        assert self._schema is not None
        table, size = rows
        return rows if table.schema.equals(self._schema.arrow) else Rows(table.cast(self._schema.arrow), size)

    def _new_file(self, values: tuple[PartitionValue, ...]) -> OpenFile:
        assert self._schema is not None
        assert self._opener is not None
        plan = self._plan
        folder = plan.folder
        if plan.partitioning is not None and (below := plan.partitioning.path.folder(values)):
            folder = f"{folder}/{below}"
        uri = f"{folder}/{self._name}-{self._opened:04d}{extension(plan.format, plan.codec)}"
        self._opened += 1
        return OpenFile(
            uri,
            self._schema,
            self._opener,
            self._s3,
            deferred=plan.deferred,
            partition=values,
            spec_id=plan.partitioning.spec_id if plan.partitioning is not None else 0,
            is_sorted=plan.sort_order is not None,
        )

    def _finish(self, key: str) -> None:
        self._open[key].end()
        self._uploads.add(self._open.pop(key))


def _pieces(tables: Iterable[Rows], size: int) -> Iterator[Rows]:
    """Yield the same rows in tables of about `size` bytes, without a copy."""
    gathered: list[pa.Table] = []
    gathered_bytes = 0
    for table, table_bytes in tables:
        rows = max(1, table.num_rows * size // max(table_bytes, 1))
        for start in range(0, table.num_rows, rows):
            piece = table.slice(start, rows)
            gathered.append(piece)
            gathered_bytes += table_bytes * piece.num_rows // table.num_rows
            if gathered_bytes >= size:
                yield Rows(pa.concat_tables(gathered), gathered_bytes)
                gathered, gathered_bytes = [], 0
    if gathered:
        yield Rows(pa.concat_tables(gathered), gathered_bytes)
