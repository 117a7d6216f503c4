"""Governance of a sync: differences are applied, once, whatever happens meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from destination_datalake.errors import ConnectorError
from destination_datalake.lake_formation.governance import Governance
from unit_tests.cloud import Cloud, another_client
from unit_tests.lake_formation.lake import (
    ANALYST,
    COLUMNS,
    LOCATION,
    REGISTRATION_ROLE,
    calls,
    create_table,
    everything,
    policy,
    refusing,
    sync,
    tags,
    writes,
)

pytestmark = pytest.mark.share(10)

TAGS = {
    "database": {"domain": "sales", "owner": "team"},
    "table": {"layer": "raw"},
    "email": {"pii": "yes"},
    "name": {"pii": "yes"},
}


@pytest.fixture
def shop(cloud: Cloud) -> Cloud:
    """The account with database and table, neither of them governed."""
    create_table(cloud)
    return cloud


@pytest.mark.parametrize("mode", ["managed", "hybrid"])
def test_a_second_sync_makes_no_write_call(shop: Cloud, mode: str) -> None:
    with calls(shop.access) as first:
        sync(shop.access, everything(mode))
    with calls(shop.access) as second:
        sync(shop.access, everything(mode))

    assert "GrantPermissions" in first
    assert ("CreateLakeFormationOptIn" in first) == (mode == "hybrid")
    assert tags(shop) == TAGS
    assert writes(second) == []


def test_without_options_there_is_no_call(shop: Cloud) -> None:
    with calls(shop.access) as made:
        sync(shop.access, policy())

    assert made == []


def test_what_a_sync_has_done_it_does_not_read_again(shop: Cloud) -> None:
    governance = sync(shop.access, everything())

    with calls(shop.access) as made:
        governance.govern_database("shop", lambda: True)
        governance.govern_table("shop", "orders", COLUMNS)

    assert made == []


def test_a_new_column_is_governed_when_the_table_has_it(shop: Cloud) -> None:
    governance = sync(shop.access, everything(), ["id"])
    assert governance.is_governed("shop", "orders", ["id"])
    assert not governance.is_governed("shop", "orders", ["id", "email"])

    governance.govern_table("shop", "orders", ["id", "email"])

    assert governance.is_governed("shop", "orders", ["id", "email"])
    assert tags(shop)["email"] == {"pii": "yes"}
    assert "name" not in tags(shop)


@pytest.mark.slow
def test_a_sync_that_was_killed_between_any_two_calls_is_completed_by_the_next(shop: Cloud) -> None:
    for killed_after in count(1):
        try:
            sync(_killed_after(killed_after), everything("hybrid"))
        except _Killed:
            continue
        break
    assert killed_after > 10

    with calls(shop.access) as made:
        sync(shop.access, everything("hybrid"))

    assert writes(made) == []
    assert tags(shop) == TAGS


def test_an_answer_that_is_lost_after_lake_formation_acted_does_no_harm(shop: Cloud) -> None:
    access = another_client()
    lost: list[str] = []

    def lose(operation: Any, **_: object) -> float | None:
        if operation.name not in lost and not operation.name.startswith(("Get", "List")):
            lost.append(operation.name)
            return 0
        return None

    events: Any = access.client("lakeformation").meta.events
    events.register_first("needs-retry.lakeformation", lose)
    sync(access, everything("hybrid"))

    assert sorted(lost) == [
        "AddLFTagsToResource",
        "CreateLFTag",
        "CreateLakeFormationOptIn",
        "GrantPermissions",
        "RegisterResource",
    ]
    assert tags(shop) == TAGS


@pytest.mark.parametrize("operation", ["RegisterResource", "CreateLFTag", "AddLFTagsToResource"])
def test_two_syncs_may_govern_the_same_things_at_once(shop: Cloud, operation: str) -> None:
    access = another_client()
    done: list[bool] = []

    def govern(**_: object) -> None:
        if not done:
            done.append(True)
            sync(shop.access, everything())

    access.client("lakeformation").meta.events.register(f"before-call.lakeformation.{operation}", govern)
    sync(access, everything())

    assert done
    assert tags(shop) == TAGS


@pytest.mark.parametrize(
    ("operation", "code", "text"),
    [
        ("AddLFTagsToResource", "ConcurrentModificationException", ""),
        ("CreateLFTag", "OperationTimeoutException", ""),
        ("AddLFTagsToResource", "EntityNotFoundException", "Tag or tag value does not exist."),
        ("GrantPermissions", "InvalidInputException", "register the S3 path first"),
        ("GetResourceLFTags", "EntityNotFoundException", "Table not found."),
        ("CreateLakeFormationOptIn", "EntityNotFoundException", "Table not found."),
    ],
    ids=[
        "another writer",
        "a timeout",
        "a tag that was just defined",
        "a location that was just registered",
        "a table that was just created",
        "an opt-in for a table that was just created",
    ],
)
def test_what_lake_formation_accepts_a_moment_later_is_retried(
    shop: Cloud, operation: str, code: str, text: str
) -> None:
    with refusing(shop.access, operation, code, text, times=2):
        sync(shop.access, everything("hybrid"))

    assert tags(shop) == TAGS


def test_a_table_that_lake_formation_does_not_see_yet_is_governed_a_moment_later(shop: Cloud) -> None:
    not_found = ("EntityNotFoundException", "Table not found.")
    governance = sync(shop.access, everything(), ["id"])

    with (
        refusing(shop.access, "GetResourceLFTags", *not_found, times=2),
        refusing(shop.access, "AddLFTagsToResource", *not_found, times=1),
        refusing(shop.access, "GrantPermissions", *not_found, times=1),
    ):
        governance.govern_table("shop", "orders", COLUMNS, incarnation="new")

    assert tags(shop) == TAGS


@pytest.mark.parametrize(
    "operation", ["ListResources", "GetLFTag", "GetResourceLFTags", "ListPermissions", "ListLakeFormationOptIns"]
)
def test_a_read_that_takes_lake_formation_too_long_is_repeated(
    shop: Cloud, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    with refusing(shop.access, operation, "OperationTimeoutException", times=2):
        sync(shop.access, everything("hybrid"))

    assert tags(shop) == TAGS


@pytest.mark.parametrize("operation", ["GetLFTag", "ListPermissions"])
def test_a_read_that_always_takes_too_long_is_worth_a_retry_later(
    shop: Cloud, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    with refusing(shop.access, operation, "OperationTimeoutException"), pytest.raises(ConnectorError) as raised:
        sync(shop.access, everything())

    assert raised.value.failure.type == "transient_error"


def test_a_conflict_that_does_not_end_is_worth_a_retry_later(shop: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    with (
        refusing(shop.access, "AddLFTagsToResource", "ConcurrentModificationException"),
        pytest.raises(ConnectorError) as raised,
    ):
        sync(shop.access, everything())

    assert raised.value.failure.type == "transient_error"


def test_a_value_that_somebody_assigned_stays_and_is_named_in_a_warning(
    shop: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    client = shop.access.client("lakeformation")
    client.create_lf_tag(TagKey="pii", TagValues=["no"])
    client.add_lf_tags_to_resource(
        Resource={"TableWithColumns": {"DatabaseName": "shop", "Name": "orders", "ColumnNames": ["email"]}},
        LFTags=[{"TagKey": "pii", "TagValues": ["no"]}],
    )

    sync(shop.access, everything())

    assert tags(shop) == {**TAGS, "email": {"pii": "no"}}
    assert client.get_lf_tag(TagKey="pii")["TagValues"] == ["no", "yes"]
    assert "LF-Tag pii of column email of table shop.orders has the value no, but" in caplog.text
    assert "aws lakeformation add-lf-tags-to-resource --resource" in caplog.text


def test_a_warning_is_given_once_although_a_call_is_retried(shop: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    grants = [{"principal": ANALYST, "permissions": ["DESCRIBE"]}]
    shop.access.client("lakeformation").register_resource(ResourceArn=LOCATION, RoleArn=REGISTRATION_ROLE)
    governance = Governance(policy(mode="hybrid", tags={"domain": ["sales"]}, grants=grants), shop.access)

    with refusing(shop.access, "CreateLFTag", "ConcurrentModificationException", times=2):
        governance.govern_location()

    assert caplog.text.count("aws lakeformation update-resource") == 1


def test_lists_are_read_to_their_last_page(shop: Cloud) -> None:
    def short(params: dict[str, Any], **_: object) -> None:
        params["MaxResults"] = 1

    sync(shop.access, everything("hybrid"))
    access = another_client()
    for operation in ("ListResources", "ListPermissions", "ListLakeFormationOptIns"):
        access.client("lakeformation").meta.events.register(f"provide-client-params.lakeformation.{operation}", short)
    with calls(access) as made:
        sync(access, everything("hybrid"))

    assert writes(made) == []
    assert made.count("ListPermissions") > 5


def test_a_location_without_a_role_is_not_registered_but_warned_of(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    Governance(policy(mode="managed"), cloud.access).govern_location()

    assert cloud.access.client("lakeformation").list_resources()["ResourceInfoList"] == []
    assert f"Data location {LOCATION} is not registered" in caplog.text
    assert f"aws lakeformation register-resource --resource-arn {LOCATION} --role-arn <ROLE_ARN>" in caplog.text


@pytest.mark.parametrize("registered", ["arn:aws:s3:::lake", LOCATION])
def test_a_location_that_is_registered_otherwise_stays_so(
    cloud: Cloud, caplog: pytest.LogCaptureFixture, registered: str
) -> None:
    client = cloud.access.client("lakeformation")
    client.register_resource(ResourceArn=registered, RoleArn="arn:aws:iam::123456789012:role/other")

    Governance(policy(mode="hybrid", registration_role_arn=REGISTRATION_ROLE), cloud.access).govern_location()

    [resource] = client.list_resources()["ResourceInfoList"]
    assert resource["ResourceArn"] == registered
    assert resource["RoleArn"] == "arn:aws:iam::123456789012:role/other"
    assert f"aws lakeformation update-resource --resource-arn {registered} --role-arn" in caplog.text


def test_a_sibling_folder_with_a_longer_name_is_another_location(cloud: Cloud) -> None:
    client = cloud.access.client("lakeformation")
    client.register_resource(ResourceArn="arn:aws:s3:::lake/ra", RoleArn=REGISTRATION_ROLE)

    Governance(policy(mode="managed", registration_role_arn=REGISTRATION_ROLE), cloud.access).govern_location()

    registered = {resource["ResourceArn"] for resource in client.list_resources()["ResourceInfoList"]}
    assert registered == {"arn:aws:s3:::lake/ra", LOCATION}


def test_the_default_tag_is_for_databases_that_the_connector_created(shop: Cloud) -> None:
    governance = Governance(policy(("owner", ("team", "guild"))), shop.access)
    governance.govern_location()
    governance.govern_database("shop", lambda: False)
    assert tags(shop) == {}

    next_governance = Governance(policy(("owner", ("team", "guild"))), shop.access)
    next_governance.govern_database("shop", lambda: True)

    assert tags(shop) == {"database": {"owner": "team"}}
    assert shop.access.client("lakeformation").get_lf_tag(TagKey="owner")["TagValues"] == ["team", "guild"]


def test_each_change_is_logged(shop: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sync(shop.access, everything())

    assert f"Lake Formation: data location {LOCATION} is registered with role {REGISTRATION_ROLE}" in caplog.text
    assert "Lake Formation: table shop.orders is tagged layer=raw." in caplog.text


class _Killed(BaseException):
    """The process is gone."""


def _killed_after(number: int) -> Any:
    """Return access through clients of its own, whose process is killed before a call with a higher number."""
    access = another_client()
    numbers: Iterator[int] = count(1)

    def kill(**_: object) -> None:
        if next(numbers) > number:
            raise _Killed

    access.client("lakeformation").meta.events.register("before-call.lakeformation", kill)
    return access
