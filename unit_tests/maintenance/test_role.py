"""What `check` says of the role of Glue's table optimizers, where Lake Formation governs the tables."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from destination_datalake.check.governance import EVERYBODY, try_optimizers_role
from destination_datalake.check.step import StepFindings
from destination_datalake.lake_formation.state import AllTables, to_request
from destination_datalake.tables.glue.catalog import ensure_database
from unit_tests.check.examples import a_context
from unit_tests.cloud import Cloud

ROLE = "arn:aws:iam::123456789012:role/optimizers"
ADMINISTRATOR = "arn:aws:sts::123456789012:user/moto"
"""Whom moto takes every caller for."""


@pytest.mark.parametrize("to", [ROLE, EVERYBODY])
def test_permissions_that_the_role_lacks_are_a_warning_with_the_command_that_grants_them(cloud: Cloud, to: str) -> None:
    client, tables = cloud.access.client("lakeformation"), to_request(AllTables("raw"))
    client.put_data_lake_settings(
        DataLakeSettings={
            "DataLakeAdmins": [{"DataLakePrincipalIdentifier": ADMINISTRATOR}],
            "CreateDatabaseDefaultPermissions": [],
            "CreateTableDefaultPermissions": [],
        }
    )
    ensure_database(cloud.access.client("glue"), "raw")
    context = a_context(
        cloud.access,
        region="us-east-1",
        lake_formation={"mode": "managed"},
        maintenance={"mode": "glue", "role_arn": ROLE},
    )
    principal: Any = {"DataLakePrincipalIdentifier": to}
    client.grant_permissions(Principal=principal, Resource=tables, Permissions=["DESCRIBE", "INSERT"])
    findings, findings_after_grant = StepFindings(), StepFindings()

    try_optimizers_role(context, findings)
    client.grant_permissions(Principal=principal, Resource=tables, Permissions=["ALTER", "DELETE"])
    try_optimizers_role(context, findings_after_grant)

    [warning] = findings.notes
    assert warning.startswith(f"{ROLE} lacks ALTER, DELETE on ")
    assert shlex.split(warning.partition(": aws ")[2])[:2] == ["lakeformation", "grant-permissions"]
    assert (findings.failures, findings_after_grant.failures, findings_after_grant.notes) == ([], [], [])
