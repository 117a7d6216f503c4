"""Lake Formation's permissions, asked for by whoever calls the server."""

from collections.abc import Iterator
from typing import Any

import pytest

from integration_tests.harness.account import Account, Member, allow
from unit_tests.emulated_aws.refusals import refusal

LOCATION = "arn:aws:s3:::governed/lake"


@pytest.fixture(params=["user", "role"])
def writer(request: pytest.FixtureRequest, account: Account) -> Member:
    """Somebody whom IAM allows everything in Glue."""
    member: Member = getattr(account, request.param)(allow("glue:*"))
    return member


@pytest.fixture
def shop(account: Account) -> Iterator[dict[str, Any]]:
    """A database that Lake Formation governs, as grants name it; a data location is registered."""
    glue, lake_formation = account.client("glue"), account.client("lakeformation")
    with account.governed():
        lake_formation.register_resource(ResourceArn=LOCATION, RoleArn="arn:aws:iam::123456789012:role/lf")
        glue.create_database(DatabaseInput={"Name": "governed"})
        yield {"Database": {"Name": "governed"}}
        glue.delete_database(Name="governed")
        lake_formation.deregister_resource(ResourceArn=LOCATION)


def table(name: str) -> dict[str, Any]:
    location = {"Location": f"s3://governed/lake/{name}", "Columns": [{"Name": "id", "Type": "bigint"}]}
    return {"DatabaseName": "governed", "TableInput": {"Name": name, "StorageDescriptor": location}}


def test_what_iam_allows_needs_a_grant_too(account: Account, writer: Member, shop: dict[str, Any]) -> None:
    glue, start = account.client("glue", writer), "Insufficient Lake Formation permission(s)"
    denied = "AccessDeniedException"

    assert refusal(glue.create_database, DatabaseInput={"Name": "mine"}) == (
        denied,
        f"{start}: Required Create Database on Catalog",
    )
    assert refusal(glue.get_database, Name="governed") == (denied, f"{start}: Required Describe on governed")
    assert refusal(glue.create_table, **table("a")) == (denied, f"{start}: Required Create Table on governed")
    account.grant(writer, shop, "CREATE_TABLE")
    assert refusal(glue.create_table, **table("a")) == (denied, f"{start} on s3://governed/lake/a")
    account.grant(writer, {"DataLocation": {"ResourceArn": LOCATION}}, "DATA_LOCATION_ACCESS")
    glue.create_table(**table("a"))


def test_who_creates_a_table_has_it_and_nobody_else(account: Account, writer: Member, shop: dict[str, Any]) -> None:
    glue, other = account.client("glue", writer), account.client("glue", account.user(allow("glue:*")))
    account.grant(writer, shop, "CREATE_TABLE")
    account.grant(writer, {"DataLocation": {"ResourceArn": LOCATION}}, "DATA_LOCATION_ACCESS")

    glue.create_table(**table("b"))

    glue.update_table(**table("b"))
    assert refusal(other.get_table, DatabaseName="governed", Name="b")[0] == "AccessDeniedException"
    assert "governed" not in [database["Name"] for database in other.get_databases()["DatabaseList"]]
    glue.delete_table(DatabaseName="governed", Name="b")


@pytest.mark.usefixtures("shop")
def test_the_account_s_own_key_needs_no_grant(account: Account) -> None:
    account.client("glue").create_table(**table("c"))


def test_a_lake_s_administrator_may_create_databases_and_grant(account: Account) -> None:
    admin, user = account.user(allow("glue:*", "lakeformation:*")), account.user(allow("glue:*", "lakeformation:*"))
    grant = {
        "Principal": {"DataLakePrincipalIdentifier": user.arn},
        "Resource": {"Catalog": {}},
        "Permissions": ["CREATE_DATABASE"],
    }

    with account.governed(admin):
        assert refusal(account.client("lakeformation", user).grant_permissions, **grant)[0] == "AccessDeniedException"
        account.client("lakeformation", admin).grant_permissions(**grant)
        account.client("glue", user).create_database(DatabaseInput={"Name": "granted"})
        account.client("glue", admin).create_database(DatabaseInput={"Name": "administered"})
