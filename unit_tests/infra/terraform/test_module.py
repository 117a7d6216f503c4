"""The Terraform module makes what the CloudFormation template makes. Nothing is applied: both are read and compared."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
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
from unit_tests.infra.terraform.choices import PAIRS, Pair
from unit_tests.infra.terraform.counterparts import counterparts, snake, statements
from unit_tests.infra.terraform.hcl import HclError
from unit_tests.infra.terraform.module import Module, Planned, files

LAKE = PAIRS["lake"]
EACH = [
    pytest.param(pair, each, id=f"{name}-{id}") for name, pair in PAIRS.items() for id, each in pair.choices.items()
]
Parameters = Mapping[str, str]


@pytest.mark.parametrize(("pair", "parameters"), EACH)
def test_the_resources_are_those_of_the_template(pair: Pair, parameters: Parameters) -> None:
    expected = counterparts(Resolved(pair.template, parameters))
    found = resources(pair.planned(parameters))

    assert found.keys() == expected.keys()
    for key, attributes in found.items():
        assert attributes == expected[key], key


@pytest.mark.parametrize("pair", PAIRS.values(), ids=[*PAIRS])
@settings(max_examples=40)
@given(data=st.data())
def test_any_combination_of_switches_makes_the_same_or_is_refused_by_both(pair: Pair, data: st.DataObject) -> None:
    switches = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in pair.switches.items()})
    parameters = data.draw(switches)
    try:
        expected = counterparts(Resolved(pair.template, parameters))
    except RuleBroken as broken:
        with pytest.raises(HclError, match=re.escape(pair.as_terraform(str(broken)))):
            pair.planned(parameters)
        return
    assert resources(pair.planned(parameters)) == expected


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
    texts = files("")
    assert written in texts[file]
    mistake = replace(LAKE, module=Module({**texts, file: texts[file].replace(written, mistaken)}))

    seen = [
        resources(mistake.planned(LAKE.choices[each])) != counterparts(Resolved(LAKE.template, LAKE.choices[each]))
        for each in ("managed, everything", "managed", "nothing but what is required")
    ]

    assert any(seen)


@pytest.mark.parametrize(("pair", "parameters"), EACH)
def test_the_outputs_are_those_of_the_template(pair: Pair, parameters: Parameters) -> None:
    expected = {snake(name): each for name, each in Resolved(pair.template, parameters).outputs.items()}

    assert parsed(pair.planned(parameters).outputs) == parsed(expected)


def parsed(outputs: Mapping[str, str]) -> dict[str, Any]:
    return {name: json.loads(each) if name == "configuration" else each for name, each in outputs.items()}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=[*PAIRS])
def test_what_holds_data_is_not_destroyed_with_the_rest(pair: Pair) -> None:
    declared = pair.template.resources.items()
    retained = {snake(name) for name, each in declared if each.get("DeletionPolicy") == "Retain"}

    kept = {
        name
        for (_, name), block in pair.module.resources.items()
        if any(each.get("prevent_destroy") for each in block.get("lifecycle", []))
    }

    # The database is in a stack, whose template retains it.
    assert kept | {"database"} == retained


@pytest.mark.parametrize("pair", PAIRS.values(), ids=[*PAIRS])
def test_what_a_resource_of_the_template_waits_for_its_counterpart_waits_for(pair: Pair) -> None:
    declared = {snake(name): each.get("DependsOn", []) for name, each in pair.template.resources.items()}
    expected = {
        name: {snake(each) for each in ([names] if isinstance(names, str) else names)}
        for name, names in declared.items()
    }

    assert {name: names - awaited(pair.module, name) for name, names in expected.items()} == {
        name: set() for name in expected
    }


def test_events_are_delivered_once_their_permissions_are_granted() -> None:
    granted = {name for kind, name in LAKE.module.resources if kind == "aws_lakeformation_permissions"}

    assert awaited(LAKE.module, "delivery") >= {name for name in granted if name.startswith("delivery_")} != set()


def awaited(module: Module, name: str) -> set[str]:
    """The names of what a resource depends on explicitly."""
    found = [block.get("depends_on", []) for (_, each), block in module.resources.items() if each == name]
    return {reference.strip("${}").split(".")[1] for references in found for reference in references}


@pytest.mark.parametrize("parameters", LAKE.choices.values(), ids=[*LAKE.choices])
def test_the_connector_s_role_has_the_policy_of_its_configuration(parameters: Parameters) -> None:
    plan = LAKE.planned(parameters)
    config = Config.parse(json.loads(plan.outputs["configuration"]))

    policy = plan.resources["aws_iam_role_policy", "connector_policy"]["policy"]

    assert by_sid(policy) == by_sid(statements(document(needed(config, Scope.of(config)))))


def by_sid(policy: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["Sid"]: each for each in policy}
