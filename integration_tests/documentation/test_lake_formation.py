"""The page on Lake Formation, followed by a user with an empty account: every command on it is run, in order."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import jmespath  # type: ignore[import-untyped]
import pytest
from emulated_aws.account import Account
from emulated_aws.server import REGION, AwsServer

from integration_tests.documentation.aws_cli import aws_cli
from integration_tests.documentation.commands import Call, Command, answered
from integration_tests.documentation.connector import connector
from integration_tests.documentation.shell import Shell, steps
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.infra.stack import Stack
from integration_tests.infra.template import Template, TemplateError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/lake-formation.md"


@pytest.fixture
def shell(tmp_path: Path, launch: WarmLaunch) -> Iterator[Shell]:
    """A shell in a copy of the repository's templates, for an account with nothing in it but an administrator."""
    home, path = tmp_path / "home", tmp_path / "bin"
    home.mkdir()
    path.mkdir()
    (home / "infra").symlink_to(ROOT / "infra")
    with AwsServer() as aws, aws_cli(path):
        commands = {
            "destination-datalake": connector(launch),
            "aws-cloudformation": cloudformation(aws.endpoint_url),
        }
        with answered(path, commands):
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


def cloudformation(endpoint_url: str) -> Command:
    """Return the command `aws-cloudformation deploy` and `describe-stacks`, on stacks that the tests' replayer makes.

    moto's own CloudFormation leaves out half of the template.
    """
    stacks: dict[str, Stack] = {}

    def run(call: Call) -> int:
        asked = _parser().parse_args(call.arguments)
        try:
            if asked.command == "deploy":
                template = Template.read(call.folder / asked.template_file)
                stack = stacks.setdefault(asked.stack_name, Stack(template, asked.stack_name, endpoint_url))
                stack.deploy(**dict(parameter.split("=", 1) for parameter in asked.parameter_overrides))
                answer = f"Successfully created/updated stack - {asked.stack_name}"
            else:
                answer = _described(asked.stack_name, stacks[asked.stack_name], asked.query)
        except (TemplateError, KeyError) as error:
            call.stderr.write(f"{error}\n".encode())
            return 255
        call.stdout.write(f"{answer}\n".encode())
        return 0

    return run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    commands = parser.add_subparsers(dest="command", required=True)
    deploy = commands.add_parser("deploy")
    deploy.add_argument("--template-file", required=True)
    deploy.add_argument("--stack-name", required=True)
    # Without it CloudFormation makes no role.
    deploy.add_argument("--capabilities", choices=["CAPABILITY_IAM"], required=True)
    deploy.add_argument("--parameter-overrides", nargs="*", default=[])
    describe = commands.add_parser("describe-stacks")
    describe.add_argument("--stack-name", required=True)
    describe.add_argument("--query", required=True)
    describe.add_argument("--output", choices=["text"], required=True)
    return parser


def _described(name: str, stack: Stack, query: str) -> str:
    outputs = [{"OutputKey": key, "OutputValue": value} for key, value in stack.outputs.items()]
    result = jmespath.search(query, {"Stacks": [{"StackName": name, "Outputs": outputs}]})
    # As the AWS CLI prints text: what stands in a list is separated by tabs.
    return "\t".join(map(str, result)) if isinstance(result, list) else str(result)
