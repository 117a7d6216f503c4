"""When something fails: what is lost (nothing that was acknowledged), what is said, and to whom."""

import secrets

import pytest

from integration_tests.harness.faulty_aws import (
    Fault,
    FaultyAws,
    MurderousAws,
    denied_deletes,
    denied_parts,
    denied_uploads,
    slow_down,
    throttled_glue,
)
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import (
    configured_stream,
    global_state,
    record,
    state,
    status,
)
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import INTEGER, NUMBER, STRING, Warehouse, object_schema

pytestmark = pytest.mark.share(4)

SCHEMA = object_schema(id=INTEGER)
ORDERS, USERS = configured_stream("orders", SCHEMA), configured_stream("users", SCHEMA)
COMPLETE = status("orders", "COMPLETE")
BOTH_COMPLETE = [COMPLETE, status("users", "COMPLETE")]


def order(id: int) -> bytes:
    return record("orders", {"id": id})


def test_one_stream_s_failure_does_not_lose_another_s_data_and_states(warehouse: Warehouse) -> None:
    """The table of `users` is not ours to write; `orders` lands as if nothing were wrong."""
    warehouse.lake.put_foreign_table("users")
    foreign = warehouse.lake.glue_table(warehouse.lake.database, "users")

    run = warehouse.attempt(
        [ORDERS, USERS],
        [
            record("users", {"id": 1}),
            state("users", 1, id=1),
            order(1),
            state("orders", 1, id=2),
            order(2),
            state("orders", 2, id=3),
            *BOTH_COMPLETE,
        ],
    )

    assert run.exit_code == 1
    (error,) = run.errors
    assert error["stream_descriptor"] == {"name": "users"}
    assert error["failure_type"] == "config_error"
    assert f"{warehouse.lake.database}.users" in error["message"]
    assert [answer.body["id"] for answer in run.states] == [2, 3]
    assert warehouse.ids("orders") == [1, 2]
    assert warehouse.lake.glue_table(warehouse.lake.database, "users") == foreign


def test_a_global_state_is_not_acknowledged_while_a_stream_fails(warehouse: Warehouse) -> None:
    """It speaks for all streams, also for the one whose records are nowhere: what it alone could speak for stays out.

    The next sync sends it again, and would find it there twice.
    """
    warehouse.lake.put_foreign_table("users")

    run = warehouse.attempt([ORDERS, USERS], [order(1), record("users", {"id": 1}), global_state(1), *BOTH_COMPLETE])

    assert run.exit_code == 1
    assert run.states == []
    assert warehouse.ids("orders") == []
    first, second = run.errors
    assert first["stream_descriptor"] == {"name": "users"}
    assert second["stream_descriptor"] == {"name": "orders"}
    assert "stream users has failed" in second["message"]


def test_every_failed_stream_is_named(warehouse: Warehouse) -> None:
    """One TRACE ERROR each."""
    warehouse.lake.put_foreign_table("orders")

    run = warehouse.attempt([ORDERS, USERS], [order(1), record("users", {"id": 1}), COMPLETE])

    assert run.exit_code == 1
    failures = {error["stream_descriptor"]["name"]: error["failure_type"] for error in run.errors}
    assert failures == {"orders": "config_error", "users": "transient_error"}
    assert warehouse.ids("users") == [1]


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(throttled_glue("UpdateTable", 3), id="Glue throttles UpdateTable"),
        pytest.param(throttled_glue("GetTable", 3), id="Glue throttles GetTable"),
        pytest.param(throttled_glue("CreateTable", 2), id="Glue throttles CreateTable"),
        pytest.param(slow_down("PUT", 3), id="S3 refuses PUT"),
        pytest.param(slow_down("POST", 3), id="S3 refuses POST"),
        pytest.param(slow_down("GET", 3), id="S3 refuses GET"),
    ],
)
def test_an_aws_that_is_too_busy_for_a_while_is_asked_again(warehouse: Warehouse, fault: Fault) -> None:
    """With backoff, and the sync ends well; nothing is there twice."""
    with FaultyAws(warehouse.lake.endpoint_url, fault) as aws:
        streams = [configured_stream("orders", SCHEMA, generation=1, minimum=1)]
        run = warehouse.sync(streams, [order(1), state("orders", 1), COMPLETE], endpoint_url=aws.endpoint_url)

    assert len(run.states) == 1
    assert warehouse.ids("orders") == [1]


def test_an_s3_that_refuses_for_good_fails_the_stream(warehouse: Warehouse) -> None:
    """No state goes out, and the message says what may not be written."""
    warehouse.sync([ORDERS], [order(1), COMPLETE])

    with FaultyAws(warehouse.lake.endpoint_url, denied_uploads()) as aws:
        run = warehouse.attempt([ORDERS], [order(2), state("orders", 2), COMPLETE], endpoint_url=aws.endpoint_url)

    assert aws.refused > 0
    assert run.exit_code == 1
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert error["stream_descriptor"] == {"name": "orders"}
    assert run.states == []
    assert warehouse.ids("orders") == [1]


