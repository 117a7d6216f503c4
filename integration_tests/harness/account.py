"""The account of the tests' AWS as its administrator sees it: users and roles with policies of a test's choice."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
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

    def governed_database(self, name: str) -> None:
        """Create a database of which Lake Formation and not IAM alone decides: nobody has it, or a table in it."""
        self.client("glue").create_database(DatabaseInput={"Name": name, "CreateTableDefaultPermissions": []})
        self.client("lakeformation").revoke_permissions(
            Principal={"DataLakePrincipalIdentifier": "IAM_ALLOWED_PRINCIPALS"},
            Resource={"Database": {"Name": name}},
            Permissions=["ALL"],
        )

    def client(self, service: str, member: Member | None = None, region: str = REGION) -> Any:
        """Return a client of a member's, or of the administrator's."""
        keys = member.environment if member is not None else _ADMINISTRATOR
        if member is not None and "role_arn" in member.credentials:
            keys = self.session(member)
        return _client(service, self.endpoint_url, region, **keys)

    def session(self, role: Member) -> Mapping[str, str]:
        """Assume a role; return the variables of the environment that have its credentials."""
        option = role.credentials
        given: Any = {"ExternalId": option["external_id"]} if "external_id" in option else {}
        sts = _client("sts", self.endpoint_url, REGION, **role.environment)
        issued = sts.assume_role(RoleArn=role.arn, RoleSessionName="test", **given)["Credentials"]
        return dict(zip(_KEYS, (issued[name] for name in _ISSUED), strict=True))

    @contextmanager
    def governed(self, *administrators: Member, region: str = REGION) -> Iterator[None]:
        """Let Lake Formation decide about databases and tables that are created meanwhile, and not IAM alone.

        Nobody may create databases but these data lake administrators, and whom they grant it to.
        """
        lake_formation = self.client("lakeformation", region=region)
        before = lake_formation.get_data_lake_settings()["DataLakeSettings"]
        everybody = {
            "Principal": {"DataLakePrincipalIdentifier": "IAM_ALLOWED_PRINCIPALS"},
            "Resource": {"Catalog": {}},
            "Permissions": ["CREATE_DATABASE"],
        }
        lake_formation.put_data_lake_settings(
            DataLakeSettings={
                "DataLakeAdmins": [{"DataLakePrincipalIdentifier": member.arn} for member in administrators],
                "CreateDatabaseDefaultPermissions": [],
                "CreateTableDefaultPermissions": [],
            }
        )
        lake_formation.revoke_permissions(**everybody)
        try:
            yield
        finally:
            lake_formation.grant_permissions(**everybody)
            lake_formation.put_data_lake_settings(DataLakeSettings=before)

    def grant(self, member: Member, resource: Document, *permissions: str, region: str = REGION) -> None:
        """Grant Lake Formation's permissions on a resource, as its API writes resources."""
        self.client("lakeformation", region=region).grant_permissions(
            Principal={"DataLakePrincipalIdentifier": member.arn}, Resource=resource, Permissions=list(permissions)
        )

    def log(self) -> RequestLog:
        """Return the log of what is asked of the account from now on."""
        return RequestLog(self.endpoint_url)


_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_ISSUED = ("AccessKeyId", "SecretAccessKey", "SessionToken")
_ADMINISTRATOR = {"AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}


@cache
def _boto3() -> Any:
    """Return the session that all clients come from: each session reads botocore's models anew."""
    return boto3.Session()


@cache
def _client(service: str, endpoint_url: str, region: str, **keys: str) -> Any:
    given = {name.lower(): value for name, value in keys.items()}
    return _boto3().client(service, endpoint_url=endpoint_url, region_name=region, **given)


def _new(kind: str) -> str:
    return f"{kind}-{uuid4().hex[:10]}"


def _statement(effect: str, actions: Sequence[str], resource: object, condition: Document | None) -> Document:
    statement = {"Effect": effect, "Action": list(actions), "Resource": resource}
    return statement if condition is None else {**statement, "Condition": condition}
