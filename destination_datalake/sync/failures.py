"""The failures of a stream or of the whole sync: the message for the user, the detail for the log, the type."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

from destination_datalake.aws.errors import explain
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.plan import RewriteFailed
from destination_datalake.tables.table import CommitStateUnknown, TableBusy, TableConflict
from destination_datalake.unforeseen import unforeseen

if TYPE_CHECKING:
    from destination_datalake.buffer.backlog import SealFailed
    from destination_datalake.buffer.disk import DiskFailed
    from destination_datalake.protocol.catalog import StreamId
    from destination_datalake.protocol.messages import MalformedLine
    from destination_datalake.protocol.stdin import InputUnreadable
    from destination_datalake.sync.intake import RefusedMessage

# --- What was raised --------------------------------------------------------------------------------------------------


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


def malformed_line(error: MalformedLine) -> Failure:
    """The input is not the Airbyte protocol."""
    message = (
        f"{error}. The source or the platform sent something that is not the Airbyte protocol; the records "
        "before it are safe. Run the sync again, and report it to the source's maintainers if it stays."
    )
    return Failure(message, str(error), "system_error")


def refused_message(error: RefusedMessage) -> Failure:
    """A message of the protocol does not belong to this sync."""
    return Failure(str(error), str(error), "system_error")


def input_unreadable(error: InputUnreadable) -> Failure:
    """What the connector was given as its input is none."""
    message = f"{error}. Whatever starts the connector must give it the messages there. What was received is safe."
    return Failure(message, _stack_trace(error), "system_error")


def disk_failed(error: DiskFailed) -> Failure:
    """The local disk takes no more records."""
    message = (
        f"{error} What was received before is committed and its states are released; the next sync "
        "continues from there."
    )
    return Failure(message, _stack_trace(error), "transient_error")


def seal_failed(error: SealFailed) -> Failure:
    """A stream's buffered records cannot be handed to Spark."""
    return Failure(str(error), _stack_trace(error), "transient_error")


def states_not_written(reason: str, error: BaseException) -> Failure:
    """States cannot be written, so nothing more can be acknowledged. `reason` begins the sentence."""
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
