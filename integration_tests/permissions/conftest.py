"""The platform's workers, whose identity may assume roles and nothing else."""

import pytest

from integration_tests.aws.server import ACCOUNT_ID, AwsServer
from integration_tests.harness.account import Account, Member, allow


@pytest.fixture(scope="session")
def workers(aws: AwsServer) -> Member:
    """One for all tests: Python workers of Spark are shared by runs with the same environment."""
    return Account(aws.endpoint_url).user(allow("sts:AssumeRole", resource=f"arn:aws:iam::{ACCOUNT_ID}:role/*"))
