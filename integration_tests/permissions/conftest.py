"""The platform's workers, whose identity may assume roles and nothing else."""

import pytest
from emulated_aws.account import Account, Member, allow
from emulated_aws.server import ACCOUNT_ID, AwsServer


@pytest.fixture(scope="session")
def workers(aws: AwsServer) -> Member:
    """One for all tests: Python workers of Spark are shared by runs with the same environment."""
    return Account(aws.endpoint_url).user(allow("sts:AssumeRole", resource=f"arn:aws:iam::{ACCOUNT_ID}:role/*"))
