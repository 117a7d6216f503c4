"""One set of runs for each kind of table, with all options of encryption, the Data Catalog and Lake Formation."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import boto3
import pytest
from emulated_aws.account import Account, allow
from emulated_aws.requests.log import Record
from emulated_aws.server import ACCESS_KEY_ID, ACCOUNT_ID, REGION, SECRET_ACCESS_KEY, AwsServer

from integration_tests.conformance.security.everything import write_in_every_way
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import Warehouse

GLUE_REGION = "eu-central-1"
ANALYSTS = f"arn:aws:iam::{ACCOUNT_ID}:role/analysts"
GOVERNED: Mapping[str, object] = {
    "mode": "managed",
    "registration_role_arn": f"arn:aws:iam::{ACCOUNT_ID}:role/lake",
    "tags": {"owner": ["sales"]},
    "table_tags": [{"table": "orders", "columns": ["amount"], "tags": {"secrecy": ["high"]}}],
    "grants": [
        {"principal": ANALYSTS, "permissions": ["DESCRIBE"]},
        {"principal": ANALYSTS, "permissions": ["SELECT"], "table": "*"},
        {"principal": ANALYSTS, "permissions": ["SELECT"], "table": "orders", "columns": ["id"]},
    ],
}


@dataclass(frozen=True)
class Recorded:
    """What is left of the runs: the lake, its key, and all their requests."""

    lake: Lake
    kms_key: str
    requests: list[Record]


@pytest.fixture(scope="module", params=TABLE_KINDS, ids=lambda kind: kind.name)
def recorded(
    request: pytest.FixtureRequest, aws: AwsServer, launch: WarmLaunch, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    lake = Lake(aws.endpoint_url)
    key = new_kms_key(aws)
    demand_encryption(lake, key)
    platform = Platform(tmp_path_factory.mktemp("platform"), launch.without_shared_disk())
    account = Account(aws.endpoint_url)
    user = account.user(allow("*"))
    with account.governed(user, region=GLUE_REGION):
        log = account.log()
        write_in_every_way(
            Warehouse(lake, platform, request.param),
            credentials=user.credentials,
            glue_region=GLUE_REGION,
            glue_catalog_id=ACCOUNT_ID,
            encryption={"encryption_type": "SSE-KMS", "kms_key_arn": key},
            lake_formation=GOVERNED,
        )
        requests = log.read(caller=user.arn)
    return Recorded(lake, key, requests)


def new_kms_key(aws: AwsServer) -> str:
    """Return the ARN of a key of the account's."""
    kms = boto3.client(
        "kms",
        region_name=REGION,
        endpoint_url=aws.endpoint_url,
        aws_access_key_id=ACCESS_KEY_ID,
        aws_secret_access_key=SECRET_ACCESS_KEY,
    )
    arn: str = kms.create_key()["KeyMetadata"]["Arn"]
    return arn


def demand_encryption(lake: Lake, key: str) -> None:
    """Let the bucket's policy deny objects for which requests do not ask for encryption with this key.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html#require-sse-kms
    """
    header = "s3:x-amz-server-side-encryption-aws-kms-key-id"
    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:PutObject",
        "Resource": f"arn:aws:s3:::{lake.bucket}/*",
    }
    statements = [
        {**statement, "Condition": {"Null": {header: "true"}}},
        {**statement, "Condition": {"StringNotEqualsIfExists": {header: key}}},
    ]
    policy = {"Version": "2012-10-17", "Statement": statements}
    lake.s3.put_bucket_policy(Bucket=lake.bucket, Policy=json.dumps(policy))
