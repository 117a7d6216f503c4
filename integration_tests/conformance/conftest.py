"""The platform of the conformance suite: runs are forked and share one Spark (see `warm`)."""

import pytest

from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TableKind
from integration_tests.harness.warehouse import Warehouse


@pytest.fixture
def warehouse(lake: Lake, platform: Platform, table_kind: TableKind) -> Warehouse:
    """A new lake for each kind of table, and the platform that syncs into it."""
    return Warehouse(lake, platform, table_kind)
