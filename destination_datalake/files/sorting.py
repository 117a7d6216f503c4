"""Sort rows in memory, or by an external merge sort if the rows do not fit in memory.

The order is Iceberg's (Iceberg spec: Sorting): NaN sorts above all numbers. This module spills rows to the local disk
as Arrow IPC files, and maps these files into memory to read them. The files have no names, so the operating system
deletes them when the process ends, even if the process is killed.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.block_tables import Rows
from destination_datalake.partitioning.spec import PartitionValue, SortField, SortOrder
from destination_datalake.partitioning.transforms import source_values, transformed
from destination_datalake.unforeseen import exhaustion

_BUFFER_BYTES = 1024 * 1024


class SpillFailed(ConnectorError):
    """Raised if rows cannot be written to the local disk, for example because it is full. A retry may succeed."""


class _Batch(NamedTuple):
    run: int
    number: int
    bytes: int


class _Partition(NamedTuple):
    values: tuple[PartitionValue, ...]
    batches: list[_Batch]


class Spill:
    """Stores rows on the local disk, grouped by partition. Keeps the order in which the caller added the rows.

    Call `add` any number of times, then `end_run` to make the added rows readable, then `take` or `take_all`. The
    `repr` of a partition's values identifies the partition. The values themselves cannot identify it, because 0.0
    equals -0.0, and NaN does not equal itself.
    """

    def __init__(self, directory: Path | None = None) -> None:
        """Create an object without rows. The first call of `add` creates a file in `directory`.

        The default directory is Spark's local directory or, outside of Spark, the temporary directory.
        """
        self._directory = directory or spark_directory() or Path(tempfile.gettempdir())
        self._partitions: dict[str, _Partition] = {}
        self._runs: list[pa.RecordBatchFileReader] = []
        self._file: Any = None  # Its type is private to `tempfile`.
        self._writer: pa.RecordBatchFileWriter | None = None
        self._written = 0

    def bytes_of(self, values: tuple[PartitionValue, ...]) -> int:
        """Return the size, in bytes, that the stored rows of a partition had in memory before they were spilled."""
        partition = self._partitions.get(repr(values))
        return sum(batch.bytes for batch in partition.batches) if partition is not None else 0

    def add(self, values: tuple[PartitionValue, ...], rows: Rows) -> None:
        """Append the rows of a non-empty table to a partition.

        Between two calls of `end_run`, all tables must have the same schema. Raises SpillFailed.
        """
        with self._disk_errors():
            if self._file is None or self._writer is None:
                self._file = tempfile.TemporaryFile(dir=self._directory, buffering=_BUFFER_BYTES)  # noqa: SIM115
                self._writer = pa.ipc.new_file(self._file, rows.table.schema)
                self._written = 0
            batches = self._partitions.setdefault(repr(values), _Partition(values, [])).batches
            for batch in rows.table.to_batches():
                self._writer.write_batch(batch)
                size = rows.bytes * batch.num_rows // rows.table.num_rows
                batches.append(_Batch(len(self._runs), self._written, size))
                self._written += 1

    def end_run(self) -> None:
        """Make all added rows readable by `take`. Raises SpillFailed."""
        if self._file is None or self._writer is None:
            return
        with self._disk_errors():
            self._writer.close()
            self._file.flush()
            # The mapping keeps the file on the disk until the last table that refers to it is gone.
            mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            self._file.close()
        self._runs.append(pa.ipc.open_file(pa.py_buffer(mapped)))
        self._file = self._writer = None

    def take(self, values: tuple[PartitionValue, ...]) -> list[Rows]:
        """Remove the rows of a partition from this object, and return them as memory-mapped tables.

        Call `end_run` between the last call of `add` and this method.
        """
        partition = self._partitions.pop(repr(values), None)
        return self._read(partition.batches) if partition is not None else []

    def take_all(self) -> Iterator[tuple[tuple[PartitionValue, ...], list[Rows]]]:
        """Remove all rows from this object. Yield each partition's values, and its rows as memory-mapped tables.

        Call `end_run` between the last call of `add` and this method.
        """
        while self._partitions:
            values, batches = self._partitions.pop(next(iter(self._partitions)))
            yield values, self._read(batches)

    def close(self) -> None:
        """Discard all rows and free the disk space. May be called repeatedly."""
        self._partitions.clear()
        self._runs.clear()
        if self._file is not None:
            with suppress(OSError):  # Closing writes the buffer, which fails on a full disk.
                self._file.close()
        self._file = self._writer = None

    def _read(self, batches: Sequence[_Batch]) -> list[Rows]:
        return [
            Rows(pa.Table.from_batches([self._runs[batch.run].get_batch(batch.number)]), batch.bytes)
            for batch in batches
        ]

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = f"The disk for spilled rows of partitions ({self._directory})"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                message = (
                    f"{where} is full. Set TMPDIR (on executors of a cluster: spark.local.dir) to a folder on a "
                    "larger disk, or lower batch_size_mb."
                )
            elif (exhausted := exhaustion(error)) is not None:
                message = f"Cannot write spilled rows of partitions to disk. {exhausted}"
            else:
                reason = os.strerror(error.errno or errno.EIO)
                message = (
                    f"{where} failed: {reason}. Set TMPDIR (on executors of a cluster: spark.local.dir) to a writable "
                    "folder."
                )
            raise SpillFailed(Failure(message, str(error), "transient_error")) from error


def spark_directory() -> Path | None:
    """Return one of the local folders that Spark assigns to its Python workers (`spark.local.dir`).

    Returns None outside of Spark.
    """
    folders = [folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if folder]
    # Spark names one folder per disk. The processes use different disks.
    return Path(folders[os.getpid() % len(folders)]) if folders else None


RUN_BYTES = 48 * 1024 * 1024
"""Size, in Arrow bytes, of the rows that are sorted together in memory. Sorting takes twice this memory."""

_MERGED_BYTES = 32 * 1024 * 1024
"""Maximum size, in Arrow bytes, of the rows that a merge keeps in memory for all its runs together."""


def in_order(table: pa.Table, order: SortOrder) -> pa.Table:
    """Return the rows sorted by `order`. The sort is stable.

    Compares strings by code point. If the table lacks a column of the order, treats the column as null in all rows. If
    the rows are already in order, returns `table` itself.
    """
    positions = sorted_positions(table, order)
    if (positions[1:] > positions[:-1]).all():
        return table
    return table.take(positions)


def sorted_positions(table: pa.Table, order: SortOrder) -> npt.NDArray[np.uint64]:
    """Return the positions of the table's rows, sorted by `order`. The sort is stable."""
    keys: dict[str, pa.Array[Any]] = {}
    directions: list[tuple[str, str]] = []
    for number, field in enumerate(order.fields):
        for name, key, direction in _keys(table, field):
            keys[f"{number}{name}"] = key
            directions.append((f"{number}{name}", direction))
    if not directions:
        return np.arange(table.num_rows, dtype=np.uint64)
    indices: Any = pc.sort_indices(pa.table(keys), sort_keys=directions)  # type: ignore[arg-type]
    positions: npt.NDArray[np.uint64] = indices.to_numpy()
    return positions


