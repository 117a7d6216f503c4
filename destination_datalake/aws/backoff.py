"""Repeat an attempt with exponential backoff and jitter.

Above all one that another writer's change made vain: optimistic concurrency reads, plans, and writes on condition that
nothing has changed since it read. Requests that AWS throttles or fails are repeated by botocore: `AwsAccess.attempts`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tenacity import (
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    wait_exponential,
    wait_random_exponential,
)

_Result = TypeVar("_Result")

_SCHEDULE: dict[str, Any] = {
    "stop": stop_after_attempt(8),
    # Between 0.1 and 0.2 s after the first attempt, twice that after each further one: 13 to 25 s in all.
    "wait": wait_exponential(multiplier=0.1) + wait_random_exponential(multiplier=0.1),
}


def retry_on(failure: type[Exception] | tuple[type[Exception], ...], attempt: Callable[[], _Result]) -> _Result:
    """Return what `attempt` returns, called again whenever it raises `failure`: eight times at most.

    Raises what the last attempt raised, and any other exception at once.
    """
    return Retrying(retry=retry_if_exception_type(failure), reraise=True, **_SCHEDULE)(attempt)


def retry_until_done(attempt: Callable[[], bool]) -> bool:
    """Call `attempt` until it returns True, eight times at most; return whether it did.

    Raises what an attempt raises, at once.
    """
    retrying = Retrying(retry=retry_if_result(lambda done: not done), retry_error_callback=lambda _: False, **_SCHEDULE)
    return retrying(attempt)
