"""What happens to a sync at a call of AWS: a kill, after which no call of it reaches AWS, or somebody else's work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from destination_datalake.aws.access import AwsAccess
from unit_tests.laws.dedup.histories import Kill


class Killed(BaseException):
    """The process is gone: nothing of it runs any more, as no `except Exception` catches it."""


CHANGES = frozenset(
    (
        *("AbortMultipartUpload", "CompleteMultipartUpload", "CopyObject", "CreateMultipartUpload", "DeleteObject"),
        *("DeleteObjects", "PutObject", "UploadPart", "UploadPartCopy"),
        *("BatchCreatePartition", "BatchDeletePartition", "BatchUpdatePartition", "CreateTable", "UpdateTable"),
    )
)
"""Calls of AWS that change something."""


class Watch:
    """Counts the calls of a sync. Kills it, or does something else before the call of a number, from 1.

    With `only`, operations of other names are not counted.
    """

    def __init__(
        self,
        kill: Kill | None,
        act: tuple[int, Callable[[], object]] | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        self.calls = 0
        self.killed = False
        self._only = only
        self._kill = kill
        self._act = act
        self._lock = threading.Lock()

    def before(self, model: Any = None, **_: object) -> None:
        with self._lock:
            if not self.killed and (self._only is None or model.name in self._only):
                self.calls += 1
                if self._act is not None and self._act[0] == self.calls:
                    self._act[1]()
                self.killed = self._is_due("before")
            if self.killed:
                raise Killed

    def after(self, model: Any = None, **_: object) -> None:
        with self._lock:
            if self._only is None or model.name in self._only:
                self.killed = self.killed or self._is_due("after")
            if self.killed:
                raise Killed

    def _is_due(self, moment: str) -> bool:
        kill = self._kill
        return kill is not None and kill.moment == moment and self.calls == kill.call


@contextmanager
def watched(
    access: AwsAccess,
    kill: Kill | None,
    act: tuple[int, Callable[[], object]] | None = None,
    only: Collection[str] | None = None,
) -> Iterator[Watch]:
    """Let this happen to whoever uses these clients, as long as this lasts."""
    watch = Watch(kill, act, only)
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
