"""What tests of tables share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from destination_datalake.aws.access import AccessKeys, AwsAccess
from integration_tests.harness.aws_server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, AwsServer
from unit_tests.cloud import Cloud
from unit_tests.cloud import cloud as an_account
from unit_tests.lake import Lake


@pytest.fixture(scope="session")
def server() -> Iterator[AwsServer]:
    with AwsServer() as running:
        yield running


@pytest.fixture
def lake(server: AwsServer) -> Lake:
    return Lake(AwsAccess(REGION, AccessKeys(ACCESS_KEY_ID, SECRET_ACCESS_KEY), server.endpoint_url))


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """An account inside the test's own process."""
    with an_account() as account:
        yield account
