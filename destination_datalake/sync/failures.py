"""What keeps a stream, or the whole sync, from success: the sentence for the user, the detail, and whose turn it is."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

from destination_datalake.aws.errors import explain
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.plan import RewriteFailed
from destination_datalake.tables.table import CommitStateUnknown, TableBusy, TableConflict

if TYPE_CHECKING:
    from destination_datalake.buffer.disk import DiskFailed
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.protocol.messages import MalformedLine


def failure_of(error: BaseException, stream: StreamId, doing: str) -> Failure:
    """Say what an exception means for a stream. `doing` completes "Cannot … stream …"."""
    trace = trace_of(error)
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
    return Failure(f"Cannot {doing} stream {stream}: {type(error).__name__}.", trace, "system_error")


def malformed_input(error: MalformedLine) -> Failure:
    """The input is not the Airbyte protocol."""
    message = (
        f"{error}. The source or the platform sent something that is not the Airbyte protocol; the records "
        "before it are safe. Run the sync again, and report it to the source's maintainers if it stays."
    )
    return Failure(message, str(error), "system_error")


def disk_failed(error: DiskFailed) -> Failure:
    """Nothing more can wait on the disk."""
    message = (
        f"{error} What was received before that is in its tables, and acknowledged where the source asked for it; the "
        "next sync goes on from there."
    )
    return Failure(message, trace_of(error), "transient_error")


def unexpected(doing: str, error: BaseException) -> Failure:
    """Something that nobody has thought of. `doing` completes "Cannot …"."""
    message = f"Cannot {doing}: an unexpected {type(error).__name__}. The next sync goes on from the last state."
    return Failure(message, trace_of(error), "system_error")


def no_states(what: str, error: BaseException) -> Failure:
    """States cannot be written, so that nothing more can be acknowledged. `what` is the sentence's beginning."""
    message = f"{what}: no state can be acknowledged any more. The next sync goes on from the last one that was."
    return Failure(message, trace_of(error), "system_error")


def spark_gone(stream: StreamId) -> Failure:
    """Records of the stream were waiting when Spark died."""
    message = f"Stream {stream}: Spark has gone, and records were waiting for it. The next sync sends them again."
    return Failure(message, "Spark has gone", "transient_error")


def unread() -> Failure:
    """Spark died when no records were waiting, but more were to come."""
    message = "Spark has gone before the input had ended: the rest was not read. The next sync goes on from there."
    return Failure(message, "Spark has gone", "transient_error")


def unacknowledgeable(stream: StreamId, failed: StreamId) -> Failure:
    """Records of the stream were not written because another one has failed and they share their states."""
    message = (
        f"Stream {stream} was stopped: stream {failed} has failed, and this source's states speak for all streams at "
        "once: nothing more could be acknowledged. The next sync sends its records again."
    )
    return Failure(message, "no state can speak for the records any more", "transient_error")


def uncommitted(stream: StreamId, received: int, committed: int) -> Failure:
    """Records were lost, and nobody knows where."""
    message = f"Stream {stream}: {received} records were received and {committed} committed."
    return Failure(message, "records and rows do not match", "system_error")


def incomplete(stream: StreamId) -> Failure:
    """The source did not finish the stream."""
    message = (
        f"Stream {stream} is incomplete: the source ended without saying that all its records were sent. "
        "What was received is committed; nothing was replaced. The next sync goes on from there."
    )
    return Failure(message, "no COMPLETE status", "transient_error")


def trace_of(error: BaseException) -> str:
    """The stack trace, for the log."""
    return "".join(traceback.format_exception(error))
