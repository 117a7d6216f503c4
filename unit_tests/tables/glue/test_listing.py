"""The tables that `check` finds in the Glue Data Catalog."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from destination_datalake.tables.glue.database import ensure_database
from destination_datalake.tables.glue.listing import list_tables
from unit_tests.cloud import Cloud, another_client, before


def create_tables(cloud: Cloud, *names: str) -> None:
    """Create tables, given as `database.table`."""
    for name in names:
        database, _, table = name.partition(".")
        cloud.access.client("glue").create_table(DatabaseName=database, TableInput={"Name": table})


def listed(cloud: Cloud, database: str) -> list[str]:
    found = list_tables(cloud.access.client("glue"), database)
    return [f"{each.database}.{each.glue_table['Name']}" for each in found]


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

    assert [each.database for each in list_tables(access.client("glue"), "lake")] == ["lake"]


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
