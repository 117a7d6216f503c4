"""Tasks and results as bytes, on the driver's side; `jobs.mapping` is the executors'."""

from __future__ import annotations

import pickle
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from destination_datalake.spark.connect.jobs.values import InvalidResults, decode

if TYPE_CHECKING:
    import pyarrow as pa

JOB_BYTES = 48 * 1024 * 1024
"""The most bytes of tasks in one job: a request may have 128 MiB (spark.connect.grpc.maxInboundMessageSize)."""


def packed(tasks: Sequence[Any]) -> list[bytes]:
    """Return each task as bytes, which executors unpack one by one."""
    return [zlib.compress(pickle.dumps(task), 1) for task in tasks]


def jobs_of(tasks: Sequence[bytes], limit: int = JOB_BYTES) -> Iterator[Sequence[bytes]]:
    """Yield the tasks in as many jobs as the size of a request asks for: one, unless they are huge or many."""
    start, size = 0, 0
    for number, task in enumerate(tasks):
        if size and size + len(task) > limit:
            yield tasks[start:number]
            start, size = number, 0
        size += len(task)
    if size:
        yield tasks[start:]


def results(table: pa.Table, kind: Any) -> dict[int, list[Any]]:
    """Return the results by number, of the rows of a job, each of the type `kind`. Raises InvalidResults."""
    parts: dict[int, dict[int, bytes]] = defaultdict(dict)
    expected: dict[int, int] = {}
    for number, part, count, data in zip(*(table.column(i).to_pylist() for i in range(4)), strict=True):
        parts[number][part] = data
        expected[number] = count
    for number, found in parts.items():
        if found.keys() != set(range(expected[number])):
            raise InvalidResults(f"{len(found)} of {expected[number]} parts of the results of task {number}")
    joined = {number: b"".join(found[part] for part in sorted(found)) for number, found in sorted(parts.items())}
    return {number: decode(data, kind) if data else [] for number, data in joined.items()}
