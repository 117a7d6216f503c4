"""The permission that a denied call lacks, from AWS's text or else from the operation."""

from __future__ import annotations

import pytest

from destination_datalake.aws.errors import denial_by_iam, missing_grant, service_of
from destination_datalake.errors import Failure, MissingPermission

USER = "User: arn:aws:iam::123456789012:user/airbyte is not authorized to perform: "


@pytest.mark.parametrize(
    ("operation", "text", "action", "resource", "explicit_deny"),
    [
        (
            "CreateTable",
            f"{USER}glue:CreateTable on resource: arn:aws:glue:eu-west-1:123456789012:database/raw because no "
            "identity-based policy allows the glue:CreateTable action",
            "glue:CreateTable",
            "arn:aws:glue:eu-west-1:123456789012:database/raw",
            None,
        ),
        (
            "PutObject",
            f"{USER}kms:GenerateDataKey on resource: arn:aws:kms:eu-west-1:123456789012:key/1 because no "
            "resource-based policy allows the kms:GenerateDataKey action",
            "kms:GenerateDataKey",
            "arn:aws:kms:eu-west-1:123456789012:key/1",
            None,
        ),
        (
            "PutObject",
            f'{USER}s3:PutObject on resource: "arn:aws:s3:::lake/x" with an explicit deny in a resource-based policy',
            "s3:PutObject",
            "arn:aws:s3:::lake/x",
            "an explicit deny in a resource-based policy",
        ),
        ("GetObject", "Access Denied", "s3:GetObject", None, None),
        ("ListObjectsV2", "Access Denied", "s3:ListBucket", None, None),
        ("CompleteMultipartUpload", "", "s3:PutObject", None, None),
        ("GetTables", "User is not authorized", "glue:GetTables", None, None),
        ("ListPermissions", "", "lakeformation:ListPermissions", None, None),
    ],
)
def test_what_iam_denied(
    operation: str, text: str, action: str, resource: str | None, explicit_deny: str | None
) -> None:
    denial = denial_by_iam(operation, text)

    assert denial.missing == MissingPermission(action, resource)
    assert denial.missing.in_iam
    assert denial.explicit_deny == explicit_deny


@pytest.mark.parametrize(
    ("operation", "text", "permission", "resource"),
    [
        ("CreateTable", "permission(s): Required Create Table on raw", "CREATE_TABLE", "raw"),
        ("CreateDatabase", "permission(s): Required Create Database on Catalog", "CREATE_DATABASE", "Catalog"),
        ("UpdateTable", "permission(s): Required Alter on orders.", "ALTER", "orders"),
        ("GetTable", "permission(s): Required Describe", "DESCRIBE", None),
        (
            "CreateTable",
            "Insufficient Lake Formation permission(s) on s3://lake/raw/orders (Database name: raw)",
            "DATA_LOCATION_ACCESS",
            "s3://lake/raw/orders",
        ),
        ("DeleteTable", "Lake Formation refused", "DROP", None),
    ],
)
def test_what_lake_formation_denied(operation: str, text: str, permission: str, resource: str | None) -> None:
    missing = missing_grant(operation, text)

    assert missing == MissingPermission(permission, resource)
    assert not missing.in_iam


@pytest.mark.parametrize(
    ("operation", "service"),
    [
        ("AssumeRole", "STS"),
        ("AbortMultipartUpload", "S3"),
        ("HeadBucket", "S3"),
        ("UpdateTable", "Glue"),
        ("BatchCreatePartition", "Glue"),
        ("AddLFTagsToResource", "Lake Formation"),
        ("BatchGrantPermissions", "Lake Formation"),
        ("CreateLakeFormationOptIn", "Lake Formation"),
        ("DescribeResource", "Lake Formation"),
        ("GetDataLakeSettings", "Lake Formation"),
    ],
)
def test_the_service_of_an_operation(operation: str, service: str) -> None:
    assert service_of(operation) == service


@pytest.mark.parametrize(
    ("failure", "error_class"),
    [
        (Failure("", "", "config_error", MissingPermission("s3:PutObject")), "insufficient_permissions"),
        (Failure("", "", "config_error"), "invalid_settings"),
        (Failure("", "", "transient_error"), "internal"),
        (Failure("", "", "system_error"), "internal"),
    ],
)
def test_the_class_of_a_failure(failure: Failure, error_class: str) -> None:
    assert failure.error_class == error_class
