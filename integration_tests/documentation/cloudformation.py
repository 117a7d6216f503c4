"""The commands `aws cloudformation deploy` and `describe-stacks`, on stacks that the tests' replayer makes.

moto's own CloudFormation leaves out half of the template.
"""

import argparse

import jmespath  # type: ignore[import-untyped]

from integration_tests.documentation.commands import Call, Command
from integration_tests.infra.stack import Stack
from integration_tests.infra.template import Template, TemplateError


def cloudformation(endpoint_url: str) -> Command:
    """Return the command `aws-cloudformation`, with an account's stacks."""
    stacks: dict[str, Stack] = {}

    def run(call: Call) -> int:
        asked = _parser().parse_args(call.arguments)
        try:
            if asked.command == "deploy":
                template = Template.read(call.folder / asked.template_file)
                stack = stacks.setdefault(asked.stack_name, Stack(template, asked.stack_name, endpoint_url))
                stack.deploy(**dict(each.split("=", 1) for each in asked.parameter_overrides))
                said = f"Successfully created/updated stack - {asked.stack_name}"
            else:
                said = _described(asked.stack_name, stacks[asked.stack_name], asked.query)
        except (TemplateError, KeyError) as error:
            call.stderr.write(f"{error}\n".encode())
            return 255
        call.stdout.write(f"{said}\n".encode())
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
    found = jmespath.search(query, {"Stacks": [{"StackName": name, "Outputs": outputs}]})
    # As the AWS CLI prints text: what stands in a list is separated by tabs.
    return "\t".join(map(str, found)) if isinstance(found, list) else str(found)
