"""Addresses of objects and folders in S3, and the partition in ARNs."""

from __future__ import annotations

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
"""How the codes of regions begin, by the partitions that are not `aws`."""


def partition_of(region: str) -> str:
    """Return the partition of AWS that a region is in: the second part of its ARNs."""
    return next((name for beginning, name in _PARTITIONS if region.startswith(beginning)), "aws")


class S3Address(NamedTuple):
    """A bucket and a key in it; the key of a folder may end in a slash, that of the whole bucket is empty."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Return the bucket and key of `s3://bucket/key`. Hadoop's schemes `s3a` and `s3n` are accepted too.

        Keys are taken literally: `?`, `#` and `%` in them have no meaning. Raises ValueError for any other text.
        """
        scheme, _, rest = uri.partition("://")
        bucket, _, key = rest.partition("/")
        if scheme.lower() not in _SCHEMES or not bucket:
            raise ValueError(f"{uri} is not an address in S3")
        return cls(bucket, key)

    def arn(self, partition: str) -> str:
        """Return the ARN, without a slash at its end."""
        return f"arn:{partition}:s3:::{self.bucket}/{self.key}".rstrip("/")

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"
