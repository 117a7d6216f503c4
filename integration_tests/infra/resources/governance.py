"""What Lake Formation knows: data locations, permissions, LF-Tags."""

from __future__ import annotations

from integration_tests.infra.resources.resource import Aws, Properties, every
from integration_tests.infra.template import Made


def location(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::LakeFormation::Resource."""
    client = aws.client("lakeformation")
    if made is None:
        client.register_resource(**properties)
    else:
        with every(properties) as rest:
            assert not rest.pop("UseServiceLinkedRole"), "such a location cannot be updated"
            client.update_resource(**rest)
            rest.clear()
    return Made(properties["ResourceArn"])


def permissions(aws: Aws, name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::LakeFormation::PrincipalPermissions."""
    assert made is None, "this resource is replaced, not updated"
    aws.client("lakeformation").grant_permissions(**properties)
    return Made(aws.name(name))


def tag(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::LakeFormation::Tag."""
    assert made is None, "this resource is made once in these tests"
    aws.client("lakeformation").create_lf_tag(**properties)
    return Made(properties["TagKey"])


def tag_association(aws: Aws, name: str, properties: Properties, _made: Made | None) -> Made:
    """AWS::LakeFormation::TagAssociation."""
    answer = aws.client("lakeformation").add_lf_tags_to_resource(**properties)
    assert answer.get("Failures", []) == []
    return Made(aws.name(name))
