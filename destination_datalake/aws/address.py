"""Where things are: addresses of objects and folders in S3, regions, and the partition in ARNs."""

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
"""How the codes of regions begin, by the partitions that are not `aws`."""

_DIRECTIONS = frozenset(
    ("central", "east", "north", "northeast", "northwest", "south", "southeast", "southwest", "west")
)
"""What stands before the number of every region: a direction."""


def partition_of(region: str) -> str:
    """Return the partition of AWS that a region is in: the second part of its ARNs."""
    return next((name for beginning, name in _PARTITIONS if region.startswith(beginning)), "aws")


def is_misspelt(region: str) -> bool:
    """Return whether a code of a region's form is none, not even one that is newer than the SDK."""
    return region.split("-")[-2] not in _DIRECTIONS


def known_regions() -> Sequence[str]:
    """Return the regions of all partitions."""
    from botocore.loaders import create_loader

    partitions = create_loader().load_data("partitions")["partitions"]
    return sorted(region for partition in partitions for region in partition["regions"] if "global" not in region)


def nearest_region(region: str) -> str:
    """Return the known region whose code is most like this one, letters in a wrong order included."""

    def similarity(known: str) -> float:
        in_order = SequenceMatcher(None, region, known).ratio()
        return in_order + SequenceMatcher(None, sorted(region), sorted(known)).ratio()

    return max(known_regions(), key=similarity)


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

    @property
    def is_of_s3_tables(self) -> bool:
        """Whether the bucket is that of a table in Amazon S3 Tables: only AWS's own may have such a name.

        S3 lists and deletes no objects there; what the table does not refer to, the service removes
        (https://docs.aws.amazon.com/AmazonS3/latest/API/developing-s3-tables-APIs.html).
        """
        return self.bucket.endswith("--table-s3")

    def arn(self, partition: str) -> str:
        """Return the ARN, without a slash at its end."""
        return f"arn:{partition}:s3:::{self.bucket}/{self.key}".rstrip("/")

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"
