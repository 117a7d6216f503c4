"""The secret of a user's access key: in no process's arguments or environment, no file, no object, no output."""

from pathlib import Path

import pytest
from emulated_aws.account import Account, allow, deny
from emulated_aws.server import AwsServer

from integration_tests.conformance.security import traces
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import INTEGER, Warehouse, object_schema

STREAMS = [configured_stream("orders", object_schema(id=INTEGER))]
LINES = [record("orders", {"id": 1}), record("orders", {"id": "many"}), state("orders", 1)]


@pytest.mark.slow
def test_the_secret_of_an_access_key_stays_in_the_memory_of_processes(
    aws: AwsServer, lake: Lake, container: Platform, tmp_path: Path
) -> None:
    """It goes to the executors with their tasks."""
    events = tmp_path / "events"
    events.mkdir()
    user = Account(aws.endpoint_url).user(allow("*"))
    secret = {"the secret access key": user.credentials["aws_secret_access_key"]}
    warehouse = Warehouse(lake, container, TABLE_KINDS[0])
    # Spark writes all of its configuration, with the JVM's arguments and properties, into its log of events.
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{events}"}

    with warehouse.start(
        STREAMS, credentials=user.credentials, spark={"master": "local[1]", "conf": conf}, flush_interval_seconds=1
    ) as running:
        running.send(LINES)
        running.wait_for_states(1)
        traces.assert_without(secret, traces.of_processes(running))
        (temporary,) = tmp_path.rglob("pyspark-*")
        traces.assert_without(secret, traces.of_files(temporary.parents[1]))
        # PySpark would write tasks into files here, each for a moment.
        temporary.rmdir()
        running.send([record("orders", {"id": 2}), state("orders", 2)])
        running.wait_for_states(2)
        running.send([status("orders", "COMPLETE")])
        run = running.close()

    assert run.exit_code == 0, run.report()
    assert {row["id"] for row in warehouse.rows("orders")} == {1, 2, None}
    traces.assert_without(secret, traces.of_files(events))
    traces.assert_without(secret, traces.of_lake(lake))
    traces.assert_without(secret, traces.of_run(run))


def test_neither_a_failed_check_nor_a_failed_sync_leaves_or_says_a_secret(
    aws: AwsServer, lake: Lake, tmp_path: Path, launch: WarmLaunch, table_kind: TableKind
) -> None:
    """The catalog denies what they ask; the sync has staged records for executors elsewhere."""
    member = Account(aws.endpoint_url).user(allow("s3:*", "glue:*"), deny("glue:UpdateTable", "s3:DeleteObject"))
    secret = {"the secret access key": member.credentials["aws_secret_access_key"]}
    platform = Platform(tmp_path, launch.without_shared_disk())
    warehouse = Warehouse(lake, platform, table_kind)

    checked = platform.check(warehouse.config(credentials=member.credentials))
    spark = {"master": "spark://elsewhere:7077", "executor_credentials": "session"}
    run = warehouse.attempt(STREAMS, LINES, credentials=member.credentials, spark=spark)

    assert checked.connection_status["status"] == "FAILED"
    assert run.exit_code == 1
    assert any("/_staging/" in key for key in lake.objects())
    warning = "WARN: Spark sends session credentials to its executors in clear text"
    assert any(log.startswith(warning) for log in run.logs)
    for ended in (checked, run):
        traces.assert_without(secret, traces.of_run(ended))
    traces.assert_without(secret, traces.of_lake(lake))
