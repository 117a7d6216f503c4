"""Changes become calls: few of them, each within Lake Formation's limits."""

from __future__ import annotations

from itertools import chain

import pytest

from destination_datalake.lake_formation.calls import NotApplied, apply, calls
from destination_datalake.lake_formation.difference import AddLfTagValues, CreateLfTag
from destination_datalake.lake_formation.state import Columns, Database, Grant, OptIn, Registration, Table, Tag
from unit_tests.cloud import Cloud
from unit_tests.lake_formation.lake import ANALYST, LOCATION, REGISTRATION_ROLE, answering

ORDERS = Table("shop", "orders")


def column(name: str) -> Columns:
    return Columns("shop", "orders", (name,))


def test_registration_names_the_role_and_never_the_service_linked_one() -> None:
    [call] = calls([Registration(LOCATION, REGISTRATION_ROLE, hybrid=True)])

    expected = {"ResourceArn": LOCATION, "RoleArn": REGISTRATION_ROLE, "HybridAccessEnabled": True}
    assert (call.operation, call.request) == ("RegisterResource", expected)


def test_definitions_have_at_most_fifty_values_in_a_call() -> None:
    values = tuple(map(str, range(120)))
    found = [*calls([CreateLfTag("a", values)]), *calls([AddLfTagValues("b", values)])]

    chunks = [call.request.get("TagValues") or call.request["TagValuesToAdd"] for call in found]
    assert [call.operation for call in found] == ["CreateLFTag", *["UpdateLFTag"] * 5]
    assert [*map(len, chunks)] == [50, 50, 20] * 2
    assert [*chain(*chunks)] == [*values, *values]


def test_columns_with_the_same_tags_are_tagged_together() -> None:
    found = calls(
        [
            *(Tag(column(name), "pii", "yes") for name in "abc"),
            Tag(column("c"), "layer", "raw"),
            Tag(ORDERS, "pii", "no"),
            Tag(ORDERS, "layer", "raw"),
        ]
    )

    requests = [(call.request["Resource"], len(call.request["LFTags"])) for call in found]
    in_shop = {"DatabaseName": "shop", "Name": "orders"}
    assert requests == [
        ({"TableWithColumns": {**in_shop, "ColumnNames": ["a", "b"]}}, 1),
        ({"TableWithColumns": {**in_shop, "ColumnNames": ["c"]}}, 2),
        ({"Table": in_shop}, 2),
    ]


def test_permissions_of_a_principal_on_a_resource_are_one_entry_and_twenty_entries_a_call() -> None:
    grants = [Grant(ANALYST, ORDERS, "SELECT"), Grant(ANALYST, ORDERS, "ALTER", grantable=True)]
    grants += [Grant(ANALYST, column(name), "SELECT") for name in "ab"]
    grants += [Grant(f"role-{number}", ORDERS, "SELECT") for number in range(20)]

    first, second = calls(grants)
    assert (len(first.request["Entries"]), len(second.request["Entries"])) == (20, 2)
    table, columns, *_ = first.request["Entries"]
    assert table["Permissions"] == ["ALTER", "SELECT"]
    assert table["PermissionsWithGrantOption"] == ["ALTER"]
    assert columns["Resource"]["TableWithColumns"]["ColumnNames"] == ["a", "b"]
    assert len({entry["Id"] for entry in first.request["Entries"]}) == 20


def test_what_others_refer_to_comes_first() -> None:
    found = calls(
        [
            OptIn(ANALYST, ORDERS),
            Grant(ANALYST, ORDERS, "SELECT"),
            Tag(ORDERS, "pii", "no"),
            CreateLfTag("pii", ("no",)),
        ]
    )

    assert [call.operation for call in found] == [
        "CreateLFTag",
        "AddLFTagsToResource",
        "BatchGrantPermissions",
        "CreateLakeFormationOptIn",
    ]


def test_failures_in_an_answer_are_errors_about_the_change_that_failed(cloud: Cloud) -> None:
    client = cloud.access.client("lakeformation")
    changes = [Grant(ANALYST, Database(name), "DESCRIBE") for name in ("a", "b")]
    error = {"ErrorCode": "AccessDeniedException", "ErrorMessage": "Insufficient Lake Formation permission(s)"}
    failure = {"RequestEntry": {"Id": "1"}, "Error": error}

    with answering(cloud.access, "BatchGrantPermissions", {"Failures": [failure]}), pytest.raises(NotApplied) as raised:
        apply(changes, client)

    assert raised.value.change == changes[1]
    assert (raised.value.code, raised.value.text) == (error["ErrorCode"], error["ErrorMessage"])


def test_failures_about_a_tag_are_errors_about_its_assignment(cloud: Cloud) -> None:
    changes = [Tag(ORDERS, key, "x") for key in ("a", "b")]
    error = {"ErrorCode": "EntityNotFoundException", "ErrorMessage": "Tag or tag value does not exist."}
    failure = {"LFTag": {"TagKey": "b", "TagValues": ["x"]}, "Error": error}

    with answering(cloud.access, "AddLFTagsToResource", {"Failures": [failure]}), pytest.raises(NotApplied) as raised:
        apply(changes, cloud.access.client("lakeformation"))

    assert raised.value.change == changes[1]
