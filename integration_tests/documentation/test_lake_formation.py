"""The page on Lake Formation, followed by a user with an empty account: every command on it is run, in order."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.aws.server import REGION, AwsServer
from integration_tests.documentation.aws_cli import AwsCli
from integration_tests.documentation.cloudformation import cloudformation
from integration_tests.documentation.commands import Commands
from integration_tests.documentation.connector import connector
from integration_tests.documentation.shell import Shell
from integration_tests.documentation.steps import steps
from integration_tests.harness.account import Account
from integration_tests.harness.runs.warm import WarmLaunch

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/lake-formation.md"


@pytest.fixture
def shell(tmp_path: Path, launch: WarmLaunch) -> Iterator[Shell]:
    """A shell in a copy of the repository's templates, for an account with nothing in it but an administrator."""
    home, path = tmp_path / "home", tmp_path / "bin"
    home.mkdir()
    path.mkdir()
    (home / "infra").symlink_to(ROOT / "infra")
    with AwsServer() as aws, AwsCli(path):
        commands = {
            "destination-datalake": connector(launch),
            "aws-cloudformation": cloudformation(aws.endpoint_url),
        }
        with Commands(path, commands):
            yield Shell(home, path, {"AWS_ENDPOINT_URL": aws.endpoint_url, "AWS_DEFAULT_REGION": REGION})


@pytest.mark.slow
def test_the_page(shell: Shell) -> None:
    shell.save(".aws/credentials", administrator(shell.environment["AWS_ENDPOINT_URL"]))

    shell.follow(steps(PAGE.read_text(encoding="utf-8")))


def administrator(endpoint_url: str) -> str:
    """Return the file of credentials of a user who may do everything."""
    iam = Account(endpoint_url).client("iam")
    iam.create_user(UserName="admin")
    iam.put_user_policy(
        UserName="admin",
        PolicyName="everything",
        PolicyDocument='{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}',
    )
    key = iam.create_access_key(UserName="admin")["AccessKey"]
    return f"[default]\naws_access_key_id = {key['AccessKeyId']}\naws_secret_access_key = {key['SecretAccessKey']}\n"
