"""Addresses of objects and folders in S3."""

from __future__ import annotations

from typing import NamedTuple, Self

_SCHEMES = ("s3", "s3a", "s3n")


class S3Address(NamedTuple):
    """A bucket and a key in it; the key of a folder may end in a slash, that of the whole bucket is empty."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Return what `s3://bucket/key` names. Hadoop's `s3a://` and `s3n://` mean the same.

        A key is taken as it is: `?`, `#` and `%` in it are letters like others, not parts of a URL. Raises ValueError
        for any other address.
        """
        scheme, _, rest = uri.partition("://")
        bucket, _, key = rest.partition("/")
        if scheme.lower() not in _SCHEMES or not bucket:
            raise ValueError(f"{uri} is not an address in S3")
        return cls(bucket, key)

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"
