"""Rows are deduplicated in Iceberg tables."""

import pytest

from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import Warehouse

ICEBERG = TABLE_KINDS[0]


@pytest.fixture
def warehouse(lake: Lake, platform: Platform) -> Warehouse:
    """A new lake of Iceberg tables, and the platform that syncs into it."""
    return Warehouse(lake, platform, ICEBERG)
