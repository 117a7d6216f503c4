"""The permissions that Lake Formation requires. `authorization.py` and `enforcement.py` cite AWS's pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.lake_formation.conftest import (
    ANALYST,
    EVERY_TABLE,
    ORDERS,
    SHOP,
    caller,
    columns,
    create_table,
    refusal,
)

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_lakeformation import LakeFormationClient

pytestmark = pytest.mark.share(3)

CATALOG: Any = {"Catalog": {}}
LOCATION: Any = {"DataLocation": {"ResourceArn": "arn:aws:s3:::lake/shop"}}
EVERYBODY = "IAM_ALLOWED_PRINCIPALS"
PARTITION: Any = {"Values": ["2026-01-01"], "StorageDescriptor": {"Location": "s3://lake/shop/orders/day=2026-01-01"}}


def principal(arn: str) -> Any:
    return {"DataLakePrincipalIdentifier": arn}


@pytest.fixture
def closed(governed: LakeFormationClient, glue: GlueClient) -> LakeFormationClient:
    """Lake Formation, which governs all databases and tables, with the bucket as a registered location."""
    glue.delete_database(Name="shop")
    glue.create_database(DatabaseInput={"Name": "shop"})
    create_table(glue, "orders")
    governed.revoke_permissions(Principal=principal(EVERYBODY), Resource=CATALOG, Permissions=["CREATE_DATABASE"])
    governed.register_resource(ResourceArn="arn:aws:s3:::lake", RoleArn="arn:aws:iam::123456789012:role/lake")
    return governed


def grant(lf: LakeFormationClient, resource: Any, *permissions: Any, grantable: Any = ()) -> None:
    lf.grant_permissions(
        Principal=principal(ANALYST),
        Resource=resource,
        Permissions=permissions,
        PermissionsWithGrantOption=grantable,
    )


OPERATIONS: dict[str, tuple[Callable[[Any], object], list[tuple[Any, str]]]] = {
    "create a database": (
        lambda glue: glue.create_database(DatabaseInput={"Name": "lab"}),
        [(CATALOG, "CREATE_DATABASE")],
    ),
    "create a database at a location": (
        lambda glue: glue.create_database(DatabaseInput={"Name": "lab", "LocationUri": "s3://lake/shop/lab"}),
        [(CATALOG, "CREATE_DATABASE"), (LOCATION, "DATA_LOCATION_ACCESS")],
    ),
    "read a database": (lambda glue: glue.get_database(Name="shop"), [(SHOP, "DESCRIBE")]),
    "alter a database": (
        lambda glue: glue.update_database(Name="shop", DatabaseInput={"Name": "shop"}),
        [(SHOP, "ALTER")],
    ),
    "drop a database": (lambda glue: glue.delete_database(Name="shop"), [(SHOP, "DROP")]),
    "create a table": (
        lambda glue: create_table(glue, "new"),
        [(SHOP, "CREATE_TABLE"), (LOCATION, "DATA_LOCATION_ACCESS")],
    ),
    "read a table": (lambda glue: glue.get_table(DatabaseName="shop", Name="orders"), [(ORDERS, "DESCRIBE")]),
    "read a table, all being allowed": (
        lambda glue: glue.get_table(DatabaseName="shop", Name="orders"),
        [(EVERY_TABLE, "SELECT")],
    ),
    "read a table, a column being allowed": (
        lambda glue: glue.get_table(DatabaseName="shop", Name="orders"),
        [(columns("id"), "SELECT")],
    ),
    "alter a table": (
        lambda glue: glue.update_table(
            DatabaseName="shop",
            TableInput={"Name": "orders", "StorageDescriptor": {"Location": "s3://lake/shop/orders"}},
        ),
        [(ORDERS, "ALTER"), (LOCATION, "DATA_LOCATION_ACCESS")],
    ),
    "drop a table": (lambda glue: glue.delete_table(DatabaseName="shop", Name="orders"), [(ORDERS, "DROP")]),
    "drop tables": (
        lambda glue: glue.batch_delete_table(DatabaseName="shop", TablesToDelete=["orders"]),
        [(ORDERS, "DROP")],
    ),
    "read partitions": (
        lambda glue: glue.get_partitions(DatabaseName="shop", TableName="orders"),
        [(ORDERS, "SELECT")],
    ),
    "create a partition": (
        lambda glue: glue.create_partition(DatabaseName="shop", TableName="orders", PartitionInput=PARTITION),
        [(ORDERS, "INSERT"), (LOCATION, "DATA_LOCATION_ACCESS")],
    ),
    "create partitions": (
        lambda glue: glue.batch_create_partition(
            DatabaseName="shop", TableName="orders", PartitionInputList=[PARTITION]
        ),
        [(ORDERS, "ALTER"), (LOCATION, "DATA_LOCATION_ACCESS")],
    ),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_glue_asks_for_each_of_the_permissions(closed: LakeFormationClient, glue: GlueClient, operation: str) -> None:
    act, needed = OPERATIONS[operation]
    for resource, permission in needed:
        with caller(ANALYST):
            assert refusal(lambda: act(glue)) == "AccessDeniedException"
        grant(closed, resource, permission)

    with caller(ANALYST):
        act(glue)


def test_with_all_for_everybody_iam_decides_unless_the_caller_opted_in(
    lf: LakeFormationClient, glue: GlueClient
) -> None:
    with caller(ANALYST):
        glue.get_table(DatabaseName="shop", Name="orders")
    lf.create_lake_formation_opt_in(Principal=principal(ANALYST), Resource=SHOP)

    with caller(ANALYST):
        assert refusal(glue.get_table, DatabaseName="shop", Name="orders") == "AccessDeniedException"


def test_a_caller_sees_what_it_has_a_permission_for(closed: LakeFormationClient, glue: GlueClient) -> None:
    glue.create_database(DatabaseInput={"Name": "lab"})
    create_table(glue, "new")
    grant(closed, ORDERS, "SELECT")

    with caller(ANALYST):
        databases, tables = glue.get_databases(), glue.get_tables(DatabaseName="shop")

    assert [database["Name"] for database in databases["DatabaseList"]] == ["shop"]
    assert [table["Name"] for table in tables["TableList"]] == ["orders"]


@pytest.mark.parametrize(
    ("asked", "resource", "permission"),
    [
        ({"DatabaseName": "shop", "Name": "nothing"}, SHOP, "CREATE_TABLE"),
        ({"Name": "nowhere"}, CATALOG, "CREATE_DATABASE"),
    ],
)
def test_what_is_missing_is_told_to_whom_may_create_it(
    closed: LakeFormationClient, glue: GlueClient, asked: Any, resource: Any, permission: str
) -> None:
    read = glue.get_table if "DatabaseName" in asked else glue.get_database
    with caller(ANALYST):
        assert refusal(read, **asked) == "AccessDeniedException"
    grant(closed, resource, permission)

    with caller(ANALYST):
        assert refusal(read, **asked) == "EntityNotFoundException"


def test_an_administrator_reads_and_grants_but_does_not_write(closed: LakeFormationClient, glue: GlueClient) -> None:
    closed.put_data_lake_settings(DataLakeSettings={"DataLakeAdmins": [principal(ANALYST)]})

    with caller(ANALYST):
        glue.get_table(DatabaseName="shop", Name="orders")
        glue.create_database(DatabaseInput={"Name": "lab", "LocationUri": "s3://lake/lab"})
        assert refusal(glue.delete_table, DatabaseName="shop", Name="orders") == "AccessDeniedException"
        grant(closed, ORDERS, "DROP")
        glue.delete_table(DatabaseName="shop", Name="orders")


def test_the_creator_of_a_table_writes_to_it(closed: LakeFormationClient, glue: GlueClient) -> None:
    grant(closed, SHOP, "CREATE_TABLE")
    grant(closed, LOCATION, "DATA_LOCATION_ACCESS")

    with caller(ANALYST):
        create_table(glue, "new")
        glue.create_partition(DatabaseName="shop", TableName="new", PartitionInput=PARTITION)
        glue.delete_table(DatabaseName="shop", Name="new")


def test_a_table_below_its_database_s_location_needs_no_permission_for_it(
    closed: LakeFormationClient, glue: GlueClient
) -> None:
    glue.update_database(Name="shop", DatabaseInput={"Name": "shop", "LocationUri": "s3://lake/shop"})
    grant(closed, SHOP, "CREATE_TABLE")

    with caller(ANALYST):
        create_table(glue, "new")


def test_a_permission_is_passed_on_with_the_grant_option_only(closed: LakeFormationClient) -> None:
    grant(closed, ORDERS, "DROP", "ALTER", grantable=["ALTER"])
    entries: Any = [
        {"Id": permission, "Principal": principal(ANALYST), "Resource": ORDERS, "Permissions": [permission]}
        for permission in ("DROP", "ALTER")
    ]

    with caller(ANALYST):
        failures = closed.batch_grant_permissions(Entries=entries)["Failures"]

    assert [(failure["RequestEntry"]["Id"], failure["Error"]["ErrorCode"]) for failure in failures] == [
        ("DROP", "AccessDeniedException")
    ]


def test_a_caller_is_shown_grants_of_its_own_permissions(closed: LakeFormationClient) -> None:
    grant(closed, ORDERS, "ALTER")
    other_principal: Any = principal("arn:aws:iam::123456789012:user/ops")
    closed.grant_permissions(Principal=other_principal, Resource=ORDERS, Permissions=["ALTER", "DROP"])

    with caller(ANALYST):
        entries = closed.list_permissions(Resource=ORDERS)["PrincipalResourcePermissions"]

    assert [entry["Permissions"] for entry in entries] == [["ALTER"], ["ALTER"]]


TABLE = ["DESCRIBE", "ALTER", "DROP", "INSERT", "SELECT", "DELETE"]


@pytest.mark.parametrize(
    ("resource", "permissions"), [(SHOP, ["DESCRIBE", "CREATE_TABLE", "ALTER", "DROP"]), (ORDERS, TABLE)]
)
def test_to_tag_takes_associate_and_all_on_the_resource_to_pass_on(
    closed: LakeFormationClient, resource: Any, permissions: list[Any]
) -> None:
    closed.create_lf_tag(TagKey="team", TagValues=["ops"])
    asked: Any = {"Resource": resource, "LFTags": [{"TagKey": "team", "TagValues": ["ops"]}]}
    tag: Any = {"LFTag": {"TagKey": "team", "TagValues": ["ops"]}}

    grant(closed, resource, *permissions, grantable=permissions)
    with caller(ANALYST):
        assert refusal(closed.add_lf_tags_to_resource, **asked) == "AccessDeniedException"
    grant(closed, tag, "ASSOCIATE")
    with caller(ANALYST):
        closed.add_lf_tags_to_resource(**asked)
    closed.revoke_permissions(
        Principal=principal(ANALYST),
        Resource=resource,
        Permissions=permissions[:1],
        PermissionsWithGrantOption=permissions[:1],
    )
    with caller(ANALYST):
        assert refusal(closed.remove_lf_tags_from_resource, **asked) == "AccessDeniedException"


def test_a_creator_of_lf_tags_changes_its_own(closed: LakeFormationClient) -> None:
    closed.create_lf_tag(TagKey="team", TagValues=["ops"])

    with caller(ANALYST):
        assert refusal(closed.create_lf_tag, TagKey="pii", TagValues=["yes"]) == "AccessDeniedException"
    grant(closed, CATALOG, "CREATE_LF_TAG")

    with caller(ANALYST):
        closed.create_lf_tag(TagKey="pii", TagValues=["yes"])
        closed.update_lf_tag(TagKey="pii", TagValuesToAdd=["no"])
        assert refusal(closed.update_lf_tag, TagKey="team", TagValuesToAdd=["hr"]) == "AccessDeniedException"
        closed.delete_lf_tag(TagKey="pii")


def test_only_administrators_opt_in(closed: LakeFormationClient) -> None:
    asked: Any = {"Principal": principal(ANALYST), "Resource": SHOP}

    with caller(ANALYST):
        assert refusal(closed.create_lake_formation_opt_in, **asked) == "AccessDeniedException"
    closed.put_data_lake_settings(DataLakeSettings={"DataLakeAdmins": [principal(ANALYST)]})

    with caller(ANALYST):
        closed.create_lake_formation_opt_in(**asked)
