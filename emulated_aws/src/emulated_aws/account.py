"""The emulated AWS account from the administrator's view: creates users and roles with policies chosen by a test."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import uuid4

import boto3

from emulated_aws.requests.log import RequestLog
from emulated_aws.server import ACCESS_KEY_ID, ACCOUNT_ID, REGION, SECRET_ACCESS_KEY

Document = Mapping[str, Any]
"""A policy document, or a statement of one, as JSON."""


def allow(*actions: str, resource: str | Sequence[str] = "*", condition: Document | None = None) -> Document:
    """Return a policy statement that allows these actions."""
    return _statement("Allow", actions, resource, condition)


def deny(*actions: str, resource: str | Sequence[str] = "*", condition: Document | None = None) -> Document:
    """Return a policy statement that denies these actions."""
    return _statement("Deny", actions, resource, condition)


def policy(*statements: Document) -> str:
    """Return a policy document with these statements, as JSON text."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def trust(principal: str, external_id: str | None = None) -> str:
    """Return the trust policy that lets a principal assume a role, as JSON text.

    If `external_id` is set, the principal must present this external ID.
    """
    condition = {} if external_id is None else {"Condition": {"StringEquals": {"sts:ExternalId": external_id}}}
    return policy({"Effect": "Allow", "Principal": {"AWS": principal}, "Action": "sts:AssumeRole", **condition})


@dataclass(frozen=True)
class Member:
    """A user or a role in the account.

    `credentials` is the value of the connector's option `credentials`. `environment` contains the variables of AWS's
    default credential chain. For a role, the variables belong to a user whose only permission is to assume the role.
    """

    arn: str
    name: str
    credentials: Mapping[str, str] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)


class Account:
    """Creates users and roles with unique names in the emulated AWS account."""

    def __init__(self, endpoint_url: str) -> None:
        self.endpoint_url = endpoint_url

    def user(self, *statements: Document) -> Member:
        """Create a user with an access key, and with a policy that consists of these statements."""
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
        """Create a role with a policy that consists of these statements.

        The principal `trusted` may assume the role, or by default any principal of the account. A session lasts at most
        `max_seconds` seconds.
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
        """Replace the policy of a user by one with these statements. Do nothing if there are none."""
        if statements:
            self.client("iam").put_user_policy(UserName=name, PolicyName="test", PolicyDocument=policy(*statements))

    def permit_role(self, name: str, *statements: Document) -> None:
        """Replace the policy of a role by one with these statements. Do nothing if there are none."""
        if statements:
            self.client("iam").put_role_policy(RoleName=name, PolicyName="test", PolicyDocument=policy(*statements))

    def governed_database(self, name: str) -> None:
        """Create a database that Lake Formation governs: no principal has permissions on it or on its new tables."""
        self.client("glue").create_database(DatabaseInput={"Name": name, "CreateTableDefaultPermissions": []})
        self.client("lakeformation").revoke_permissions(
            Principal={"DataLakePrincipalIdentifier": "IAM_ALLOWED_PRINCIPALS"},
            Resource={"Database": {"Name": name}},
            Permissions=["ALL"],
        )

    def client(self, service: str, member: Member | None = None, region: str = REGION) -> Any:
        """Return a boto3 client with the credentials of `member`, or of the administrator if it is None.

        For a role, assumes the role first.
        """
        keys = member.environment if member is not None else _ADMINISTRATOR
        if member is not None and "role_arn" in member.credentials:
            keys = self.session(member)
        return _client(service, self.endpoint_url, region, **keys)

    def session(self, role: Member) -> Mapping[str, str]:
        """Assume a role, and return the environment variables with the credentials of the session."""
        option = role.credentials
        given: Any = {"ExternalId": option["external_id"]} if "external_id" in option else {}
        sts = _client("sts", self.endpoint_url, REGION, **role.environment)
        issued = sts.assume_role(RoleArn=role.arn, RoleSessionName="test", **given)["Credentials"]
        return dict(zip(_KEYS, (issued[name] for name in _ISSUED), strict=True))

    @contextmanager
    def governed(self, *administrators: Member, region: str = REGION) -> Iterator[None]:
        """Let Lake Formation govern databases and tables that are created within the `with` block.

        Only `administrators` (data lake administrators), and principals to whom they grant it, may create databases.
        Restores the previous settings at the end.
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
        """Grant Lake Formation permissions on a resource, given in the form of Lake Formation's API."""
        self.client("lakeformation", region=region).grant_permissions(
            Principal={"DataLakePrincipalIdentifier": member.arn}, Resource=resource, Permissions=list(permissions)
        )

    def log(self) -> RequestLog:
        """Return a log of all requests to the account from now on."""
        return RequestLog(self.endpoint_url)


_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_ISSUED = ("AccessKeyId", "SecretAccessKey", "SessionToken")
_ADMINISTRATOR = {"AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}


@cache
def _boto3() -> Any:
    """Return the session for all clients. A shared session loads botocore's service models only once."""
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
