"""Access to AWS as the options configure it."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.aws.access import AccessKeys, AwsAccess, Environment, Identity
from destination_datalake.aws.session.assumed_role import Role
from destination_datalake.aws.session.encryption import Encryption, SseKms, SseS3
from destination_datalake.config.access import aws_access
from destination_datalake.config.options import Config


@pytest.mark.parametrize(
    ("credentials", "identity"),
    [
        (
            {"credentials_title": "IAM User", "aws_access_key_id": "A", "aws_secret_access_key": "s"},
            AccessKeys("A", "s"),
        ),
        (
            {
                "credentials_title": "IAM Role",
                "role_arn": "arn:aws:iam::123456789012:role/r",
                "external_id": "e1",
                "session_duration_seconds": 900,
            },
            Role("arn:aws:iam::123456789012:role/r", "e1", 900),
        ),
        ({"credentials_title": "Default chain"}, Environment()),
    ],
)
def test_the_access_has_the_identity_region_and_endpoint_of_the_options(
    credentials: dict[str, Any], identity: Identity
) -> None:
    config = Config.parse(
        {
            "credentials": credentials,
            "region": "eu-west-1",
            "bucket_name": "lake",
            "lakeformation_database_name": "raw",
            "endpoint_url": "http://localhost:1",
        }
    )

    assert aws_access(config) == AwsAccess("eu-west-1", identity, "http://localhost:1")


KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def access_with(**options: Any) -> AwsAccess:
    least = {
        "credentials": {"credentials_title": "Default chain"},
        "region": "eu-west-1",
        "bucket_name": "lake",
        "lakeformation_database_name": "raw",
    }
    return aws_access(Config.parse({**least, **options}))


@pytest.mark.parametrize(
    ("encryption", "expected"),
    [
        ({"encryption_type": "Bucket default"}, None),
        ({"encryption_type": "SSE-S3"}, SseS3()),
        ({"encryption_type": "SSE-KMS", "kms_key_arn": KEY}, SseKms(KEY, bucket_key=True)),
        ({"encryption_type": "SSE-KMS", "kms_key_arn": KEY, "bucket_key": False}, SseKms(KEY, bucket_key=False)),
    ],
)
def test_the_access_has_the_encryption_of_the_options(encryption: Any, expected: Encryption | None) -> None:
    assert access_with(encryption=encryption).encryption == expected


def test_the_access_has_the_data_catalog_of_the_options() -> None:
    access = access_with(glue_region="eu-central-1", glue_catalog_id="210987654321")

    assert (access.glue_region, access.glue_catalog_id) == ("eu-central-1", "210987654321")


def test_options_of_another_catalog_or_encryption_change_nothing_unless_given() -> None:
    assert access_with() == AwsAccess("eu-west-1", Environment())
