"""Run the connector's functions in Spark's Python workers. Convert rows to tasks, and results to rows.

The driver sends this module to executors as source code (`executors.python.Shipped`), because its code runs before
`preflight` checks whether the connector is installed. This module uses only Python's standard library and Arrow, which
Spark needs too. Functions import Arrow when they run.

The number in a row identifies a task, or a partition of a shuffle. Results are bytes (see `connect.values`). This
module splits the results into parts that are smaller than gRPC's limits. Each part becomes a row with the number of the
part and the total number of parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    Batches = Iterator[pa.RecordBatch]

_ROW_BYTES = 1024 * 1024
"""Maximum size, in bytes, of the results in one row. Servers send batches of rows in messages of 4 MiB
(spark.connect.grpc.arrow.maxBatchSize), but never split a row."""


def run_tasks(work: Callable[[Iterable[Any]], Iterable[bytes]], tasks: Sequence[bytes], batches: Batches) -> Batches:
    """Run `work` on the task that each row identifies. Yield the results of each task as rows."""
    for number in numbers(batches):
        yield from result_rows(number, b"".join(work(unpacked(tasks[number]))))


def warm_up(work: Callable[[Iterable[Any]], Iterable[bytes]], batches: Batches) -> Batches:
    """Run `work` without tasks, once per partition. Yield one row for each partition that contains rows."""
    counted = sum(batch.num_rows for batch in batches)
    if counted:
        yield from result_rows(0, b"".join(work(())))


def produce_rows(
    work: Callable[[Iterable[Any]], Iterable[tuple[int, bytes]]],
    tasks: Sequence[bytes],
    keys: Sequence[int],
    batches: Batches,
) -> Batches:
    """Run `work` on the task that each row identifies. Yield one row per payload.

    Each yielded row contains the shuffle key of the payload's partition, the number of the partition, and the payload.
    `keys` contains the key of each partition.
    """
    import pyarrow as pa

    for number in numbers(batches):
        for partition, payload in work(unpacked(tasks[number])):
            key, place = pa.array([keys[partition]], pa.int32()), pa.array([partition], pa.int32())
            yield pa.record_batch([key, place, pa.array([payload], pa.binary())], names=["key", "number", "data"])


def consume_rows(work: Callable[[Iterable[Any]], Iterable[tuple[int, bytes]]], batches: Batches) -> Batches:
    """Run `work` on the payloads of each partition. Yield the results as rows.

    The input rows must be sorted by the number of their partition.
    """
    from itertools import groupby

    rows = ((n.as_py(), d.as_py()) for batch in batches for n, d in zip(batch.column(1), batch.column(2), strict=True))
    groups = ((number, (data for _, data in group)) for number, group in groupby(rows, lambda row: row[0]))
    for number, data in work(groups):
        yield from result_rows(number, data)


def numbers(batches: Batches) -> Iterator[int]:
    """Yield the numbers in the first column of all batches."""
    for batch in batches:
        yield from (number.as_py() for number in batch.column(0))


def unpacked(task: bytes) -> Iterator[Any]:
    """Yield a single task, from its packed form.

    The iteration unpickles the task. `preflight` starts the iteration only after it has verified that the connector is
    installed.
    """
    import pickle
    import zlib

    yield pickle.loads(zlib.decompress(task))


def result_rows(number: int, data: bytes) -> Batches:
    """Yield encoded results as rows, one per record batch. If `data` is empty, yield one row with empty data."""
    import pyarrow as pa

    parts = range(0, len(data) or 1, _ROW_BYTES)
    for part, start in enumerate(parts):
        place = [pa.array([value], pa.int32()) for value in (number, part, len(parts))]
        chunk = pa.array([data[start : start + _ROW_BYTES]], pa.binary())
        yield pa.record_batch([*place, chunk], names=["number", "part", "parts", "data"])
