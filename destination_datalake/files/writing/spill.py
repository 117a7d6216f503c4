"""Rows that wait on the local disk for the end of their unit, by partition.

They are written as Arrow IPC, one file for all rows that leave memory at a time, and mapped into memory to be read.
The files have no names, so the system removes them when the process ends, however it ends.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.writing.tables import Rows
from destination_datalake.partitioning.spec import PartitionValue
from destination_datalake.unforeseen import exhaustion

_BUFFER_BYTES = 1024 * 1024


class SpillFailed(ConnectorError):
    """The disk cannot be written, for a reason that may pass."""


class _Batch(NamedTuple):
    run: int
    number: int
    bytes: int


class _Partition(NamedTuple):
    values: tuple[PartitionValue, ...]
    batches: list[_Batch]


class Spill:
    """Rows on disk, by partition, in the order in which they were added.

    Values of partitions are told apart by their `repr`: 0.0 and -0.0 are equal, and NaN is not.
    """

    def __init__(self, directory: Path | None = None) -> None:
        """Write nothing yet. Without a directory, Spark's own is taken, or that for temporary files."""
        self._directory = directory or spark_directory() or Path(tempfile.gettempdir())
        self._partitions: dict[str, _Partition] = {}
        self._runs: list[pa.RecordBatchFileReader] = []
        self._file: Any = None  # Its type is private to `tempfile`.
        self._writer: pa.RecordBatchFileWriter | None = None
        self._written = 0

    def bytes_of(self, values: tuple[PartitionValue, ...]) -> int:
        """Return how many bytes of a partition's rows are on disk, as in memory."""
        found = self._partitions.get(repr(values))
        return sum(batch.bytes for batch in found.batches) if found is not None else 0

    def add(self, values: tuple[PartitionValue, ...], rows: Rows) -> None:
        """Append rows of a partition, at least one. All rows until `end_run` have one schema. Raises SpillFailed."""
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
        """Make what was added readable. Raises SpillFailed."""
        if self._file is None or self._writer is None:
            return
        with self._disk_errors():
            self._writer.close()
            self._file.flush()
            mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            self._file.close()
        self._runs.append(pa.ipc.open_file(pa.py_buffer(mapped)))
        self._file = self._writer = None

    def take(self, values: tuple[PartitionValue, ...]) -> list[Rows]:
        """Return the rows of a partition, mapped into memory, and forget them. Those since `end_run` are not there."""
        found = self._partitions.pop(repr(values), None)
        return self._read(found.batches) if found is not None else []

    def take_all(self) -> Iterator[tuple[tuple[PartitionValue, ...], list[Rows]]]:
        """Yield each partition with its rows, and forget it."""
        while self._partitions:
            values, batches = self._partitions.pop(next(iter(self._partitions)))
            yield values, self._read(batches)

    def close(self) -> None:
        """Forget all rows, and free the disk. Idempotent."""
        self._partitions.clear()
        self._runs.clear()
        if self._file is not None:
            with suppress(OSError):  # What a full disk did not take is not wanted any more.
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
            where = f"The disk on which rows wait for files of their partitions ({self._directory})"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                message = (
                    f"{where} is full. Set TMPDIR (for executors of a cluster, spark.local.dir) to a folder on a "
                    "larger disk, or lower batch_size_mb."
                )
            elif (exhausted := exhaustion(error)) is not None:
                message = f"Rows cannot wait for files of their partitions. {exhausted}"
            else:
                reason = os.strerror(error.errno or errno.EIO)
                message = f"{where} failed: {reason}. Set TMPDIR to a folder that can be written."
            raise SpillFailed(Failure(message, str(error), "transient_error")) from error


def spark_directory() -> Path | None:
    """Return one of the folders that Spark gives its Python workers (`spark.local.dir`), or None elsewhere."""
    folders = [folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if folder]
    return Path(folders[os.getpid() % len(folders)]) if folders else None
