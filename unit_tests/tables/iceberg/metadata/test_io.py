"""PyIceberg's FileIO over S3."""

from __future__ import annotations

import io

import boto3
from botocore.response import StreamingBody
from botocore.stub import Stubber

from destination_datalake.tables.iceberg.metadata.io import S3FileIO

CONTENT = b'{"format-version": 2}'


def test_a_metadata_file_is_read_again_after_a_truncated_response() -> None:
    s3 = boto3.client("s3", "eu-west-1", aws_access_key_id="AKIAIOSFODNN7EXAMPLE", aws_secret_access_key="none")
    with Stubber(s3) as answers:
        for sent in (CONTENT[:5], CONTENT):
            answers.add_response("get_object", {"Body": StreamingBody(io.BytesIO(sent), len(CONTENT))})

        read = S3FileIO(s3).new_input("s3://lake/t/metadata/1.json").open().read()

    assert read == CONTENT
