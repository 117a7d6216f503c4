"""The template of a namespace's database, beside that of the lake."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from destination_datalake.config.options import Config
from destination_datalake.iam_policy.policy import lake_formation_grants, statements
from destination_datalake.iam_policy.rules import Scope
from destination_datalake.lake_formation.state import Catalog, to_request
from destination_datalake.protocol.catalog import StreamId
from integration_tests.infra.template import Template
from unit_tests.infra.resolved import Resolved, every_combination, without_catalog
from unit_tests.infra.rules import RULES, Rule, not_retained
from unit_tests.repository.files import ROOT

LAKE = Template.read(ROOT / "infra/cloudformation/datalake.yaml")
NAMESPACE = Template.read(ROOT / "infra/cloudformation/namespace.yaml")
ORDERS = StreamId("shop", "orders")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_holds_for_every_combination_of_switches(rule: Rule) -> None:
    assert {problem for found in every_combination(NAMESPACE) for problem in rule(found)} == set()


def test_the_database_stays_without_its_stack() -> None:
    assert [*not_retained(NAMESPACE.resources)] == []


@pytest.mark.parametrize("mode", ["none", "hybrid", "managed"])
def test_both_policies_are_what_iam_policy_prints_for_a_stream_of_the_namespace(mode: str) -> None:
    lake, namespace = stacks(mode)
    config = configuration(lake)

    printed = [each.document() for each in statements(config, Scope.of(config, [ORDERS]))]

    documents = [lake.properties["ConnectorPolicy"], namespace.properties["NamespacePolicy"]]
    assert allowed(each for document in documents for each in document["PolicyDocument"]["Statement"]) == allowed(
        printed
    )
    assert namespace.properties["NamespacePolicy"]["RoleName"] == "lake-ConnectorRole"


@pytest.mark.parametrize("mode", ["hybrid", "managed"])
def test_both_stacks_grant_what_iam_policy_prints_but_for_new_databases(mode: str) -> None:
    lake, namespace = stacks(mode)
    config = configuration(lake)

    printed = {
        (json.dumps(to_request(each.resource)), *sorted(each.permissions))
        for each in lake_formation_grants(config, Scope.of(config, [ORDERS]))
        if not isinstance(each.resource, Catalog)
    }

    assert {grant for found in (lake, namespace) for grant in granted(found, lake.outputs["RoleArn"])} == printed


def stacks(mode: str) -> tuple[Resolved, Resolved]:
    """The lake's stack, and that of a namespace which has the other's outputs as parameters."""
    lake = Resolved(LAKE, {"LakeFormationMode": mode})
    outputs = {name: value for name, value in lake.outputs.items() if name in NAMESPACE.sections["Parameters"]}
    return lake, Resolved(NAMESPACE, {**outputs, "DatabaseName": "shop"})


def configuration(lake: Resolved) -> Config:
    return Config.parse({**json.loads(lake.outputs["Configuration"]), "database_strategy": "namespace"})


def allowed(found: Iterable[Mapping[str, Any]]) -> set[tuple[str, str, str]]:
    """Each action on each resource with its condition, however statements group them."""
    return {
        (action, resource, json.dumps(many(statement.get("Condition", {})), sort_keys=True))
        for statement in found
        for action in many(statement["Action"])
        for resource in many(statement["Resource"])
    }


def many(value: Any) -> Any:
    """A single value as the list of one that it stands for, at any depth."""
    if isinstance(value, Mapping):
        return {key: many(each) for key, each in value.items()}
    return [value] if isinstance(value, str) else value


def granted(found: Resolved, principal: str) -> set[tuple[str, ...]]:
    """A principal's grants: resource without its catalog, and permissions."""
    grants = found.of_type("AWS::LakeFormation::PrincipalPermissions").values()
    return {
        (json.dumps(without_catalog(each["Resource"])), *sorted(each["Permissions"]))
        for each in grants
        if each["Principal"]["DataLakePrincipalIdentifier"] == principal
    }
