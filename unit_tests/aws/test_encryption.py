"""What every request that creates an object asks of S3's encryption."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import boto3
import pytest
from moto import mock_aws

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.aws.session import Encryption, SseKms, SseS3

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
BUCKET = "lake"
BIG = b"x" * (9 * 1024 * 1024)

CASES: Mapping[str, tuple[Encryption | None, dict[str, str]]] = {
    "bucket default": (None, {}),
    "SSE-S3": (SseS3(), {"x-amz-server-side-encryption": "AES256"}),
    "SSE-KMS": (
        SseKms(KEY, bucket_key=True),
        {
            "x-amz-server-side-encryption": "aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id": KEY,
            "x-amz-server-side-encryption-bucket-key-enabled": "true",
        },
    ),
    # Not left out: the bucket's default may be to have one.
    "SSE-KMS without a bucket key": (
        SseKms(KEY, bucket_key=False),
        {
            "x-amz-server-side-encryption": "aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id": KEY,
            "x-amz-server-side-encryption-bucket-key-enabled": "false",
        },
    ),
}


class Sent:
    """The encryption headers of each request, by operation."""

    def __init__(self, s3: Any) -> None:
        self.headers: list[tuple[str, dict[str, str]]] = []
        s3.meta.events.register("before-send.s3", self._note)

    def _note(self, request: Any, event_name: str, **_: object) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in headers.items()
            if name.startswith("x-amz-server-side-encryption")
        }
        self.headers.append((event_name.rpartition(".")[2], asked))


@pytest.fixture(autouse=True)
def bucket() -> Iterator[None]:
    with mock_aws():
        boto3.client("s3", "us-east-1").create_bucket(Bucket=BUCKET)
        yield


def put(s3: Any, _: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="a", Body=b"1")


def upload_in_parts(s3: Any, tmp_path: Any) -> None:
    file = tmp_path / "big"
    file.write_bytes(BIG)
    s3.upload_file(str(file), BUCKET, "a")


def copy(s3: Any, _: Any) -> None:
    s3.copy({"Bucket": BUCKET, "Key": "source"}, BUCKET, "a")


WAYS: Mapping[str, tuple[Callable[[Any, Any], None], str]] = {
    "a put": (put, "PutObject"),
    "an upload in parts": (upload_in_parts, "CreateMultipartUpload"),
    "a copy": (copy, "CopyObject"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_each_request_that_creates_an_object_asks_for_the_encryption(case: str, way: str, tmp_path: Any) -> None:
    encryption, expected = CASES[case]
    write, creating = WAYS[way]
    s3 = AwsAccess("us-east-1", AccessKeys(f"{case} {way}", "s"), encryption=encryption).client("s3")
    boto3.client("s3", "us-east-1").put_object(Bucket=BUCKET, Key="source", Body=b"1")
    sent = Sent(s3)

    write(s3, tmp_path)

    assert dict(sent.headers)[creating] == expected
    # S3 refuses these headers on all other requests (UploadPart, HeadObject, CompleteMultipartUpload).
    assert all(headers == {} for operation, headers in sent.headers if operation != creating)


def test_a_library_s_own_client_asks_for_the_same() -> None:
    access = AwsAccess("us-east-1", AccessKeys("library", "s"), encryption=SseS3())
    s3 = access.session().client("s3", "us-east-1")

    s3.put_object(Bucket=BUCKET, Key="a", Body=b"1")

    assert s3.head_object(Bucket=BUCKET, Key="a")["ServerSideEncryption"] == "AES256"


def test_every_operation_of_s3_that_takes_an_encryption_is_known() -> None:
    """A new one would have to be added to the hook."""
    s3 = AwsAccess("us-east-1", AccessKeys("model", "s"), encryption=SseS3()).client("s3")
    model: Any = s3.meta.service_model
    takes = {
        name
        for name in model.operation_names
        if "ServerSideEncryption" in getattr(model.operation_model(name).input_shape, "members", {})
    }

    # Sessions are those of directory buckets; responses are written by S3 Object Lambda.
    assert takes - {"CreateSession", "WriteGetObjectResponse"} == {"PutObject", "CreateMultipartUpload", "CopyObject"}
