"""The connector's tables in a REST catalog: every mode, whatever becomes of requests, and what it says if it cannot."""

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from emulated_aws.account import Account, allow
from emulated_aws.controls import sessions_lasting
from emulated_aws.server import AwsServer

from integration_tests.catalogs.behaviour import Behaviour, SigV4
from integration_tests.catalogs.interference import Catalog, Interference, cut, garbled, lost, sent_twice, unavailable
from integration_tests.harness.loopback import Answer, HungUp, Request
from integration_tests.harness.messages import Json, configured_stream, record, state, status
from integration_tests.harness.rest_lake import CLIENT, RestLake
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

pytestmark = pytest.mark.share(8)

ICEBERG = TABLE_KINDS[0]
COMPLETE = status("orders", "COMPLETE")


def stream(generation: int = 1, minimum: int = 0, **more: Any) -> Json:
    return configured_stream(
        "orders", object_schema(id=INTEGER, text=STRING), generation=generation, minimum=minimum, **more
    )


def orders(*ids: int) -> list[bytes]:
    return [*(record("orders", {"id": id, "text": f"text {id}"}) for id in ids), state("orders", max(ids)), COMPLETE]


@pytest.fixture
def rest_lake(aws: AwsServer) -> Iterator[RestLake]:
    with RestLake(aws.endpoint_url) as lake:
        yield lake


@pytest.fixture
def warehouse(rest_lake: RestLake, platform: Platform) -> Warehouse:
    return Warehouse(rest_lake, platform, ICEBERG)


def test_every_mode_leaves_its_rows_and_nothing_in_glue(warehouse: Warehouse, rest_lake: RestLake) -> None:
    key: dict[str, Any] = {"mode": "append_dedup", "primary_key": ["text"], "cursor": "id"}
    seen: list[Sequence[int]] = []
    for configured, lines in (
        (stream(), orders(1, 2)),
        (stream(), orders(3)),
        (stream(generation=2, minimum=2), orders(4, 5)),
        (stream(generation=2, **key), [record("orders", {"id": 9, "text": "text 5"}), *orders(6)]),
        (stream(generation=3, minimum=3, **key), orders(7, 8)),
        (stream(generation=3), orders(10)),
    ):
        warehouse.sync([configured], lines)
        seen.append(warehouse.ids("orders"))

    assert seen == [[1, 2], [1, 2, 3], [4, 5], [4, 6, 9], [7, 8], [7, 8, 10]]
    assert rest_lake.glue.get_databases()["DatabaseList"] == [
        database
        for database in rest_lake.glue.get_databases()["DatabaseList"]
        if database["Name"] != rest_lake.database
    ]


def never_came(_request: Request, _catalog: Catalog) -> Answer:
    """Reset the connection before the catalog sees the request."""
    raise HungUp


