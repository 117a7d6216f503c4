"""From options to desired state."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.config.options import Config
from destination_datalake.lake_formation.policy import MIXED, ORIGINALS, Policy
from destination_datalake.lake_formation.state import (
    AllTables,
    Column,
    Database,
    DataLocation,
    Desired,
    Grant,
    OptIn,
    Registration,
    Resource,
    Table,
    Tag,
)
from destination_datalake.tables.glue.catalog import REJECTS as REJECTS_TABLE
from unit_tests.config.examples import options
from unit_tests.lake_formation.lake import ANALYST, LOCATION, REGISTRATION_ROLE, policy

ID = Column("shop", "orders", "id")


def granted(desired: Desired) -> set[tuple[Resource, str]]:
    return {(grant.resource, grant.permission) for grant in desired.grants}


@pytest.mark.parametrize(
    ("grant", "location", "database", "table"),
    [
        ({"permissions": ["DATA_LOCATION_ACCESS"]}, {(DataLocation(LOCATION), "DATA_LOCATION_ACCESS")}, set(), set()),
        ({"permissions": ["CREATE_TABLE"]}, set(), {(Database("shop"), "CREATE_TABLE")}, set()),
        (
            {"permissions": ["ALL", "DATA_LOCATION_ACCESS"], "database": "shop"},
            {(DataLocation(LOCATION), "DATA_LOCATION_ACCESS")},
            {(Database("shop"), "ALL")},
            set(),
        ),
        ({"permissions": ["CREATE_TABLE"], "database": "other"}, set(), set(), set()),
        ({"permissions": ["SELECT"], "table": "orders"}, set(), set(), {(Table("shop", "orders"), "SELECT")}),
        ({"permissions": ["SELECT"], "table": "*"}, set(), {(AllTables("shop"), "SELECT")}, set()),
        ({"permissions": ["SELECT"], "table": "customers"}, set(), set(), set()),
        ({"permissions": ["SELECT"], "table": "orders", "columns": ["ID", "no"]}, set(), set(), {(ID, "SELECT")}),
        ({"permissions": ["SELECT"], "table": "*", "columns": ["id"]}, set(), set(), {(ID, "SELECT")}),
        ({"permissions": ["SELECT"], "table": "orders", "database": "other"}, set(), set(), set()),
    ],
)
def test_a_grant_is_on_location_database_or_table(
    grant: dict[str, Any], location: set[Any], database: set[Any], table: set[Any]
) -> None:
    lake_policy = policy(mode="managed", grants=[{"principal": ANALYST, **grant}])

    assert granted(lake_policy.location()) == location
    assert granted(lake_policy.database("shop", created_by_connector=True)) == database
    assert granted(lake_policy.table("shop", "orders", ["id", "name"])) == table


@pytest.mark.parametrize(
    ("tagged", "resources"),
    [
        ({"table": "orders"}, {Table("shop", "orders")}),
        ({"table": "*"}, {Table("shop", "orders")}),
        ({"table": "*", "database": "other"}, set()),
        ({"table": "orders", "columns": ["Id", "name", "no"]}, {ID, Column("shop", "orders", "name")}),
    ],
)
def test_tags_are_on_tables_and_columns(tagged: dict[str, Any], resources: set[Resource]) -> None:
    lake_policy = policy(mode="managed", table_tags=[{"tags": {"pii": ["yes", "no"]}, **tagged}])

    assert lake_policy.table("shop", "orders", ["id", "name"]).tags == {
        Tag(resource, "pii", "yes") for resource in resources
    }
    assert lake_policy.location().tag_values == {"pii": ("yes", "no")}


REJECTS = ["errorcode", "rawdata", "column_value"]
EMAIL = {"table": "orders", "columns": ["email"], "tags": {"Privacy": ["Personal", "public"]}}


@pytest.mark.parametrize(
    ("table_tags", "tags"),
    [
        ([], {}),
        ([EMAIL], {"privacy": "personal"}),
        ([EMAIL, {"table": "staff", "tags": {"domain": ["hr"]}}], {"privacy": "personal", "domain": "hr"}),
        ([EMAIL, {"table": "*", "columns": ["iban"], "tags": {"privacy": ["secret"]}}], {"privacy": MIXED}),
        ([EMAIL, {"table": "*", "tags": {"privacy": ["public"]}}], {"privacy": "personal"}),
        ([EMAIL, {**EMAIL, "database": "other"}], {"privacy": "personal"}),
        # What the options say about the table of rejects itself holds.
        ([EMAIL, {"table": "airbyte_rejects", "tags": {"privacy": ["secret"]}}], {}),
        (
            [
                EMAIL,
                {"table": "airbyte_rejects", "columns": ["rawdata", "column_value"], "tags": {"privacy": ["secret"]}},
            ],
            {"privacy": "secret"},
        ),
    ],
)
def test_originals_of_rejects_are_under_the_tags_of_all_that_they_may_hold(
    table_tags: list[dict[str, Any]], tags: dict[str, str]
) -> None:
    lake_policy = policy(mode="managed", table_tags=table_tags)

    columns = {
        (tag.resource, tag.key, tag.value)
        for tag in lake_policy.table("shop", "airbyte_rejects", REJECTS).tags
        if isinstance(tag.resource, Column)
    }
    originals = [Column("shop", "airbyte_rejects", name) for name in REJECTS[1:]]
    assert columns == {(original, *tag) for original in originals for tag in tags.items()}
    assert all(value in lake_policy.location().tag_values[key] for key, value in tags.items()), "each value is defined"


def test_columns_of_rejects_that_hold_originals_are_columns_of_the_table() -> None:
    assert set(REJECTS_TABLE.columns) >= ORIGINALS


def test_of_two_values_for_a_resource_the_later_holds_and_all_are_defined() -> None:
    first = {"table": "*", "tags": {"layer": ["raw"]}}
    lake_policy = policy(mode="managed", table_tags=[first, {"table": "orders", "tags": {"layer": ["gold"]}}])

    assert lake_policy.table("shop", "orders", []).tags == {Tag(Table("shop", "orders"), "layer", "gold")}
    assert lake_policy.table("shop", "users", []).tags == {Tag(Table("shop", "users"), "layer", "raw")}
    assert lake_policy.location().tag_values == {"layer": ("raw", "gold")}


def test_principals_are_opted_in_on_databases_and_tables_of_a_hybrid_location() -> None:
    grants = [
        {"principal": ANALYST, "permissions": ["DATA_LOCATION_ACCESS", "DESCRIBE"]},
        {"principal": ANALYST, "permissions": ["SELECT"], "table": "orders", "columns": ["id"]},
    ]
    hybrid, managed = policy(mode="hybrid", grants=grants), policy(mode="managed", grants=grants)

    assert hybrid.location().opt_ins == frozenset()
    assert hybrid.database("shop", created_by_connector=False).opt_ins == {OptIn(ANALYST, Database("shop"))}
    assert hybrid.table("shop", "orders", ["id"]).opt_ins == {OptIn(ANALYST, Table("shop", "orders"))}
    assert not managed.table("shop", "orders", ["id"]).opt_ins


def test_the_right_to_grant_goes_with_each_permission() -> None:
    lake_policy = policy(
        mode="managed", grants=[{"principal": ANALYST, "permissions": ["DROP"], "table": "orders", "grantable": True}]
    )

    assert lake_policy.table("shop", "orders", []).grants == {
        Grant(ANALYST, Table("shop", "orders"), "DROP", grantable=True)
    }


def test_an_explicit_tag_of_a_database_goes_before_the_default_one() -> None:
    lake_policy = policy(("domain", ("landing",)), mode="managed", tags={"domain": ["sales"]})

    assert lake_policy.database("shop", created_by_connector=True).tags == {Tag(Database("shop"), "domain", "sales")}
    assert lake_policy.location().tag_values == {"domain": ("sales", "landing")}


@pytest.mark.parametrize(
    ("region", "prefix", "arn"),
    [
        ("eu-west-1", "lake/raw", "arn:aws:s3:::my-lake/lake/raw"),
        ("eu-west-1", None, "arn:aws:s3:::my-lake"),
        ("cn-north-1", None, "arn:aws-cn:s3:::my-lake"),
        ("us-gov-west-1", None, "arn:aws-us-gov:s3:::my-lake"),
    ],
)
def test_the_location_is_bucket_and_prefix(region: str, prefix: str | None, arn: str) -> None:
    config = Config.parse(options(region=region, bucket_name="my-lake", bucket_prefix=prefix))

    assert Policy.from_config(config).location_arn == arn


def test_governed_tables_alone_ask_for_a_registration_without_a_role() -> None:
    lake_policy = Policy.from_config(Config.parse(options(lakeformation_governed_tables=True)))

    assert lake_policy.location() == Desired(Registration(lake_policy.location_arn, None, hybrid=False))
    assert "AWS retired the table type GOVERNED on 2024-12-31" in "\n".join(lake_policy.notes())
    assert lake_policy.database_settings == {"CreateTableDefaultPermissions": []}


def test_only_under_managed_are_new_tables_closed_to_iam() -> None:
    assert policy().database_settings == policy(mode="hybrid").database_settings == {}


def test_by_default_nothing_is_desired() -> None:
    lake_policy = Policy.from_config(Config.parse(options()))

    assert not lake_policy.location()
    assert not lake_policy.database("shop", created_by_connector=True)
    assert not lake_policy.table("shop", "orders", ["id"])
    assert [*lake_policy.notes()] == []


def test_several_values_of_a_key_are_explained() -> None:
    lake_policy = policy(mode="managed", registration_role_arn=REGISTRATION_ROLE, tags={"a": ["x", "y"], "b": ["z"]})

    [note] = lake_policy.notes()
    assert note == (
        "The configuration contains several values of LF-Tag a: x, y. A resource can have only one value, so the "
        "connector assigns the first value, x."
    )
