"""The outcome of a sync: what has failed, what is published because it has not, and how that is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from destination_datalake.errors import Failure
from destination_datalake.sync.failures import incomplete, spark_gone, unacknowledgeable, uncommitted

if TYPE_CHECKING:
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.protocol.ledger import StateLedger
    from destination_datalake.protocol.statuses import Statuses
    from destination_datalake.protocol.stdout import Stdout
    from destination_datalake.sync.landing import Landing


class Outcome:
    """What has failed so far: streams, and what has ended the whole sync. The first failure of each counts.

    Not thread-safe: its owner locks.
    """

    def __init__(self, streams: Iterable[StreamId]) -> None:
        self._streams = tuple(streams)
        self._failures: dict[StreamId, Failure] = {}
        self.fatal: Failure | None = None

    @property
    def is_failure(self) -> bool:
        """Whether anything has failed."""
        return bool(self._failures) or self.fatal is not None

    @property
    def nothing_is_left(self) -> bool:
        """Whether all streams have failed, or the sync has."""
        return len(self._failures) == len(self._streams) or self.fatal is not None

    def has_failed(self, stream: StreamId) -> bool:
        """Whether the stream has."""
        return stream in self._failures

    def fail(self, stream: StreamId, failure: Failure) -> None:
        """Note that a stream has failed."""
        self._failures.setdefault(stream, failure)

    def stop(self, failure: Failure) -> None:
        """Note that the sync has."""
        self.fatal = self.fatal or failure

    def account(self, ledger: StateLedger, *, spark_has_gone: bool) -> None:
        """Fail every stream of which something was received and not committed: nothing is dropped without a word."""
        for stream in self._streams:
            received, committed = ledger.received(stream), ledger.committed(stream)
            if received == committed or stream in self._failures:
                continue
            if spark_has_gone:
                self.fail(stream, spark_gone(stream))
            elif ledger.is_blocked:
                self.fail(stream, unacknowledgeable(stream, next(iter(self._failures))))
            else:
                self.fail(stream, uncommitted(stream, received, committed))

    def publish(self, landing: Landing, statuses: Statuses) -> None:
        """Publish the streams that are complete, and note what keeps the others from it."""
        for stream in self._streams:
            failure = landing.preparation_failure(stream)
            if failure is not None:
                self.fail(stream, failure)
        complete = [s for s in self._streams if s not in self._failures and statuses.is_complete(s)]
        for stream, failure in landing.publish(complete).items():
            self.fail(stream, failure)
        for stream in self._streams:
            if not statuses.is_complete(stream):
                self.fail(stream, incomplete(stream))

    def tell(self, out: Stdout) -> None:
        """Write a TRACE ERROR for each failure."""
        for stream, failure in list(self._failures.items()):
            descriptor = (stream.namespace, stream.name)
            out.trace_error(failure.message, failure.detail, failure.type, descriptor)
        if self.fatal is not None:
            out.trace_error(self.fatal.message, self.fatal.detail, self.fatal.type)
