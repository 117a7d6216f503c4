"""The receiving end of a shuffle, on executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TypeVar

_Result = TypeVar("_Result")


def consumed(
    consume: Callable[[int, Iterator[bytes]], Iterable[_Result]], rows: Iterable[tuple[int, bytes]]
) -> Iterable[_Result]:
    """Consume the rows of one partition of a shuffle, all of which have the partition's number."""
    remaining = iter(rows)
    first = next(remaining, None)
    if first is None:
        return ()
    return consume(first[0], (payload for _, payload in chain((first,), remaining)))
