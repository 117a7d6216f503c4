"""What tests of tables share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from emulated_aws.server import AwsServer


@pytest.fixture(scope="session")
def server() -> Iterator[AwsServer]:
    with AwsServer() as running:
        yield running
