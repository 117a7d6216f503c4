"""What the engine returns for the units of a job whose Python worker dies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moto import mock_aws

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.files.plan import Encoded, EncodeTask, EncodeUnit, FilePlan, NotEncoded
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import RejectLocation
from destination_datalake.spark.backend import JobFailed, JobsProgress
from destination_datalake.spark.engine import Engine

ORDERS, USERS, ITEMS = (StreamId("shop", name) for name in ("orders", "users", "items"))
ACCESS = AwsAccess("us-east-1", AccessKeys("AKIAIOSFODNN7EXAMPLE", "not-a-secret-of-anybody"))
PLAN = FilePlan("parquet", "ZSTD", (), {}, "s3://lake/shop", False, 1_000_000, None, None)


class DyingWorkers:
    """A Spark in this process. Its Python worker dies whenever it encodes a unit of one of the streams."""

    is_local = True
    application_id: str | None = None

    def __init__(self, *streams: StreamId) -> None:
        self._streams = streams
        self.jobs: list[list[StreamId]] = []

    def start(self) -> None: ...

    def ended(self) -> None: ...

    def parallelism(self) -> int:
        return 1

    def run(self, work: Any, tasks: Sequence[Any]) -> list[Any]:
        self.jobs.append([unit.stream for task in tasks for unit in task.units])
        if not set(self._streams).isdisjoint(self.jobs[-1]):
            raise JobFailed("Python worker exited unexpectedly (crashed)")
        return [*work(tasks)]

    def exchange(self, *_: Any) -> list[Any]:
        raise AssertionError

    def progress(self) -> JobsProgress:
        return JobsProgress()

    def stop(self, *, orderly: bool) -> None: ...


def encoded(spark: DyingWorkers, *streams: StreamId) -> list[tuple[StreamId, type]]:
    rejects = RejectLocation("s3://lake/_errors", "run", "2026-11-21", "shop", "orders")
    units = tuple(EncodeUnit(stream, stream.name, (), PLAN, rejects) for stream in streams)
    engine = Engine.start(spark)
    with mock_aws():
        results = engine.encode([EncodeTask(units[:2], ACCESS), EncodeTask(units[2:], ACCESS)])
    engine.stop()
    return [(result.stream, type(result)) for result in results]


def test_units_of_a_failed_job_are_retried_one_by_one() -> None:
    spark = DyingWorkers(USERS)

    results = encoded(spark, ORDERS, USERS, ITEMS)

    assert results == [(ORDERS, Encoded), (USERS, NotEncoded), (ITEMS, Encoded)]
    assert spark.jobs == [[ORDERS, USERS, ITEMS], [ORDERS], [USERS], [ITEMS]]


def test_the_only_unit_of_a_failed_job_is_not_retried() -> None:
    spark = DyingWorkers(ORDERS)

    assert encoded(spark, ORDERS) == [(ORDERS, NotEncoded)]
    assert spark.jobs == [[ORDERS]]
