"""The tests' AWS itself under test: one account for all of these tests."""

from collections.abc import Iterator

import pytest

from integration_tests.aws.server import AwsServer
from integration_tests.harness.account import Account


@pytest.fixture(scope="package")
def account() -> Iterator[Account]:
    with AwsServer() as server:
        yield Account(server.endpoint_url)


@pytest.fixture(scope="package")
def bucket(account: Account) -> str:
    account.client("s3").create_bucket(Bucket="landing")
    return "landing"