WITH_TEXT = configured_stream("users", object_schema(id=INTEGER, text=STRING))


def user_with_text(id: int, mebibytes: int) -> bytes:
    """Text that does not become much smaller, however well it is compressed."""
    return record("users", {"id": id, "text": secrets.token_urlsafe(mebibytes * 1024 * 1024)})


def test_an_upload_that_can_be_neither_finished_nor_aborted_fails_its_own_stream_only(warehouse: Warehouse) -> None:
    """S3 takes no parts of `users`' files, and no word that they are not wanted; `orders` goes on in the same job."""
    user = user_with_text(1, 20)  # Too much for one request.

    with FaultyAws(warehouse.lake.endpoint_url, denied_parts("users")) as aws:
        run = warehouse.attempt(
            [ORDERS, WITH_TEXT],
            [order(1), user, state("orders", 1), *BOTH_COMPLETE],
            endpoint_url=aws.endpoint_url,
        )

    assert aws.refused > 1
    assert run.exit_code == 1
    (error,) = run.errors
    assert error["stream_descriptor"] == {"name": "users"}
    assert error["failure_type"] == "config_error"
    assert "UploadPart" in error["message"]
    assert len(run.states) == 1
    assert warehouse.ids("orders") == [1]


def test_a_worker_that_dies_is_replaced_and_nothing_is_missing_or_twice(warehouse: Warehouse) -> None:
    with MurderousAws(warehouse.lake.endpoint_url, "users", times=1) as aws:
        run = warehouse.sync(
            [ORDERS, WITH_TEXT],
            [order(1), user_with_text(2, 2), state("orders", 1), state("users", 2), *BOTH_COMPLETE],
            endpoint_url=aws.endpoint_url,
        )

    assert aws.killed == 1
    assert len(run.states) == 2
    assert (warehouse.ids("orders"), warehouse.ids("users")) == ([1], [2])


def test_a_stream_whose_worker_dies_each_time_fails_alone_and_says_so(warehouse: Warehouse) -> None:
    """Both streams are encoded by one task of one Spark job."""
    with MurderousAws(warehouse.lake.endpoint_url, "users", times=1000) as aws:
        run = warehouse.attempt(
            [ORDERS, WITH_TEXT],
            [order(1), user_with_text(2, 2), state("orders", 1), state("users", 2), *BOTH_COMPLETE],
            endpoint_url=aws.endpoint_url,
        )

    assert aws.killed >= 3
    assert run.exit_code == 1
    (error,) = run.errors
    assert error["stream_descriptor"] == {"name": "users"}
    assert "the process that encodes its records" in error["message"]
    assert len(run.states) == 1
    assert warehouse.ids("orders") == [1]


@pytest.fixture
def contained(lake: Lake, container: Platform, table_kind: TableKind) -> Warehouse:
    """A warehouse whose runs have a Spark of their own."""
    return Warehouse(lake, container, table_kind)


def test_a_sync_that_may_not_delete_commits_and_publishes_all_the_same(warehouse: Warehouse) -> None:
    """Unused files stay: those encoded again because their column became wider, and those that were overwritten."""
    number = object_schema(id=INTEGER, price=NUMBER)

    def orders(generation: int) -> list[dict[str, object]]:
        return [configured_stream("orders", number, generation=generation, minimum=generation)]

    def order(id: int, price: float) -> list[bytes]:
        return [record("orders", {"id": id, "price": price, "fill": "x" * 1_200_000}), state("orders", id)]

    with FaultyAws(warehouse.lake.endpoint_url, denied_deletes()) as aws:
        for generation in (1, 2):
            run = warehouse.sync(
                orders(generation),
                [*order(1, 0.5), *order(2, 1 / 3), *order(3, 0.25), status("orders", "COMPLETE")],
                endpoint_url=aws.endpoint_url,
                batch_size_mb=1,
            )
            assert len(run.states) == 3

    assert warehouse.rows("orders") == [{"id": 1, "price": 0.5}, {"id": 2, "price": 1 / 3}, {"id": 3, "price": 0.25}]


@pytest.mark.slow
@pytest.mark.parametrize("table_kind", TABLE_KINDS[:2], ids=lambda kind: kind.name)
def test_a_spark_that_dies_ends_the_sync_with_what_was_acknowledged_safe(contained: Warehouse) -> None:
    """The platform retries, and the next sync continues."""
    with contained.start([ORDERS], flush_interval_seconds=1) as running:
        running.send([order(1), state("orders", 1, id=1)])
        running.wait_for_state()

        running.kill_jvm()
        running.send([order(2), state("orders", 2, id=2), COMPLETE])
        run = running.close()

    assert run.exit_code == 1
    assert {error["failure_type"] for error in run.errors} == {"transient_error"}
    assert [answer.body["id"] for answer in run.states] == [1]
    assert contained.ids("orders") == [1]
