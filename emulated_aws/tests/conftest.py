"""Fixtures for the tests of the emulated AWS. All tests use the same account."""

from collections.abc import Iterator

import boto3
import pytest
from emulated_aws.account import Account
from emulated_aws.extension import install
from emulated_aws.server import AwsServer
from moto import mock_aws


@pytest.fixture(scope="package")
def account() -> Iterator[Account]:
    with AwsServer() as server:
        yield Account(server.endpoint_url)


@pytest.fixture(scope="package")
def bucket(account: Account) -> str:
    account.client("s3").create_bucket(Bucket="landing")
    return "landing"


@pytest.fixture
def session() -> Iterator[boto3.Session]:
    """A boto3 session with an account that is emulated in the test's own process."""
    install()
    with mock_aws():
        yield boto3.Session("AKIA0123456789", "not-a-secret", region_name="us-east-1")
