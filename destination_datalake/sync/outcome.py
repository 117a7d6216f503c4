"""The outcomes of batches and of a sync, and the user-facing messages about failures."""

from __future__ import annotations

import threading
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
from destination_datalake.unforeseen import trace_of, unforeseen

if TYPE_CHECKING:
    from destination_datalake.buffer.backlog import SealFailed
    from destination_datalake.protocol.catalog import StreamId


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """Outcome: the batch is committed. Each of its records is a row of the table or among the rejects.

    `rows` is the number of rows written, `sizes` contains the size of each file in bytes, and `partitions` is the
    average number of partitions per task.
    """

    batch: Batch
    counts: RejectCounts
    rows: int
    sizes: tuple[int, ...]
    partitions: float


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """Outcome: the batch failed, and its stream fails too. The table may nevertheless contain the batch's rows."""

    batch: Batch
    failure: Failure


@dataclass(frozen=True, slots=True)
class BatchSkipped:
    """Outcome: the batch was not committed, because no state could acknowledge its records. Its files are deleted."""

    batch: Batch


BatchOutcome = BatchCommitted | BatchFailed | BatchSkipped


class SyncOutcome:
    """Collects the first failure of each stream, and the first failure of the whole sync. Thread-safe."""

    def __init__(self, streams: Iterable[StreamId]) -> None:
        self._streams = frozenset(streams)
        self._lock = threading.Lock()
        self._failures: dict[StreamId, Failure] = {}
        self.fatal: Failure | None = None
        """The failure of the whole sync, or None."""

    @property
    def is_failure(self) -> bool:
        """Whether the whole sync or any stream has failed."""
        return self.is_stopped or bool(self._failures)

    @property
    def is_stopped(self) -> bool:
        """Whether the whole sync has failed, not only single streams."""
        return self.fatal is not None

    @property
    def all_failed(self) -> bool:
        """Whether no stream can still succeed: the whole sync or every stream has failed."""
        return self.is_stopped or len(self._failures) == len(self._streams)

    @property
    def first_failed(self) -> StreamId | None:
        """The stream that failed first, or None if no stream has failed."""
        return next(iter(self._failures), None)

    @property
    def failures(self) -> dict[StreamId, Failure]:
        """The first failure of each failed stream, in the order of the failures."""
        with self._lock:
            return dict(self._failures)

    def has_failed(self, stream: StreamId) -> bool:
        """Return whether the stream has failed."""
        return stream in self._failures

    def fail(self, stream: StreamId, failure: Failure) -> bool:
        """Record a stream's failure. Return False and keep the earlier failure if the stream has already failed."""
        with self._lock:
            return self._failures.setdefault(stream, failure) is failure

    def stop(self, failure: Failure) -> None:
        """Record the failure of the whole sync. Later failures are ignored."""
        with self._lock:
            self.fatal = self.fatal or failure

    def write_traces(self, out: Stdout) -> None:
        """Write one TRACE ERROR per failed stream, and one for the failure of the whole sync."""
        for stream, failure in self.failures.items():
            descriptor = (stream.namespace, stream.name)
            out.trace_error(failure.advice, failure.detail, failure.type, descriptor)
        if self.fatal is not None:
            out.trace_error(self.fatal.advice, self.fatal.detail, self.fatal.type)


# --- Errors -----------------------------------------------------------------------------------------------------------


def failure_of(error: BaseException, stream: StreamId, doing: str) -> Failure:
    """Convert an exception to a failure of the stream. `doing` is a verb phrase for "Cannot … stream {stream}"."""
    trace = trace_of(error)
    match error:
        case TableConflict():
            return Failure(str(error), trace, "config_error")
        # This case must precede ConnectorError, the base class.
        case RewriteFailed(failure=failure):
            return failure
        case ConnectorError(failure=failure):
            return replace(failure, detail=f"{failure.detail}\n{trace}")
        case TableBusy() | CommitStateUnknown():
            return Failure(str(error), trace, "transient_error")
    if (of_aws := explain(error, doing=doing, resource=f"stream {stream}")) is not None:
        return replace(of_aws, detail=f"{of_aws.detail}\n{trace}")
    return unforeseen(f"Cannot {doing} stream {stream}", error)


