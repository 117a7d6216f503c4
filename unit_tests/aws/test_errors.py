"""AWS errors explained: what, where, why, the remedy, and the failure type."""

from __future__ import annotations

import pytest
from botocore import exceptions
from botocore.parsers import ResponseParserError

from destination_datalake.aws.errors import explain
from destination_datalake.errors import Failure, MissingPermission


def answer(operation: str, code: str, text: str = "said AWS", status: int = 400, **more: str) -> exceptions.ClientError:
    return exceptions.ClientError(
        {"Error": {"Code": code, "Message": text, **more}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        operation,
    )


CHAINED = "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining."
USER = "User: arn:aws:iam::123456789012:user/airbyte is not authorized to perform: "
NO_POLICY = "because no identity-based policy allows the glue:CreateTable action"
NO_KEY_POLICY = "because no resource-based policy allows the kms:Decrypt action"
BY_BUCKET = "with an explicit deny in a resource-based policy"
IN_BOUNDARY = "with an explicit deny in a permissions boundary"


@pytest.mark.parametrize(
    ("error", "failure_type", "words"),
    [
        (answer("AssumeRole", "AccessDenied"), "config_error", "in IAM, and in the role's trust policy."),
        (answer("AssumeRole", "ValidationError", CHAINED), "config_error", "Lower session_duration_seconds to this"),
        (answer("PutObject", "NoSuchBucket", status=404), "config_error", "does not exist. Create the bucket"),
        (answer("PutObject", "NoSuchBucket", BucketName="lake"), "config_error", "bucket lake): the bucket does"),
        (answer("PutObject", "PermanentRedirect", status=301), "config_error", "Set region to the bucket's region"),
        (answer("GetObject", "NoSuchKey", status=404), "transient_error", "the object does not exist; another program"),
        (answer("HeadObject", "404", status=404), "transient_error", "If the error persists, restore the object"),
        (answer("GetObject", "InvalidObjectState", status=403), "config_error", "Restore the object in S3, and"),
        (answer("PutObject", "PreconditionFailed", status=412), "transient_error", "another program has changed the"),
        (answer("HeadObject", "412", status=412), "transient_error", "changed the object at the same time. Try again"),
        (answer("PutObject", "ConditionalRequestConflict", status=409), "transient_error", "another program has"),
        (answer("UploadPart", "NoSuchUpload", status=404), "transient_error", "has aborted it. Try again"),
        (answer("GetCallerIdentity", "InvalidClientTokenId"), "config_error", "access key ID does not exist"),
        (answer("PutObject", "InvalidAccessKeyId"), "config_error", "Correct aws_access_key_id"),
        (answer("PutObject", "SignatureDoesNotMatch"), "config_error", "does not match the access key ID"),
        (answer("GetTable", "ExpiredTokenException"), "config_error", "the credentials have expired"),
        (answer("GetTable", "EntityNotFoundException"), "config_error", "does not exist in the Glue Data Catalog"),
        (answer("UpdateTable", "InvalidInputException", "Payload size of request exceeded limit"), "config_error",
         "the table definition exceeds Glue's size limit. Set nested to json"),
        (answer("PutObject", "KMS.DisabledException"), "config_error", "the KMS key is disabled. Enable the key"),
        (answer("HeadObject", "400", status=400), "config_error", "without an error code, often because"),
        (answer("UpdateTable", "ThrottlingException"), "transient_error", "AWS throttled the request. Try again"),
        (answer("PutObject", "SlowDown", status=503), "transient_error", "throttled"),
        (answer("PutObject", "InternalError", status=500), "transient_error", "AWS failed to process the request"),
        (answer("GetTable", "SomethingNew", status=502), "transient_error", "AWS failed to process the request"),
        (answer("GetTable", "SomethingNew"), "system_error", "AWS returned the error SomethingNew"),
        (ResponseParserError("no element found"), "transient_error", "the response of AWS is unreadable. Try again"),
        (exceptions.NoCredentialsError(), "config_error", "the AWS client found no credentials"),
        (exceptions.ProfileNotFound(profile="dev"), "config_error", "Correct AWS_PROFILE"),
        (exceptions.EndpointConnectionError(endpoint_url="http://x"), "transient_error", "unreachable. Check region"),
        (exceptions.SSLError(endpoint_url="https://x", error=OSError("bad")), "transient_error",
         "Check endpoint_url and the server's cert"),
        (exceptions.ReadTimeoutError(endpoint_url="http://x"), "transient_error", "the connection broke or timed out"),
        (exceptions.ParamValidationError(report="no"), "system_error", "the request is invalid. See the log"),
    ],
)  # fmt: skip
def test_the_message_has_resource_reason_and_remedy(error: Exception, failure_type: str, words: str) -> None:
    failure = explain(error, doing="write to", resource="s3://lake/raw")

    assert failure is not None
    assert failure.message.startswith("Cannot write to s3://lake/raw (")
    assert words in failure.message
    assert failure.message.endswith(".")
    assert failure.type == failure_type
    assert failure.missing is None or "AssumeRole" in str(error)


@pytest.mark.parametrize(
    ("operation", "text", "service", "action", "resource", "words"),
    [
        ("PutObject", "", "S3", "s3:PutObject", None, "access denied. Allow s3:PutObject for the connector's"),
        ("HeadObject", "", "S3", "s3:GetObject", None, "Allow s3:GetObject for the"),
        ("HeadBucket", "", "S3", "s3:ListBucket", None, "Allow s3:ListBucket for the"),
        ("ListObjectsV2", "Access Denied", "S3", "s3:ListBucket", None, "Allow s3:ListBucket for the"),
        ("CreateMultipartUpload", "", "S3", "s3:PutObject", None, "Allow s3:PutObject for the"),
        ("CompleteMultipartUpload", "", "S3", "s3:PutObject", None, "Allow s3:PutObject for the"),
        ("AbortMultipartUpload", "", "S3", "s3:AbortMultipartUpload", None, "Allow s3:AbortMultipartUpload for the"),
        ("ListObjectVersions", "", "S3", "s3:ListBucketVersions", None, "Allow s3:ListBucketVersions for the"),
        ("GetBucketVersioning", "", "S3", "s3:GetBucketVersioning", None, "Allow s3:GetBucketVersioning for the"),
        ("GetSessionToken", "", "STS", "sts:GetSessionToken", None, "Allow sts:GetSessionToken for the"),
        ("Publish", "", "SNS", "sns:Publish", None, "Allow sns:Publish for the"),
        ("GetTables", "User is not authorized", "Glue", "glue:GetTables", None, "Allow glue:GetTables for the"),
        ("BatchCreatePartition", "", "Glue", "glue:BatchCreatePartition", None, "in IAM."),
        ("ListPermissions", "", "Lake Formation", "lakeformation:ListPermissions", None, "in IAM."),
        ("AddLFTagsToResource", "", "Lake Formation", "lakeformation:AddLFTagsToResource", None, "in IAM."),
        ("GrantPermissions", "", "Lake Formation", "lakeformation:GrantPermissions", None, "in IAM."),
        ("CreateLakeFormationOptIn", "", "Lake Formation", "lakeformation:CreateLakeFormationOptIn", None, "in IAM."),
        ("DescribeResource", "", "Lake Formation", "lakeformation:DescribeResource", None, "in IAM."),
        ("GetDataLakeSettings", "", "Lake Formation", "lakeformation:GetDataLakeSettings", None, "in IAM."),
        ("CreateTable", f"{USER}glue:CreateTable on resource: arn:aws:glue:x:1:database/raw {NO_POLICY}",
         "Glue", "glue:CreateTable", "arn:aws:glue:x:1:database/raw", "database/raw for the connector"),
        ("PutObject", f"{USER}kms:Decrypt on resource: arn:aws:kms:x", "S3", "kms:Decrypt", "arn:aws:kms:x",
         "Allow kms:Decrypt on arn:aws:kms:x for the connector's identity in IAM or in the key's policy."),
        ("PutObject", f"{USER}kms:Decrypt on resource: arn:aws:kms:x {NO_KEY_POLICY}", "S3", "kms:Decrypt",
         "arn:aws:kms:x", "Allow kms:Decrypt on arn:aws:kms:x for the connector's identity in the key's policy."),
        ("PutObject", f'{USER}s3:PutObject on resource: "arn:aws:s3:::lake/x" {BY_BUCKET}', "S3", "s3:PutObject",
         "arn:aws:s3:::lake/x", "access denied by an explicit deny in a resource-based policy. Remove the"),
        ("PutObject", f"perform: s3:PutObject {IN_BOUNDARY}", "S3", "s3:PutObject", None,
         "access denied by an explicit deny in a permissions boundary. Remove the explicit deny of s3:PutObject for"),
    ],
)  # fmt: skip
def test_what_iam_denies_is_named_with_service_and_remedy(
    operation: str, text: str, service: str, action: str, resource: str | None, words: str
) -> None:
    failure = explain(answer(operation, "AccessDenied", text, 403), doing="write to", resource="s3://lake/raw")

    assert failure is not None
    assert failure.message.startswith(f"Cannot write to s3://lake/raw ({service}, {operation}): access denied")
    assert words in failure.message
    assert failure.missing == MissingPermission(action, resource)
    assert failure.missing.in_iam
    assert failure.error_class == "insufficient_permissions"


INSUFFICIENT = "Insufficient Lake Formation permission(s)"


@pytest.mark.parametrize(
    ("operation", "text", "permission", "resource", "words"),
    [
        ("CreateTable", f"{INSUFFICIENT}: Required Create Table on shop", "CREATE_TABLE", "shop",
         "(Required Create Table on shop). Grant CREATE_TABLE on the database shop to the connector's identity"),
        ("CreateDatabase", f"{INSUFFICIENT}: Required Create Database on Catalog", "CREATE_DATABASE", "Catalog",
         "Grant CREATE_DATABASE on Catalog to"),
        ("UpdateTable", f"{INSUFFICIENT}: Required Alter on orders.", "ALTER", "orders", "Grant ALTER on orders to"),
        ("GetTable", f"{INSUFFICIENT}: Required Describe", "DESCRIBE", None, "Grant DESCRIBE on the database or"),
        ("CreateTable", f"{INSUFFICIENT} on s3://lake/raw/orders (Database name: raw)", "DATA_LOCATION_ACCESS",
         "s3://lake/raw/orders", "Grant DATA_LOCATION_ACCESS on the data location s3://lake/raw/orders to"),
        ("DeleteTable", "Lake Formation refused", "DROP", None,
         "(Lake Formation refused). Grant DROP on the database or table to"),
    ],
)  # fmt: skip
def test_what_lake_formation_denies_is_named_with_remedy(
    operation: str, text: str, permission: str, resource: str | None, words: str
) -> None:
    failure = explain(answer(operation, "AccessDeniedException", text), doing="write to", resource="table shop.orders")

    assert failure is not None
    assert words in failure.message
    assert failure.missing == MissingPermission(permission, resource)
    assert not failure.missing.in_iam


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
