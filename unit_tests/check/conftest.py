"""The account that checks try."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unit_tests.cloud import Cloud
from unit_tests.cloud import cloud as an_account


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with an_account() as account:
        yield account
