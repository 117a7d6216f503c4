"""Access to AWS as the options configure it."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.aws.access import AccessKeys, AwsAccess, Environment, Identity, Role
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
