"""The account of the tests' AWS as its administrator sees it: users and roles with policies of a test's choice."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import boto3

from integration_tests.aws.requests.log import RequestLog
from integration_tests.aws.server import ACCESS_KEY_ID, ACCOUNT_ID, REGION, SECRET_ACCESS_KEY

Document = Mapping[str, Any]
"""A policy document."""


def allow(*actions: str, resource: str | Sequence[str] = "*", condition: Document | None = None) -> Document:
    """Return a statement that allows these actions."""
    return _statement("Allow", actions, resource, condition)


def deny(*actions: str, resource: str | Sequence[str] = "*", condition: Document | None = None) -> Document:
    """Return a statement that denies these actions."""
    return _statement("Deny", actions, resource, condition)


def policy(*statements: Document) -> str:
    """Return a policy of these statements."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def trust(principal: str, external_id: str | None = None) -> str:
    """Return the policy of a role that this principal may assume, with this external id if any."""
    condition = {} if external_id is None else {"Condition": {"StringEquals": {"sts:ExternalId": external_id}}}
    return policy({"Effect": "Allow", "Principal": {"AWS": principal}, "Action": "sts:AssumeRole", **condition})


@dataclass(frozen=True)
class Member:
    """A user or a role of the account.

    `credentials` is the connector's option. `environment` has the variables that AWS's default chain reads: for a role
    they are those of a user who may assume it and nothing else.
    """

    arn: str
    name: str
    credentials: Mapping[str, str] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)


class Account:
    """Creates users and roles; names are new each time."""

    def __init__(self, endpoint_url: str) -> None:
        self.endpoint_url = endpoint_url

    def user(self, *statements: Document) -> Member:
        """Create a user with an access key, allowed what the statements say."""
        name = _new("user")
        arn = self.client("iam").create_user(UserName=name)["User"]["Arn"]
        self.permit_user(name, *statements)
        key = self.client("iam").create_access_key(UserName=name)["AccessKey"]
        option = {
            "credentials_title": "IAM User",
            "aws_access_key_id": key["AccessKeyId"],
            "aws_secret_access_key": key["SecretAccessKey"],
        }
        environment = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
        return Member(arn, name, option, environment)

    def role(
        self, *statements: Document, external_id: str | None = None, trusted: str | None = None, max_seconds: int = 3600
    ) -> Member:
        """Create a role that is allowed what the statements say.

        Whoever is `trusted` may assume it (the account, if nobody is named), for `max_seconds` at most.
        """
        name = _new("role")
        role = self.client("iam").create_role(
            RoleName=name,
            AssumeRolePolicyDocument=trust(trusted or f"arn:aws:iam::{ACCOUNT_ID}:root", external_id),
            MaxSessionDuration=max_seconds,
        )["Role"]
        self.permit_role(name, *statements)
        option = {"credentials_title": "IAM Role", "role_arn": role["Arn"]}
        if external_id is not None:
            option["external_id"] = external_id
        holder = self.user(allow("sts:AssumeRole", resource=role["Arn"]))
        return Member(role["Arn"], name, option, holder.environment)

    def permit_user(self, name: str, *statements: Document) -> None:
        """Let a user be allowed what the statements say, and no longer what it was."""
        if statements:
            self.client("iam").put_user_policy(UserName=name, PolicyName="test", PolicyDocument=policy(*statements))

    def permit_role(self, name: str, *statements: Document) -> None:
        """Let a role be allowed what the statements say, and no longer what it was."""
        if statements:
            self.client("iam").put_role_policy(RoleName=name, PolicyName="test", PolicyDocument=policy(*statements))

    def client(self, service: str, member: Member | None = None, region: str = REGION) -> Any:
        """Return a client of a member's, or of the administrator's."""
        environment = member.environment if member is not None else _ADMINISTRATOR
        session = _session(environment, region)
        if member is not None and "role_arn" in member.credentials:
            sts = session.client("sts", endpoint_url=self.endpoint_url)
            given: Any = (
                {"ExternalId": member.credentials["external_id"]} if "external_id" in member.credentials else {}
            )
            issued = sts.assume_role(RoleArn=member.arn, RoleSessionName="test", **given)["Credentials"]
            keys = issued["AccessKeyId"], issued["SecretAccessKey"], issued["SessionToken"]
            session = _session(dict(zip(_VARIABLES, keys, strict=True)), region)
        client: Any = session.client
        return client(service, endpoint_url=self.endpoint_url)

    def log(self) -> RequestLog:
        """Return the log of what is asked of the account from now on."""
        return RequestLog(self.endpoint_url)


_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_ADMINISTRATOR = {"AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}


def _session(environment: Mapping[str, str], region: str) -> boto3.Session:
    key, secret, token = (environment.get(name) for name in _VARIABLES)
    return boto3.Session(key, secret, token, region)


def _new(kind: str) -> str:
    return f"{kind}-{uuid4().hex[:10]}"


def _statement(effect: str, actions: Sequence[str], resource: object, condition: Document | None) -> Document:
    statement = {"Effect": effect, "Action": list(actions), "Resource": resource}
    return statement if condition is None else {**statement, "Condition": condition}
