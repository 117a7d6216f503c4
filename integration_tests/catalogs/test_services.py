"""The connector's tables in AWS's own REST catalogs, Glue's and that of S3 Tables, and what these do not take."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from emulated_aws.server import ACCOUNT_ID, REGION, AwsServer

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.services import NO_LIMITS, CatalogLimits, RestCatalogOptions
from destination_datalake.errors import ConfigError
from destination_datalake.lake_formation.governance import Governance
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.tables.rest.catalog import RestTableCatalog
from destination_datalake.tables.table import TableName
from integration_tests.catalogs.behaviour import Behaviour, SigV4, glue, s3_tables
from integration_tests.catalogs.conftest import Client, Serve
from integration_tests.catalogs.interference import lost
from integration_tests.catalogs.services import ServiceLake
from integration_tests.catalogs.test_connector import ICEBERG, orders, stream
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import record, state
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import Warehouse

pytestmark = pytest.mark.share(3)

BUCKET = s3_tables().warehouse
FEDERATED = f"{ACCOUNT_ID}:s3tablescatalog/lake"


def federated() -> Behaviour:
    """Return the ways of Glue's endpoint for tables of a table bucket."""
    prefix = f"catalogs/{quote(FEDERATED, safe='')}"
    return replace(s3_tables(), prefix=prefix, warehouse=FEDERATED, authorization=SigV4("glue"))


@pytest.fixture
def plain_lake(aws: AwsServer) -> Lake:
    return Lake(aws.endpoint_url)


@pytest.fixture(params=["s3_tables", "glue_rest", "glue_rest of s3_tables"])
def lake(aws: AwsServer, request: pytest.FixtureRequest) -> Iterator[ServiceLake]:
    ways, option = {
        "s3_tables": (s3_tables(), {"type": "s3_tables", "table_bucket_arn": BUCKET}),
        "glue_rest": (glue(), {"type": "glue_rest"}),
        "glue_rest of s3_tables": (federated(), {"type": "glue_rest", "warehouse": FEDERATED}),
    }[request.param]
    with ServiceLake(aws.endpoint_url, ways, option) as lake:
        yield lake


@pytest.fixture
def warehouse(lake: ServiceLake, platform: Platform) -> Warehouse:
    return Warehouse(lake, platform, ICEBERG)


def test_every_mode_leaves_its_rows_and_asks_for_nothing_that_the_service_refuses(
    warehouse: Warehouse, lake: ServiceLake
) -> None:
    key: dict[str, Any] = {"mode": "append_dedup", "primary_key": ["text"], "cursor": "id"}
    seen: list[Sequence[int]] = []
    for configured, lines in (
        (stream(), orders(1, 2)),
        (stream(generation=2, minimum=2), orders(4, 5)),
        (stream(generation=2, **key), [record("orders", {"id": 9, "text": "text 5"}), *orders(6)]),
        (stream(generation=3, minimum=3, **key), orders(7, 8)),
        (stream(generation=3, **key), [record("orders", {"id": "x" * 20, "text": "text 7"}), *orders(10)]),
    ):
        run = warehouse.sync([configured], lines)
        seen.append(warehouse.ids("orders"))
        assert not [text for text in run.logs if text.startswith("WARN") and "Cannot delete" in text]

    assert seen[:4] == [[1, 2], [4, 5], [4, 6, 9], [7, 8]]
    assert lake.endpoint.refused == []
    assert {name for name in lake.tables() if name[0] == lake.database} == {(lake.database, "orders")}


def test_a_batch_that_is_taken_back_leaves_its_files_to_the_service(warehouse: Warehouse, lake: ServiceLake) -> None:
    warehouse.sync([stream()], orders(1))
    with warehouse.start([stream(generation=2, minimum=2)], flush_interval_seconds=1) as first:
        first.send([record("orders", {"id": 2, "text": "x"}), state("orders", 2)])
        first.wait_for_states(1)
        warehouse.sync([stream(generation=3, minimum=3)], orders(3))
        first.send([record("orders", {"id": 4, "text": "x"}), state("orders", 4)])
        fenced = first.close()

    assert fenced.exit_code == 1
    assert any("has taken over the table" in error["message"] for error in fenced.errors), fenced.report()
    assert lake.endpoint.refused == []
    assert warehouse.ids("orders") == [3]


def test_a_commit_whose_answer_is_lost_is_made_once(warehouse: Warehouse, lake: ServiceLake) -> None:
    warehouse.sync([stream()], orders(1))
    lake.server.interfere("updateTable", lost(502))

    warehouse.sync([stream()], orders(2))

    assert warehouse.ids("orders") == [1, 2]


def test_a_check_succeeds_and_leaves_no_table(platform: Platform, lake: ServiceLake) -> None:
    run = platform.check(lake.config())

    assert run.connection_status["status"] == "SUCCEEDED", run.report()
    assert lake.tables() == []
    assert lake.endpoint.refused == []


def test_names_that_the_service_does_not_take_are_told_before_anything_is_read(
    warehouse: Warehouse, lake: ServiceLake
) -> None:
    if not lake.server.behaviour.assigns_locations:
        warehouse.sync([stream()], orders(1), table_prefix="_", lakeformation_database_name=f"{lake.database}-1")
        return

    of_stream = warehouse.attempt([stream()], orders(1), table_prefix="_")
    of_database = warehouse.attempt([stream()], orders(1), lakeformation_database_name="lake-1")

    for run, words in ((of_stream, "_orders is not a valid name"), (of_database, "lakeformation_database_name lake-1")):
        assert run.exit_code == 1
        assert any(words in error["message"] for error in run.errors), run.report()
    assert lake.server.requests["createTable"] == 0


def test_a_table_without_room_for_another_commit_is_told_when_it_is_loaded(serve: Serve, plain_lake: Lake) -> None:
    server = serve(Behaviour())
    table = Client(server.endpoint_url, plain_lake).new_table()
    options = RestCatalogOptions(type="rest", uri=server.endpoint_url)
    access = AwsAccess(REGION, endpoint_url=plain_lake.endpoint_url)
    written = len(server.metadata(*table.name()).model_dump_json())

    def is_found(limits: CatalogLimits) -> bool:
        governance = Governance(Policy(f"arn:aws:s3:::{plain_lake.bucket}"), access)
        return RestTableCatalog(options, access, governance, limits).find(TableName(*table.name())) is not None

    assert is_found(CatalogLimits(metadata_bytes=written * 2))
    with pytest.raises(ConfigError, match="Expire snapshots"):
        is_found(CatalogLimits(metadata_bytes=written))
    assert is_found(NO_LIMITS)  # As `maintain` has it, which is the remedy.


def test_maintenance_of_a_table_bucket_is_the_service_s(platform: Platform, lake: ServiceLake) -> None:
    told = platform.check(lake.config(maintenance={"mode": "connector"})).connection_status

    if lake.server.behaviour.assigns_locations:
        assert "maintenance.mode connector does not apply to table buckets" in told["message"]
    else:
        assert told["status"] == "SUCCEEDED"
