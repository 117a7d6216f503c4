"""Defaults of the CloudFormation templates' parameters, which cfn-lint does not compare with their types."""

from __future__ import annotations

import pytest

from integration_tests.infra.template import Template, accepts
from unit_tests.repository.files import text

TEMPLATE = "infra/cloudformation/datalake.yaml"


def unusable_defaults(template: str) -> list[str]:
    """The parameters whose Default CloudFormation refuses."""
    parameters = Template.parse(template).sections["Parameters"]
    return [name for name, each in parameters.items() if "Default" in each and not accepts(each, each["Default"])]


@pytest.mark.parametrize("template", [TEMPLATE, "infra/cloudformation/namespace.yaml"])
def test_every_default_of_a_parameter_is_a_value_that_the_parameter_accepts(template: str) -> None:
    assert unusable_defaults(text(template)) == []


@pytest.mark.parametrize(
    ("parameter", "original", "mistaken"),
    [
        ("MaxSessionDuration", "    Default: 3600\n", "    Default: an hour\n"),
        ("MaxSessionDuration", "    Default: 3600\n", "    Default: 360\n"),
        ("BucketPrefix", "    Default: lake\n", "    Default: lake/\n"),
        ("LakeFormationMode", "    Default: none\n", "    Default: off_\n"),
    ],
)
def test_a_default_that_cannot_be_used_is_seen(parameter: str, original: str, mistaken: str) -> None:
    assert unusable_defaults(text(TEMPLATE).replace(original, mistaken)) == [parameter]
