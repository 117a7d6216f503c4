"""Every request of a check and of syncs that write in every way has what the account demands."""

import json
from collections.abc import Mapping

from integration_tests.aws.server import ACCOUNT_ID
from integration_tests.conformance.security.conftest import GLUE_REGION, KMS_KEY, Recorded

WRITERS: Mapping[str, str] = {
    "_staging/": "segments for executors elsewhere",
    "_errors/": "rejects",
    "/orders/": "data files, and Iceberg's metadata",
    "check": "the check's probe",
}
"""What must have been written, by a part of its key: what a test of all objects would not notice to be missing."""


def test_every_object_is_created_with_the_configured_key(recorded: Recorded) -> None:
    """Those that are deleted again too: staged segments, the check's, the files that a rewrite replaced."""
    creating = [request for request in recorded.requests if request.creates_object]

    for request in creating:
        assert request.request.header("x-amz-server-side-encryption") == "aws:kms", request
        assert request.request.header("x-amz-server-side-encryption-aws-kms-key-id") == KMS_KEY, request
        assert request.request.header("x-amz-server-side-encryption-bucket-key-enabled") == "true", request
    paths = [request.request.path for request in creating]
    for part, objects in WRITERS.items():
        assert any(part in path for path in paths), f"{objects} were not written"


def test_every_object_that_is_left_is_encrypted_with_the_configured_key(recorded: Recorded) -> None:
    lake = recorded.lake
    keys = lake.objects()

    assert keys
    for key in keys:
        head = lake.s3.head_object(Bucket=lake.bucket, Key=key)
        assert (head.get("ServerSideEncryption"), head.get("SSEKMSKeyId")) == ("aws:kms", KMS_KEY), key


def test_every_request_to_glue_and_lake_formation_names_the_catalog_and_goes_to_its_region(recorded: Recorded) -> None:
    asked = [request for request in recorded.requests if request.service in ("glue", "lakeformation")]

    assert asked
    for request in asked:
        assert request.region == GLUE_REGION, request
        assert json.loads(request.request.body)["CatalogId"] == ACCOUNT_ID, request


def test_requests_to_s3_go_to_the_bucket_s_region(recorded: Recorded) -> None:
    assert {request.region for request in recorded.requests if request.service == "s3"} == {"us-east-1"}
