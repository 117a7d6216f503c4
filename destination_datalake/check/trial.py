"""What the steps of one check share: the options, access to AWS, a name of its own, and what earlier steps found."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.options import Config
from destination_datalake.errors import Failure

_ASSUMED_ROLE = re.compile(r"arn:(?P<partition>[^:]+):sts::(?P<account>\d+):assumed-role/(?P<name>[^/]+)/.+")


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom AWS takes the credentials for: the account, and the ARN of the user or role that gets permissions."""

    account: str
    arn: str

    @classmethod
    def of(cls, account: str, arn: str, role_arn: str | None) -> Caller:
        """Return the caller with this ARN (STS API: GetCallerIdentity).

        The ARN of a session lacks the path of its role, which `role_arn`, the configured role, has.
        """
        session = _ASSUMED_ROLE.fullmatch(arn)
        if session is None:
            return cls(account, arn)
        if role_arn is not None and role_arn.rpartition("/")[2] == session["name"]:
            return cls(account, role_arn)
        return cls(account, f"arn:{session['partition']}:iam::{session['account']}:role/{session['name']}")

    @property
    def partition(self) -> str:
        """The partition of AWS: aws, aws-cn, aws-us-gov."""
        return self.arn.split(":")[1] if self.arn.startswith("arn:") else "aws"


@dataclass(slots=True)
class Trial:
    """One check. `unique` is a word of 32 hexadecimal digits that no other check uses."""

    config: Config
    access: AwsAccess
    unique: str
    caller: Caller = field(default_factory=lambda: Caller("", ""))
    """Set by the first step that reaches AWS, which all others need."""
    key_failures: list[Failure] = field(default_factory=list)
    """Why S3 could not use the KMS key, from each folder."""
    encrypted_with: list[str] = field(default_factory=list)
    """What S3 has encrypted objects with, from each folder: "AES256", or the ARN of a KMS key."""

    def objects(self, bucket: str, folder: str) -> Remedy:
        """Return how requests for the objects in a folder, without a trailing slash, are permitted."""
        arn = f"arn:{self.caller.partition}:s3:::{bucket}"
        prefix = f"{folder}/*" if folder else "*"
        return Remedy(self.caller.arn, {"": (f"{arn}/{prefix}",), "s3:ListBucket": (arn,)}, list_prefix=prefix)

    def catalog(self, database: str, table: str | None = None) -> Remedy:
        """Return how requests for a database, or a table in it, are permitted. `table` may be "*"."""
        account = self.config.glue_catalog_id or self.caller.account
        arn = f"arn:{self.caller.partition}:glue:{self.config.glue_region or self.config.region}:{account}"
        names = ["catalog", f"database/{database}", *([] if table is None else [f"table/{database}/{table}"])]
        return Remedy(
            self.caller.arn,
            {"": tuple(f"{arn}:{name}" for name in names)},
            grants=self._grants(database, of_tables=table is not None),
            catalog=self.config.glue_catalog_id,
        )

    def _grants(self, database: str, *, of_tables: bool) -> Mapping[str, Any]:
        location = f"arn:{self.caller.partition}:s3:::{self.config.bucket_name}/{self.config.key('')}".rstrip("/")
        of_database = {"Database": {"Name": database}}
        return {
            "CREATE_DATABASE": {"Catalog": {}},
            "CREATE_TABLE": of_database,
            "DATA_LOCATION_ACCESS": {"DataLocation": {"ResourceArn": location}},
            "": {"Table": {"DatabaseName": database, "TableWildcard": {}}} if of_tables else of_database,
        }


@dataclass(frozen=True, slots=True)
class Remedy:
    """How a missing permission is given to `principal`: as a policy statement, or as a grant of Lake Formation.

    `resources` has the ARNs that an action is needed on, and `grants` the resource that a permission is granted on;
    what holds for all others is under "".
    """

    principal: str
    resources: Mapping[str, Sequence[str]]
    list_prefix: str | None = None
    grants: Mapping[str, Any] = field(default_factory=dict)
    catalog: str | None = None

    def added_to(self, failure: Failure) -> Failure:
        """Return the failure with the statement or command that gives what is missing, if a permission is."""
        missing = failure.missing
        if missing is None or "explicit deny" in failure.message:
            return failure
        text = self._statement(missing.action, missing.resource) if missing.in_iam else self._command(missing.action)
        return dataclasses.replace(failure, message=f"{failure.message} {text}")

    def _statement(self, action: str, named: str | None) -> str:
        actions, resources = action.split(" and "), list(self.resources.get(action, self.resources[""]))
        if action.startswith("kms:"):
            # To write an object takes the one, to read it or to complete its multipart upload the other.
            actions, resources = ["kms:GenerateDataKey", "kms:Decrypt"], [named or "*"]
        statement: dict[str, Any] = {"Effect": "Allow", "Action": actions, "Resource": resources}
        if action == "s3:ListBucket" and self.list_prefix is not None:
            statement["Condition"] = {"StringLike": {"s3:prefix": [self.list_prefix]}}
        return f"Policy statement for {self.principal}: {json.dumps(statement)}"

    def _command(self, permission: str) -> str:
        resource = json.dumps(self.grants.get(permission, self.grants.get("", {})))
        catalog = [] if self.catalog is None else ["--catalog-id", self.catalog]
        command = [
            *("aws", "lakeformation", "grant-permissions", *catalog),
            *("--principal", f"DataLakePrincipalIdentifier={self.principal}"),
            *("--permissions", permission, "--resource", resource),
        ]
        return f"Command: {shlex.join(command)}"
