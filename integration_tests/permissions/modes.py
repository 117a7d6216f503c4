"""Kinds of configuration, and what a platform team prepares in the account for each."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from emulated_aws.account import Account, Member
from emulated_aws.server import ACCOUNT_ID

from destination_datalake.config.options import Config
from destination_datalake.iam_policy.policy import lake_formation_grants
from destination_datalake.iam_policy.rules import Scope
from destination_datalake.lake_formation.state import to_request
from integration_tests.harness.lake import Lake
from integration_tests.harness.table_kinds import TABLE_KINDS

Options = Mapping[str, object]

Accident = Literal["killed", "too many rejects"]
"""What happens to a sync, for requests that only failures make."""

KINDS: Mapping[str, Options] = {kind.name: kind.options for kind in TABLE_KINDS}
SERVICE_TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "lakeformation.amazonaws.com"}, "Action": "sts:AssumeRole"}
    ],
}


@dataclass(frozen=True)
class Site:
    """Where a configuration of a mode is used: its lake, account, and the role that it is for."""

    lake: Lake
    account: Account
    member: Member

    def tag(self, word: str) -> str:
        """Return the key of an LF-Tag that no other site has."""
        return self.lake.name(word)

    def grants(self, of_all_tables: Mapping[str, str] | None = None) -> list[dict[str, object]]:
        """Return the option with grants to an analyst on databases, tables and a column.

        `of_all_tables` is added to the grant on all tables of a database.
        """
        analyst = f"arn:aws:iam::{ACCOUNT_ID}:role/{self.lake.name('analyst')}"
        return [
            {"principal": analyst, "permissions": ["DESCRIBE"]},
            {"principal": analyst, "permissions": ["SELECT"], "table": "*", **(of_all_tables or {})},
            {"principal": analyst, "permissions": ["SELECT"], "table": "appended", "columns": ["id"]},
        ]

    def close(self, region: str, *admins: str) -> None:
        """Let Lake Formation alone decide about new databases and tables in a region, and name its administrators."""
        settings: Any = {
            "DataLakeAdmins": [{"DataLakePrincipalIdentifier": arn} for arn in admins],
            "CreateDatabaseDefaultPermissions": [],
            "CreateTableDefaultPermissions": [],
        }
        self.account.client("lakeformation", region=region).put_data_lake_settings(DataLakeSettings=settings)


@dataclass(frozen=True)
class Mode:
    """`options` returns the options; `prepare` is what the platform team does when the role exists.

    `unneeded` has the actions that are not used on every resource after that, and why.
    """

    options: Callable[[Site], Options]
    prepare: Callable[[Site, Config, Scope], None] = lambda _site, _config, _scope: None
    unneeded: Mapping[str, str] = field(default_factory=dict)
    accident: Accident = "killed"
    remote_executors: bool = False
    """Spark's executors do not see the driver's disk, so that records are staged in S3."""


def encrypted(site: Site) -> Options:
    """Return the options for Hive tables and an archive, encrypted with a key of the account's."""
    key = site.account.client("kms").create_key()["KeyMetadata"]["Arn"]
    sse = {"encryption_type": "SSE-KMS", "kms_key_arn": key}
    return {**KINDS["hive-parquet"], "encryption": sse, "raw_archive": {"enabled": True}}


def hybrid(site: Site) -> Options:
    """Return the options for an empty account, in which the connector does everything."""
    role = site.account.client("iam").create_role(
        RoleName=site.lake.name("location"), AssumeRolePolicyDocument=json.dumps(SERVICE_TRUST)
    )["Role"]
    governed = {
        "mode": "hybrid",
        "registration_role_arn": role["Arn"],
        "tags": {site.tag("domain"): ["sales"], site.tag("team"): ["data"]},
        "table_tags": [{"table": "appended", "columns": ["id"], "tags": {site.tag("domain"): ["ids"]}}],
        "grants": [*site.grants(), {"principal": site.member.arn, "permissions": ["DATA_LOCATION_ACCESS"]}],
    }
    optimizers = site.account.client("iam").create_role(
        RoleName=site.lake.name("optimizers"), AssumeRolePolicyDocument=json.dumps(SERVICE_TRUST)
    )["Role"]
    maintained = {"mode": "glue", "role_arn": optimizers["Arn"]}
    return {**KINDS["iceberg"], "glue_region": "eu-west-1", "lake_formation": governed, "maintenance": maintained}


def prepare_hybrid(site: Site, config: Config, _scope: Scope) -> None:
    """Make the role an administrator, who alone may opt principals in; and define an LF-Tag that lacks values."""
    site.close(str(config.glue_region), site.member.arn)
    client = site.account.client("lakeformation", region=config.glue_region or "")
    client.create_lf_tag(TagKey=site.tag("domain"), TagValues=["support"])


def managed(site: Site) -> Options:
    """Return the options for an account in which much is there before the connector comes.

    Who creates a database may not grant all of its tables, present and future, to others: that is granted on the one
    that is there.
    """
    grants = site.grants({"database": site.lake.database})
    return {
        **KINDS["hive-jsonl"],
        "glue_region": "eu-west-2",
        "lake_formation": {"mode": "managed", "tags": {site.tag("domain"): ["sales", "new"]}, "grants": grants},
        "lakeformation_database_default_tag_key": site.tag("origin"),
        "lakeformation_database_default_tag_values": "airbyte",
    }


def prepare_managed(site: Site, config: Config, scope: Scope) -> None:
    """Register the location, create a database with its LF-Tag, and make the grants that are printed."""
    region = str(config.glue_region)
    site.close(region)
    client = site.account.client("lakeformation", region=region)
    client.register_resource(ResourceArn=scope.s3(scope.warehouse.bucket), UseServiceLinkedRole=True)
    client.create_lf_tag(TagKey=site.tag("domain"), TagValues=["sales"])
    site.account.client("glue", region=region).create_database(DatabaseInput={"Name": scope.database})
    client.add_lf_tags_to_resource(
        Resource={"Database": {"Name": scope.database}},
        LFTags=[{"TagKey": site.tag("domain"), "TagValues": ["sales"]}],
    )
    for grant in lake_formation_grants(config, scope):
        # What does not exist yet is the role's own as soon as it does.
        with suppress(client.exceptions.EntityNotFoundException):
            client.grant_permissions(
                Principal={"DataLakePrincipalIdentifier": site.member.arn},
                Resource=to_request(grant.resource),
                Permissions=[*grant.permissions],
                PermissionsWithGrantOption=[*grant.permissions] if grant.grantable else [],
            )


MODES: Mapping[str, Mode] = {
    "iceberg": Mode(lambda _site: KINDS["iceberg"]),
    "hive, parquet, a key of KMS, an archive": Mode(encrypted, remote_executors=True),
    "hive, json lines, partitions": Mode(
        lambda _site: {**KINDS["hive-jsonl"], "partitioning": "DATE", "partition_source": "extracted_at"},
        unneeded={
            "glue:BatchGetPartition": "in one of the databases, all tables are replaced",
            "glue:BatchUpdatePartition": "in one of the databases, all tables are replaced",
            "glue:BatchDeletePartition": "in one of the databases, overwrites keep their partitions",
        },
    ),
    "hybrid": Mode(hybrid, prepare_hybrid, accident="too many rejects"),
    "managed": Mode(
        managed, prepare_managed, {"glue:CreateDatabase": "one of the databases exists"}, "too many rejects"
    ),
}
