"""The interface of what provides a Spark Connect server, and how it is reached."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

Headers = Callable[[], tuple[tuple[str, str], ...]]
"""Returns what is added to each call as gRPC metadata, with names in lower case. Called for each, from any thread.

Raises SessionEnded or SparkFailed.
"""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How a server is reached: `sc://host:port/;name=value`, a bearer token, and what each call has besides.

    https://github.com/apache/spark/blob/master/sql/connect/docs/client-connection-string.md
    """

    url: str
    token: str | None = field(default=None, repr=False)
    headers: Headers | None = field(default=None, repr=False)


class SessionEnded(Exception):
    """A session that was launched has ended, and another has to be. Its text, in gRPC's words, tells so."""

    MARK = "the session has ended"

    def __init__(self, reason: str) -> None:
        super().__init__(f"{self.MARK}: {reason}")


class Launcher(Protocol):
    """Provides Spark Connect servers, one after the other: the next when the last one's session has ended."""

    @property
    def name(self) -> str:
        """What messages call it, such as "the Spark Connect server sc://spark:15002"."""

    @property
    def is_fresh(self) -> bool:
        """Whether each launch starts a Spark of its own, with `spark.conf`; one that is there already has its own."""

    def launch(self, stopping: threading.Event) -> Endpoint:
        """Return the endpoint of a server that is ready; wait for it until `stopping` is set. Raises SparkFailed."""

    def end(self) -> None:
        """End what the last `launch` has started, as far as possible. Does not raise; may be called again."""