def _keys(table: pa.Table, field: SortField) -> list[tuple[str, Any, str]]:
    """Return the names, values and directions of Arrow's sort keys for one field of the order.

    Arrow supports only one placement of nulls for all keys, and sorts NaN next to the nulls. If the field has nulls or
    NaN, this function therefore puts additional keys before the values: whether a value is null, and whether it is NaN.
    """
    values: Any = transformed(source_values(table, field.source), field.transform)
    direction = "ascending" if field.ascending else "descending"
    keys = []
    if values.null_count:
        # Arrow places nulls after all values, so this key comes first.
        keys.append(("null", values.is_null(), "descending" if field.nulls_first else "ascending"))
    # A constant key does not change the order.
    if values.null_count == len(values):
        return []
    # Most columns have no NaN, and each additional key slows down the sort.
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        keys.append(("nan", pc.is_nan(values), direction))
    return [*keys, ("value", values, direction)]


class MergeSort:
    """An external merge sort of rows of one schema. Call `add` for all rows, iterate over `rows()`, then call `close`.

    When the rows in memory reach `run_bytes`, the class sorts them and spills them to disk as a run. If the rows never
    reach this limit, the class spills nothing. `merged_bytes` limits the memory for the buffers of all runs together.
    """

    def __init__(self, order: SortOrder, run_bytes: int = RUN_BYTES, merged_bytes: int = _MERGED_BYTES) -> None:
        self._order = order
        self._run_bytes = run_bytes
        self._merged_bytes = merged_bytes
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._spill = Spill()
        self._runs: list[Rows] = []
        """For each run, its memory-mapped rows, and the size that these rows had in memory."""

    def add(self, table: pa.Table) -> None:
        """Add the rows of a non-empty table. Raises SpillFailed."""
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= self._run_bytes:
            self._end_run()

    def rows(self) -> Iterator[pa.Table]:
        """Yield all rows in order, in one or more tables. Do not call `add` afterwards. Raises SpillFailed."""
        if self._runs and self._waiting:
            self._end_run()
        if self._runs:
            yield from self._merged()
        elif self._waiting:
            yield self._take_waiting()

    def close(self) -> None:
        """Discard all rows on disk and free the disk space. May be called repeatedly."""
        self._spill.close()
        self._runs.clear()

    def _take_waiting(self) -> pa.Table:
        table = in_order(pa.concat_tables(self._waiting), self._order)
        self._waiting.clear()
        self._waiting_bytes = 0
        return table

    def _end_run(self) -> None:
        size, key = self._waiting_bytes, (len(self._runs),)
        self._spill.add(key, Rows(self._take_waiting(), size))
        self._spill.end_run()
        self._runs.append(Rows(pa.concat_tables(rows.table for rows in self._spill.take(key)), size))

    def _merged(self) -> Iterator[pa.Table]:
        runs = [_Run(run, self._merged_bytes // len(self._runs)) for run in self._runs]
        while runs:
            yield self._next(runs)
            runs = [run for run in runs if run.fill()]

    def _next(self, runs: list[_Run]) -> pa.Table:
        """Remove the next rows from the buffers of the runs. Return these rows in order.

        A run may have more rows on disk. All of these rows sort after the last row in the run's buffer. This method
        therefore compares the last buffered rows of all such runs, and returns only rows up to the lowest of them.
        """
        candidates = self._candidates(runs)
        table = pa.concat_tables(run.buffer for run in candidates)
        # `table` contains the buffers one after the other: buffer i ends before position `ends[i]`.
        ends = np.cumsum([run.buffer.num_rows for run in candidates])
        positions = sorted_positions(table, self._order)
        # The position of the last buffered row of each run that has more rows on disk.
        bounds = [end - 1 for end, run in zip(ends, candidates, strict=True) if run.has_more]
        # In sort order, take the rows up to the first of these.
        count = int(np.flatnonzero(np.isin(positions, bounds))[0]) + 1 if bounds else table.num_rows
        # `searchsorted` returns the buffer that contains a position, and `bincount` the rows taken from each buffer.
        taken = np.bincount(np.searchsorted(ends, positions[:count], side="right"), minlength=len(candidates))
        for run, rows in zip(candidates, taken, strict=True):
            run.buffer = run.buffer.slice(int(rows))
        # The rows of a single run are in order, so a slice without a copy is enough.
        if len(candidates) == 1:
            return table.slice(0, count)
        return table.take(positions[:count])

    def _candidates(self, runs: list[_Run]) -> list[_Run]:
        """Return the runs whose buffers may contain some of the rows that `_next` returns.

        If the caller added the rows in sorted order, the result is usually a single run.
        """
        if not any(run.has_more for run in runs):
            return runs
        # Sort two kinds of rows together: the first row of every buffer, and the last row of each buffer whose run has
        # more rows on disk. A run is a candidate if its first row sorts before all of these last rows.
        last = [run.buffer.slice(run.buffer.num_rows - 1) for run in runs if run.has_more]
        edges = pa.concat_tables([*(run.buffer.slice(0, 1) for run in runs), *last])
        # Only the columns of the order decide. Other columns may be large.
        edges = edges.select(sorted({field.source[0] for field in self._order.fields} & set(edges.column_names)))
        positions = sorted_positions(edges, self._order).tolist()
        # Rows below len(runs) are first rows. A run that begins after the lowest last row has none of the next rows.
        before = set(positions[: next(index for index, row in enumerate(positions) if row >= len(runs))])
        return [run for number, run in enumerate(runs) if number in before]


class _Run:
    """A sorted run during the merge: the rows in its buffer in memory, and its remaining blocks on disk."""

    def __init__(self, rows: Rows, buffer_bytes: int) -> None:
        count = max(1, rows.table.num_rows * buffer_bytes // max(rows.bytes, 1))
        starts = range(0, rows.table.num_rows, count)
        self._blocks = deque(rows.table.slice(start, count) for start in starts)
        self.buffer = self._blocks.popleft()

    @property
    def has_more(self) -> bool:
        return bool(self._blocks)

    def fill(self) -> bool:
        """Refill the buffer if it is empty and blocks remain on disk. Return whether the buffer now has rows."""
        if not self.buffer.num_rows and self._blocks:
            self.buffer = self._blocks.popleft()
        return self.buffer.num_rows > 0
