"""The Terraform module makes what the CloudFormation template makes. Nothing is applied: both are read and compared."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.config.options import Config
from destination_datalake.iam_policy.policy import document
from destination_datalake.iam_policy.policy import statements as needed
from destination_datalake.iam_policy.scope import Scope
from integration_tests.infra.template import RuleBroken
from unit_tests.infra.resolved import Resolved
from unit_tests.infra.terraform.choices import CHOICES, MODULE, SWITCHES, TEMPLATE, as_terraform, planned
from unit_tests.infra.terraform.counterparts import counterparts, snake, statements
from unit_tests.infra.terraform.hcl import HclError
from unit_tests.infra.terraform.module import Module, Planned, files


@pytest.fixture(params=CHOICES.values(), ids=[*CHOICES])
def parameters(request: pytest.FixtureRequest) -> dict[str, str]:
    chosen: dict[str, str] = request.param
    return chosen


def test_the_resources_are_those_of_the_template(parameters: dict[str, str]) -> None:
    expected = counterparts(Resolved(TEMPLATE, parameters))
    found = resources(planned(parameters))

    assert found.keys() == expected.keys()
    for key, attributes in found.items():
        assert attributes == expected[key], key


@settings(max_examples=40)
@given(st.fixed_dictionaries({name: st.sampled_from(values) for name, values in SWITCHES.items()}))
def test_any_combination_of_switches_makes_the_same_or_is_refused_by_both(parameters: dict[str, str]) -> None:
    try:
        expected = counterparts(Resolved(TEMPLATE, parameters))
    except RuleBroken as broken:
        with pytest.raises(HclError, match=re.escape(as_terraform(str(broken)))):
            planned(parameters)
        return
    assert resources(planned(parameters)) == expected


def resources(plan: Planned) -> dict[tuple[str, str], dict[str, Any]]:
    database = plan.resources["aws_cloudformation_stack", "database"]
    body = {"template_body": json.loads(database["template_body"])}
    return {**plan.resources, ("aws_cloudformation_stack", "database"): {**database, **body}}


@pytest.mark.parametrize(
    ("file", "written", "mistaken"),
    [
        ("main.tf", "days = 14", "days = 15"),
        ("main.tf", "/_staging/", "/"),
        ("main.tf", 'effect    = "Deny"', 'effect    = "Allow"'),
        ("main.tf", "  restrict_public_buckets = true", ""),
        ("main.tf", "{ CreateTableDefaultPermissions = [] } : {}", "{} : {}"),
        ("connector.tf", '"kms:Decrypt", "kms:GenerateDataKey"', '"kms:*"'),
        ("connector.tf", "values   = [var.external_id]", 'values   = ["*"]'),
        ("lake_formation.tf", 'permissions = ["DESCRIBE", "SELECT"]', 'permissions = ["ALL"]'),
        ("lake_formation.tf", "count = local.has_reader ? 1 : 0", "count = local.is_governed ? 1 : 0"),
        ("lake_formation.tf", "hybrid_access_enabled   = local.is_hybrid", "hybrid_access_enabled   = true"),
        ("events.tf", "append_only        = true", "append_only        = false"),
    ],
)
def test_a_mistake_in_the_module_is_seen(file: str, written: str, mistaken: str) -> None:
    texts = dict(files())
    assert written in texts[file]
    module = Module({**texts, file: texts[file].replace(written, mistaken)})
    everything = CHOICES["managed, everything"]

    seen = [
        resources(planned(each, module)) != counterparts(Resolved(TEMPLATE, each))
        for each in (everything, CHOICES["managed"], {})
    ]

    assert any(seen)


def test_the_outputs_are_those_of_the_template(parameters: dict[str, str]) -> None:
    expected = {snake(name): each for name, each in Resolved(TEMPLATE, parameters).outputs.items()}
    outputs = dict(planned(parameters).outputs)

    assert json.loads(outputs.pop("configuration")) == json.loads(expected.pop("configuration"))
    assert outputs == expected


def test_what_holds_data_is_not_destroyed_with_the_rest() -> None:
    retained = {snake(name) for name, each in TEMPLATE.resources.items() if each.get("DeletionPolicy") == "Retain"}

    kept = {
        name
        for (_, name), block in MODULE.resources.items()
        if any(each.get("prevent_destroy") for each in block.get("lifecycle", []))
    }

    # The database is in a stack, whose template retains it.
    assert kept | {"database"} == retained


def test_the_connector_s_role_has_the_policy_of_its_configuration(parameters: dict[str, str]) -> None:
    plan = planned(parameters)
    config = Config.parse(json.loads(plan.outputs["configuration"]))

    policy = plan.resources["aws_iam_role_policy", "connector_policy"]["policy"]

    assert by_sid(policy) == by_sid(statements(document(needed(config, Scope.of(config)))))


def by_sid(policy: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["Sid"]: each for each in policy}
