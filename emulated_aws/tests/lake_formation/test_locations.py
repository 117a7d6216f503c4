"""Data locations and opt-ins behave as AWS documents. `locations.py` and `opt_ins.py` cite AWS's pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.lake_formation.conftest import ANALYST, ORDERS, SHOP, refusal

if TYPE_CHECKING:
    from mypy_boto3_lakeformation import LakeFormationClient

pytestmark = pytest.mark.share(3)

LAKE = "arn:aws:s3:::lake"
ROLE = "arn:aws:iam::123456789012:role/lake"
OPS = "arn:aws:iam::123456789012:user/ops"


def principal(arn: str) -> Any:
    return {"DataLakePrincipalIdentifier": arn}


def test_a_registration_keeps_role_and_hybrid_access(lf: LakeFormationClient) -> None:
    lf.register_resource(ResourceArn=f"{LAKE}/", RoleArn=ROLE, HybridAccessEnabled=True)

    info = lf.describe_resource(ResourceArn=LAKE)["ResourceInfo"]

    assert (info["ResourceArn"], info["RoleArn"], info["HybridAccessEnabled"]) == (LAKE, ROLE, True)


def test_a_location_is_registered_once(lf: LakeFormationClient) -> None:
    lf.register_resource(ResourceArn=LAKE, RoleArn=ROLE)

    assert refusal(lf.register_resource, ResourceArn=LAKE, RoleArn=ROLE) == "AlreadyExistsException"


@pytest.mark.parametrize(
    "role", [{}, {"RoleArn": ROLE, "UseServiceLinkedRole": True}, {"RoleArn": "lake"}, {"UseServiceLinkedRole": False}]
)
def test_a_registration_names_one_role(lf: LakeFormationClient, role: Any) -> None:
    assert refusal(lf.register_resource, ResourceArn=LAKE, **role) == "InvalidInputException"


@pytest.mark.parametrize("operation", ["describe_resource", "deregister_resource"])
def test_a_location_that_is_not_registered_is_not_found(lf: LakeFormationClient, operation: str) -> None:
    assert refusal(getattr(lf, operation), ResourceArn=LAKE) == "EntityNotFoundException"


def test_an_update_changes_what_it_names(lf: LakeFormationClient) -> None:
    lf.register_resource(ResourceArn=LAKE, RoleArn=ROLE, HybridAccessEnabled=True)

    lf.update_resource(ResourceArn=LAKE, RoleArn=f"{ROLE}-2")

    info = lf.describe_resource(ResourceArn=LAKE)["ResourceInfo"]
    assert (info["RoleArn"], info["HybridAccessEnabled"]) == (f"{ROLE}-2", True)


def test_a_location_with_a_service_linked_role_cannot_be_updated(lf: LakeFormationClient) -> None:
    lf.register_resource(ResourceArn=LAKE, UseServiceLinkedRole=True)

    assert "/aws-service-role/" in lf.describe_resource(ResourceArn=LAKE)["ResourceInfo"]["RoleArn"]
    assert refusal(lf.update_resource, ResourceArn=LAKE, RoleArn=ROLE) == "InvalidInputException"


def test_locations_are_listed_by_condition_and_in_pages(lf: LakeFormationClient) -> None:
    for number in range(12):
        lf.register_resource(ResourceArn=f"{LAKE}/{number}", RoleArn=ROLE)
    condition: Any = {"Field": "RESOURCE_ARN", "ComparisonOperator": "EQ", "StringValueList": [f"{LAKE}/7"]}

    assert len(lf.list_resources()["ResourceInfoList"]) < 12
    assert len(lf.list_resources(MaxResults=12)["ResourceInfoList"]) == 12
    resources = lf.list_resources(FilterConditionList=[condition])["ResourceInfoList"]
    assert [info["ResourceArn"] for info in resources] == [f"{LAKE}/7"]


def test_opt_ins_are_listed_by_principal_and_resource(lf: LakeFormationClient) -> None:
    for arn, resource in [(ANALYST, SHOP), (ANALYST, SHOP), (ANALYST, ORDERS), (OPS, SHOP)]:
        lf.create_lake_formation_opt_in(Principal=principal(arn), Resource=resource)

    def listed(**asked: Any) -> int:
        return len(lf.list_lake_formation_opt_ins(**asked)["LakeFormationOptInsInfoList"])

    assert listed() == 3
    assert listed(Principal=principal(ANALYST)) == 2
    assert listed(Resource=SHOP) == 2
    assert listed(Principal=principal(OPS), Resource=ORDERS) == 0


def test_an_opt_in_ends(lf: LakeFormationClient) -> None:
    asked: Any = {"Principal": principal(ANALYST), "Resource": SHOP}
    lf.create_lake_formation_opt_in(**asked)

    lf.delete_lake_formation_opt_in(**asked)

    assert lf.list_lake_formation_opt_ins()["LakeFormationOptInsInfoList"] == []
    assert refusal(lf.delete_lake_formation_opt_in, **asked) == "EntityNotFoundException"


def test_what_is_opted_in_has_to_exist(lf: LakeFormationClient) -> None:
    missing: Any = {"Database": {"Name": "nowhere"}}

    code = refusal(lf.create_lake_formation_opt_in, Principal=principal(ANALYST), Resource=missing)

    assert code == "EntityNotFoundException"
