"""The CloudFormation template, as cfn-lint sees it, and mistakes that have to be seen."""

from __future__ import annotations

import pytest
from cfnlint.api import lint  # type: ignore[import-untyped]
from cfnlint.config import ManualArgs  # type: ignore[import-untyped]

from integration_tests.infra.template import Template, accepts
from unit_tests.repository.files import text

TEMPLATE = "infra/cloudformation/datalake.yaml"


# What cfn-lint finds (rule and place), what is written, what somebody might write. One run finds all.
MISTAKES = [
    (
        "E3030 Resources/ConnectorLocationGrant/Properties/Permissions",
        "Permissions: [DATA_LOCATION_ACCESS]",
        "Permissions: [DATA_LOCATION_ACESS]",
    ),
    ("E3002 Resources/DataKey/Properties/EnableKeysRotation", "EnableKeyRotation: true", "EnableKeysRotation: true"),
    ("E6101 Outputs/RoleArn", "Value: !GetAtt ConnectorRole.Arn", "Value: !GetAtt ConnectorRol.Arn"),
    (
        "W3037 Resources/ConnectorPolicy/Properties/PolicyDocument/Statement/4",
        "Action: [glue:CreateTable, glue:GetTable,",
        "Action: [glue:CreateTabel, glue:GetTable,",
    ),
    ("E3030 Resources/DataBucket/Properties/BucketEncryption", "SSEAlgorithm: aws:kms", "SSEAlgorithm: aws-kms"),
    ("E3003 Resources/ReaderDatabaseGrant", "Permissions: [DESCRIBE]", "Permission: [DESCRIBE]"),
    ("E3015 Resources/WorkGroup/Condition", "    Condition: HasWorkGroup\n", "    Condition: HasWorkGroups\n"),
    ("E1020 Resources/DataKeyAlias/Properties/TargetKeyId", "TargetKeyId: !Ref DataKey", "TargetKeyId: !Ref DataKeys"),
    ("E3005 Resources/Location/DependsOn", "DependsOn: LocationPolicy", "DependsOn: LocationsPolicy"),
    (
        "E3012 Resources/DataBucket/Properties/LifecycleConfiguration",
        "DaysAfterInitiation: 7",
        "DaysAfterInitiation: week",
    ),
    (
        "W1031 Resources/DataKeyAlias/Properties/AliasName",
        "AliasName: !Sub alias/${AWS::StackName}",
        "AliasName: !Sub aliases/${AWS::StackName}",
    ),
]


def findings(template: str) -> list[str]:
    """Each error and warning: the rule's id, the resource or the like, and what is wrong."""
    matches = lint(template, config=ManualArgs(regions=["us-east-1"]))
    return [f"{each.rule.id} {'/'.join(map(str, each.path or ()))} {each.message}" for each in matches]


def unusable_defaults(template: str) -> list[str]:
    """The parameters whose Default CloudFormation refuses; cfn-lint does not compare a Default with its type."""
    parameters = Template.parse(template).sections["Parameters"]
    return [name for name, each in parameters.items() if "Default" in each and not accepts(each, each["Default"])]


@pytest.mark.parametrize("template", [TEMPLATE, "infra/cloudformation/namespace.yaml"])
def test_cfn_lint_finds_neither_errors_nor_warnings(template: str) -> None:
    assert findings(text(template)) == []


@pytest.mark.parametrize("template", [TEMPLATE, "infra/cloudformation/namespace.yaml"])
def test_every_default_of_a_parameter_is_a_value_that_the_parameter_accepts(template: str) -> None:
    assert unusable_defaults(text(template)) == []


@pytest.fixture(scope="module")
def found_in_mistakes() -> list[str]:
    template = text(TEMPLATE)
    for _, original, mistaken in MISTAKES:
        assert original in template
        template = template.replace(original, mistaken, 1)
    return findings(template)


@pytest.mark.parametrize("expected", [expected for expected, _, _ in MISTAKES])
def test_cfn_lint_sees_a_mistake(expected: str, found_in_mistakes: list[str]) -> None:
    assert any(each.startswith(expected) for each in found_in_mistakes), found_in_mistakes


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
