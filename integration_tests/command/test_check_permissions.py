"""`check` in an account that enforces IAM policies: missing permissions are named."""

import json
import urllib.request
from collections.abc import Iterator

import boto3
import pytest

from integration_tests.aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, AwsServer
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.platform import Platform


class GuardedLake:
    """A lake in an account that enforces IAM policies, and users with policies of the test's choice."""

    def __init__(self, server: AwsServer) -> None:
        self._url = server.endpoint_url
        self.lake = Lake(server.endpoint_url)
        self._users = 0

    def config(self, *allowed: str) -> dict[str, object]:
        """A configuration whose user has exactly the allowed actions."""
        self._enforce(False)
        self._users += 1
        name = f"user-{self._users}"
        iam = boto3.client(
            "iam",
            region_name=REGION,
            endpoint_url=self._url,
            aws_access_key_id=ACCESS_KEY_ID,
            aws_secret_access_key=SECRET_ACCESS_KEY,
        )
        iam.create_user(UserName=name)
        statement = {"Effect": "Allow", "Action": list(allowed), "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_user_policy(UserName=name, PolicyName="some", PolicyDocument=policy)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        self._enforce(True)
        return self.lake.config(
            credentials={
                "credentials_title": "IAM User",
                "aws_access_key_id": key["AccessKeyId"],
                "aws_secret_access_key": key["SecretAccessKey"],
            },
            # No user finds a database that another one has made.
            lakeformation_database_name=self.lake.name(f"lake_{self._users}"),
        )

    def unguarded(self) -> Lake:
        """The lake, with policies no longer enforced."""
        self._enforce(False)
        return self.lake

    def _enforce(self, enforce: bool) -> None:
        # The number of requests that the server still answers without checking policies.
        free = b"0" if enforce else b"1000000"
        request = urllib.request.Request(f"{self._url}/moto-api/reset-auth", free, {"Content-Type": "text/plain"})
        urllib.request.urlopen(request).close()


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedLake]:
    with AwsServer() as server:
        yield GuardedLake(server)


EVERYTHING = ("s3:*", "glue:*")


def test_permissions_for_s3_and_glue_suffice(platform: Platform, guarded: GuardedLake) -> None:
    assert platform.check(guarded.config(*EVERYTHING)).connection_status == {"status": "SUCCEEDED"}


def test_missing_permission_to_list_tables_is_no_problem(platform: Platform, guarded: GuardedLake) -> None:
    tables = ("glue:GetTable", "glue:CreateTable", "glue:UpdateTable", "glue:DeleteTable")

    run = platform.check(guarded.config("s3:*", "glue:GetDatabase", "glue:CreateDatabase", *tables))

    assert run.connection_status == {"status": "SUCCEEDED"}
    assert any("Cannot look for earlier tables" in text and "Only a warning" in text for text in run.logs)


@pytest.mark.parametrize(
    ("allowed", "sentences"),
    [
        (("glue:*",), ["(S3, PutObject): access denied. Allow s3:PutObject on it to the connector's identity in IAM."]),
        (("s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject", "s3:ListBucket", "glue:*"), ["s3:GetObject"]),
        (("s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "glue:*"), ["s3:ListBucket"]),
        (("s3:*",), ["Allow glue:GetDatabase"]),
        (("s3:*", "glue:GetDatabase"), ["Allow glue:CreateDatabase"]),
        (("s3:*", "glue:*Database"), ["airbyte_check_", "(Glue, CreateTable): access denied. Allow glue:CreateTable"]),
        (("s3:*", "glue:*Database", "glue:CreateTable", "glue:DeleteTable"), ["glue:GetTable", "glue:UpdateTable"]),
    ],
)
def test_a_missing_permission_is_named_and_nothing_is_left_behind(
    platform: Platform, guarded: GuardedLake, allowed: tuple[str, ...], sentences: list[str]
) -> None:
    said = platform.check(guarded.config(*allowed)).refusal

    for sentence in sentences:
        assert sentence in said
    lake = guarded.unguarded()
    assert (lake.objects(), lake.unfinished_uploads(), lake.tables()) == ({}, [], [])


def test_unknown_keys_are_reported_once_and_not_for_every_service(platform: Platform, guarded: GuardedLake) -> None:
    config = guarded.config(*EVERYTHING)
    config["credentials"] = {
        "credentials_title": "IAM User",
        "aws_access_key_id": "AKIANOBODY1234567890",
        "aws_secret_access_key": "n0b0dy/knows/this/secret",
    }

    said = platform.check(config).refusal

    assert "AWS does not know the access key id. Check aws_access_key_id and aws_secret_access_key" in said
    assert "\n" not in said
