"""What happens to a sync at a call of AWS: a kill, after which no call of it reaches AWS, or somebody else's work.

Two syncs may also take turns, at the calls that change something.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

from destination_datalake.aws.access import AwsAccess
from unit_tests.cloud import close_body
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

    With `operations`, others are not counted.
    """

    def __init__(
        self,
        kill: Kill | None,
        act: tuple[int, Callable[[], object]] | None = None,
        operations: Collection[str] | None = None,
    ) -> None:
        self.calls = 0
        self.killed = False
        self._operations = operations
        self._kill = kill
        self._act = act
        self._lock = threading.Lock()

    def before(self, model: Any = None, **_: object) -> None:
        with self._lock:
            if not self.killed and (self._operations is None or model.name in self._operations):
                self.calls += 1
                if self._act is not None and self._act[0] == self.calls:
                    self._act[1]()
                self.killed = self._is_due("before")
            if self.killed:
                raise Killed

    def after(self, parsed: Any, model: Any = None, **_: object) -> None:
        with self._lock:
            if self._operations is None or model.name in self._operations:
                self.killed = self.killed or self._is_due("after")
            if self.killed:
                close_body(parsed)
                raise Killed

    def _is_due(self, moment: str) -> bool:
        kill = self._kill
        return kill is not None and kill.moment == moment and self.calls == kill.call


@contextmanager
def watched(
    access: AwsAccess,
    kill: Kill | None,
    act: tuple[int, Callable[[], object]] | None = None,
    operations: Collection[str] | None = None,
) -> Iterator[Watch]:
    """Let this happen to whoever uses these clients, as long as this lasts."""
    watch = Watch(kill, act, operations)
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


class _Turns:
    """At each change it is drawn who goes on to its next change, while the other waits."""

    def __init__(self, random: Random, numbers: Collection[int]) -> None:
        self._random = random
        self._running = sorted(numbers)
        self._changed = threading.Condition()
        self._turn = random.choice(self._running)

    def wait(self, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == number or number not in self._running)

    def before(self, number: int, model: Any = None, **_: object) -> None:
        if model.name in CHANGES:
            self._draw()
            self.wait(number)

    def end(self, number: int) -> None:
        with self._changed:
            self._running.remove(number)
        self._draw()

    def _draw(self) -> None:
        with self._changed:
            if self._running:
                self._turn = self._random.choice(self._running)
            self._changed.notify_all()


def in_turns(random: Random, *syncs: tuple[AwsAccess, Callable[[], object]]) -> None:
    """Run syncs at once, each through clients of its own. Raises what one of them raises."""
    turns, errors = _Turns(random, range(len(syncs))), list[BaseException]()

    def run(number: int, access: AwsAccess, sync: Callable[[], object]) -> None:
        hook = partial(turns.before, number)
        clients: list[Any] = [access.client("s3"), access.client("glue")]
        for client in clients:
            client.meta.events.register_first("before-call", hook)
        try:
            turns.wait(number)
            sync()
        except BaseException as error:
            errors.append(error)
        finally:
            for client in clients:
                client.meta.events.unregister("before-call", hook)
            turns.end(number)

    threads = [threading.Thread(target=run, args=(number, *sync)) for number, sync in enumerate(syncs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
