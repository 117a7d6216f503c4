"""Options of Lake Formation: what contradicts what, and what can be granted on which resource."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.config.options import Config
from unit_tests.config.examples import options, refusal

ANALYST = "arn:aws:iam::123456789012:role/analyst"


def granting(**grant: Any) -> dict[str, Any]:
    return options(lake_formation={"mode": "managed", "grants": [{"principal": ANALYST, **grant}]})


@pytest.mark.parametrize(
    "grant",
    [
        {"permissions": ["DATA_LOCATION_ACCESS"]},
        {"permissions": ["CREATE_TABLE", "DESCRIBE", "DATA_LOCATION_ACCESS"], "grantable": True},
        {"permissions": ["ALL"], "database": "shop"},
        {"permissions": ["SELECT", "INSERT", "DELETE", "ALTER", "DROP", "DESCRIBE"], "table": "*"},
        {"permissions": ["SELECT"], "table": "orders", "columns": ["id"]},
    ],
)
def test_permissions_that_their_resource_takes_are_accepted(grant: dict[str, Any]) -> None:
    Config.parse(granting(**grant))


@pytest.mark.parametrize(
    ("grant", "problem"),
    [
        ({"permissions": ["SELECT"]}, "SELECT cannot be granted on a database"),
        ({"permissions": ["CREATE_TABLE", "SELECT"], "table": "*"}, "CREATE_TABLE cannot be granted on a table"),
        (
            {"permissions": ["SELECT", "DESCRIBE"], "table": "a", "columns": ["b"]},
            "supports only SELECT",
        ),
        ({"permissions": ["SELECT"], "columns": ["b"]}, "grants.0.columns requires lake_formation.grants.0.table"),
        ({"permissions": []}, "It must be a list of permissions"),
        ({"permissions": ["READ"]}, "It must be a list of permissions"),
        ({"permissions": ["SELECT"], "table": "a", "columns": []}, "It must be a list of at least one column"),
        ({"permissions": ["ALL"], "principal": "analyst"}, "It must be the ARN of a role"),
        ({"permissions": ["ALL"], "principal": "IAM_ALLOWED_PRINCIPALS"}, "It must be the ARN of a role"),
    ],
)
def test_a_grant_that_lake_formation_would_refuse_is_refused_first(grant: dict[str, Any], problem: str) -> None:
    message = refusal(granting(**grant))

    assert message.startswith("lake_formation.grants.0")
    assert problem in message


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"lake_formation": {"tags": {"a": ["b"]}}}, "lake_formation.tags has no effect"),
        ({"lake_formation": {"mode": "none", "grants": [{"principal": ANALYST, "permissions": ["ALL"]}]}}, "grants"),
        ({"lake_formation": {"mode": "none"}, "lakeformation_governed_tables": True}, "Set lake_formation.mode"),
        ({"lake_formation": {"mode": "hybrid"}, "lakeformation_governed_tables": True}, "Set lake_formation.mode"),
        (
            {"lake_formation": {"mode": "managed", "tags": {"a": []}}},
            "It must be LF-Tags, an object that maps each key to a list of values",
        ),
        (
            {"lake_formation": {"mode": "managed", "tags": {"a": ["b*"]}}},
            "It must be LF-Tags, an object that maps each key to a list of values",
        ),
        ({"lake_formation": {"mode": "governed"}}, "It must be none, hybrid or managed"),
        ({"lakeformation_database_default_tag_key": "pii"}, "lakeformation_database_default_tag_key has no values"),
        ({"encryption": {"encryption_type": "SSE-KMS"}}, "kms_key_arn is missing"),
        (
            {"encryption": {"encryption_type": "SSE-KMS", "kms_key_arn": "arn:aws:kms:eu-west-1:123456789012:alias/a"}},
            "not the ARN of an alias",
        ),
    ],
)
def test_contradictions_and_invalid_values_are_refused_with_a_remedy(changes: dict[str, Any], problem: str) -> None:
    assert problem in refusal(options(**changes))


@pytest.mark.parametrize("mode", ["none", "hybrid", "managed"])
def test_a_mode_alone_is_accepted(mode: str) -> None:
    assert Config.parse(options(lake_formation={"mode": mode})).lake_formation.mode == mode
