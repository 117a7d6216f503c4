"""The template as CloudFormation reads it with these parameters, without a resource being made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from integration_tests.infra.stack import pseudo
from integration_tests.infra.template import Made, Resolver, RuleBroken, Template

KEY_ARN = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"
REQUIRED = {
    "BucketName": "example-lake",
    "TrustedPrincipalArn": "arn:aws:iam::123456789012:role/airbyte",
    "ExternalId": "workspace-1",
}
"""The parameters of the lake that have no default."""

REQUIRED_OF_A_NAMESPACE = {
    "BucketName": "example-lake",
    "RoleArn": "arn:aws:iam::123456789012:role/lake-ConnectorRole",
    "DatabaseName": "shop",
}

READER = "arn:aws:iam::123456789012:role/reader"

_SWITCHES: Mapping[str, tuple[str, ...]] = {
    "LakeFormationMode": ("none", "hybrid", "managed"),
    "CreateBucket": ("true", "false"),
    "ExistingKeyArn": ("", KEY_ARN),
    "RequireEncryptionHeader": ("false", "true"),
    "ReaderPrincipalArn": ("", READER),
    "LFTagKey": ("", "team"),
    "CreateLFTag": ("true", "false"),
    "CreateAthenaWorkGroup": ("false", "true"),
    "CreateEventStream": ("false", "true"),
}


class Resolved:
    """Properties of the resources by logical name, in the order in which they are made, and outputs.

    Resources have names and ARNs of their type's form.
    """

    def __init__(self, template: Template, parameters: Mapping[str, str] = {}) -> None:
        required = REQUIRED_OF_A_NAMESPACE if "RoleArn" in template.sections["Parameters"] else REQUIRED
        resolver = Resolver(template, {**required, **parameters}, pseudo("lake"))
        self.properties: dict[str, Any] = {}
        for name in resolver.order():
            kind = template.resources[name]["Type"]
            self.properties[name] = resolver.properties(name)
            resolver.made[name] = _made(kind, name, self.properties[name])
        self.outputs = resolver.outputs()
        self._template = template

    def of_type(self, *kinds: str) -> dict[str, Any]:
        """The properties of all resources of these types."""
        return {name: properties for name, properties in self.properties.items() if self.type_of(name) in kinds}

    def type_of(self, name: str) -> str:
        """A resource's type."""
        return str(self._template.resources[name]["Type"])

    def statements(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the statements of all policies, with the logical name of the resource that has them."""
        for name, properties in self.properties.items():
            for key in ("PolicyDocument", "KeyPolicy", "AssumeRolePolicyDocument"):
                for statement in properties.get(key, {}).get("Statement", []):
                    yield name, statement


def every_combination(template: Template) -> Iterator[Resolved]:
    """Yield the template with each combination of its switches that its rules accept."""
    switches = {name: values for name, values in _SWITCHES.items() if name in template.sections["Parameters"]}
    for values in product(*switches.values()):
        try:
            yield Resolved(template, dict(zip(switches, values, strict=True)))
        except RuleBroken:
            continue


def without_catalog(resource: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """A Lake Formation resource without its CatalogId."""
    return {
        kind: {name: value for name, value in fields.items() if name != "CatalogId"}
        for kind, fields in resource.items()
    }


def _made(kind: str, name: str, properties: Mapping[str, Any]) -> Made:
    match kind:
        case "AWS::S3::Bucket":
            return Made(properties["BucketName"], {"Arn": f"arn:aws:s3:::{properties['BucketName']}"})
        case "AWS::KMS::Key":
            return Made(KEY_ARN.rpartition("/")[2], {"Arn": KEY_ARN})
        case "AWS::IAM::Role":
            return Made(f"lake-{name}", {"Arn": f"arn:aws:iam::123456789012:role/lake-{name}"})
        case "AWS::Kinesis::Stream":
            return Made(name, {"Arn": f"arn:aws:kinesis:us-east-1:123456789012:stream/{name}"})
        case "AWS::Glue::Database":
            return Made(properties["DatabaseInput"]["Name"])
        case "AWS::Glue::Table":
            return Made(properties["TableInput"]["Name"])
        case "AWS::LakeFormation::Tag":
            return Made(properties["TagKey"])
        case _:
            return Made(name)
