"""Outcomes: what became of a batch, what has failed in a sync, and the failures' messages for the user."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from destination_datalake.aws.errors import explain
from destination_datalake.buffer.batching import Batch
from destination_datalake.buffer.disk import DiskFailed
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.plan import RewriteFailed
from destination_datalake.protocol.messages import InputUnreadable, MalformedLine
from destination_datalake.protocol.stdout import Stdout, StdoutClosedError
from destination_datalake.rejects.ledger import RejectCounts
from destination_datalake.sync.intake import UnexpectedMessage
from destination_datalake.tables.table import CommitStateUnknown, TableBusy, TableConflict
from destination_datalake.unforeseen import unforeseen

if TYPE_CHECKING:
    from destination_datalake.buffer.backlog import SealFailed
    from destination_datalake.protocol.catalog import StreamId


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """Every record of the batch is in the table, or refused and among the rejects.

    The files have `rows`, and `sizes` in bytes. `partitions` is how many a task's records were of, on average.
    """

    batch: Batch
    counts: RejectCounts
    rows: int
    sizes: tuple[int, ...]
    partitions: float


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """The batch is not known to be in the table: its stream has failed."""

    batch: Batch
    failure: Failure


@dataclass(frozen=True, slots=True)
class BatchMalformed:
    """A line of the batch is no message, as its executor has found: none of it is in the table.

    `record` is the line's number (from 0) among the stream's records; the rest is as in MalformedLine.
    """

    batch: Batch
    record: int
    length: int
    reason: str


@dataclass(frozen=True, slots=True)
class BatchSkipped:
    """No state can acknowledge the batch any more, so it was not committed. Its files are deleted."""

    batch: Batch


BatchOutcome = BatchCommitted | BatchFailed | BatchMalformed | BatchSkipped


class SyncOutcome:
    """The failures of a sync: of its streams, and one that ends all of it. The first of each counts. Thread-safe."""

    def __init__(self, streams: Iterable[StreamId]) -> None:
        self._streams = frozenset(streams)
        self._lock = threading.Lock()
        self._failures: dict[StreamId, Failure] = {}
        self.fatal: Failure | None = None
        """Why the sync has failed as a whole; None if it has not."""

    @property
    def is_failure(self) -> bool:
        """Whether a stream or the sync has failed."""
        return self.is_stopped or bool(self._failures)

    @property
    def is_stopped(self) -> bool:
        """Whether the sync has failed as a whole."""
        return self.fatal is not None

    @property
    def all_failed(self) -> bool:
        """Whether the sync has failed as a whole, or every one of its streams has."""
        return self.is_stopped or len(self._failures) == len(self._streams)

    @property
    def first_failed(self) -> StreamId | None:
        """The stream that failed first."""
        return next(iter(self._failures), None)

    @property
    def failures(self) -> dict[StreamId, Failure]:
        """The first failure of each stream that has failed."""
        with self._lock:
            return dict(self._failures)

    def has_failed(self, stream: StreamId) -> bool:
        """Whether the stream has failed."""
        return stream in self._failures

    def fail(self, stream: StreamId, failure: Failure) -> bool:
        """Record that a stream has failed. Return False if it had already."""
        with self._lock:
            return self._failures.setdefault(stream, failure) is failure

    def stop(self, failure: Failure) -> None:
        """Record that the sync has failed as a whole."""
        with self._lock:
            self.fatal = self.fatal or failure

    def write_traces(self, out: Stdout) -> None:
        """Write a TRACE ERROR for each failure."""
        for stream, failure in self.failures.items():
            descriptor = (stream.namespace, stream.name)
            out.trace_error(failure.advice, failure.detail, failure.type, descriptor)
        if self.fatal is not None:
            out.trace_error(self.fatal.advice, self.fatal.detail, self.fatal.type)


# --- Errors -----------------------------------------------------------------------------------------------------------


def failure_of(error: BaseException, stream: StreamId, doing: str) -> Failure:
    """Return the failure of a stream for which `error` was raised. `doing` completes "Cannot … stream …"."""
    trace = _stack_trace(error)
    match error:
        case TableConflict():
            return Failure(str(error), trace, "config_error")
        case RewriteFailed(failure=failure):
            return failure
        case ConnectorError(failure=failure):
            return replace(failure, detail=trace)
        case TableBusy() | CommitStateUnknown():
            return Failure(str(error), trace, "transient_error")
    if (of_aws := explain(error, doing=doing, resource=f"stream {stream}")) is not None:
        return replace(of_aws, detail=f"{of_aws.detail}\n{trace}")
    return replace(unforeseen(f"Cannot {doing} stream {stream}", error), detail=trace)


def reading_failed(error: MalformedLine | UnexpectedMessage | InputUnreadable | DiskFailed) -> Failure:
    """Return the failure of a sync that cannot read on. What was received before is safe."""
    match error:
        case MalformedLine():
            message = (
                f"{error}. The source or the platform sent something that is not the Airbyte protocol; the records "
                "before it are safe. Run the sync again, and report it to the source's maintainers if it stays."
            )
            return Failure(message, str(error), "system_error")
        case UnexpectedMessage():
            return Failure(str(error), str(error), "system_error")
        case InputUnreadable():
            message = (
                f"{error}. Whatever starts the connector must give it the messages there. What was received is safe."
            )
            return Failure(message, _stack_trace(error), "system_error")
        case DiskFailed():
            message = (
                f"{error} What was received before is committed and its states are released; the next sync "
                "continues from there."
            )
            return Failure(message, _stack_trace(error), "transient_error")


def seal_failed(error: SealFailed) -> Failure:
    """A stream's buffered records cannot be handed to Spark."""
    return Failure(str(error), _stack_trace(error), "transient_error")


