"""A stack of a CloudFormation template on the tests' AWS, which makes, changes and keeps what CloudFormation would."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import boto3
from awscli.clidriver import create_clidriver  # type: ignore[import-untyped]
from emulated_aws.server import ACCESS_KEY_ID, ACCOUNT_ID, REGION, SECRET_ACCESS_KEY

from integration_tests.infra.resources import TYPES, Aws
from integration_tests.infra.template import Made, Resolver, Template


class Stack:
    """A stack by name, deployed by the account's administrator; `outputs` are those of the last deployment.

    A second deployment touches only resources whose properties have changed. It removes nothing: a template under test
    keeps its data, and the rest does not matter to a test.
    """

    def __init__(self, template: Template, name: str, endpoint_url: str) -> None:
        self.outputs: Mapping[str, str] = {}
        self.resources: dict[str, Made] = {}
        self._endpoint_url = endpoint_url
        self._aws = Aws(name, ACCOUNT_ID, REGION, partial(_client, endpoint_url))
        self._template = template
        self._properties: dict[str, Any] = {}

    def deploy(self, **parameters: str) -> list[str]:
        """Create or update; return the logical names of the resources that were touched, in order.

        Raises TemplateError for what CloudFormation refuses before it touches anything.
        """
        resolver = Resolver(self._template, parameters, pseudo(self._aws.stack))
        touched = []
        for name in resolver.order():
            resolver.made |= self.resources
            properties = resolver.properties(name)
            if self._properties.get(name) != properties:
                put = TYPES[self._template.resources[name]["Type"]]
                self.resources[name] = put(self._aws, name, properties, self.resources.get(name))
                self._properties[name] = properties
                touched.append(name)
        resolver.made |= self.resources
        self.outputs = resolver.outputs()
        return touched

    def properties(self, logical_name: str) -> Mapping[str, Any]:
        """Return a resource's properties, as they were applied."""
        applied: Mapping[str, Any] = self._properties[logical_name]
        return applied

    def run_commands(self, output: str) -> None:
        """Run the commands of an output with the AWS CLI, as the account's administrator."""
        environment = {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "AWS_ENDPOINT_URL": self._endpoint_url,
        }
        with patch.dict("os.environ", environment):
            for line in self.outputs[output].splitlines():
                aws, *words = shlex.split(line)
                assert (aws, create_clidriver().main(words)) == ("aws", 0), line


def pseudo(stack: str) -> Mapping[str, str]:
    """Return the pseudo parameters of a stack in the tests' account."""
    return {
        "AWS::AccountId": ACCOUNT_ID,
        "AWS::Partition": "aws",
        "AWS::Region": REGION,
        "AWS::StackName": stack,
        "AWS::URLSuffix": "amazonaws.com",
    }


@cache
def _client(endpoint_url: str, service: str) -> Any:
    """Return the client that all stacks share: making one takes longer than a deployment."""
    client: Any = boto3.Session(ACCESS_KEY_ID, SECRET_ACCESS_KEY, region_name=REGION).client
    return client(service, endpoint_url=endpoint_url)
