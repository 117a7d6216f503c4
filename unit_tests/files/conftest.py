"""What the tests of files share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from unit_tests.cloud import Cloud


@pytest.fixture
def lake(cloud: Cloud) -> Cloud:
    """An account whose bucket is that of a table."""
    return cloud
