"""Failures of a Spark that had started, with what the user can do: it gave up a job, or ended."""

from __future__ import annotations

import re

from destination_datalake.errors import ConnectorError, Failure, FailureType
from destination_datalake.files.tasks import NotEncoded
from destination_datalake.protocol.catalog import StreamId


class SparkFailed(ConnectorError):
    """Spark did not start, or has ended. The message says what the user can do; the cause has the details."""

    def __init__(self, message: str, type: FailureType = "transient_error") -> None:
        super().__init__(Failure(message, message, type))


class JobFailed(SparkFailed):
    """Spark has given up a job, and is able to run others."""

    def __init__(self, detail: str) -> None:
        """`detail` is what Spark says of it, with stack traces."""
        self.detail = detail
        super().__init__(
            "Spark could not run a job. If the machine ran out of memory give it more, or lower batch_size_mb; "
            "the sync can be run again and continues from its last state."
        )


def worker_failure(stream: StreamId, error: JobFailed) -> NotEncoded:
    """Return the result of a unit whose worker died in every attempt; `error` is what its job failed of."""
    detail = error.detail
    crash = _CRASH.search(detail)
    if crash is not None:
        message = (
            f"Stream {stream} could not be written: the process that encodes its records crashed ({crash[1]}), each "
            "time it was tried. This is a defect of the connector or of a library in it; please report it. Other "
            "streams continue without this one."
        )
        return NotEncoded(stream, Failure(message, detail, "system_error"))
    message = (
        f"Stream {stream} could not be written: the process that encodes its records was ended from outside, or could "
        "not run, each time it was tried. If the machine or container ran out of memory give it more, or lower "
        "batch_size_mb. Other streams continue without this one; the next sync continues from its last state."
    )
    return NotEncoded(stream, Failure(message, detail, "transient_error"))


_CRASH = re.compile(r"Fatal Python error: ([A-Za-z ]+)")


def end_failure(exit_code: int | None) -> SparkFailed:
    """Return that Spark has ended. `exit_code` is the JVM's, negative for a signal; None if the JVM has not ended."""
    what = "Spark" if exit_code is None else "Spark's Java process"
    how = "" if exit_code is None else f" (signal {-exit_code})" if exit_code < 0 else f" (exit code {exit_code})"
    return SparkFailed(
        f"{what} has ended{how} in the middle of the sync. If the machine ran out of memory give it "
        "more, or lower batch_size_mb; the sync can be run again and continues from its last state."
    )
