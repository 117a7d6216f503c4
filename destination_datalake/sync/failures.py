"""What keeps a stream, or the whole sync, from success: the sentence for the user, the detail, and whose turn it is."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destination_datalake.aws.errors import explain
from destination_datalake.files.plan import RewriteFailed
from destination_datalake.spark.failure import SparkFailed
from destination_datalake.tables.table import CommitStateUnknown, TableBusy, TableConflict

if TYPE_CHECKING:
    from destination_datalake.buffer.disk import DiskFailed
    from destination_datalake.errors import FailureType
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.protocol.messages import MalformedLine


@dataclass(frozen=True, slots=True)
class StreamFailure:
    """Why a stream's records could not be landed: for the user, for the log, and whose turn it is."""

    message: str
    internal_message: str
    failure_type: FailureType


def failure_of(error: BaseException, stream: StreamId, doing: str) -> StreamFailure:
    """Say what an exception means for a stream. `doing` completes "Cannot … stream …"."""
    trace = trace_of(error)
    match error:
        case TableConflict():
            return StreamFailure(str(error), trace, "config_error")
        case RewriteFailed(failure=cause):
            return StreamFailure(cause.message, cause.internal_message, cause.failure_type)
        case SparkFailed():
            return StreamFailure(str(error), trace, error.failure_type)
        case TableBusy() | CommitStateUnknown():
            return StreamFailure(str(error), trace, "transient_error")
    failure = explain(error, doing=doing, resource=f"stream {stream}")
    if failure is not None:
        return StreamFailure(failure.message, f"{failure.detail}\n{trace}", failure.failure_type)
    return StreamFailure(f"Cannot {doing} stream {stream}: {type(error).__name__}.", trace, "system_error")


def malformed_input(error: MalformedLine) -> StreamFailure:
    """The input is not the Airbyte protocol."""
    message = (
        f"{error}. The source or the platform sent something that is not the Airbyte protocol; the records "
        "before it are safe. Run the sync again, and report it to the source's maintainers if it stays."
    )
    return StreamFailure(message, str(error), "system_error")


def disk_failed(error: DiskFailed) -> StreamFailure:
    """Nothing more can wait on the disk."""
    message = (
        f"{error} What was received before that is in its tables, and acknowledged where the source asked for it; the "
        "next sync goes on from there."
    )
    return StreamFailure(message, trace_of(error), "transient_error")


def unexpected(doing: str, error: BaseException) -> StreamFailure:
    """Something that nobody has thought of. `doing` completes "Cannot …"."""
    message = f"Cannot {doing}: an unexpected {type(error).__name__}. The next sync goes on from the last state."
    return StreamFailure(message, trace_of(error), "system_error")


def no_states(what: str, error: BaseException) -> StreamFailure:
    """States cannot be written, so that nothing more can be acknowledged. `what` is the sentence's beginning."""
    message = f"{what}: no state can be acknowledged any more. The next sync goes on from the last one that was."
    return StreamFailure(message, trace_of(error), "system_error")


def spark_gone(stream: StreamId) -> StreamFailure:
    """Records of the stream were waiting when Spark died."""
    message = f"Stream {stream}: Spark has gone, and records were waiting for it. The next sync sends them again."
    return StreamFailure(message, "Spark has gone", "transient_error")


def unread() -> StreamFailure:
    """Spark died when no records were waiting, but more were to come."""
    message = "Spark has gone before the input had ended: the rest was not read. The next sync goes on from there."
    return StreamFailure(message, "Spark has gone", "transient_error")


def unacknowledgeable(stream: StreamId, failed: StreamId) -> StreamFailure:
    """Records of the stream were not written because another one has failed and they share their states."""
    message = (
        f"Stream {stream} was stopped: stream {failed} has failed, and this source's states speak for all streams at "
        "once: nothing more could be acknowledged. The next sync sends its records again."
    )
    return StreamFailure(message, "no state can speak for the records any more", "transient_error")


def uncommitted(stream: StreamId, received: int, committed: int) -> StreamFailure:
    """Records were lost, and nobody knows where."""
    message = f"Stream {stream}: {received} records were received and {committed} committed."
    return StreamFailure(message, "records and rows do not match", "system_error")


def incomplete(stream: StreamId) -> StreamFailure:
    """The source did not finish the stream."""
    message = (
        f"Stream {stream} is incomplete: the source ended without saying that all its records were sent. "
        "What was received is committed; nothing was replaced. The next sync goes on from there."
    )
    return StreamFailure(message, "no COMPLETE status", "transient_error")


def trace_of(error: BaseException) -> str:
    """The stack trace, for the log."""
    return "".join(traceback.format_exception(error))
