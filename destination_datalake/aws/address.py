"""Addresses of objects and folders in S3, regions, and partitions in ARNs."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple, Self

_SCHEMES = ("s3", "s3a", "s3n")

_PARTITIONS = (
    ("cn-", "aws-cn"),
    ("eu-isoe-", "aws-iso-e"),
    ("eusc-", "aws-eusc"),
    ("us-gov-", "aws-us-gov"),
    ("us-iso-", "aws-iso"),
    ("us-isob-", "aws-iso-b"),
    ("us-isof-", "aws-iso-f"),
)
"""Prefixes of region codes, with their partitions other than `aws`."""

_DIRECTIONS = frozenset(
    ("central", "east", "north", "northeast", "northwest", "south", "southeast", "southwest", "west")
)
"""The directions that precede the number in region codes."""


def partition_of(region: str) -> str:
    """Return the AWS partition of a region, the second part of its ARNs."""
    return next((name for prefix, name in _PARTITIONS if region.startswith(prefix)), "aws")


def is_misspelt(region: str) -> bool:
    """Return whether a text in the form of a region code cannot be one, even one newer than the SDK."""
    return region.split("-")[-2] not in _DIRECTIONS


def known_regions() -> Sequence[str]:
    """Return the regions of all partitions."""
    from botocore.loaders import create_loader

    partitions = create_loader().load_data("partitions")["partitions"]
    return sorted(region for partition in partitions for region in partition["regions"] if "global" not in region)


def nearest_region(region: str) -> str:
    """Return the known region with the most similar code, also if letters are in the wrong order."""

    def similarity(known: str) -> float:
        in_order = SequenceMatcher(None, region, known).ratio()
        return in_order + SequenceMatcher(None, sorted(region), sorted(known)).ratio()

    return max(known_regions(), key=similarity)


class S3Address(NamedTuple):
    """A bucket and a key. The key of a folder may end with a slash; the key of the whole bucket is empty."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Return the bucket and key of `s3://bucket/key`. Hadoop's schemes `s3a` and `s3n` are accepted too.

        Keys are literal: `?`, `#` and `%` have no special meaning. Raises ValueError for any other text.
        """
        scheme, _, rest = uri.partition("://")
        bucket, _, key = rest.partition("/")
        if scheme.lower() not in _SCHEMES or not bucket:
            raise ValueError(f"{uri} is not an address in S3")
        return cls(bucket, key)

    @property
    def is_of_s3_tables(self) -> bool:
        """Whether the bucket belongs to a table in Amazon S3 Tables. AWS reserves this suffix.

        Objects there cannot be listed or deleted. The service removes unreferenced ones
        (https://docs.aws.amazon.com/AmazonS3/latest/API/developing-s3-tables-APIs.html).
        """
        return self.bucket.endswith("--table-s3")

    def arn(self, partition: str) -> str:
        """Return the ARN without a trailing slash."""
        return f"arn:{partition}:s3:::{self.bucket}/{self.key}".rstrip("/")

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"
