"""A stream that is deduplicated."""

from __future__ import annotations

import pytest

from unit_tests.tables.iceberg.dedup.orders import Orders
from unit_tests.tables.iceberg.lake import Lake


@pytest.fixture
def orders(lake: Lake) -> Orders:
    return Orders(lake)
