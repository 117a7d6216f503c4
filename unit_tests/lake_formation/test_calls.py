"""Changes become calls, each within Lake Formation's limits."""

from __future__ import annotations

from itertools import chain

import pytest

from destination_datalake.lake_formation.calls import ChangeError, apply, calls
from destination_datalake.lake_formation.state import (
    AddLfTagValues,
    Column,
    CreateLfTag,
    Database,
    Grant,
    Registration,
    Table,
    Tag,
)
from unit_tests.cloud import Cloud
from unit_tests.lake_formation.lake import ANALYST, LOCATION, REGISTRATION_ROLE, answering

ORDERS = Table("shop", "orders")


def column(name: str) -> Column:
    return Column("shop", "orders", name)


def test_registration_names_the_role_and_never_the_service_linked_one() -> None:
    [call] = calls([Registration(LOCATION, REGISTRATION_ROLE, hybrid=True)])

    expected = {"ResourceArn": LOCATION, "RoleArn": REGISTRATION_ROLE, "HybridAccessEnabled": True}
    assert (call.operation, call.request) == ("RegisterResource", expected)


def test_definitions_have_at_most_fifty_values_in_a_call() -> None:
    values = tuple(map(str, range(120)))
    api_calls = [*calls([CreateLfTag("a", values)]), *calls([AddLfTagValues("b", values)])]

    chunks = [call.request.get("TagValues") or call.request["TagValuesToAdd"] for call in api_calls]
    assert [call.operation for call in api_calls] == ["CreateLFTag", *["UpdateLFTag"] * 5]
    assert [*map(len, chunks)] == [50, 50, 20] * 2
    assert [*chain(*chunks)] == [*values, *values]


def test_an_lf_tag_is_assigned_to_one_table_or_column_in_a_call() -> None:
    api_calls = calls(
        [
            *(Tag(column(name), "pii", "yes") for name in "ab"),
            Tag(column("b"), "layer", "raw"),
            Tag(ORDERS, "pii", "yes"),
        ]
    )

    in_shop = {"DatabaseName": "shop", "Name": "orders"}
    assert [(call.operation, call.request["Resource"], call.request["LFTags"]) for call in api_calls] == [
        ("AddLFTagsToResource", resource, [{"TagKey": key, "TagValues": [value]}])
        for resource, key, value in [
            ({"TableWithColumns": {**in_shop, "ColumnNames": ["a"]}}, "pii", "yes"),
            ({"TableWithColumns": {**in_shop, "ColumnNames": ["b"]}}, "pii", "yes"),
            ({"TableWithColumns": {**in_shop, "ColumnNames": ["b"]}}, "layer", "raw"),
            ({"Table": in_shop}, "pii", "yes"),
        ]
    ]


def test_permissions_of_a_principal_on_a_resource_are_granted_together() -> None:
    grants = [Grant(ANALYST, ORDERS, "SELECT"), Grant(ANALYST, ORDERS, "ALTER", grantable=True)]
    grants += [Grant(ANALYST, column("a"), "SELECT"), Grant("other", ORDERS, "SELECT")]

    table, of_column, other_principal = (call.request for call in calls(grants))

    assert table["Permissions"] == ["ALTER", "SELECT"]
    assert table["PermissionsWithGrantOption"] == ["ALTER"]
    assert of_column["Resource"]["TableWithColumns"]["ColumnNames"] == ["a"]
    assert of_column["PermissionsWithGrantOption"] == []
    assert other_principal["Principal"] == {"DataLakePrincipalIdentifier": "other"}


def test_a_call_that_fails_is_an_error_about_its_change(cloud: Cloud) -> None:
    changes = [Grant(ANALYST, Database(name), "DESCRIBE") for name in ("shop", "missing")]
    cloud.access.client("glue").create_database(DatabaseInput={"Name": "shop"})

    with pytest.raises(ChangeError) as raised:
        apply(changes, cloud.access.client("lakeformation"))

    assert raised.value.change == changes[1]
    assert (raised.value.operation, raised.value.code) == ("GrantPermissions", "EntityNotFoundException")


def test_failures_in_an_answer_are_an_error(cloud: Cloud) -> None:
    change = Tag(ORDERS, "b", "x")
    error = {"ErrorCode": "EntityNotFoundException", "ErrorMessage": "Tag or tag value does not exist."}
    failure = {"LFTag": {"TagKey": "b", "TagValues": ["x"]}, "Error": error}

    with answering(cloud.access, "AddLFTagsToResource", {"Failures": [failure]}), pytest.raises(ChangeError) as raised:
        apply([change], cloud.access.client("lakeformation"))

    assert raised.value.change == change
    assert (raised.value.code, raised.value.text) == (error["ErrorCode"], error["ErrorMessage"])
