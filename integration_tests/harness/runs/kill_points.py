"""Kill a run of the connector at a chosen function call, as if the power of the machine failed.

The connector contains no code for this. The function is replaced by one that kills the process before or after its n-th
call.
"""

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any, Literal


@dataclass(frozen=True)
class KillPoint:
    """A point before or after the `call`-th call, counted from 1, of `function` (`package.module:Class.method`)."""

    moment: Literal["before", "after"]
    function: str
    call: int = 1

    def __str__(self) -> str:
        ordinal = "" if self.call == 1 else f" (call {self.call})"
        return f"{self.moment} {self.function.rpartition(':')[2]}{ordinal}"


def arm(point: KillPoint) -> None:
    """Arrange that this process kills itself at the point. Raises AttributeError if the function does not exist."""
    module, _, path = point.function.partition(":")
    owner: Any = import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, _dying(getattr(owner, name), point))


def _dying(function: Callable[..., Any], point: KillPoint) -> Callable[..., Any]:
    calls = 0
    lock = threading.Lock()

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        with lock:
            calls += 1
            mine = calls
        if point.moment == "before" and mine == point.call:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return function(*args, **kwargs)
        finally:
            if point.moment == "after" and mine == point.call:
                os.kill(os.getpid(), signal.SIGKILL)

    return call
