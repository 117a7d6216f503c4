"""Grants behave as AWS documents. `grants.py` and `listing.py` cite AWS's pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.lake_formation.conftest import (
    ANALYST,
    EVERY_TABLE,
    ORDERS,
    SHOP,
    columns,
    create_table,
    refusal,
)

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_lakeformation import LakeFormationClient

pytestmark = pytest.mark.share(3)

LOCATION: Any = {"DataLocation": {"ResourceArn": "arn:aws:s3:::lake/shop"}}
CATALOG: Any = {"Catalog": {}}
OPS = "arn:aws:iam::123456789012:user/ops"


def grant(resource: Any, *permissions: str, principal: str = ANALYST, grantable: Any = ()) -> Any:
    return {
        "Principal": {"DataLakePrincipalIdentifier": principal},
        "Resource": resource,
        "Permissions": permissions,
        "PermissionsWithGrantOption": grantable,
    }


def granted(lf: LakeFormationClient, principal: str | None = ANALYST, **asked: Any) -> list[Any]:
    """Return the entries of all pages: resource without its catalog, permissions, and permissions with grant option."""
    entries: list[Any] = []
    while True:
        page = lf.list_permissions(**asked)
        for entry in page["PrincipalResourcePermissions"]:
            if principal in (None, entry["Principal"]["DataLakePrincipalIdentifier"]):
                ((kind, named),) = entry["Resource"].items()
                named = {name: value for name, value in named.items() if name not in ("CatalogId", "Id")}  # type: ignore[attr-defined]
                entries.append(({kind: named}, entry["Permissions"], entry["PermissionsWithGrantOption"]))
        if "NextToken" not in page:
            return entries
        asked["NextToken"] = page["NextToken"]


def test_grants_on_a_resource_are_one_entry_of_the_principal(lf: LakeFormationClient) -> None:
    lf.grant_permissions(**grant(SHOP, "DESCRIBE"))
    lf.grant_permissions(**grant(SHOP, "CREATE_TABLE", "ALTER", grantable=["ALTER"]))

    assert granted(lf, Resource=SHOP) == [(SHOP, ["ALTER", "CREATE_TABLE", "DESCRIBE"], ["ALTER"])]


def test_select_on_a_table_is_listed_as_select_on_all_its_columns(lf: LakeFormationClient) -> None:
    lf.grant_permissions(**grant(ORDERS, "SELECT", "DESCRIBE"))

    every_column = {"TableWithColumns": {"DatabaseName": "shop", "Name": "orders", "ColumnWildcard": {}}}
    assert granted(lf, Resource=ORDERS) == [(ORDERS, ["DESCRIBE"], []), (every_column, ["SELECT"], [])]


def test_a_grant_on_all_tables_is_listed_under_a_name_of_its_own(lf: LakeFormationClient) -> None:
    lf.grant_permissions(**grant(EVERY_TABLE, "SELECT", "INSERT"))

    named: Any = {"DatabaseName": "shop", "Name": "ALL_TABLES"}
    entries: Any = [
        ({"Table": {**named, "TableWildcard": {}}}, ["INSERT"], []),
        ({"TableWithColumns": {**named, "ColumnWildcard": {}}}, ["SELECT"], []),
    ]
    assert granted(lf, Resource=EVERY_TABLE) == entries
    assert granted(lf, Resource=ORDERS) == []
    assert granted(lf, Resource=ORDERS, Principal={"DataLakePrincipalIdentifier": ANALYST}) == entries


def test_columns_are_granted_one_after_the_other(lf: LakeFormationClient) -> None:
    lf.grant_permissions(**grant(columns("id"), "SELECT"))
    lf.grant_permissions(**grant(columns("day"), "SELECT"))

    ((resource, permissions, _),) = granted(lf, Resource=ORDERS)
    assert resource["TableWithColumns"]["ColumnNames"] == ["day", "id"]
    assert permissions == ["SELECT"]


@pytest.mark.parametrize(
    ("resource", "permissions"),
    [
        (SHOP, ["SELECT"]),
        (ORDERS, ["CREATE_TABLE"]),
        (EVERY_TABLE, ["DATA_LOCATION_ACCESS"]),
        (columns("id"), ["SELECT", "DESCRIBE"]),
        (CATALOG, ["SELECT"]),
        (LOCATION, ["ALL"]),
    ],
)
def test_a_permission_has_to_fit_the_type_of_the_resource(
    lf: LakeFormationClient, resource: Any, permissions: Any
) -> None:
    lf.register_resource(ResourceArn="arn:aws:s3:::lake", RoleArn="arn:aws:iam::123456789012:role/lake")

    assert refusal(lf.grant_permissions, **grant(resource, *permissions)) == "InvalidInputException"


def test_only_what_is_granted_can_be_passed_on(lf: LakeFormationClient) -> None:
    assert refusal(lf.grant_permissions, **grant(SHOP, "ALTER", grantable=["DROP"])) == "InvalidInputException"


def test_a_principal_is_an_arn(lf: LakeFormationClient) -> None:
    assert refusal(lf.grant_permissions, **grant(SHOP, "ALTER", principal="analyst")) == "InvalidInputException"


@pytest.mark.parametrize(
    "missing",
    [{"Database": {"Name": "no"}}, {"Table": {"DatabaseName": "shop", "Name": "no"}}, columns("no")],
)
def test_what_is_granted_has_to_exist(lf: LakeFormationClient, missing: Any) -> None:
    permission = "DROP" if "Database" in missing else "SELECT"

    assert refusal(lf.grant_permissions, **grant(missing, permission)) == "EntityNotFoundException"


def test_a_location_that_is_not_registered_cannot_be_granted(lf: LakeFormationClient) -> None:
    assert refusal(lf.grant_permissions, **grant(LOCATION, "DATA_LOCATION_ACCESS")) == "InvalidInputException"


def test_a_location_is_granted_below_a_registered_one(lf: LakeFormationClient) -> None:
    lf.register_resource(ResourceArn="arn:aws:s3:::lake/", RoleArn="arn:aws:iam::123456789012:role/lake")

    lf.grant_permissions(**grant(LOCATION, "DATA_LOCATION_ACCESS"))

    assert granted(lf, Resource=LOCATION) == [(LOCATION, ["DATA_LOCATION_ACCESS"], [])]


def test_a_batch_answers_with_the_entries_that_failed_and_does_the_others(lf: LakeFormationClient) -> None:
    entries: Any = [
        {"Id": "1", **grant(SHOP, "DROP", grantable=["DROP"])},
        {"Id": "2", **grant(SHOP, "SELECT")},
        {"Id": "3", **grant({"Database": {"Name": "no"}}, "DROP")},
    ]

    failures = lf.batch_grant_permissions(Entries=entries)["Failures"]

    assert [(failure["RequestEntry"]["Id"], failure["Error"]["ErrorCode"]) for failure in failures] == [
        ("2", "InvalidInputException"),
        ("3", "EntityNotFoundException"),
    ]
    assert granted(lf, Resource=SHOP) == [(SHOP, ["DROP"], ["DROP"])]


def test_a_batch_has_20_entries_at_most(lf: LakeFormationClient) -> None:
    entries = [{"Id": str(number), **grant(SHOP, "DROP")} for number in range(21)]

    assert refusal(lf.batch_grant_permissions, Entries=entries) == "InvalidInputException"


def test_a_revocation_takes_what_was_granted(lf: LakeFormationClient) -> None:
    lf.grant_permissions(**grant(SHOP, "DROP", "ALTER", grantable=["ALTER"]))

    lf.revoke_permissions(**grant(SHOP, "ALTER", grantable=["ALTER"]))

    assert granted(lf, Resource=SHOP) == [(SHOP, ["DROP"], [])]
    assert refusal(lf.revoke_permissions, **grant(SHOP, "ALTER")) == "InvalidInputException"


def test_a_batch_of_revocations_answers_with_what_was_not_there(lf: LakeFormationClient) -> None:
    lf.grant_permissions(**grant(SHOP, "DROP"))
    entries: Any = [{"Id": "1", **grant(SHOP, "DROP")}, {"Id": "2", **grant(SHOP, "ALTER")}]

    failures = lf.batch_revoke_permissions(Entries=entries)["Failures"]

    assert [failure["RequestEntry"]["Id"] for failure in failures] == ["2"]
    assert granted(lf, Resource=SHOP) == []


@pytest.mark.parametrize(
    ("kind", "resource"), [("CATALOG", CATALOG), ("DATABASE", SHOP), ("TABLE", ORDERS), ("DATA_LOCATION", LOCATION)]
)
def test_a_list_is_filtered_by_the_type_of_the_resource(lf: LakeFormationClient, kind: Any, resource: Any) -> None:
    lf.register_resource(ResourceArn="arn:aws:s3:::lake", RoleArn="arn:aws:iam::123456789012:role/lake")
    lf.grant_permissions(**grant(CATALOG, "CREATE_DATABASE"))
    lf.grant_permissions(**grant(SHOP, "DROP"))
    lf.grant_permissions(**grant(ORDERS, "DROP"))
    lf.grant_permissions(**grant(LOCATION, "DATA_LOCATION_ACCESS"))

    assert [entry[0] for entry in granted(lf, ResourceType=kind)] == [resource]


def test_a_principal_is_listed_for_a_resource_only(lf: LakeFormationClient) -> None:
    lf.grant_permissions(**grant(SHOP, "DROP"))
    lf.grant_permissions(**grant(SHOP, "ALTER", principal=OPS))
    ops_principal: Any = {"DataLakePrincipalIdentifier": OPS}

    assert granted(lf, None, Resource=SHOP, Principal=ops_principal) == [(SHOP, ["ALTER"], [])]
    assert refusal(lf.list_permissions, Principal=ops_principal) == "InvalidInputException"
    assert refusal(lf.list_permissions, Resource=columns("id")) == "InvalidInputException"


def test_a_list_has_pages(lf: LakeFormationClient, glue: GlueClient) -> None:
    for number in range(12):
        create_table(glue, f"table{number}")
        lf.grant_permissions(**grant({"Table": {"DatabaseName": "shop", "Name": f"table{number}"}}, "DROP"))

    assert len(lf.list_permissions(MaxResults=3)["PrincipalResourcePermissions"]) == 3
    assert "NextToken" in lf.list_permissions()
    assert len(granted(lf)) == 12
