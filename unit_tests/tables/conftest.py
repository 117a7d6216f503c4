"""What tests of tables share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration_tests.harness.aws_server import AwsServer
from unit_tests.cloud import Cloud
from unit_tests.cloud import cloud as an_account


@pytest.fixture(scope="session")
def server() -> Iterator[AwsServer]:
    with AwsServer() as running:
        yield running


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """An account inside the test's own process."""
    with an_account() as account:
        yield account
