"""`check` as users who lack one permission of the printed policy: the sentence names action, resource and remedy.

Checks run in the test's own process, each as a user of its own.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import uuid4

import pytest
from emulated_aws.account import Account, Member
from emulated_aws.server import ACCOUNT_ID, AwsServer

from destination_datalake.check.connection import STEPS, CheckResult, check_connection, new_context
from destination_datalake.check.step import run_steps
from destination_datalake.config.options import Config
from destination_datalake.iam_policy.policy import LakeFormationGrant, document, lake_formation_grants, statements
from destination_datalake.iam_policy.rules import Scope
from destination_datalake.lake_formation.state import Database, to_request
from integration_tests.harness.lake import Lake
from integration_tests.permissions.evaluation import actions, without

pytestmark = pytest.mark.share(3)

GLUE_REGION = "ap-south-1"
"""Of these tests alone: the data lake settings are those of a region."""


@dataclass(frozen=True)
class Site:
    """A lake that Lake Formation governs, and a user with a policy for it."""

    lake: Lake
    account: Account
    member: Member
    tag: str
    config: Config

    @classmethod
    def create(cls, lake: Lake) -> "Site":
        account = Account(lake.endpoint_url)
        member, tag = account.user(), lake.name("domain")
        analyst = f"arn:aws:iam::{ACCOUNT_ID}:role/{lake.name('analyst')}"
        key = account.client("kms").create_key()["KeyMetadata"]["Arn"]
        options = lake.config(
            table_type="HIVE",
            partitioning="DATE",
            credentials=member.credentials,
            glue_region=GLUE_REGION,
            encryption={"encryption_type": "SSE-KMS", "kms_key_arn": key},
            raw_archive={"enabled": True},
            lake_formation={
                "mode": "managed",
                "tags": {tag: ["sales", "new"]},
                "grants": [{"principal": analyst, "permissions": ["DESCRIBE", "DATA_LOCATION_ACCESS"]}],
            },
        )
        site = cls(lake, account, member, tag, Config.parse(options))
        settings: Any = {"CreateDatabaseDefaultPermissions": [], "CreateTableDefaultPermissions": []}
        site.lf.put_data_lake_settings(DataLakeSettings=settings)
        everybody = {"DataLakePrincipalIdentifier": "IAM_ALLOWED_PRINCIPALS"}
        with suppress(site.lf.exceptions.InvalidInputException):
            site.lf.revoke_permissions(Principal=everybody, Resource={"Catalog": {}}, Permissions=["CREATE_DATABASE"])
        site.lf.register_resource(ResourceArn=f"arn:aws:s3:::{lake.bucket}", UseServiceLinkedRole=True)
        site.lf.create_lf_tag(TagKey=tag, TagValues=["sales"])
        return site

    def with_new_database(self) -> "Site":
        """Return the site with a database that does not exist yet."""
        config = self.config.model_copy(update={"lakeformation_database_name": f"raw_{uuid4().hex[:10]}"})
        moved = replace(self, config=config)
        # Clients cost more than checks.
        moved.__dict__.update(iam=self.iam, lf=self.lf, glue=self.glue)
        return moved

    @property
    def database(self) -> str:
        return self.config.lakeformation_database_name

    @property
    def policy(self) -> Mapping[str, Any]:
        return document(statements(self.config, Scope.for_config(self.config)))

    @property
    def grants(self) -> Sequence[LakeFormationGrant]:
        return [*lake_formation_grants(self.config, Scope.for_config(self.config))]

    @cached_property
    def iam(self) -> Any:
        return self.account.client("iam")

    @cached_property
    def lf(self) -> Any:
        return self.account.client("lakeformation", region=GLUE_REGION)

    @cached_property
    def glue(self) -> Any:
        return self.account.client("glue", region=GLUE_REGION)

    def create_database(self) -> None:
        """Create the database as the administrator, with its LF-Tag."""
        self.glue.create_database(DatabaseInput={"Name": self.database})
        tags = [{"TagKey": self.tag, "TagValues": ["sales"]}]
        self.lf.add_lf_tags_to_resource(Resource={"Database": {"Name": self.database}}, LFTags=tags)

    def grant(self, grants: Sequence[LakeFormationGrant]) -> None:
        for grant in grants:
            # What does not exist yet is the user's own as soon as it does.
            with suppress(self.lf.exceptions.EntityNotFoundException):
                self.lf.grant_permissions(
                    Principal={"DataLakePrincipalIdentifier": self.member.arn},
                    Resource=to_request(grant.resource),
                    Permissions=[*grant.permissions],
                    PermissionsWithGrantOption=[*grant.permissions] if grant.grantable else [],
                )

    def permit(self, policy: Mapping[str, Any]) -> None:
        self.iam.put_user_policy(
            UserName=self.member.name, PolicyName="test", PolicyDocument=json.dumps({**self.policy, **policy})
        )

    def check(self) -> CheckResult:
        return check_connection(self.config, uuid4().hex)

    def succeeds(self, id: str) -> bool:
        """Try one step, and those that it needs."""
        ids = {id}
        for step in reversed(STEPS):
            ids.update(step.needs if step.id in ids else ())
        outcomes = run_steps([step for step in STEPS if step.id in ids], new_context(self.config, uuid4().hex))
        return all(outcome.succeeded for outcome in outcomes)

    def left_behind(self) -> object:
        tables: Sequence[Any] = ()
        with suppress(self.glue.exceptions.EntityNotFoundException):
            tables = self.glue.get_tables(DatabaseName=self.database)["TableList"]
        return (self.lake.objects(), self.lake.unfinished_uploads(), [*tables])


@pytest.fixture(autouse=True, scope="module")
def _java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Java is found at once."""
    java = tmp_path_factory.mktemp("java") / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho '    java.specification.version = 17' >&2\n")
    java.chmod(0o755)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_HOME", str(java.parents[1]))
        yield


