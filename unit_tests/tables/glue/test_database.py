"""Databases of the Glue Data Catalog, and the tables listed in them."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.services import LakeFormationOptions
from destination_datalake.lake_formation.governance import Governance
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.tables.catalog import list_tables
from destination_datalake.tables.glue.catalog import DATABASE_DESCRIPTION, GlueTableCatalog, ensure_database
from unit_tests.cloud import Cloud, another_client, before, ungoverned

pytestmark = pytest.mark.share(4)


def tagging(access: AwsAccess) -> GlueTableCatalog:
    """Return the databases of a sync whose options have the default tag of the AWS Datalake destination."""
    governance = Governance(Policy("arn:aws:s3:::lake", default_tag=("owner", ("team",))), access)
    governance.govern_location()
    return GlueTableCatalog(access, governance)


def tags(cloud: Cloud) -> dict[str, str]:
    resource: Any = {"Database": {"Name": "shop"}}
    pairs = cloud.access.client("lakeformation").get_resource_lf_tags(Resource=resource).get("LFTagOnDatabase", [])
    return {pair["TagKey"]: pair["TagValues"][0] for pair in pairs}


def description(cloud: Cloud) -> str | None:
    return cloud.access.client("glue").get_database(Name="shop")["Database"].get("Description")


def test_a_database_is_created_once_and_not_asked_for_again(cloud: Cloud) -> None:
    asked: list[int] = []
    access = another_client()
    before(access, "glue", "GetDatabase", asked.append)
    databases = ungoverned(access)

    for _ in range(2):
        databases.ensure("shop")
        databases.govern("shop")

    assert asked == [1]
    assert description(cloud) == DATABASE_DESCRIPTION


def test_the_default_tag_is_assigned_to_a_new_database(cloud: Cloud) -> None:
    tagging(cloud.access).ensure("shop")

    assert tags(cloud) == {"owner": "team"}


def test_a_sync_that_was_killed_before_it_tagged_its_database_is_completed_by_the_next(cloud: Cloud) -> None:
    ungoverned(cloud.access).ensure("shop")

    tagging(cloud.access).govern("shop")

    assert tags(cloud) == {"owner": "team"}


def test_a_database_that_others_created_does_not_get_the_default_tag(cloud: Cloud) -> None:
    cloud.access.client("glue").create_database(DatabaseInput={"Name": "shop", "Description": "theirs"})

    tagging(cloud.access).ensure("shop")

    assert tags(cloud) == {}
    assert description(cloud) == "theirs"


@pytest.mark.parametrize(("mode", "opened"), [("none", True), ("hybrid", True), ("managed", False)])
def test_under_managed_new_tables_are_not_open_to_iam(cloud: Cloud, mode: str, *, opened: bool) -> None:
    options = LakeFormationOptions.model_validate({"mode": mode})
    GlueTableCatalog(cloud.access, Governance(Policy("arn:aws:s3:::lake", options), cloud.access)).ensure("shop")

    database = cloud.access.client("glue").get_database(Name="shop")["Database"]
    assert (database.get("CreateTableDefaultPermissions") != []) == opened


def create_tables(cloud: Cloud, *names: str) -> None:
    """Create tables, given as `database.table`."""
    for name in names:
        database, _, table = name.partition(".")
        cloud.access.client("glue").create_table(DatabaseName=database, TableInput={"Name": table})


def listed(cloud: Cloud, database: str) -> list[str]:
    tables = list_tables(ungoverned(cloud.access), database)
    return [f"{table.database}.{table.glue_table['Name']}" for table in tables]


def test_tables_of_the_given_database_come_before_those_of_databases_that_we_created(cloud: Cloud) -> None:
    glue = cloud.access.client("glue")
    ensure_database(glue, "shop")
    for database in ("lake", "theirs"):
        glue.create_database(DatabaseInput={"Name": database})
    create_tables(cloud, "shop.a", "lake.a", "lake.b", "theirs.a")

    assert listed(cloud, "lake") == ["lake.a", "lake.b", "shop.a"]
    assert listed(cloud, "theirs") == ["theirs.a", "shop.a"]


@pytest.mark.parametrize("operation", ["GetDatabases", "GetTables"])
def test_tables_of_the_given_database_are_listed_without_access_to_others(cloud: Cloud, operation: str) -> None:
    access = another_client()
    for database in ("lake", "shop"):
        ensure_database(cloud.access.client("glue"), database)
    create_tables(cloud, "lake.orders", "shop.orders")

    def refuse(times: int) -> None:
        if operation == "GetDatabases" or times > 1:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not authorized"}}, operation)

    before(access, "glue", operation, refuse)

    assert [table.database for table in list_tables(ungoverned(access), "lake")] == ["lake"]


def test_every_page_is_read(cloud: Cloud) -> None:
    ensure_database(cloud.access.client("glue"), "lake")
    create_tables(cloud, *(f"lake.s{number}" for number in range(120)))

    assert len(listed(cloud, "lake")) == 120


def test_of_many_databases_the_latest_are_read(cloud: Cloud) -> None:
    for number in range(60):
        # The first by name is created last.
        ensure_database(cloud.access.client("glue"), f"lake_{99 - number}")
        create_tables(cloud, f"lake_{99 - number}.orders")

    assert set(listed(cloud, "lake_99")) == {"lake_99.orders", *(f"lake_{number}.orders" for number in range(40, 90))}
