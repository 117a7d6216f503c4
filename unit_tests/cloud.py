"""An AWS account inside the test's own process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from moto import mock_aws

from destination_datalake.aws.access import AccessKeys, AwsAccess

BUCKET = "lake"


@dataclass(frozen=True)
class Cloud:
    """The account, with one bucket in it."""

    access: AwsAccess

    def objects(self) -> dict[str, bytes]:
        """The visible objects' contents by key."""
        s3 = self.access.client("s3")
        keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]
        return {key: s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}

    def arrow(self, key: str) -> pa.BufferReader:
        """An object's content, for Arrow to read."""
        return pa.BufferReader(self.objects()[key])

    def unfinished_uploads(self) -> list[str]:
        """The keys of multipart uploads that were neither completed nor aborted."""
        uploads = self.access.client("s3").list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        return [upload["Key"] for upload in uploads]


@contextmanager
def cloud() -> Iterator[Cloud]:
    """Lend an account, empty but for the bucket."""
    access = AwsAccess("us-east-1", AccessKeys("AKIAIOSFODNN7EXAMPLE", "not-a-secret"))
    with mock_aws():
        access.client("s3").create_bucket(Bucket=BUCKET)
        yield Cloud(access)
