"""Every request of a check and of syncs that write in every way has what the account demands."""

from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.session import Session
from emulated_aws.requests.log import RequestLog
from emulated_aws.server import ACCOUNT_ID, REGION, AwsServer

from integration_tests.conformance.security.conftest import GLUE_REGION, Recorded
from integration_tests.conformance.security.everything import write_in_every_way
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import Warehouse

pytestmark = pytest.mark.module_turn

CREATES_OBJECT = ("PutObject", "CreateMultipartUpload", "CopyObject")
ENCRYPTION = "x-amz-server-side-encryption"
WRITTEN: Mapping[str, str] = {
    "/_staging/": "segments for executors elsewhere",
    "/_errors/": "rejects",
    "/orders/": "data files, and Iceberg's metadata",
    "_check": "what the check writes",
}
"""What must be among the objects, by a part of their keys: a test of all objects would not notice what is missing."""


def test_every_object_is_created_with_the_configured_key(recorded: Recorded) -> None:
    """Those that are deleted again too: staged segments, the check's, the files that a rewrite replaced."""
    creating = [request for request in recorded.requests if request.operation in CREATES_OBJECT]

    for request in creating:
        assert request.headers.get(ENCRYPTION) == "aws:kms", request
        assert request.headers.get(f"{ENCRYPTION}-aws-kms-key-id") == recorded.kms_key, request
        assert request.headers.get(f"{ENCRYPTION}-bucket-key-enabled") == "true", request
    for part, objects in WRITTEN.items():
        assert any(part in f"/{request.key}" for request in creating), f"{objects} were not written"


def test_every_object_that_is_left_is_encrypted_with_the_configured_key(recorded: Recorded) -> None:
    lake = recorded.lake
    keys = lake.objects()

    assert keys
    for key in keys:
        head = lake.s3.head_object(Bucket=lake.bucket, Key=key)
        assert (head.get("ServerSideEncryption"), head.get("SSEKMSKeyId")) == ("aws:kms", recorded.kms_key), key


def test_the_bucket_takes_no_object_without_the_key(recorded: Recorded) -> None:
    """So its policy has let all of the above pass."""
    with pytest.raises(ClientError, match="explicit deny"):
        recorded.lake.s3.put_object(Bucket=recorded.lake.bucket, Key="lake/plain", Body=b"")
    assert [request for request in recorded.requests if request.refusal == "AccessDenied"] == []


@pytest.mark.parametrize("service", ["glue", "lakeformation"])
def test_every_request_to_the_catalog_names_it_and_goes_to_its_region(recorded: Recorded, service: str) -> None:
    model: Any = Session().get_service_model(service)
    asked = [request for request in recorded.requests if request.service == service]

    assert asked
    for request in asked:
        assert request.region == GLUE_REGION, request
        # Locations are registered for an account: such requests cannot name a catalog.
        if "CatalogId" in model.operation_model(request.operation).input_shape.members:
            assert request.catalog_id == ACCOUNT_ID, request


def test_requests_to_s3_go_to_the_bucket_s_region(recorded: Recorded) -> None:
    assert {request.region for request in recorded.requests if request.service == "s3"} == {REGION}


def test_every_request_to_s3_is_made_by_our_own_clients(recorded: Recorded) -> None:
    """None by a file system of Arrow's, which has credentials, retries and encryption of its own."""
    agents = {request.headers["user-agent"] for request in recorded.requests if request.service == "s3"}

    assert agents
    assert {agent for agent in agents if "destination-datalake" not in agent} == set()


@pytest.mark.slow
def test_by_default_no_request_says_anything_of_encryption_or_a_catalog(
    aws: AwsServer, lake: Lake, platform: Platform
) -> None:
    log = RequestLog(aws.endpoint_url)

    write_in_every_way(Warehouse(lake, platform, TABLE_KINDS[0]))

    requests = log.read()
    assert {request.operation for request in requests} >= {"PutObject", "CreateTable"}
    assert [request for request in requests if request.catalog_id is not None] == []
    assert [request for request in requests if any(ENCRYPTION in header for header in request.headers)] == []
    assert [request for request in requests if request.service == "lakeformation"] == []


@pytest.mark.slow
def test_with_keys_of_s3_every_request_that_creates_an_object_asks_for_them(
    aws: AwsServer, lake: Lake, platform: Platform
) -> None:
    log = RequestLog(aws.endpoint_url)

    write_in_every_way(Warehouse(lake, platform, TABLE_KINDS[1]), encryption={"encryption_type": "SSE-S3"})

    creating = [request for request in log.read() if request.operation in CREATES_OBJECT]
    assert creating
    assert [request for request in creating if request.headers.get(ENCRYPTION) != "AES256"] == []
