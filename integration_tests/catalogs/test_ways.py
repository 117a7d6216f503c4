"""What a catalog does at a test's wish: answers that are lost, requests that come twice, limits of services."""

from typing import Any
from uuid import UUID

import pytest
import requests
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ServiceUnavailableError,
)

from integration_tests.catalogs.behaviour import Behaviour, glue, s3_tables
from integration_tests.catalogs.conftest import ROWS, Client, Serve
from integration_tests.catalogs.interference import Interference, after, before, lost, sent_twice, unavailable
from integration_tests.harness.lake import Lake


@pytest.mark.parametrize(
    ("how", "error"),
    [
        (lost(500), CommitStateUnknownException),
        (lost(502), CommitStateUnknownException),
        (lost(504), CommitStateUnknownException),
        (lost(), requests.ConnectionError),
    ],
)
def test_a_commit_is_made_whose_answer_is_lost(
    serve: Serve, lake: Lake, how: Interference, error: type[Exception]
) -> None:
    catalog = serve(Behaviour())
    table = Client(catalog.endpoint_url, lake).new_table()

    catalog.interfere("updateTable", how)
    with pytest.raises(error):
        table.append(ROWS)

    assert len(catalog.metadata(*table.name()).snapshots) == 2
    assert catalog.metadata_location(*table.name()) != table.metadata_location


def test_a_commit_is_not_made_by_a_catalog_that_is_busy(serve: Serve, lake: Lake) -> None:
    catalog = serve(Behaviour())
    table = Client(catalog.endpoint_url, lake).new_table()

    catalog.interfere("updateTable", unavailable)
    with pytest.raises(ServiceUnavailableError):
        table.append(ROWS)

    assert catalog.metadata_location(*table.name()) == table.metadata_location


def test_a_commit_that_comes_twice_is_refused_though_it_was_made(serve: Serve, lake: Lake) -> None:
    catalog = serve(Behaviour())
    table = Client(catalog.endpoint_url, lake).new_table()

    catalog.interfere("updateTable", sent_twice)
    with pytest.raises(CommitFailedException):
        table.append(ROWS)

    assert len(catalog.metadata(*table.name()).snapshots) == 2


def test_a_commit_that_comes_twice_with_its_key_is_answered_as_the_first_time(serve: Serve, lake: Lake) -> None:
    catalog = serve(Behaviour(idempotency_lifetime="PT30M"))
    table = Client(catalog.endpoint_url, lake).new_table()
    url = f"{catalog.endpoint_url}/v1/namespaces/{table.name()[0]}/tables/orders"
    head = {"type": "assert-ref-snapshot-id", "ref": "tag", "snapshot-id": None}
    tag = {"action": "set-snapshot-ref", "ref-name": "tag", "type": "tag"}
    tag["snapshot-id"] = str(table.metadata.current_snapshot_id)

    def send(key: str, **more: Any) -> int:
        body: Any = {"requirements": [head], "updates": [tag], **more}
        return requests.post(url, json=body, headers={"Idempotency-Key": key}, timeout=10).status_code

    key, other_key = ("0199c0de-0000-7000-8000-00000000000" + digit for digit in "12")
    assert UUID(key).version == 7
    assert [send(key), send(key), send(other_key), send(other_key)] == [200, 200, 409, 409]
    assert send(key, updates=[]) == 422
    assert send("11111111-1111-4111-8111-111111111111") == 400
    config = requests.get(f"{catalog.endpoint_url}/v1/config", timeout=10).json()
    assert config["idempotency-key-lifetime"] == "PT30M"


def test_something_happens_around_the_second_commit_from_now(serve: Serve, lake: Lake) -> None:
    catalog = serve(Behaviour())
    table = Client(catalog.endpoint_url, lake).new_table()
    seen: list[int] = []

    def look() -> None:
        seen.append(len(catalog.metadata(*table.name()).snapshots))

    for number, how in ((2, before(look)), (3, after(look))):
        catalog.interfere("updateTable", how, number)
    for _ in range(3):
        table.append(ROWS)

    assert seen == [2, 4]
    assert catalog.requests["updateTable"] == 4


def test_listings_come_in_pages(serve: Serve, lake: Lake) -> None:
    client = Client(serve(Behaviour(page_size=2)).endpoint_url, lake)
    namespace = client.new_table().name()[0]
    for number in range(4):
        client.create_table((namespace, f"t{number}"), ROWS.schema)

    assert client.list_tables(namespace) == [(namespace, name) for name in ("orders", "t0", "t1", "t2", "t3")]


