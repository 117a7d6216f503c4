"""Jobs as DataFrames: ranges of numbers, functions over Arrow batches, and shuffles of payloads.

There are no relations with data of the client's: servers older than the client refuse them.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import mmh3
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from destination_datalake.spark.connect.jobs import mapping, rows
from destination_datalake.spark.connect.jobs.shipping import Shipped
from destination_datalake.spark.connect.jobs.values import InvalidResults
from destination_datalake.spark.executors import arrival
from destination_datalake.spark.executors.python import ExecutorPython
from destination_datalake.spark.executors.work import expected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

OnExecutors = Callable[[Iterable[Any]], Iterable[Any]]
"""Work that `shipped` has made ready."""

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

_PROBED_ROWS = 1 << 16
_HASH_SEED = 42


def shipped(work: Callable[[Iterable[Any]], Iterable[Any]], python: ExecutorPython) -> OnExecutors:
    """Return `work`, which is a function of a module, or a partial one, for executors to compare themselves first."""
    return Shipped(arrival.arrive, pickle.dumps(work), expected(python))


def run(session: SparkSession, work: OnExecutors, tasks: Sequence[bytes], kind: Any) -> list[Any]:
    """Run a Spark task for each of `tasks`; return the results, of the type `kind`, in their order.

    `work` yields bytes (`values.answers`). Raises what PySpark raises, and InvalidResults.
    """
    mapper = Shipped(mapping.run_tasks, work, tasks)
    results = rows.results(_numbers(session, len(tasks)).mapInArrow(mapper, _RESULTS).toArrow(), kind)
    if results.keys() != set(range(len(tasks))):
        raise InvalidResults(f"Spark's answer has the results of {len(results)} of {len(tasks)} tasks.")
    return [result for number in range(len(tasks)) for result in results[number]]


def exchange(
    session: SparkSession,
    produce: OnExecutors,
    tasks: Sequence[bytes],
    consume: OnExecutors,
    partitions: int,
    kind: Any,
) -> list[Any]:
    """Run `produce` on the tasks, shuffle its payloads, and run `consume` on each partition of them: see `run`."""
    mapper = Shipped(mapping.produce_rows, produce, tasks, shuffle_keys(partitions))
    payloads = _numbers(session, len(tasks)).mapInArrow(mapper, _PAYLOADS)
    shuffled = payloads.repartition(partitions, "key").sortWithinPartitions("number")
    results = rows.results(shuffled.mapInArrow(Shipped(mapping.consume_rows, consume), _RESULTS).toArrow(), kind)
    return [result for number in sorted(results) for result in results[number]]


def probe(session: SparkSession, work: OnExecutors) -> int:
    """Run `work` without tasks on as many executors' cores as Spark would use; return how many those are.

    That is what Spark splits a range into: spark.default.parallelism, or the cores of all executors.
    """
    table = session.range(_PROBED_ROWS).mapInArrow(Shipped(mapping.warm_up, work), _RESULTS).toArrow()
    return int(table.num_rows)


def shuffle_keys(partitions: int) -> list[int]:
    """Return for each partition a number that Spark's shuffle sends there, so that no two share a Spark task.

    https://spark.apache.org/docs/latest/api/sql/#hash is Murmur3 with a seed of 42, modulo the number of partitions.
    If it were another function, partitions would only be less even.
    """
    keys: dict[int, int] = {}
    for key in count():
        keys.setdefault(mmh3.hash(struct.pack("<i", key), _HASH_SEED) % partitions, key)
        if len(keys) == partitions:
            return [keys[partition] for partition in range(partitions)]
    raise AssertionError


def _numbers(session: SparkSession, count: int) -> DataFrame:
    """Return the numbers below `count`, each in a partition of its own."""
    return session.range(0, count, 1, count)
