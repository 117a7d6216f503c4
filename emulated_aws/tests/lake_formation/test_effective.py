"""The effective permissions of principals on a resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from emulated_aws.lake_formation.model.effective import permissions_on
from emulated_aws.lake_formation.model.resources import read
from emulated_aws.lake_formation.model.state import lake_of
from emulated_aws.server import ACCOUNT_ID, REGION

from tests.lake_formation.conftest import ANALYST, EVERY_TABLE, ORDERS, SHOP, columns

if TYPE_CHECKING:
    from mypy_boto3_lakeformation import LakeFormationClient

pytestmark = pytest.mark.share(3)

LAKE: Any = {"DataLocation": {"ResourceArn": "arn:aws:s3:::lake"}}
PREFIX: Any = {"DataLocation": {"ResourceArn": "arn:aws:s3:::lake/shop/"}}
LAKESIDE: Any = {"DataLocation": {"ResourceArn": "arn:aws:s3:::lakeside"}}
OPS_TABLES: Any = {
    "LFTagPolicy": {"ResourceType": "TABLE", "Expression": [{"TagKey": "team", "TagValues": ["ops", "hr"]}]}
}
OPS_DATABASES: Any = {
    "LFTagPolicy": {"ResourceType": "DATABASE", "Expression": [{"TagKey": "team", "TagValues": ["hr"]}]}
}
ALL_BUT_EMAIL: Any = {
    "TableWithColumns": {
        "DatabaseName": "shop",
        "Name": "orders",
        "ColumnWildcard": {"ExcludedColumnNames": ["email"]},
    }
}
TEAM: Any = {"LFTag": {"TagKey": "team", "TagValues": ["ops"]}}


@pytest.mark.parametrize(
    ("granted", "permissions", "asked", "expected"),
    [
        (SHOP, {"ALTER"}, SHOP, {"ALTER"}),
        (SHOP, {"ALTER"}, ORDERS, set()),
        (SHOP, {"ALL"}, SHOP, {"ALL", "ALTER", "CREATE_TABLE", "DESCRIBE", "DROP"}),
        (ORDERS, {"SELECT", "INSERT"}, ORDERS, {"SELECT", "INSERT"}),
        (ORDERS, {"ALL"}, ORDERS, {"ALL", "ALTER", "DELETE", "DESCRIBE", "DROP", "INSERT", "SELECT"}),
        (EVERY_TABLE, {"SELECT", "INSERT"}, ORDERS, {"SELECT", "INSERT"}),
        (EVERY_TABLE, {"SELECT"}, columns("id"), {"SELECT"}),
        (columns("id"), {"SELECT"}, ORDERS, set()),
        (columns("id"), {"SELECT"}, columns("id"), {"SELECT"}),
        (columns("id"), {"SELECT"}, columns("email"), set()),
        (ALL_BUT_EMAIL, {"SELECT"}, columns("id"), {"SELECT"}),
        (ALL_BUT_EMAIL, {"SELECT"}, columns("email"), set()),
        (ALL_BUT_EMAIL, {"SELECT"}, ORDERS, set()),
        (LAKE, {"DATA_LOCATION_ACCESS"}, PREFIX, {"DATA_LOCATION_ACCESS"}),
        (PREFIX, {"DATA_LOCATION_ACCESS"}, LAKE, set()),
        (LAKE, {"DATA_LOCATION_ACCESS"}, LAKESIDE, set()),
        (TEAM, {"ASSOCIATE"}, TEAM, {"ASSOCIATE"}),
        (OPS_TABLES, {"INSERT"}, ORDERS, {"INSERT"}),
        (OPS_TABLES, {"INSERT"}, SHOP, set()),
        (OPS_DATABASES, {"DROP"}, SHOP, set()),
    ],
)
def test_a_permission_holds_by_name_by_wildcard_and_by_tag(
    lf: LakeFormationClient, granted: Any, permissions: set[Any], asked: Any, expected: set[str]
) -> None:
    lf.register_resource(ResourceArn="arn:aws:s3:::lake", RoleArn="arn:aws:iam::123456789012:role/lake")
    lf.create_lf_tag(TagKey="team", TagValues=["ops", "hr"])
    lf.add_lf_tags_to_resource(Resource=SHOP, LFTags=[{"TagKey": "team", "TagValues": ["ops"]}])
    lf.grant_permissions(
        Principal={"DataLakePrincipalIdentifier": ANALYST}, Resource=granted, Permissions=sorted(permissions)
    )

    (resource,) = read(asked, ACCOUNT_ID)

    assert permissions_on(lake_of(ACCOUNT_ID, REGION), {ANALYST}, resource) == expected
