"""How a resource is made from its properties."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from integration_tests.infra.template import Made

Properties: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Aws:
    """The account in which a stack is deployed. `client` returns a boto3 client for a service."""

    stack: str
    account: str
    region: str
    client: Callable[[str], Any]

    def name(self, logical_name: str) -> str:
        """Return the name of a resource whose properties give it none."""
        return f"{self.stack}-{logical_name}"


Put: TypeAlias = Callable[[Aws, str, Properties, Made | None], Made]
"""Make a resource with this logical name, or change the one that exists, to what the properties say."""


@contextmanager
def every(properties: Properties) -> Iterator[Properties]:
    """Lend properties to take from; fail if one is left: nothing that a template says is dropped silently."""
    rest = dict(properties)
    yield rest
    assert not rest, f"properties that are not applied: {sorted(rest)}"