def reading_failed(error: MalformedLine | UnexpectedMessage | InputUnreadable | DiskFailed) -> Failure:
    """Return the failure for unreadable input. The sync still commits the records before the error."""
    match error:
        case MalformedLine():
            message = (
                f"{error}. The connector commits the records before this line. Run the sync again. If the error "
                "recurs, report it to the maintainers of the source."
            )
            return Failure(message, str(error), "system_error")
        case UnexpectedMessage():
            return Failure(str(error), str(error), "system_error")
        case InputUnreadable():
            message = (
                f"{error}. The connector commits the records that it received. Pipe the messages to the command write, "
                "and run the sync again."
            )
            return Failure(message, trace_of(error), "system_error")
        case DiskFailed():
            message = (
                f"{error} The connector commits the records that it received. The next sync continues from the last "
                "released state."
            )
            return Failure(message, trace_of(error), "transient_error")


def seal_failed(error: SealFailed) -> Failure:
    """Return the failure of a stream whose buffered records cannot be passed to Spark."""
    return Failure(str(error), trace_of(error), "transient_error")


def states_not_written(error: Exception) -> Failure:
    """Return the failure of a sync that cannot write states, and therefore cannot acknowledge more records."""
    match error:
        case StdoutClosedError():
            reason = "The platform closed standard output, or stopped reading it"
        case OSError():
            reason = f"Cannot write to standard output ({error.strerror})"
        case DiskFailed():
            reason = f"Cannot read a buffered state. {str(error).removesuffix('.')}"
        case _:
            reason = f"Cannot write a state: an unexpected {type(error).__name__}"
    message = f"{reason}. The sync releases no further states. The next sync continues from the last released state."
    return Failure(message, trace_of(error), "system_error")


def unexpected(doing: str, error: BaseException) -> Failure:
    """Return the sync's failure for an unexpected exception. `doing` is a verb phrase for "Cannot {doing}"."""
    failure = unforeseen(f"Cannot {doing}", error)
    return replace(failure, message=f"{failure.message} The next sync continues from the last released state.")


# --- Missing records at the end ---------------------------------------------------------------------------------------


def spark_ended(stream: StreamId) -> Failure:
    """Return the failure of a stream whose queued records were not written because Spark ended."""
    message = (
        f"Spark ended before it wrote all received records of stream {stream}. Run the sync again: the source sends "
        "the missing records again."
    )
    return Failure(message, "Spark has ended", "transient_error")


def input_not_read() -> Failure:
    """Return the failure of a sync whose Spark ended before the input did, while no records were queued."""
    message = "Spark ended before the end of the input. Run the sync again: it continues from the last released state."
    return Failure(message, "Spark has ended", "transient_error")


def unacknowledgeable(stream: StreamId, failed: StreamId) -> Failure:
    """Return the failure of `stream`, which was stopped because `failed` failed and all states are global.

    A global state covers all streams, so the sync can emit no further state.
    """
    message = (
        f"The connector stopped stream {stream} because stream {failed} has failed. The source sends global states, "
        "which cover all streams, so no state can acknowledge further records. Correct the error of stream "
        f"{failed}, and run the sync again."
    )
    return Failure(message, "no state can acknowledge the records", "transient_error")


def uncommitted(stream: StreamId, received: int, committed: int) -> Failure:
    """Return the failure of a stream whose records are not all committed, for an unknown reason."""
    message = (
        f"Stream {stream}: the connector received {received:,} records, but committed {committed:,}. Run the sync "
        "again. If the error recurs, report it to the maintainers of the connector."
    )
    return Failure(message, "records and rows do not match", "system_error")


def incomplete(stream: StreamId) -> Failure:
    """Return the failure of a stream for which the source reported an error, or did not report the status COMPLETE."""
    message = (
        f"Stream {stream} is incomplete: the source reported an error, or did not report the status COMPLETE. The "
        "connector committed the received records, but published no overwrite. Run the sync again: it continues from "
        "the last state."
    )
    return Failure(message, "an error of the source, or no COMPLETE status", "transient_error")