def test_a_table_is_loaded_with_the_snapshots_that_refs_lead_to(serve: Serve, lake: Lake) -> None:
    catalog = serve(Behaviour())
    table = Client(catalog.endpoint_url, lake).new_table()
    table.append(ROWS)

    loaded = Client(catalog.endpoint_url, lake, **{"snapshot-loading-mode": "refs"}).load_table(table.name())

    assert [snapshot.snapshot_id for snapshot in loaded.snapshots()] == [table.metadata.current_snapshot_id]


def test_a_table_that_has_not_changed_is_not_loaded_again(serve: Serve, lake: Lake) -> None:
    catalog = serve(Behaviour())
    table = Client(catalog.endpoint_url, lake).new_table()
    url = f"{catalog.endpoint_url}/v1/namespaces/{table.name()[0]}/tables/orders"
    known = {"If-None-Match": requests.get(url, timeout=10).headers["ETag"]}

    unchanged = requests.get(url, headers=known, timeout=10).status_code
    table.append(ROWS)

    assert (unchanged, requests.get(url, headers=known, timeout=10).status_code) == (304, 200)


SIGNED = {
    "rest.sigv4-enabled": "true",
    "rest.signing-region": REGION,
    "client.access-key-id": ACCESS_KEY_ID,
    "client.secret-access-key": SECRET_ACCESS_KEY,
    "client.region": REGION,
}


@pytest.fixture
def s3_tables_client(serve: Serve, lake: Lake) -> Client:
    ways = s3_tables()
    signed = {**SIGNED, "rest.signing-name": "s3tables", "warehouse": ways.warehouse}
    return Client(serve(ways).endpoint_url, lake, **signed)


def test_s3_tables_choose_where_a_table_lies(s3_tables_client: Client) -> None:
    table = s3_tables_client.new_table()

    assert table.location().endswith("--table-s3")
    with pytest.raises(BadRequestError, match="location"):
        s3_tables_client.create_table((table.name()[0], "other"), ROWS.schema, location="s3://mine/other")
    move = {"action": "set-location", "location": "s3://mine/other"}
    assert s3_tables_client.commit(table.name(), [], [move]) == (400, "BadRequestException")


def test_s3_tables_refuse_names_stages_and_drops_that_keep_files(s3_tables_client: Client) -> None:
    table = s3_tables_client.new_table()
    namespace = table.name()[0]

    for name in ("Orders", "orders-1", "_orders"):
        with pytest.raises(BadRequestError, match="Invalid name"):
            s3_tables_client.create_table((namespace, name), ROWS.schema)
    with pytest.raises(BadRequestError, match="Invalid namespace"):
        s3_tables_client.create_namespace((namespace, "below"))
    with pytest.raises(BadRequestError, match="stage-create"):
        s3_tables_client.create_table_transaction((namespace, "staged"), ROWS.schema)
    with pytest.raises(BadRequestError, match="format version"):
        s3_tables_client.create_table((namespace, "v1"), ROWS.schema, properties={"format-version": "1"})
    with pytest.raises(BadRequestError, match="purge"):
        s3_tables_client.drop_table(table.name())
    s3_tables_client.purge_table(table.name())
    assert s3_tables_client.list_tables(namespace) == []


def test_glue_has_its_tables_below_a_catalog_of_the_account(serve: Serve, lake: Lake) -> None:
    ways = glue()
    catalog = serve(ways)
    signed = {**SIGNED, "rest.signing-name": "glue"}

    table = Client(catalog.endpoint_url, lake, **signed, warehouse=ways.warehouse).new_table()

    assert catalog.metadata_location(*table.name()) == table.metadata_location
    with pytest.raises(BadRequestError, match="Unknown warehouse"):
        Client(catalog.endpoint_url, lake, **signed)


def test_metadata_that_is_too_large_is_refused_and_nothing_changes(serve: Serve, lake: Lake) -> None:
    catalog = serve(Behaviour(max_metadata_bytes=4000))
    table = Client(catalog.endpoint_url, lake).new_table()

    with pytest.raises(BadRequestError, match="larger than 4000"):
        table.transaction().set_properties(text="x" * 4000).commit_transaction()

    assert catalog.metadata_location(*table.name()) == table.metadata_location
