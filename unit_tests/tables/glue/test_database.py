"""Databases: created once, and governed as the options ask for."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.governance import LakeFormationOptions
from destination_datalake.lake_formation.governance import Governance
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.tables.glue.database import DATABASE_DESCRIPTION, Databases
from unit_tests.cloud import Cloud, another_client, before, ungoverned


def tagging(access: AwsAccess) -> Databases:
    """Return the databases of a sync whose options have the default tag of the AWS Datalake destination."""
    governance = Governance(Policy("arn:aws:s3:::lake", default_tag=("owner", ("team",))), access)
    governance.govern_location()
    return Databases(access, governance)


def tags(cloud: Cloud) -> dict[str, str]:
    resource: Any = {"Database": {"Name": "shop"}}
    found = cloud.access.client("lakeformation").get_resource_lf_tags(Resource=resource).get("LFTagOnDatabase", [])
    return {pair["TagKey"]: pair["TagValues"][0] for pair in found}


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
    Databases(cloud.access, Governance(Policy("arn:aws:s3:::lake", options), cloud.access)).ensure("shop")

    database = cloud.access.client("glue").get_database(Name="shop")["Database"]
    assert (database.get("CreateTableDefaultPermissions") != []) == opened
