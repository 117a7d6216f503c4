"""AWS errors explained: what, where, why, the remedy, and the failure type."""

from __future__ import annotations

import pytest
from botocore import exceptions
from botocore.parsers import ResponseParserError

from destination_datalake.aws.errors import denial_by_iam, explain, missing_grant, service_of
from destination_datalake.errors import Failure, MissingPermission


def answer(operation: str, code: str, text: str = "said AWS", status: int = 400) -> exceptions.ClientError:
    return exceptions.ClientError(
        {"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        operation,
    )


CHAINED = "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining."
LAKE_FORMATION = "Insufficient Lake Formation permission(s): Required Create Table on shop"


@pytest.mark.parametrize(
    ("error", "failure_type", "words"),
    [
        (
            answer("PutObject", "AccessDenied"),
            "config_error",
            "(S3, PutObject): access denied. Allow s3:PutObject on it",
        ),
        (answer("HeadObject", "403"), "config_error", "Allow s3:GetObject on it"),
        (answer("ListObjectsV2", "AccessDenied"), "config_error", "Allow s3:ListBucket"),
        (answer("CreateMultipartUpload", "AccessDenied"), "config_error", "Allow s3:PutObject"),
        (
            answer("CreateTable", "AccessDeniedException"),
            "config_error",
            "(Glue, CreateTable): access denied. Allow glue:",
        ),
        (
            answer("AssumeRole", "AccessDenied"),
            "config_error",
            "(STS, AssumeRole): access denied. Allow sts:AssumeRole, al",
        ),
        (answer("AssumeRole", "ValidationError", CHAINED), "config_error", "session_duration_seconds. Lower it to"),
        (
            answer("CreateTable", "AccessDeniedException", LAKE_FORMATION),
            "config_error",
            "Required Create Table on shop",
        ),
        (
            answer("CreateTable", "AccessDeniedException", LAKE_FORMATION),
            "config_error",
            "Grant CREATE_TABLE on the dat",
        ),
        (
            answer("PutObject", "NoSuchBucket", status=404),
            "config_error",
            "the bucket does not exist. Create the bucket",
        ),
        (answer("PutObject", "PermanentRedirect", status=301), "config_error", "Set region to the bucket's region"),
        (answer("GetCallerIdentity", "InvalidClientTokenId"), "config_error", "does not know the access key id"),
        (answer("PutObject", "InvalidAccessKeyId"), "config_error", "Check aws_access_key_id"),
        (answer("PutObject", "SignatureDoesNotMatch"), "config_error", "does not belong to the access key id"),
        (answer("GetTable", "ExpiredTokenException"), "config_error", "the credentials have expired"),
        (answer("GetTable", "EntityNotFoundException"), "config_error", "does not exist in the Glue Data Catalog"),
        (
            answer("UpdateTable", "InvalidInputException", "Payload size of request exceeded limit"),
            "config_error",
            "the table's definition is larger than Glue accepts. Set nested to json",
        ),
        (
            answer("UpdateTable", "ThrottlingException"),
            "transient_error",
            "AWS throttles the requests. Try again",
        ),
        (answer("PutObject", "SlowDown", status=503), "transient_error", "throttles"),
        (
            answer("PutObject", "InternalError", status=500),
            "transient_error",
            "AWS could not process it. Try again later.",
        ),
        (answer("GetTable", "SomethingNew", status=502), "transient_error", "AWS could not process it"),
        (answer("GetTable", "SomethingNew"), "system_error", "AWS refused with SomethingNew"),
        (ResponseParserError("no element found"), "transient_error", "AWS's response cannot be read. Try again later."),
        (exceptions.NoCredentialsError(), "config_error", "no AWS credentials were found"),
        (exceptions.ProfileNotFound(profile="dev"), "config_error", "Correct AWS_PROFILE"),
        (exceptions.EndpointConnectionError(endpoint_url="http://x"), "transient_error", "no connection. Check region"),
        (
            exceptions.SSLError(endpoint_url="https://x", error=OSError("bad")),
            "transient_error",
            "Check endpoint_url and its cert",
        ),
        (exceptions.ReadTimeoutError(endpoint_url="http://x"), "transient_error", "the connection failed"),
        (exceptions.ParamValidationError(report="no"), "system_error", "not valid for AWS"),
        (
            answer("PutObject", "AccessDenied", "not authorized to perform: kms:Decrypt on resource: arn:aws:kms:x"),
            "config_error",
            "Allow kms:Decrypt on arn:aws:kms:x to the connector's identity in IAM, or in the key's policy.",
        ),
        (
            answer(
                "PutObject",
                "AccessDenied",
                "not authorized to perform: kms:Decrypt on resource: arn:aws:kms:x because no resource-based policy "
                "allows the kms:Decrypt action",
            ),
            "config_error",
            "Allow kms:Decrypt on arn:aws:kms:x to the connector's identity in the key's policy.",
        ),
        (
            answer(
                "PutObject", "AccessDenied", "perform: s3:PutObject with an explicit deny in a permissions boundary"
            ),
            "config_error",
            "access denied, an explicit deny in a permissions boundary. Remove what denies s3:PutObject on it",
        ),
        (answer("PutObject", "KMS.DisabledException"), "config_error", "the KMS key is disabled. Enable the key"),
        (answer("HeadObject", "400", status=400), "config_error", "without a reason, as it does if credentials have"),
    ],
)
def test_the_message_has_action_resource_reason_and_remedy(error: Exception, failure_type: str, words: str) -> None:
    failure = explain(error, doing="write to", resource="s3://lake/raw")

    assert failure is not None
    assert failure.message.startswith("Cannot write to s3://lake/raw (")
    assert words in failure.message
    assert failure.message.endswith(".")
    assert failure.type == failure_type


def test_the_detail_is_the_code_and_text_of_aws() -> None:
    failure = explain(
        answer("PutObject", "AccessDenied", "User x is not …"), doing="write to", resource="s3://lake/raw"
    )

    assert failure is not None
    assert failure.detail == "AccessDenied: User x is not …"


def test_an_aws_error_is_found_as_the_cause_of_another() -> None:
    try:
        try:
            raise answer("UpdateTable", "AccessDeniedException")
        except exceptions.ClientError as error:
            raise RuntimeError("commit failed") from error
    except RuntimeError as wrapped:
        failure = explain(wrapped, doing="commit to", resource="table shop.orders")

    assert failure is not None
    assert "Allow glue:UpdateTable" in failure.message


@pytest.mark.parametrize("error", [ValueError("AWS Error"), OSError("disk full"), KeyError("x")])
def test_errors_that_aws_did_not_raise_are_not_explained(error: Exception) -> None:
    assert explain(error, doing="write to", resource="s3://lake/raw") is None


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
