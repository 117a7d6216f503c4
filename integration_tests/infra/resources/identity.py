"""Roles and their policies."""

from __future__ import annotations

import json

from integration_tests.infra.resources.resource import Aws, Properties, every
from integration_tests.infra.template import Made


def role(aws: Aws, logical_name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::IAM::Role."""
    iam = aws.client("iam")
    name = aws.name(logical_name)
    with every(properties) as rest:
        trust, description = json.dumps(rest.pop("AssumeRolePolicyDocument")), rest.pop("Description")
        seconds = int(rest.pop("MaxSessionDuration", 3600))
        if made is None:
            created = iam.create_role(
                RoleName=name, AssumeRolePolicyDocument=trust, Description=description, MaxSessionDuration=seconds
            )["Role"]
            return Made(name, {"Arn": created["Arn"]})
        iam.update_role(RoleName=name, Description=description, MaxSessionDuration=seconds)
        iam.update_assume_role_policy(RoleName=name, PolicyDocument=trust)
    return made


def role_policy(aws: Aws, logical_name: str, properties: Properties, _made: Made | None) -> Made:
    """AWS::IAM::RolePolicy."""
    with every(properties) as rest:
        aws.client("iam").put_role_policy(
            RoleName=rest.pop("RoleName"),
            PolicyName=rest.pop("PolicyName"),
            PolicyDocument=json.dumps(rest.pop("PolicyDocument")),
        )
    return Made(aws.name(logical_name))
