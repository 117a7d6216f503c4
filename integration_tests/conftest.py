"""The test world: an AWS account, a lake in it, the platform, and the kinds of table that a sync can end in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness.aws_server import AwsServer
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import SharedSpark, WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind

ACCEPTANCE = Path(__file__).parent / "acceptance"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--airbyte-data",
        type=Path,
        metavar="DIR",
        help="folder with Airbyte's test data (v0/, v1/); the acceptance suite is collected only with it",
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
def launch() -> Iterator[WarmLaunch]:
    """How runs are started that are forked and share one Spark."""
    with SharedSpark() as spark:
        yield WarmLaunch(spark.gateway)


@pytest.fixture
def lake(aws: AwsServer) -> Lake:
    """A new bucket and a database name nobody else uses."""
    return Lake(aws.endpoint_url)


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    """Airbyte, about to run the connector."""
    return Platform(tmp_path)


@pytest.fixture(params=TABLE_KINDS, ids=lambda kind: kind.name)
def table_kind(request: pytest.FixtureRequest) -> TableKind:
    """Each kind of table in turn; give `**table_kind.options` to `lake.config`."""
    kind: TableKind = request.param
    return kind
