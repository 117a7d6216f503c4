"""A module that is sent to executors as source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


def added(number: int, numbers: Iterable[int]) -> list[int]:
    """Add a number to each."""
    return [total(number, addend) for addend in numbers]


def total(first: int, second: int) -> int:
    """Another function of the module."""
    return first + second


def applied(work: Callable[[Iterable[int]], Iterable[int]], numbers: Iterable[int]) -> Iterator[int]:
    """Let the work have the numbers."""
    yield from work(numbers)
