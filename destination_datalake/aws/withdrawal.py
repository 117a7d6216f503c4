"""Objects that nobody will hold are removed from S3 again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
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


@contextmanager
def undone_on_failure(*steps: Callable[[], None]) -> Iterator[None]:
    """If the body fails take every step, and raise what the body failed of, whatever steps fail too: notes name those.

    An S3 that takes no part of an upload mostly does not let it be aborted either.
    """
    try:
        yield
    except Exception as error:
        for step in steps:
            try:
                step()
            except Exception as another:
                error.add_note(f"What it left could not all be removed: {type(another).__name__}")
        raise
