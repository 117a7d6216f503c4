"""What runs in Spark's Python workers around the connector's work: rows in, rows out.

This module is sent as source (`executors.python.Shipped`): it is there before the connector has been found. It uses
Python's standard library and Arrow, which Spark itself needs; what is not in the standard library is imported inside of
functions.

A number is a task's, or that of a partition of a shuffle. Its results are bytes (`connect.values`), and cut into rows
that no limit of gRPC's refuses, each with the number of them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    Batches = Iterator[pa.RecordBatch]

_ROW_BYTES = 1024 * 1024
"""Servers send batches of rows in messages of 4 MiB (spark.connect.grpc.arrow.maxBatchSize), but never split a row."""


def run_tasks(work: Callable[[Iterable[Any]], Iterable[bytes]], tasks: Sequence[bytes], batches: Batches) -> Batches:
    """Run the task of each row's number; yield the rows of its results."""
    for number in numbers(batches):
        yield from result_rows(number, b"".join(work(unpacked(tasks[number]))))


def warm_up(work: Callable[[Iterable[Any]], Iterable[bytes]], batches: Batches) -> Batches:
    """Run no task once for all rows of a partition; yield a row for the partition."""
    counted = sum(batch.num_rows for batch in batches)
    if counted:
        yield from result_rows(0, b"".join(work(())))


def produce_rows(
    work: Callable[[Iterable[Any]], Iterable[tuple[int, bytes]]],
    tasks: Sequence[bytes],
    keys: Sequence[int],
    batches: Batches,
) -> Batches:
    """Run the task of each row's number; yield a row for each payload, with the key of the payload's partition."""
    import pyarrow as pa

    for number in numbers(batches):
        for partition, payload in work(unpacked(tasks[number])):
            key, place = pa.array([keys[partition]], pa.int32()), pa.array([partition], pa.int32())
            yield pa.record_batch([key, place, pa.array([payload], pa.binary())], names=["key", "number", "data"])


def consume_rows(work: Callable[[Iterable[Any]], Iterable[tuple[int, bytes]]], batches: Batches) -> Batches:
    """Run the work on the payloads of each partition; rows are sorted by it. Yield the rows of the results."""
    from itertools import groupby

    rows = ((n.as_py(), d.as_py()) for batch in batches for n, d in zip(batch.column(1), batch.column(2), strict=True))
    groups = ((number, (data for _, data in group)) for number, group in groupby(rows, lambda row: row[0]))
    for number, data in work(groups):
        yield from result_rows(number, data)


def numbers(batches: Batches) -> Iterator[int]:
    """Yield the numbers in the first column."""
    for batch in batches:
        yield from (number.as_py() for number in batch.column(0))


def unpacked(task: bytes) -> Iterator[Any]:
    """Yield the task. It is unpickled only when it is asked for: the connector must have been found before."""
    import pickle
    import zlib

    yield pickle.loads(zlib.decompress(task))


def result_rows(number: int, data: bytes) -> Batches:
    """Yield the rows of the results, a record batch for each; one row if there are none."""
    import pyarrow as pa

    parts = range(0, len(data) or 1, _ROW_BYTES)
    for part, start in enumerate(parts):
        place = [pa.array([value], pa.int32()) for value in (number, part, len(parts))]
        chunk = pa.array([data[start : start + _ROW_BYTES]], pa.binary())
        yield pa.record_batch([*place, chunk], names=["number", "part", "parts", "data"])
