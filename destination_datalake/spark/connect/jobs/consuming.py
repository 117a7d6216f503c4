"""The consuming side of a shuffle on executors, once the connector has been found there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from destination_datalake.spark.backend import Consume, Result
from destination_datalake.spark.connect.jobs.values import encode


def consume_partitions(
    consume: Consume[Result], partitions: Iterable[tuple[int, Iterator[bytes]]]
) -> Iterator[tuple[int, bytes]]:
    """Yield the results of each partition, encoded."""
    for number, payloads in partitions:
        yield number, encode(list(consume(number, payloads)))
