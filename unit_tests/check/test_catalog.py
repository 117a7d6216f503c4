"""Steps about the Glue Data Catalog: what they report, and that they leave nothing behind."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from destination_datalake.check.catalog import drop_leftovers, try_database, try_optimizers, try_table
from destination_datalake.check.step import StepFindings
from destination_datalake.tables.catalog import ListedTable, list_tables
from destination_datalake.tables.glue.catalog import ensure_database
from unit_tests.check.examples import UNIQUE, USER, a_context, deny, findings_of
from unit_tests.cloud import Cloud, another_client, before, ungoverned

pytestmark = pytest.mark.share(7)

GLUE = "arn:aws:glue:eu-west-1:123456789012"
IN_IAM = "not authorized"


def tables(cloud: Cloud) -> list[str]:
    return [table["Name"] for table in cloud.access.client("glue").get_tables(DatabaseName="raw")["TableList"]]


def denied(operation: str, text: str, **options: Any) -> list[str]:
    """The failures of both steps in an account that answers `operation` so."""
    access = another_client()
    context = a_context(access, **options)
    findings = findings_of(context)
    deny(access, "glue", operation, text)
    try_database(context, findings)
    if not findings.failures:
        try_table(context, findings)
    return [failure.message for failure in findings.failures]


def test_a_catalog_that_works_keeps_only_the_database(cloud: Cloud) -> None:
    context, findings = a_context(cloud.access), StepFindings()

    try_database(context, findings)
    try_table(context, findings)

    assert findings.failures == []
    assert tables(cloud) == []


@pytest.mark.parametrize(
    ("operation", "doing"),
    [
        ("CreateDatabase", "create or read database raw"),
        ("CreateTable", f"create table raw.airbyte_check_{UNIQUE}"),
        ("DeleteTable", f"drop table raw.airbyte_check_{UNIQUE}"),
    ],
)
@pytest.mark.usefixtures("cloud")
def test_what_iam_refuses_is_one_failure_with_the_statement_that_allows_it(operation: str, doing: str) -> None:
    [message] = denied(operation, IN_IAM)

    sentence, _, remedy = message.partition(f" Add this statement to an IAM policy of {USER}: ")
    assert sentence == (
        f"Cannot {doing} (Glue, {operation}): access denied. "
        f"Allow glue:{operation} for the connector's identity in IAM."
    )
    statement = json.loads(remedy)
    pattern = "airbyte_check_*" if operation == "DeleteTable" else "*"
    of_table = [] if "Database" in operation else [f"{GLUE}:table/raw/{pattern}"]
    assert statement["Action"] == [f"glue:{operation}"]
    assert statement["Resource"] == [f"{GLUE}:catalog", f"{GLUE}:database/raw", *of_table]


@pytest.mark.parametrize(
    ("operation", "text", "permission", "resource"),
    [
        (
            "CreateTable",
            "Insufficient Lake Formation permission(s) on s3://lake/raw/x",
            "DATA_LOCATION_ACCESS",
            {"DataLocation": {"ResourceArn": "arn:aws:s3:::lake"}},
        ),
        (
            "DeleteTable",
            "Insufficient Lake Formation permission(s): Required Drop on x",
            "DROP",
            {"Table": {"DatabaseName": "raw", "TableWildcard": {}}},
        ),
    ],
)
@pytest.mark.usefixtures("cloud")
def test_what_lake_formation_refuses_is_one_failure_with_the_command_that_grants_it(
    operation: str, text: str, permission: str, resource: dict[str, Any]
) -> None:
    [message] = denied(operation, text)

    sentence, _, command = message.partition(" Run: ")
    assert f"(Glue, {operation}): Lake Formation denied access" in sentence
    assert f"Grant {permission} on " in sentence
    words = shlex.split(command)
    assert words[:3] == ["aws", "lakeformation", "grant-permissions"]
    assert f"DataLakePrincipalIdentifier={USER}" in words
    assert permission in words[words.index("--permissions") : words.index("--resource")]
    assert json.loads(words[words.index("--resource") + 1]) == resource


@pytest.mark.parametrize("operation", ["CreateTable", "GetTable", "UpdateTable"])
def test_a_refused_request_leaves_no_table(cloud: Cloud, operation: str) -> None:
    denied(operation, IN_IAM)

    assert tables(cloud) == []


def test_a_partition_that_cannot_be_created_is_a_warning(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    assert denied("BatchCreatePartition", IN_IAM) == []

    [message] = caplog.messages
    assert "Allow glue:BatchCreatePartition" in message
    assert message.endswith("Without this permission, syncs cannot register partitions of the rejects table.")
    assert tables(cloud) == []


@pytest.mark.parametrize(
    ("options", "operation", "doing"),
    [
        ({"partitioning": "DATE"}, "BatchGetPartition", "read a partition of"),
        ({"path_layout": "plain"}, "BatchCreatePartition", "create a partition of"),
        ({"partitioning": "YEAR", "catalog_partitions": "both"}, "BatchDeletePartition", "delete a partition of"),
    ],
)
def test_partitions_that_syncs_register_must_be_permitted(
    cloud: Cloud, options: dict[str, str], operation: str, doing: str
) -> None:
    [message] = denied(operation, IN_IAM, table_type="HIVE", **options)

    sentence, _, remedy = message.partition(f" Add this statement to an IAM policy of {USER}: ")
    assert sentence.startswith(f"Cannot {doing} table raw.airbyte_check_{UNIQUE} (Glue, {operation}): access denied.")
    assert json.loads(remedy)["Action"] == [f"glue:{operation}"]
    assert f"{GLUE}:table/raw/*" in json.loads(remedy)["Resource"]
    assert tables(cloud) == []


@pytest.mark.usefixtures("cloud")
def test_partitions_that_athena_projects_need_no_permission() -> None:
    options = {"table_type": "HIVE", "partitioning": "DATE", "catalog_partitions": "projection"}

    assert denied("BatchDeletePartition", IN_IAM, **options) == []


def test_an_error_that_is_not_from_aws_is_raised_and_leaves_no_table(cloud: Cloud) -> None:
    access = another_client()

    def fail(_: int) -> None:
        raise ZeroDivisionError

    before(access, "glue", "UpdateTable", fail)
    ensure_database(access.client("glue"), "raw")

    with pytest.raises(ZeroDivisionError):
        try_table(a_context(access), StepFindings())
    assert tables(cloud) == []


def test_only_tables_that_killed_checks_left_long_ago_are_dropped(cloud: Cloud) -> None:
    access = another_client()
    glue = cloud.access.client("glue")

    def die(_: int) -> None:
        raise KeyboardInterrupt

    ensure_database(glue, "raw")
    before(access, "glue", "GetTable", die)
    before(access, "glue", "DeleteTable", die)
    with pytest.raises(KeyboardInterrupt):
        try_table(a_context(access), StepFindings())
    glue.create_table(DatabaseName="raw", TableInput={"Name": f"airbyte_check_{'f' * 32}", "Description": "theirs"})
    glue.create_table(DatabaseName="raw", TableInput={"Name": "airbyte_check_list"})
    leftovers = sorted(tables(cloud))

    def aged(days: int) -> list[ListedTable]:
        created = datetime.now(UTC) - timedelta(days=days)
        return [
            ListedTable(name, {**table, "CreateTime": created})
            for name, table in list_tables(ungoverned(cloud.access), "raw")
        ]

    drop_leftovers(glue, aged(days=0))
    assert sorted(tables(cloud)) == leftovers
    old = aged(days=2)
    for _ in ("one check", "another that has listed the same tables"):
        drop_leftovers(glue, old)
    assert sorted(tables(cloud)) == [name for name in leftovers if name != f"airbyte_check_{UNIQUE}"]


OPTIMIZED = {"mode": "glue", "role_arn": "arn:aws:iam::123456789012:role/optimizers"}


def test_optimizers_that_may_be_turned_on_are_tried_on_no_table(cloud: Cloud) -> None:
    context, findings = a_context(cloud.access, maintenance=OPTIMIZED), StepFindings()
    try_database(context, findings)

    try_optimizers(context, findings)

    assert findings.failures == []
    assert tables(cloud) == []


@pytest.mark.parametrize(
    ("operation", "text", "statement"),
    [
        (
            "CreateTableOptimizer",
            f"User: {USER} is not authorized to perform: glue:CreateTableOptimizer on resource: {GLUE}:table/raw/*",
            {"Action": ["glue:CreateTableOptimizer"]},
        ),
        (
            "CreateTableOptimizer",
            f"User: {USER} is not authorized to perform: iam:PassRole on resource: {OPTIMIZED['role_arn']}",
            {"Action": ["iam:PassRole"], "Resource": [OPTIMIZED["role_arn"]]},
        ),
        (
            "BatchGetTableOptimizer",
            f"User: {USER} is not authorized to perform: glue:BatchGetTableOptimizer on resource: {GLUE}:catalog",
            {"Action": ["glue:BatchGetTableOptimizer"]},
        ),
    ],
)
@pytest.mark.usefixtures("cloud")
def test_a_missing_permission_for_optimizers_is_a_failure_with_the_statement(
    operation: str, text: str, statement: dict[str, Any]
) -> None:
    access = another_client()
    registered = {"mode": "hybrid", "registration_role_arn": "arn:aws:iam::123456789012:role/location"}
    context = a_context(access, maintenance=OPTIMIZED, lake_formation=registered)
    findings = findings_of(context)
    deny(access, "glue", operation, text)
    try_optimizers(context, findings)

    [failure] = findings.failures
    assert failure.error_class == "insufficient_permissions"
    remedy = json.loads(failure.message[failure.message.index("{") :])
    assert remedy == {**remedy, **statement, "Effect": "Allow"}
