"""The test world: an AWS account, a lake in it, the platform, and the kinds of table that a sync can end in."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from emulated_aws.server import AwsServer

from integration_tests.archive.replays import Replays
from integration_tests.harness.engines.spark import SparkReader
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.launch import Launch, launch_command
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import SharedSpark, WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import Warehouse

ACCEPTANCE = Path(__file__).parent / "acceptance"

collect_ignore = ["engines", "cluster", "clients"]
"""Not collected unless they are named, as `make test-engines` does: they download an engine, or a client."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--airbyte-data",
        type=Path,
        metavar="DIR",
        help="folder with Airbyte's test data (v0/, v1/); the acceptance suite is collected only with it",
    )
    parser.addoption(
        "--iceberg-catalog",
        type=Path,
        metavar="DIR",
        help="folder with the jars of Iceberg's own REST catalog, which tests of what all catalogs do then ask too",
    )
    parser.addoption(
        "--rest-catalog",
        action="store_true",
        help="Iceberg tables of scenarios are in a REST catalog, and not in Glue",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    without_data = config.getoption("--airbyte-data") is None
    return True if without_data and collection_path == ACCEPTANCE else None


@pytest.fixture(scope="session")
def aws() -> Iterator[AwsServer]:
    """An AWS account that the tests of a session share; names keep them apart."""
    with AwsServer() as server:
        yield server


@pytest.fixture(scope="session")
def shared_spark() -> Iterator[SharedSpark]:
    """The Spark that forked runs share."""
    with SharedSpark() as spark:
        yield spark


@pytest.fixture(scope="session")
def launch(shared_spark: SharedSpark) -> WarmLaunch:
    """How runs are started that are forked and share one Spark."""
    return WarmLaunch(shared_spark.gateway)


@pytest.fixture(scope="session")
def spark_reader(shared_spark: SharedSpark) -> SparkReader:
    """Spark's own reader, in the same JVM."""
    return SparkReader(shared_spark.context)


@pytest.fixture
def lake(aws: AwsServer, pytestconfig: pytest.Config) -> Iterator[Lake]:
    """A new bucket and an unused database name."""
    if not pytestconfig.getoption("--rest-catalog"):
        yield Lake(aws.endpoint_url)
        return
    from integration_tests.harness.rest_lake import RestLake

    with RestLake(aws.endpoint_url) as rest_lake:
        yield rest_lake


@pytest.fixture
def platform(tmp_path: Path, launch: WarmLaunch) -> Platform:
    """Airbyte, about to run the connector in a process that starts at once."""
    return Platform(tmp_path, launch)


@pytest.fixture
def warehouse(lake: Lake, platform: Platform, table_kind: TableKind) -> Warehouse:
    """A new lake for each kind of table, and the platform that syncs into it."""
    return Warehouse(lake, platform, table_kind)


@pytest.fixture
def replays(launch: WarmLaunch, tmp_path: Path) -> Replays:
    """The command `replay`, in a process that starts at once."""
    return Replays(launch, tmp_path)


COLD_STARTS: Mapping[str, str] = {
    "test_spec_answers_with_exactly_one_message": "the console script answers before anything is loaded",
    "test_a_working_configuration_succeeds_and_leaves_only_the_database_behind": "the console script checks",
    "test_a_spark_that_dies_ends_the_sync_with_what_was_acknowledged_safe": "kills the connector's own JVM",
    "test_with_spark_dead_reading_stops_long_before_the_input_ends": "kills the connector's own JVM",
    "test_a_sync_outlives_the_credentials_of_its_role": "workers take the role with keys they find",
    "test_a_session_token_that_aws_repeats_is_not_repeated_by_us": "workers take the role with keys they find",
    "test_the_secret_of_an_access_key_stays_in_the_memory_of_processes": "looks at all of its own processes",
    "test_a_cluster_that_shares_no_disk_makes_the_same_tables": "has its executors elsewhere",
    "test_a_sync_over_spark_connect_outlives_its_session_and_leaves_nothing_behind": "has its Spark elsewhere",
    "test_rows_are_erased_over_spark_connect": "has its Spark elsewhere",
    "test_a_dry_run_says_what_the_command_then_does": "`maintain` starts Spark when there is something to compact",
    "test_an_endpoint_in_the_environment_is_every_client_s": "workers find the endpoint in their environment",
}
"""The tests that run the console script with a Spark of its own, each with its reason: it takes ten times as long."""


@pytest.fixture
def launch_cold(request: pytest.FixtureRequest) -> Launch:
    """How the console script is started, as an image's container does it; for the tests in `COLD_STARTS` only."""
    assert request.function.__name__ in COLD_STARTS, "say in COLD_STARTS why this test needs a cold start"
    return launch_command


@pytest.fixture
def container(tmp_path: Path, launch_cold: Launch) -> Platform:
    """Airbyte, about to run the console script with a Spark of its own, as an image's container does."""
    return Platform(tmp_path, launch_cold)


@pytest.fixture(params=TABLE_KINDS, ids=lambda kind: kind.name)
def table_kind(request: pytest.FixtureRequest) -> TableKind:
    """Each kind of table in turn; give `**table_kind.options` to `lake.config`."""
    kind: TableKind = request.param
    return kind
