"""The table types that the behaviours are tried on, and the two ways of writing to them."""

from pathlib import Path

import pytest
from emulated_aws.server import AwsServer

from integration_tests.harness.lake import Lake
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind
from unit_tests.tables.behaviour.shop import Shop


@pytest.fixture(params=TABLE_KINDS, ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> TableKind:
    param: TableKind = request.param
    return param


@pytest.fixture(scope="session")
def readers_lake(server: AwsServer) -> Lake:
    """Shared, as making clients of AWS takes longer than a test."""
    return Lake(server.endpoint_url)


@pytest.fixture
def shop(kind: TableKind, readers_lake: Lake, tmp_path: Path) -> Shop:
    return Shop(readers_lake, kind, tmp_path)


@pytest.fixture(params=[False, True], ids=["append", "overwrite"])
def overwrite(request: pytest.FixtureRequest) -> bool:
    """Whether the sync overwrites the table."""
    param: bool = request.param
    return param