@pytest.fixture(scope="module")
def granted(aws: AwsServer) -> Site:
    """A site whose user has all grants; its policy is a test's choice."""
    site = Site.create(Lake(aws.endpoint_url))
    site.grant(site.grants)
    return site


NOTHING: object = ({}, [], [])

FAILING: Mapping[str, str] = {
    "s3:PutObject": "tables_folder",
    "s3:GetObject": "tables_folder",
    "s3:DeleteObject": "tables_folder",
    "s3:AbortMultipartUpload": "tables_folder",
    "s3:ListBucket": "tables_folder",
    "kms:GenerateDataKey": "kms_key",
    "kms:Decrypt": "kms_key",
    "glue:GetDatabase": "database",
    "glue:CreateDatabase": "database",
    "glue:CreateTable": "table",
    "glue:GetTable": "table",
    "glue:UpdateTable": "table",
    "glue:DeleteTable": "table",
    "glue:BatchCreatePartition": "table",
    "glue:BatchGetPartition": "table",
    "glue:GetPartitions": "table",
    "glue:BatchUpdatePartition": "table",
    "glue:BatchDeletePartition": "table",
    "lakeformation:ListResources": "lake_formation_location",
    "lakeformation:ListPermissions": "lake_formation_location",
    "lakeformation:GetLFTag": "lake_formation_tags",
    "lakeformation:GetResourceLFTags": "lake_formation_tags",
    "lakeformation:AddLFTagsToResource": "lake_formation_tags",
}
"""The actions without which a check fails, and the first step that does."""

DELETING = ("s3:DeleteObject", "s3:AbortMultipartUpload", "glue:DeleteTable")

LOGGED = ("s3:GetLifecycleConfiguration", "glue:GetTables", "lakeformation:GetDataLakeSettings")
"""The actions without which a check only warns."""

NOT_TRIED = (
    "lakeformation:CreateLFTag",
    "lakeformation:UpdateLFTag",
    "lakeformation:GrantPermissions",
    "glue:GetPartition",
)
"""The actions whose use would outlast the check; and that without which a sync warns, and its report has no partition.
"""


def first_failure(caplog: pytest.LogCaptureFixture) -> tuple[str, str]:
    """The id of the first step that has failed, and the class of its error."""
    lines = [json.loads(text) for text in caplog.messages if text.startswith('{"id"')]
    return next((line["id"], line["error_class"]) for line in lines if line["error_class"] is not None)