def states_not_written(error: Exception) -> Failure:
    """States cannot be written, so nothing more can be acknowledged."""
    match error:
        case StdoutClosedError():
            reason = "The platform closed the connector's output, or does not read it"
        case OSError():
            reason = f"The connector's output cannot be written ({error.strerror})"
        case DiskFailed():
            reason = f"A state could not be read back ({error})"
        case _:
            reason = f"A state could not be written (an unexpected {type(error).__name__})"
    message = f"{reason}: no further state can be released. The next sync continues from the last one that was."
    return Failure(message, _stack_trace(error), "system_error")


def unexpected(doing: str, error: BaseException) -> Failure:
    """An error that no other function here covers. `doing` completes "Cannot …"."""
    failure = unforeseen(f"Cannot {doing}", error)
    message = f"{failure.message} The next sync continues from the last state."
    return Failure(message, _stack_trace(error), failure.type)


# --- What is missing at the end ---------------------------------------------------------------------------------------


def spark_ended(stream: StreamId) -> Failure:
    """Spark ended while records of the stream were waiting for it."""
    message = f"Stream {stream}: Spark has ended, and records were waiting for it. The next sync sends them again."
    return Failure(message, "Spark has ended", "transient_error")


def input_not_read() -> Failure:
    """Spark ended when no records were waiting, and before the input did."""
    message = "Spark has stopped before the end of the input: the rest is not read. The next sync continues from there."
    return Failure(message, "Spark has ended", "transient_error")


def unacknowledgeable(stream: StreamId, failed: StreamId) -> Failure:
    """Records of the stream were not committed because another stream has failed and states are for all streams."""
    message = (
        f"Stream {stream} was stopped: stream {failed} has failed, and this source's states speak for all streams at "
        "once: nothing more could be acknowledged. The next sync sends its records again."
    )
    return Failure(message, "no state can acknowledge the records any more", "transient_error")


def uncommitted(stream: StreamId, received: int, committed: int) -> Failure:
    """Records are missing, for a reason that is not known."""
    message = f"Stream {stream}: {received} records were received and {committed} committed."
    return Failure(message, "records and rows do not match", "system_error")


def incomplete(stream: StreamId) -> Failure:
    """The source sent no COMPLETE status for the stream."""
    message = (
        f"Stream {stream} is incomplete: the source ended without the status COMPLETE for it. "
        "What was received is committed; no overwrite is published. The next sync continues from there."
    )
    return Failure(message, "no COMPLETE status", "transient_error")


def _stack_trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
