"""S3 addresses: the text after the bucket is the key, taken literally."""

from __future__ import annotations

import json
from pathlib import Path

import botocore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.aws.objects import S3Address, partition_of


@pytest.mark.parametrize(
    ("uri", "bucket", "key"),
    [
        ("s3://lake/raw/orders", "lake", "raw/orders"),
        ("s3://lake/raw/orders/", "lake", "raw/orders/"),
        ("s3://lake/", "lake", ""),
        ("s3://lake", "lake", ""),
        ("s3://lake//raw", "lake", "/raw"),
        ("s3://lake/a?b=c#d%20e;f", "lake", "a?b=c#d%20e;f"),
        ("s3://lake/a b/京都/🎉", "lake", "a b/京都/🎉"),
        ("s3a://lake/raw", "lake", "raw"),
        ("S3N://lake/raw", "lake", "raw"),
    ],
)
def test_an_address_is_a_bucket_and_a_literal_key(uri: str, bucket: str, key: str) -> None:
    assert S3Address.parse(uri) == (bucket, key)


@given(st.from_regex(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", fullmatch=True), st.text())
def test_a_formatted_address_is_parsed_back(bucket: str, key: str) -> None:
    assert S3Address.parse(str(S3Address(bucket, key))) == (bucket, key)


@pytest.mark.parametrize("uri", ["", "lake/raw", "s3:/lake/raw", "s3:///raw", "hdfs://lake/raw", "file:///tmp"])
def test_other_texts_are_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="is not an S3 URI"):
        S3Address.parse(uri)


def test_every_region_is_in_the_partition_that_botocore_names() -> None:
    partitions = json.loads((Path(botocore.__file__).parent / "data" / "partitions.json").read_text())["partitions"]
    regions = {
        region: partition["id"] for partition in partitions for region in partition["regions"] if "global" not in region
    }

    assert {region: partition_of(region) for region in regions} == regions
