"""Objects that nobody will hold are removed from S3 again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class Withdrawable(Protocol):
    """An object in S3 that was written and can be taken back."""

    def withdraw(self, s3: S3Client) -> None:
        """Remove it."""


def withdraw_all(objects: Iterable[Withdrawable], s3: S3Client) -> None:
    """Remove the objects: each, whichever of the others cannot be. Raises what one of those failed of."""
    with ExitStack() as withdrawals:
        for written in objects:
            withdrawals.callback(written.withdraw, s3)
