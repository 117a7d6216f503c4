"""Lake Formation's permissions of the connector: what it needs to tag what others have created."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.iam_policy.grants import lake_formation_grants
from destination_datalake.iam_policy.scope import Scope
from destination_datalake.lake_formation.resources import AllTables, Database, Resource
from unit_tests.iam_policy.examples import config


@pytest.mark.parametrize(
    ("tags", "resource", "permissions"),
    [
        ({"tags": {"domain": ["sales"]}}, Database("raw"), ("ALTER", "CREATE_TABLE", "DESCRIBE", "DROP")),
        (
            {"table_tags": [{"table": "orders", "tags": {"pii": ["high"]}}]},
            AllTables("raw"),
            ("ALTER", "DELETE", "DESCRIBE", "DROP", "INSERT", "SELECT"),
        ),
    ],
)
def test_who_tags_what_others_created_has_all_its_permissions_with_grant_option(
    tags: dict[str, Any], resource: Resource, permissions: tuple[str, ...]
) -> None:
    options = config(lake_formation={"mode": "managed", **tags})

    grantable = [each for each in lake_formation_grants(options, Scope.of(options)) if each.grantable]
    assert [(each.resource, each.permissions) for each in grantable] == [(resource, permissions)]


def test_an_lf_tag_for_databases_that_the_connector_creates_takes_no_grant_option() -> None:
    options = config(lakeformation_database_default_tag_key="t", lakeformation_database_default_tag_values="a")

    assert not any(each.grantable for each in lake_formation_grants(options, Scope.of(options)))