class Late:
    """Lets a request come to the catalog after its client has given it up, and after `later` other ones."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self._held: list[tuple[Request, Catalog]] = []

    def hold(self, request: Request, catalog: Catalog) -> Answer:
        self._held.append((request, catalog))
        raise HungUp

    def let_go(self, request: Request, catalog: Catalog) -> Answer:
        answer = catalog(request)
        while self._held:
            held, target = self._held.pop()
            self.answers.append(target(held).status)
        return answer


@pytest.mark.parametrize(
    "how",
    [lost(), lost(500), lost(502), lost(504), cut, garbled, sent_twice, never_came, unavailable],
    ids=["reset", "500", "502", "504", "cut", "garbled", "sent twice", "never came", "503"],
)
@pytest.mark.share(2)
def test_a_commit_is_made_once_whatever_becomes_of_its_request(
    warehouse: Warehouse, rest_lake: RestLake, how: Interference
) -> None:
    warehouse.sync([stream()], orders(1))
    rest_lake.server.interfere("updateTable", how)

    warehouse.sync([stream()], orders(2, 3))

    assert warehouse.ids("orders") == [1, 2, 3]


def test_commit_starts_over_where_its_answer_is_lost_and_its_table_made_again(
    warehouse: Warehouse, rest_lake: RestLake
) -> None:
    warehouse.sync([stream()], orders(1))

    def make_again(request: Request, catalog: Catalog) -> Answer:
        catalog(request)
        table = rest_lake.iceberg_table(rest_lake.database, "orders")
        rest_lake.drop_table(rest_lake.database, "orders")
        table.catalog.create_table((rest_lake.database, "orders"), table.schema(), table.location())
        raise HungUp

    rest_lake.server.interfere("updateTable", make_again)

    warehouse.sync([stream()], orders(2, 3))

    assert warehouse.ids("orders") == [2, 3]


def test_a_commit_that_comes_after_it_was_given_up_is_refused(warehouse: Warehouse, rest_lake: RestLake) -> None:
    warehouse.sync([stream()], orders(1))
    late = Late()
    rest_lake.server.interfere("updateTable", late.hold)
    rest_lake.server.interfere("updateTable", late.let_go, 2)

    warehouse.sync([stream()], orders(2, 3))

    assert late.answers == [409]
    assert warehouse.ids("orders") == [1, 2, 3]


@pytest.mark.share(1)
@pytest.mark.parametrize("lifetime", ["PT30M", None])
def test_commits_have_keys_where_the_server_knows_requests_by_them(
    aws: AwsServer, platform: Platform, lifetime: str | None
) -> None:
    ways = Behaviour(warehouse="main", authorization=CLIENT, idempotency_lifetime=lifetime)
    with RestLake(aws.endpoint_url, ways) as lake:
        warehouse = Warehouse(lake, platform, ICEBERG)
        warehouse.sync([stream()], orders(1))
        loads = [lake.server.requests["loadTable"]]
        for number in (2, 3):
            if number == 3:
                lake.server.interfere("updateTable", sent_twice)
            warehouse.sync([stream()], orders(number))
            loads.append(lake.server.requests["loadTable"])

        assert warehouse.ids("orders") == [1, 2, 3]
    looked_up = (loads[2] - loads[1]) - (loads[1] - loads[0])
    # With a key, the second answer is the first one again.
    assert (len(lake.server.keys) > 0, looked_up) == ((True, 0) if lifetime else (False, 1))


def test_an_overwrite_that_another_one_has_taken_over_is_refused_whole(warehouse: Warehouse) -> None:
    warehouse.sync([stream()], orders(1))
    with warehouse.start([stream(generation=2, minimum=2)], flush_interval_seconds=1) as first:
        first.send([record("orders", {"id": 2, "text": "x"}), state("orders", 2)])
        first.wait_for_states(1)

        warehouse.sync([stream(generation=3, minimum=3)], orders(3))
        first.send([record("orders", {"id": 4, "text": "x"}), state("orders", 4), COMPLETE])
        fenced = first.close()

    assert fenced.exit_code == 1
    assert any("has taken over the table" in error["message"] for error in fenced.errors)
    assert len(fenced.states) == 1
    assert warehouse.ids("orders") == [3]


def test_a_sync_compacts_its_table_at_its_end(warehouse: Warehouse, rest_lake: RestLake) -> None:
    fill = "x" * 1_200_000  # Makes a record a batch of its own where batch_size_mb is 1.
    ids = [1, 2, 3, 4, 5, 6]
    lines = [line for id in ids for line in (record("orders", {"id": id, "text": fill}), state("orders", id))]

    run = warehouse.sync([stream()], [*lines, COMPLETE], batch_size_mb=1, maintenance={"mode": "connector"})

    steps = [json.loads(text.removeprefix("INFO: "))["step"] for text in run.logs if text.startswith('INFO: {"table"')]
    assert steps == ["compaction", "expiry", "orphans"]
    assert len(rest_lake.data_files(rest_lake.database, "orders")) == 1
    assert warehouse.ids("orders") == ids


def test_a_table_whose_creation_is_not_answered_is_there_once(warehouse: Warehouse, rest_lake: RestLake) -> None:
    rest_lake.server.interfere("createTable", lost(504))

    warehouse.sync([stream()], orders(1))

    assert warehouse.ids("orders") == [1]


def test_a_token_that_expires_is_renewed(warehouse: Warehouse, rest_lake: RestLake) -> None:
    with warehouse.start([stream()], flush_interval_seconds=1) as running:
        for number in (1, 2):
            running.send([record("orders", {"id": number, "text": "x"}), state("orders", number)])
            running.wait_for_states(number)
            rest_lake.server.end_tokens()
        running.send([COMPLETE])
        run = running.close()

    assert run.exit_code == 0, run.report()
    assert warehouse.ids("orders") == [1, 2]


# --- credentials that the catalog lends -------------------------------------------------------------------------------


@pytest.fixture
def lending(aws: AwsServer) -> Iterator[RestLake]:
    ways = Behaviour(warehouse="main", authorization=CLIENT, delegates="vended-credentials")
    with RestLake(aws.endpoint_url, ways) as lake:
        yield lake


def test_files_are_written_and_read_with_what_the_catalog_lends(lending: RestLake, platform: Platform) -> None:
    warehouse = Warehouse(lending, platform, ICEBERG)
    key: dict[str, Any] = {"mode": "append_dedup", "primary_key": ["text"], "cursor": "id"}
    nobody = Account(lending.endpoint_url).user(allow("sts:GetCallerIdentity")).credentials

    warehouse.sync([stream()], orders(1, 2), credentials=nobody)
    warehouse.sync([stream(**key)], orders(2, 3), credentials=nobody)

    assert warehouse.ids("orders") == [1, 2, 3]
    assert lending.server.vended


@pytest.mark.slow
def test_a_sync_outlives_what_the_catalog_lends(lending: RestLake, platform: Platform) -> None:
    warehouse = Warehouse(lending, platform, ICEBERG)
    nobody = Account(lending.endpoint_url).user(allow("sts:GetCallerIdentity")).credentials

    with (
        sessions_lasting(lending.endpoint_url, SECONDS),
        warehouse.start([stream()], credentials=nobody, flush_interval_seconds=1) as running,
    ):
        for number in (1, 2, 3):
            running.send([record("orders", {"id": number, "text": "x"}), state("orders", number)])
            running.wait_for_states(number)
            time.sleep(SECONDS)
        running.send([COMPLETE])
        run = running.close()

    assert run.exit_code == 0, run.report()
    assert warehouse.ids("orders") == [1, 2, 3]


SECONDS = 10
"""How long credentials last: long enough for a batch, as a third of it is left when they are renewed."""


# --- what it says -----------------------------------------------------------------------------------------------------


def test_a_check_tries_the_catalog_and_leaves_no_table(platform: Platform, rest_lake: RestLake) -> None:
    run = platform.check(rest_lake.config())

    assert run.connection_status == {"status": "SUCCEEDED"}
    assert rest_lake.tables() == []


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("client_secret", "guessed-secret", "catalog.client_id and catalog.client_secret"),
        ("realm", "ANOTHER", "Polaris-Realm"),
        ("warehouse", "another", "catalog.warehouse"),
        ("uri", "http://127.0.0.1:9", "catalog.uri"),
    ],
)
@pytest.mark.share(2)
def test_what_is_wrong_with_the_options_is_told_by_check_and_by_a_sync(
    platform: Platform, warehouse: Warehouse, rest_lake: RestLake, option: str, value: str, told: str
) -> None:
    catalog = {**rest_lake.catalog, option: value}
    if option == "uri":
        catalog["oauth2_server_uri"] = f"{value}/token"

    checked = platform.check(rest_lake.config(catalog=catalog))
    synced = warehouse.attempt([stream()], orders(1), catalog=catalog)

    assert checked.connection_status["status"] == "FAILED"
    assert told in checked.connection_status["message"]
    assert synced.exit_code == 1
    assert any(told in error["message"] for error in synced.errors)
    assert synced.states == []
    assert "guessed-secret" not in checked.report() + synced.report()


def test_a_catalog_that_signs_requests_itself_is_refused(platform: Platform, aws: AwsServer) -> None:
    with RestLake(aws.endpoint_url, Behaviour(authorization=CLIENT, delegates="remote-signing")) as lake:
        run = Warehouse(lake, platform, ICEBERG).attempt([stream()], orders(1))

    assert run.exit_code == 1
    assert any("remote signing" in error["message"] for error in run.errors)


def test_requests_are_signed_for_a_service(platform: Platform, aws: AwsServer) -> None:
    with RestLake(aws.endpoint_url, Behaviour(authorization=SigV4("execute-api"))) as lake:
        catalog = {"type": "rest", "uri": lake.server.endpoint_url, "signing_name": "execute-api"}
        run = Warehouse(lake, platform, ICEBERG).attempt([stream()], orders(1), catalog=catalog)

    assert run.exit_code == 0, run.report()
    assert lake.server.metadata(lake.database, "orders").current_snapshot() is not None
