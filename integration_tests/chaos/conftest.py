"""What the rounds of the test run are played with."""

from collections.abc import Iterator

import pytest
from emulated_aws.server import AwsServer

from integration_tests.chaos.aws.adversary import HostileAws


@pytest.fixture(scope="session")
def hostile_aws(aws: AwsServer) -> Iterator[HostileAws]:
    """The session's account, with adversaries in front of it."""
    with HostileAws(aws.endpoint_url) as hostile:
        yield hostile
