"""The server requires Lake Formation's permissions of each caller."""

from collections.abc import Iterator
from typing import Any

import pytest
from emulated_aws.account import Account, Member, allow

from tests.refusals import refusal

pytestmark = pytest.mark.share(3)

LOCATION = "arn:aws:s3:::governed/lake"


@pytest.fixture(params=["user", "role"])
def writer(request: pytest.FixtureRequest, account: Account) -> Member:
    """A user or role to which IAM allows all actions of Glue."""
    member: Member = getattr(account, request.param)(allow("glue:*"))
    return member


@pytest.fixture
def shop(account: Account) -> Iterator[dict[str, Any]]:
    """A database that Lake Formation governs, in the form of a grant's resource. A data location is registered."""
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


@pytest.mark.usefixtures("shop")
def test_the_account_s_own_key_needs_no_grant(account: Account) -> None:
    account.client("glue").create_table(**table("c"))
