"""Retries with exponential backoff and jitter.

They are mainly for conflicts of optimistic concurrency: read, plan, and write if nothing has changed since the read.
botocore retries throttled and failed requests itself (`AwsAccess.attempts`).
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
    # 0.1 to 0.2 s after the first attempt, doubled after each further one: 13 to 25 s in total.
    "wait": wait_exponential(multiplier=0.1) + wait_random_exponential(multiplier=0.1),
}


def retry_on(failure: type[Exception] | tuple[type[Exception], ...], attempt: Callable[[], _Result]) -> _Result:
    """Return the result of `attempt`, which is retried if it raises `failure`, up to eight attempts.

    Raises the last failure, and any other exception immediately.
    """
    return Retrying(retry=retry_if_exception_type(failure), reraise=True, **_SCHEDULE)(attempt)


def retry_until_done(attempt: Callable[[], bool]) -> bool:
    """Call `attempt` until it returns True, up to eight times. Return whether it did.

    Raises exceptions of an attempt immediately.
    """
    retrying = Retrying(retry=retry_if_result(lambda done: not done), retry_error_callback=lambda _: False, **_SCHEDULE)
    return retrying(attempt)
