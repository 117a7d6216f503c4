"""The connector with the configuration that a stack has as its output, as the role that the stack has created."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from emulated_aws.account import Account

from integration_tests.harness.runs.platform import Platform
from integration_tests.infra.conftest import Deploy
from integration_tests.infra.lake import DeployedLake, ids, sync

PAGE = Path(__file__).parents[2] / "infra" / "README.md"


@pytest.mark.share(1)
@pytest.mark.parametrize("mode", ["none", "hybrid", "managed"])
@pytest.mark.slow
def test_check_and_a_sync_succeed_with_what_the_stack_has_created(
    mode: str, deploy: Deploy, platform: Platform, account: Account
) -> None:
    lake = deploy(LakeFormationMode=mode, RequireEncryptionHeader="true")

    check = platform.check(lake.config())
    log = account.log()
    sync(platform, lake, [1, 2])

    assert check.connection_status["status"] == "SUCCEEDED", check.report()
    assert ids(lake) == [1, 2]
    asked = log.read(caller=lake.stack.resources["ConnectorRole"].ref)
    assert {request.service for request in asked} >= {"s3", "glue"}
    assert [(request.operation, request.refusal) for request in asked if request.refusal] == []
    assert encryption(lake) == {("aws:kms", lake.stack.outputs["KmsKeyArn"], True)}


def test_a_bucket_and_a_key_that_exist_already_are_used_as_they_are(
    deploy: Deploy, platform: Platform, account: Account
) -> None:
    key = account.client("kms").create_key()["KeyMetadata"]["Arn"]
    existing = deploy()
    existing.s3.delete_bucket_policy(Bucket=existing.bucket)

    lake = deploy(CreateBucket="false", BucketName=existing.bucket, BucketPrefix="raw/airbyte", ExistingKeyArn=key)
    sync(platform, lake, [1])

    assert lake.bucket == existing.bucket
    assert encryption(lake) == {("aws:kms", key, True)}
    assert {key.split("/")[:2] == ["raw", "airbyte"] for key in lake.objects()} == {True}
    with pytest.raises(ClientError, match="NoSuchBucketPolicy"):
        lake.s3.get_bucket_policy(Bucket=lake.bucket)


def test_the_role_needs_its_external_id(deploy: Deploy, platform: Platform) -> None:
    lake = deploy()
    credentials = {"credentials_title": "IAM Role", "role_arn": lake.stack.outputs["RoleArn"]}

    for wrong in (credentials, {**credentials, "external_id": "another-workspace"}):
        check = platform.check(lake.config(credentials=wrong))

        assert check.connection_status["status"] == "FAILED"
        assert "sts:AssumeRole" in check.connection_status["message"]


@pytest.mark.slow
def test_a_stack_that_becomes_governed_keeps_its_tables_and_its_syncs(deploy: Deploy, platform: Platform) -> None:
    lake = deploy()
    sync(platform, lake, [1])

    lake.deploy(LakeFormationMode="managed")
    sync(platform, lake, [2])

    assert ids(lake) == [1, 2]


@pytest.mark.slow
def test_events_and_orders_are_read_together(deploy: Deploy, platform: Platform, account: Account) -> None:
    lake = deploy(LakeFormationMode="managed", CreateEventStream="true")
    lake.stack.run_commands("RevokeCommand")
    sync(platform, lake, [1, 2])

    deliver(lake, account, pa.table({"event_id": ["3"], "event_type": ["seen"], "payload": ['{"id": 3}']}))
    with duckdb.connect() as engine:
        engine.execute("CREATE SCHEMA landing")
        for name in ("events", "orders"):
            engine.register("rows", lake.read(lake.database, name))
            engine.execute(f"CREATE TABLE landing.{name} AS FROM rows")
        (query,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        kinds = [kind for kind, _ in engine.execute(query).fetchall()]

    assert sorted(kinds) == ["order", "order", "seen"]


def deliver(lake: DeployedLake, account: Account, rows: pa.Table) -> None:
    """Be Firehose: append events to the table, and write one that cannot be converted, as the role for deliveries."""
    role = lake.firehose()
    s3 = account.client("s3", role)
    described = account.client("firehose").describe_delivery_stream(
        DeliveryStreamName=lake.stack.resources["Delivery"].ref
    )["DeliveryStreamDescription"]
    assert described["DeliveryStreamType"] == "KinesisStreamAsSource"
    lake.append("events", rows, role)
    s3.put_object(
        Bucket=lake.bucket, Key=f"lake/_errors/iceberg-failed/{lake.database}.events/dt=2026-12-31/x", Body=b""
    )
    with pytest.raises(ClientError, match="AccessDenied"):
        s3.put_object(Bucket=lake.bucket, Key=f"lake/{lake.database}/orders/x", Body=b"")


def encryption(lake: DeployedLake) -> set[tuple[str, str | None, bool | None]]:
    """How the objects of the lake are encrypted: algorithm, key, bucket key."""
    heads = (lake.s3.head_object(Bucket=lake.bucket, Key=key) for key in lake.objects())
    return {(head["ServerSideEncryption"], head.get("SSEKMSKeyId"), head.get("BucketKeyEnabled")) for head in heads}
