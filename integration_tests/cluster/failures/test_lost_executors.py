"""Executors that are lost in the middle of a job: every acknowledged record is in the table once, whatever they do."""

import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil

from integration_tests.cluster.doors import Cluster
from integration_tests.cluster.harness.aws import Holding, Interfering, executor_at, send_to_all
from integration_tests.conformance.airbyte.orders import COMPLETE, order, orders
from integration_tests.harness.loopback import Request
from integration_tests.harness.messages import state
from integration_tests.harness.warehouse import Warehouse

LINES = [*(order(id) for id in range(100)), state("orders", 100)]


def test_an_executor_that_is_killed_is_replaced_and_nothing_is_missing_or_twice(
    warehouse: Warehouse, cluster: Cluster
) -> None:
    """It is killed while it uploads; what it has uploaded by then is no part of the table."""

    def kill(request: Request) -> None:
        executor = executor_at(request.port, cluster.executors())
        assert executor is not None
        send_to_all(executor, signal.SIGKILL)
        executor.wait(30)

    with Interfering(warehouse.lake.endpoint_url, kill) as aws:
        run = warehouse.sync([orders()], [*LINES, COMPLETE], endpoint_url=aws.endpoint_url)

    assert aws.done
    assert len(run.states) == 1
    assert warehouse.ids("orders") == list(range(100))
    # A Connect server does not tell its clients.
    if "master" in cluster.option:
        assert any(log.startswith("WARN: Spark lost executor ") for log in run.logs)


def test_a_lost_attempt_that_comes_back_after_the_commit_changes_nothing(
    warehouse: Warehouse, cluster: Cluster
) -> None:
    """An executor sleeps in the middle of an upload until another one has done its work, and then goes on."""
    asleep: list[psutil.Process] = []

    def freeze(port: int) -> None:
        executor = executor_at(port, cluster.executors())
        assert executor is not None
        asleep.extend(send_to_all(executor, signal.SIGSTOP))

    with (
        Holding(warehouse.lake.endpoint_url, freeze) as aws,
        warehouse.start([orders()], endpoint_url=aws.endpoint_url, flush_interval_seconds=1) as running,
    ):
        running.send(LINES)
        assert aws.came.wait(120)
        # Given that others have done its work
        running.wait_for_state()
        committed = contents(warehouse)

        # When it wakes up, and its upload arrives. Spark may have killed its JVM by now, which leaves its workers.
        for process in asleep:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        aws.released.set()
        assert aws.arrived.wait(60)
        running.send([order(100), state("orders", 101), COMPLETE])
        run = running.close()

    assert run.exit_code == 0, run.report()
    assert len(run.states) == 2
    assert contents(warehouse).items() >= committed.items()
    assert warehouse.ids("orders") == list(range(101))


def contents(warehouse: Warehouse) -> Mapping[str, Any]:
    """Return what the table's data files consist of: their entity tags, by key."""
    keys = warehouse.lake.data_files(warehouse.lake.database, "orders")
    bucket = warehouse.lake.bucket
    return {key: warehouse.lake.s3.head_object(Bucket=bucket, Key=key)["ETag"] for key in keys}
