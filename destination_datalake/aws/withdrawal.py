"""Withdrawal: what a failed or unwanted commit wrote is removed from S3. Uploads are aborted, objects are deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class Withdrawable(Protocol):
    """Something written to S3 that can be removed again: an object, or a pending upload."""

    def withdraw(self, s3: S3Client) -> None:
        """Remove it. Idempotent."""


def withdraw_all(objects: Iterable[Withdrawable], s3: S3Client) -> None:
    """Withdraw every object, also when others fail. Raises one of the failures, if any."""
    with ExitStack() as withdrawals:
        for written in objects:
            withdrawals.callback(written.withdraw, s3)


@contextmanager
def undone_on_failure(*steps: Callable[[], None]) -> Iterator[None]:
    """Take every step if the body raises, and raise the body's error; steps that fail add a note to it.

    Where S3 refuses the parts of an upload it mostly refuses to abort the upload too.
    """
    try:
        yield
    except Exception as error:
        for step in steps:
            try:
                step()
            except Exception as another:
                error.add_note(f"What it wrote could not all be removed: {type(another).__name__}")
        raise
