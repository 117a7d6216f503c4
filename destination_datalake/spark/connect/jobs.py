"""Run jobs on Spark Connect as DataFrames: ranges of numbers, functions over Arrow batches, and shuffles of payloads.

An input row contains only the number of a task. The tasks themselves are arguments of the functions. Output rows
contain the results as bytes. Executors run the functions in `connect.mapping`. Jobs do not use local relations (tables
that the client sends with a query), because servers that are older than the client reject them.
"""

from __future__ import annotations

import itertools
import pickle
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import mmh3
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from destination_datalake.spark.connect import mapping
from destination_datalake.spark.connect.values import InvalidResults, decode
from destination_datalake.spark.executors.python import Shipped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

OnExecutors = Callable[[Iterable[Any]], Iterable[Any]]
"""A function in the form that Spark can send to executors (see `executors.python.shipped`)."""

_RESULTS = StructType(
    [
        StructField("number", IntegerType()),
        StructField("part", IntegerType()),
        StructField("parts", IntegerType()),
        StructField("data", BinaryType()),
    ]
)
_PAYLOADS = StructType(
    [StructField("key", IntegerType()), StructField("number", IntegerType()), StructField("data", BinaryType())]
)

JOB_BYTES = 48 * 1024 * 1024
"""Maximum total size of the packed tasks in one job, in bytes. Spark Connect limits a request to 128 MiB
(spark.connect.grpc.maxInboundMessageSize)."""

_PROBED_ROWS = 1 << 16
_HASH_SEED = 42


def run(session: SparkSession, work: OnExecutors, tasks: Sequence[bytes], kind: Any) -> list[Any]:
    """Run one Spark task per item of `tasks`, which are packed tasks. Return all results, in the order of the tasks.

    `work` yields encoded results (see `values.answers`), which must decode to values of the type `kind`. Raises
    PySpark's errors, and InvalidResults if results are missing or invalid.
    """
    mapper = Shipped(mapping.run_tasks, work, tasks)
    results = results_of(_numbers(session, len(tasks)).mapInArrow(mapper, _RESULTS).toArrow(), kind)
    if results.keys() != set(range(len(tasks))):
        raise InvalidResults(f"Spark returned results of {len(results)} instead of {len(tasks)} tasks.")
    return [result for number in range(len(tasks)) for result in results[number]]


def exchange(
    session: SparkSession,
    produce: OnExecutors,
    tasks: Sequence[bytes],
    consume: OnExecutors,
    partitions: int,
    kind: Any,
) -> list[Any]:
    """Run `produce` on the packed tasks, shuffle the payloads, and run `consume` on each partition. Return the results.

    The results are in the order of the partitions. Raises the same errors as `run`.
    """
    mapper = Shipped(mapping.produce_rows, produce, tasks, shuffle_keys(partitions))
    payloads = _numbers(session, len(tasks)).mapInArrow(mapper, _PAYLOADS)
    # A Spark task may get several partitions, and `consume_rows` needs the payloads of each one together.
    shuffled = payloads.repartition(partitions, "key").sortWithinPartitions("number")
    results = results_of(shuffled.mapInArrow(Shipped(mapping.consume_rows, consume), _RESULTS).toArrow(), kind)
    return [result for number in sorted(results) for result in results[number]]


def probe(session: SparkSession, work: OnExecutors) -> int:
    """Run `work` without tasks on all cores, which starts the Python workers. Return the number of cores.

    Counts the partitions of a range of numbers. Spark splits a range into one partition per core of all executors, or
    into the number of partitions in spark.default.parallelism.
    """
    table = session.range(_PROBED_ROWS).mapInArrow(Shipped(mapping.warm_up, work), _RESULTS).toArrow()
    return int(table.num_rows)


def packed(tasks: Sequence[Any]) -> list[bytes]:
    """Pickle and compress each task, so that executors can unpack tasks one by one."""
    return [zlib.compress(pickle.dumps(task), 1) for task in tasks]


def jobs_of(tasks: Sequence[bytes], limit: int = JOB_BYTES) -> Iterator[Sequence[bytes]]:
    """Split packed tasks into jobs, so that each request contains at most `limit` bytes of tasks.

    A task that exceeds the limit becomes a job of its own. Usually, all tasks fit in a single job.
    """
    start, size = 0, 0
    for number, task in enumerate(tasks):
        if size and size + len(task) > limit:
            yield tasks[start:number]
            start, size = number, 0
        size += len(task)
    if size:
        yield tasks[start:]


def results_of(table: pa.Table, kind: Any) -> dict[int, list[Any]]:
    """Join and decode the results in the output rows of a job. Return the results by the number in their rows.

    The number identifies a task, or a partition of a shuffle. Raises InvalidResults if a part of the results is
    missing, or if a result is not of the type `kind`.
    """
    parts: dict[int, dict[int, bytes]] = defaultdict(dict)
    expected: dict[int, int] = {}
    for number, part, count, data in zip(*(table.column(i).to_pylist() for i in range(4)), strict=True):
        parts[number][part] = data
        expected[number] = count
    for number, received in parts.items():
        if received.keys() != set(range(expected[number])):
            raise InvalidResults(
                f"Spark returned {len(received)} instead of {expected[number]} parts of the results of task {number}"
            )
    joined = {number: b"".join(chunks[part] for part in sorted(chunks)) for number, chunks in sorted(parts.items())}
    return {number: decode(data, kind) if data else [] for number, data in joined.items()}


def shuffle_keys(partitions: int) -> list[int]:
    """Return one key for each partition, in the order of the partitions.

    Spark's shuffle sends the rows with a key to the partition of the key, so each partition gets its own Spark task.
    Spark's hash function is Murmur3 with the seed 42 (https://spark.apache.org/docs/latest/api/sql/#hash), modulo the
    number of partitions. If a server used another hash function, several partitions would share a task. The job would
    then only be slower.
    """
    keys: dict[int, int] = {}
    for key in itertools.count():
        keys.setdefault(mmh3.hash(struct.pack("<i", key), _HASH_SEED) % partitions, key)
        if len(keys) == partitions:
            return [keys[partition] for partition in range(partitions)]
    raise AssertionError


def _numbers(session: SparkSession, count: int) -> DataFrame:
    """Return a DataFrame of the numbers from 0 to `count` - 1, each in its own partition."""
    return session.range(0, count, 1, count)
