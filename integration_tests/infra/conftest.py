"""Who uses what a stack has created: Airbyte, which may assume roles and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from emulated_aws.account import Account, Member, allow
from emulated_aws.server import AwsServer

from integration_tests.harness.runs.launch import with_variables
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.infra.lake import DeployedLake

Deploy: TypeAlias = Callable[..., DeployedLake]


@pytest.fixture
def account(aws: AwsServer) -> Account:
    """The account, as its administrator sees it."""
    return Account(aws.endpoint_url)


@pytest.fixture(scope="session")
def airbyte(aws: AwsServer) -> Member:
    """The same user for all tests: Spark starts workers for each user whose credentials are in the environment."""
    return Account(aws.endpoint_url).user(allow("sts:AssumeRole"))


@pytest.fixture
def deploy(aws: AwsServer, airbyte: Member) -> Deploy:
    """Deploys a new stack with the parameters given."""

    def deployed(**parameters: str) -> DeployedLake:
        return DeployedLake(aws.endpoint_url, airbyte, **parameters)

    return deployed


@pytest.fixture
def platform(tmp_path: Path, launch: WarmLaunch, airbyte: Member) -> Platform:
    """Airbyte, with that user's credentials in its environment."""
    return Platform(tmp_path, with_variables(launch, **airbyte.environment))
