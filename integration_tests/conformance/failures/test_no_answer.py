"""What is gone for good must not be waited for: an AWS that does not answer, a Spark that has died."""

import threading

import pytest

from integration_tests.harness.aws_proxy import AwsProxy
from integration_tests.harness.lake import Lake
from integration_tests.harness.loopback import Answer, Request
from integration_tests.harness.messages import configured_stream, record, state
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, Warehouse, object_schema

ORDERS = configured_stream("orders", object_schema(id=INTEGER, fill={"type": "string"}))
ENOUGH_FOR_MANY_BATCHES = 400


class SilentAws(AwsProxy):
    """It takes requests, and answers none while a test looks. `asked` is set once there was one."""

    def __init__(self, endpoint_url: str) -> None:
        super().__init__(endpoint_url)
        self.asked = threading.Event()
        self.over = threading.Event()

    def answer(self, request: Request) -> Answer:
        self.asked.set()
        self.over.wait(120)
        raise ConnectionError(f"{request.method} was never answered")


def test_sigterm_ends_a_sync_that_waits_for_an_aws_that_does_not_answer(lake: Lake, platform: Platform) -> None:
    """Within the platform's patience of 60 seconds, with nothing read that could be lost."""
    warehouse = Warehouse(lake, platform, TABLE_KINDS[0])
    with SilentAws(lake.endpoint_url) as aws:
        with warehouse.start([ORDERS], endpoint_url=aws.endpoint_url) as running:
            assert aws.asked.wait(60)
            run = running.terminate()
        aws.over.set()

    assert (run.exit_code, run.states) == (143, [])


@pytest.mark.slow
def test_with_spark_dead_reading_stops_long_before_the_input_ends(lake: Lake, container: Platform) -> None:
    """The source is not read to its end for nothing: the sync fails with a transient error."""
    warehouse = Warehouse(lake, container, TABLE_KINDS[0])
    megabyte = {"id": 1, "fill": "x" * 1_000_000}
    with warehouse.start([ORDERS], flush_interval_seconds=1, batch_size_mb=1) as running:
        running.send([record("orders", {"id": 0}), state("orders", 0)])
        running.wait_for_state()
        running.kill_jvm()
        sent = 0
        while sent < ENOUGH_FOR_MANY_BATCHES and not running.ended:
            running.send([record("orders", megabyte)])
            sent += 1
        run = running.close()

    assert run.exit_code == 1
    assert {error["failure_type"] for error in run.errors} == {"transient_error"}
    assert sent < ENOUGH_FOR_MANY_BATCHES
    assert warehouse.ids("orders") == [0]
