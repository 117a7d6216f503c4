"""Kills at a call of AWS: from then on, no call that the process makes reaches AWS."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from destination_datalake.aws.access import AwsAccess
from unit_tests.laws.dedup.histories import Kill


class Killed(BaseException):
    """The process is gone: nothing of it runs any more, as no `except Exception` catches it."""


class Watch:
    """Counts the calls of a sync, and kills it."""

    def __init__(self, kill: Kill | None) -> None:
        self.calls: list[str] = []
        self.killed = False
        self._kill = kill
        self._lock = threading.Lock()

    def before(self, event_name: str, **_: object) -> None:
        with self._lock:
            if not self.killed:
                self.calls.append(event_name.removeprefix("before-call."))
                self.killed = self._is_due("before")
            if self.killed:
                raise Killed

    def after(self, **_: object) -> None:
        with self._lock:
            self.killed = self.killed or self._is_due("after")
            if self.killed:
                raise Killed

    def _is_due(self, moment: str) -> bool:
        kill = self._kill
        return kill is not None and kill.moment == moment and len(self.calls) == kill.call


@contextmanager
def watched(access: AwsAccess, kill: Kill | None) -> Iterator[Watch]:
    """Kill what uses these clients, as long as this lasts."""
    watch = Watch(kill)
    clients: list[Any] = [access.client("s3"), access.client("glue")]
    for client in clients:
        client.meta.events.register_first("before-call", watch.before)
        client.meta.events.register_first("after-call", watch.after)
    try:
        yield watch
    finally:
        for client in clients:
            client.meta.events.unregister("before-call", watch.before)
            client.meta.events.unregister("after-call", watch.after)
