"""Warnings and refusals: what AWS answers, made into permission, resource and command."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from destination_datalake.aws.access import AwsAccess
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.lake_formation.governance import CommandLines, Governance, explaining_denials, warning
from destination_datalake.lake_formation.state import Column, RegisteredDifferently, Registration, Table, Tag
from destination_datalake.tables.table import TableConflict
from unit_tests.cloud import Cloud
from unit_tests.lake_formation.lake import (
    ANALYST,
    LOCATION,
    REGISTRATION_ROLE,
    answering,
    create_table,
    everything,
    policy,
    refusing,
    sync,
)

ROLE, OTHER_ROLE = "arn:aws:iam::123456789012:role/ours", "arn:aws:iam::123456789012:role/other"
SERVICE = "aws-service-role/lakeformation.amazonaws.com"
SERVICE_LINKED = f"arn:aws:iam::123456789012:role/{SERVICE}/AWSServiceRoleForLakeFormationDataAccess"
LINES = CommandLines("eu-west-1", "111122223333")


@pytest.mark.parametrize(
    ("present", "desired", "command"),
    [
        (
            Registration(LOCATION, OTHER_ROLE, hybrid=True),
            Registration(LOCATION, ROLE, hybrid=False),
            f"update-resource --resource-arn {LOCATION} --role-arn {ROLE} --no-hybrid-access-enabled",
        ),
        (
            Registration(LOCATION, OTHER_ROLE, hybrid=False),
            Registration(LOCATION, None, hybrid=True),
            f"update-resource --resource-arn {LOCATION} --role-arn {OTHER_ROLE} --hybrid-access-enabled",
        ),
        (
            Registration("arn:aws:s3:::lake", OTHER_ROLE, hybrid=False),
            Registration(LOCATION, ROLE, hybrid=True),
            f"update-resource --resource-arn arn:aws:s3:::lake --role-arn {OTHER_ROLE} --hybrid-access-enabled",
        ),
        (
            Registration(LOCATION, SERVICE_LINKED, hybrid=False),
            Registration(LOCATION, ROLE, hybrid=True),
            f"deregister-resource --resource-arn {LOCATION} --region eu-west-1 && "
            f"aws lakeformation register-resource --resource-arn {LOCATION} --role-arn {ROLE} --hybrid-access-enabled",
        ),
        (
            Registration(LOCATION, SERVICE_LINKED, hybrid=False),
            Registration(LOCATION, None, hybrid=True),
            f"deregister-resource --resource-arn {LOCATION} --region eu-west-1 && "
            f"aws lakeformation register-resource --resource-arn {LOCATION} --role-arn <ROLE_ARN> "
            "--hybrid-access-enabled",
        ),
    ],
    ids=["role and access", "access", "a folder above keeps its role", "service-linked", "service-linked, no role"],
)
def test_a_registration_that_differs_comes_with_what_changes_it(
    present: Registration, desired: Registration, command: str
) -> None:
    assert warning(RegisteredDifferently(present, desired), LINES).endswith(
        f"To change the registration, run: aws lakeformation {command} --region eu-west-1"
    )


def test_names_survive_the_shell() -> None:
    odd = Column("shop", "it's", "a ü$HOME")

    words = shlex.split(LINES.grant("arn:aws:iam::1:role/a", ["SELECT"], odd, grantable=True))

    expected = {"DatabaseName": "shop", "Name": "it's", "ColumnNames": ["a ü$HOME"]}
    assert json.loads(words[words.index("--resource") + 1]) == {"TableWithColumns": expected}
    assert words[words.index("--permissions-with-grant-option") + 1] == "SELECT"


def test_lines_name_the_catalog_and_its_region() -> None:
    access = AwsAccess("eu-west-1", glue_region="us-east-1", glue_catalog_id="111122223333")

    line = CommandLines.for_access(access).assign(Tag(Table("shop", "orders"), "pii", "yes"))

    assert line.endswith("--catalog-id 111122223333 --region us-east-1")


CALLER = "arn:aws:sts::123456789012:user/moto"
INSUFFICIENT = "Insufficient Lake Formation permission(s)"


def refusal(cloud: Cloud, operation: str, text: str = INSUFFICIENT, code: str = "AccessDeniedException") -> str:
    """Return the message of a sync during which an operation is refused."""
    create_table(cloud)
    with refusing(cloud.access, operation, code, text), pytest.raises(ConnectorError) as raised:
        sync(cloud.access, everything("hybrid"))
    assert raised.value.failure.type == "config_error"
    return raised.value.failure.message


@pytest.mark.parametrize(
    ("operation", "says", "permission", "resource"),
    [
        ("CreateLFTag", "create LF-Tag domain", "CREATE_LF_TAG", '{"Catalog": {}}'),
        ("GetLFTag", "read the values of LF-Tag domain", "DESCRIBE", '"TagKey": "domain"'),
        (
            "AddLFTagsToResource",
            "assign LF-Tag domain=sales to database shop",
            "ASSOCIATE",
            '{"LFTag": {"TagKey": "domain", "TagValues": ["sales"]}}',
        ),
        ("GetResourceLFTags", "read the LF-Tags of database shop", "DESCRIBE", '{"Database"'),
        (
            "GrantPermissions",
            f"grant {ANALYST} DATA_LOCATION_ACCESS on data location {LOCATION}",
            "DATA_LOCATION_ACCESS",
            f'{{"DataLocation": {{"ResourceArn": "{LOCATION}"}}}}',
        ),
    ],
)
def test_a_denial_by_lake_formation_comes_with_the_grant_that_is_missing(
    cloud: Cloud, operation: str, says: str, permission: str, resource: str
) -> None:
    message = refusal(cloud, operation)

    before, line = message.split("aws lakeformation ", 1)
    words = shlex.split(line)
    assert says in before
    assert f"(Lake Formation, {operation}): access denied" in before
    assert f"{CALLER} needs {permission} on " in before
    assert words[:3] == ["grant-permissions", "--principal", f"DataLakePrincipalIdentifier={CALLER}"]
    assert f"--permissions {permission} " in line
    assert resource in words[words.index("--resource") + 1]
    assert words[-2:] == ["--region", "us-east-1"]


def test_who_may_assign_the_tag_needs_permissions_on_what_others_have_created(cloud: Cloud) -> None:
    held = {"Principal": {"DataLakePrincipalIdentifier": CALLER}, "Permissions": ["ASSOCIATE"], "Resource": {}}
    listed = {"PrincipalResourcePermissions": [held]}
    governance = Governance(policy(mode="managed", tags={"domain": ["sales"]}), cloud.access)
    create_table(cloud)
    governance.govern_location()

    with (
        refusing(cloud.access, "AddLFTagsToResource", text=INSUFFICIENT),
        answering(cloud.access, "ListPermissions", listed),
        pytest.raises(ConnectorError) as raised,
    ):
        governance.govern_database("shop", lambda: False)

    message = raised.value.failure.message
    assert f"{CALLER} needs ALTER, CREATE_TABLE, DESCRIBE, DROP on database shop with grant option" in message
    assert "--permissions-with-grant-option ALTER CREATE_TABLE DESCRIBE DROP --resource" in message


def test_a_denial_by_iam_names_the_action(cloud: Cloud) -> None:
    text = (
        f"User: {CALLER} is not authorized to perform: lakeformation:RegisterResource on resource: * because no "
        "identity-based policy allows the lakeformation:RegisterResource action"
    )

    message = refusal(cloud, "RegisterResource", text)

    assert message == (
        f"Cannot register data location {LOCATION} with role {REGISTRATION_ROLE} (Lake Formation, RegisterResource): "
        f"access denied. Allow lakeformation:RegisterResource on * in an IAM policy of {CALLER}."
    )


@pytest.mark.parametrize("operation", ["CreateLakeFormationOptIn", "ListLakeFormationOptIns"])
def test_opting_in_is_for_administrators(cloud: Cloud, operation: str) -> None:
    message = refusal(cloud, operation)

    assert "Only data lake administrators can opt principals in" in message
    assert f"Make {CALLER} a data lake administrator, or set lake_formation.mode to managed" in message


def test_an_administrator_may_opt_in_with_the_command(cloud: Cloud) -> None:
    message = refusal(cloud, "CreateLakeFormationOptIn")

    words = shlex.split(message.partition(" Run: ")[2])
    assert words[:3] == ["aws", "lakeformation", "create-lake-formation-opt-in"]
    assert words[words.index("--principal") + 1] == f"DataLakePrincipalIdentifier={ANALYST}"
    assert json.loads(words[words.index("--resource") + 1]).keys() <= {"Database", "Table"}
    assert words[-2] == "--region"


def test_a_principal_that_does_not_exist_is_the_users_mistake(cloud: Cloud) -> None:
    message = refusal(cloud, "GrantPermissions", "Invalid principal", "InvalidInputException")

    assert f"Cannot grant {ANALYST} " in message
    assert message.endswith(
        "(Lake Formation, GrantPermissions): Invalid principal. Correct lake_formation in the configuration."
    )


def test_access_to_a_location_cannot_be_granted_before_it_is_registered(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    grants = [{"principal": ANALYST, "permissions": ["DATA_LOCATION_ACCESS"]}]
    governance = Governance(policy(mode="managed", grants=grants), cloud.access)

    with pytest.raises(ConnectorError, match="The location is not registered") as raised:
        governance.govern_location()

    assert raised.value.failure.type == "config_error"
    assert f"aws lakeformation register-resource --resource-arn {LOCATION}" in caplog.text


def test_a_failure_that_passes_is_worth_a_retry(cloud: Cloud) -> None:
    create_table(cloud)
    with refusing(cloud.access, "GetLFTag", "InternalServiceException"), pytest.raises(ConnectorError) as raised:
        sync(cloud.access, everything())

    assert raised.value.failure.type == "transient_error"
    assert "(Lake Formation, GetLFTag)" in raised.value.failure.message


def denied(access: AwsAccess, text: str, operation: str, location: str | None = None) -> Failure:
    """Return the failure if Lake Formation denies a call of another service about the table."""
    response: Any = {"Error": {"Code": "AccessDeniedException", "Message": f"{INSUFFICIENT}{text}"}}
    with pytest.raises(ConnectorError) as raised, explaining_denials("shop", "orders", access, location):
        raise ClientError(response, operation)
    return raised.value.failure


@pytest.mark.parametrize(
    ("text", "operation", "permission", "resource"),
    [
        ("Required Create Table on shop", "CreateTable", "CREATE_TABLE", {"Database": {"Name": "shop"}}),
        ("Required Describe on shop", "GetDatabase", "DESCRIBE", {"Database": {"Name": "shop"}}),
        (
            "Required Describe on orders",
            "GetTable",
            "DESCRIBE",
            {"Table": {"DatabaseName": "shop", "TableWildcard": {}}},
        ),
        ("Required Create Database", "CreateDatabase", "CREATE_DATABASE", {"Catalog": {}}),
        (
            "Required Alter on orders",
            "UpdateTable",
            "ALTER",
            {"Table": {"DatabaseName": "shop", "Name": "orders"}},
        ),
    ],
)
def test_what_lake_formation_denies_in_glue_comes_with_the_grant(
    cloud: Cloud, text: str, operation: str, permission: str, resource: dict[str, Any]
) -> None:
    failure = denied(cloud.access, f": {text}", operation)

    words = shlex.split(failure.message.partition("Run: ")[2].partition(" If the ")[0])
    assert failure.type == "config_error"
    assert failure.error_class == "insufficient_permissions"
    assert words[:3] == ["aws", "lakeformation", "grant-permissions"]
    assert words[words.index("--permissions") + 1] == permission
    assert json.loads(words[words.index("--resource") + 1]) == resource


@pytest.mark.parametrize(
    ("named", "granted"),
    [
        ("lake/raw/shop/orders", "lake/raw"),
        ("lake/raw/", "lake/raw"),
        ("lake/raw", "lake/raw"),
        ("lake/raw_2/shop/orders", "lake/raw_2/shop/orders"),
        ("other/shop/orders", "other/shop/orders"),
    ],
)
def test_access_is_granted_on_the_location_of_all_tables_whichever_lake_formation_denies(
    cloud: Cloud, named: str, granted: str
) -> None:
    message = denied(cloud.access, f" on s3://{named}", "CreateTable", "arn:aws:s3:::lake/raw").message

    assert "--permissions DATA_LOCATION_ACCESS" in message
    assert f'{{"DataLocation": {{"ResourceArn": "arn:aws:s3:::{granted}"}}}}' in message


def test_a_database_that_may_be_missing_is_one_to_create(cloud: Cloud) -> None:
    message = denied(cloud.access, ": Required Describe on shop", "GetDatabase").message

    _, _, creating = message.partition(" If the database does not exist, run instead: ")
    words = shlex.split(creating)
    assert words[words.index("--permissions") + 1] == "CREATE_DATABASE"
    assert json.loads(words[words.index("--resource") + 1]) == {"Catalog": {}}


def test_a_location_that_lake_formation_denies_is_in_the_region_s_partition(cloud: Cloud) -> None:
    in_china = replace(cloud.access, region="cn-north-1")

    message = denied(in_china, " on s3://lake/raw", "CreateTable").message

    assert '{"ResourceArn": "arn:aws-cn:s3:::lake/raw"}' in message


@pytest.mark.parametrize(
    "error",
    [
        ClientError({"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}, "PutObject"),
        TableConflict("it has other columns"),
        ValueError("a defect"),
    ],
    ids=["by IAM", "a conflict", "a defect"],
)
def test_other_errors_stay_as_they_are(cloud: Cloud, error: Exception) -> None:
    with pytest.raises(type(error)) as raised, explaining_denials("shop", "orders", cloud.access):
        raise error

    assert raised.value is error
