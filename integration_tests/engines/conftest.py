"""The engine that all tests here ask."""

from collections.abc import Iterator

import pytest
from emulated_aws.server import AwsServer

from integration_tests.engines.engine import Engine


@pytest.fixture(scope="session")
def engine(aws: AwsServer) -> Iterator[Engine]:
    """Spark with Iceberg; without it the tests fail."""
    with Engine(aws.endpoint_url) as started:
        yield started
