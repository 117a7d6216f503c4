"""The platform of the conformance suite: runs are forked and share one Spark (see `warm`)."""

from pathlib import Path

import pytest

from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TableKind
from integration_tests.harness.warehouse import Warehouse


@pytest.fixture
def platform(tmp_path: Path, launch: WarmLaunch) -> Platform:
    """Airbyte, about to run the connector in a process that starts at once."""
    return Platform(tmp_path, launch)


@pytest.fixture
def container(tmp_path: Path) -> Platform:
    """Airbyte, about to run the console script with a Spark of its own, as an image's container does."""
    return Platform(tmp_path)


@pytest.fixture
def warehouse(lake: Lake, platform: Platform, table_kind: TableKind) -> Warehouse:
    """A new lake for each kind of table, and the platform that syncs into it."""
    return Warehouse(lake, platform, table_kind)
