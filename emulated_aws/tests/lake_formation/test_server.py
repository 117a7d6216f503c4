"""Lake Formation checks the permissions of users and role sessions, which the layer in front of moto identifies."""

from __future__ import annotations

from uuid import uuid4

import pytest
from emulated_aws.account import Account, allow

from tests.lake_formation.conftest import refusal

pytestmark = pytest.mark.share(3)


@pytest.mark.parametrize("kind", ["user", "role"])
def test_iam_alone_does_not_open_a_governed_database(account: Account, kind: str) -> None:
    database = f"governed_{uuid4().hex}"
    account.governed_database(database)
    member = getattr(account, kind)(allow("glue:*"), allow("lakeformation:*"))
    glue, administrator = account.client("glue", member), account.client("lakeformation")
    table = {"DatabaseName": database, "TableInput": {"Name": "orders"}}

    assert refusal(glue.get_database, Name=database) == "AccessDeniedException"
    assert refusal(glue.create_table, **table) == "AccessDeniedException"
    administrator.grant_permissions(
        Principal={"DataLakePrincipalIdentifier": member.arn},
        Resource={"Database": {"Name": database}},
        Permissions=["CREATE_TABLE"],
    )

    glue.create_table(**table)
    assert [entry["Name"] for entry in glue.get_tables(DatabaseName=database)["TableList"]] == ["orders"]
    stranger = account.client("glue", account.user(allow("glue:*")))
    assert refusal(stranger.get_table, DatabaseName=database, Name="orders") == "AccessDeniedException"


def test_without_governance_iam_decides(account: Account) -> None:
    database = f"open_{uuid4().hex}"
    glue = account.client("glue", account.user(allow("glue:*")))

    glue.create_database(DatabaseInput={"Name": database})
    glue.create_table(DatabaseName=database, TableInput={"Name": "orders"})

    another = account.client("glue", account.user(allow("glue:*")))
    assert another.get_table(DatabaseName=database, Name="orders")["Table"]["Name"] == "orders"