def test_every_action_of_the_policy_is_one_of_these(granted: Site) -> None:
    assert sorted({*actions(granted.policy)}) == sorted([*FAILING, *LOGGED, *NOT_TRIED])


@pytest.mark.share(4)
@pytest.mark.parametrize(("action", "step"), FAILING.items())
def test_a_missing_action_is_named_with_resource_and_the_statement_that_helps(
    granted: Site, caplog: pytest.LogCaptureFixture, action: str, step: str
) -> None:
    site = granted.with_new_database()
    before = site.left_behind()
    site.permit(without(site.policy, action))

    with caplog.at_level(logging.INFO):
        problem = site.check().problems[0]

    assert first_failure(caplog) == (step, "insufficient_permissions")
    assert site.left_behind() == before or action in DELETING
    sentence, _, statement = problem.partition(f" Add this statement to an IAM policy of {site.member.arn}: ")
    assert sentence.partition(f"Allow {action} on ")[2].startswith(("arn:aws:", "all resources", "* "))
    site.permit({"Statement": [*without(site.policy, action)["Statement"], json.loads(statement)]})
    assert site.succeeds(step)


@pytest.mark.share(1)
@pytest.mark.parametrize("action", [*LOGGED, *NOT_TRIED])
def test_a_check_without_an_action_that_it_can_do_without_leaves_nothing_behind(
    granted: Site, caplog: pytest.LogCaptureFixture, action: str
) -> None:
    site = granted.with_new_database()
    before = site.left_behind()
    site.permit(without(site.policy, action))

    with caplog.at_level(logging.INFO):
        assert site.check().problems == []

    assert [text for text in caplog.messages if f"Allow {action} on" in text] or action in NOT_TRIED
    assert site.left_behind() == before


def test_the_printed_policy_suffices_for_the_default_tag_of_databases(lake: Lake) -> None:
    account = Account(lake.endpoint_url)
    member, tag = account.user(), lake.name("origin")
    older = {"lakeformation_database_default_tag_key": tag, "lakeformation_database_default_tag_values": "airbyte"}
    config = Config.parse(lake.config(credentials=member.credentials, **older))
    account.permit_user(member.name, *document(statements(config, Scope.for_config(config)))["Statement"])
    account.client("lakeformation").create_lf_tag(TagKey=tag, TagValues=["airbyte"])
    account.client("lakeformation").grant_permissions(
        Principal={"DataLakePrincipalIdentifier": member.arn},
        Resource={"LFTag": {"TagKey": tag, "TagValues": ["*"]}},
        Permissions=["ASSOCIATE", "DESCRIBE"],
    )

    assert check_connection(config, uuid4().hex) == CheckResult([])


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("permission", "of_database", "step"),
    [
        ("CREATE_DATABASE", False, "database"),
        ("CREATE_TABLE", True, "table"),
        ("DATA_LOCATION_ACCESS", False, "table"),
        ("ALTER", False, "lake_formation_tags"),
        ("ASSOCIATE", False, "lake_formation_tags"),
        ("DESCRIBE", True, "lake_formation_grants"),
    ],
)
def test_a_missing_grant_is_named_with_resource_and_the_command_that_grants_it(
    lake: Lake, caplog: pytest.LogCaptureFixture, permission: str, of_database: bool, step: str
) -> None:
    site = Site.create(lake)
    site.permit(site.policy)
    if permission != "CREATE_DATABASE":
        site.create_database()
    lacking = [
        replace(grant, permissions=tuple(held for held in grant.permissions if held != permission))
        if of_database == isinstance(grant.resource, Database)
        else grant
        for grant in site.grants
    ]
    site.grant([grant for grant in lacking if grant.permissions])

    with caplog.at_level(logging.INFO):
        problem = site.check().problems[0]

    assert first_failure(caplog) == (step, "insufficient_permissions")
    sentence, _, command = problem.partition(" Run: aws lakeformation grant-permissions ")
    # Lake Formation does not tell whether a database exists.
    assert ("DESCRIBE" if permission == "CREATE_DATABASE" else permission) in sentence
    assert f"DataLakePrincipalIdentifier={site.member.arn}" in command
    assert permission in command
    assert site.left_behind() == NOTHING
    site.grant(site.grants)
    assert site.succeeds(step)
