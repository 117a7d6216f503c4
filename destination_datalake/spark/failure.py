"""Failures of Spark, with what the user can do: it did not start, gave up a job, or ended."""

from __future__ import annotations

import re
from collections.abc import Sequence

from destination_datalake.errors import ConnectorError, Failure, FailureType
from destination_datalake.files.tasks import NotEncoded
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.spark.java import JavaUnusable, find_java
from destination_datalake.spark.pyspark_internals import java_exception_text


class SparkFailed(ConnectorError):
    """Spark did not start, or has ended. The message says what the user can do; the cause has the details."""

    def __init__(self, message: str, type: FailureType = "transient_error") -> None:
        super().__init__(Failure(message, message, type))


def start_failure(error: BaseException, output: Sequence[str], master: str) -> SparkFailed:
    """Return why Spark did not start on `master`; `error` is what PySpark raised, `output` what the JVM printed."""
    try:
        find_java()
    except JavaUnusable as unusable:
        return SparkFailed(f"Spark did not start. {unusable}", "config_error")
    reason = _reason(error, output)
    because = f"Spark did not start: {reason}"
    if _MEMORY.search("\n".join([reason, *output])):
        return SparkFailed(
            f"{because}. The machine or container does not have the memory that Spark's JVM needs: give it more, or "
            "lower spark.driver.memory in spark.conf.",
            "transient_error",
        )
    if _UNREACHABLE.search(reason) and not master.startswith("local"):
        return SparkFailed(
            f"Spark did not start: {master} did not answer ({reason}). Is it up, and can this machine reach it? "
            "Otherwise correct spark.master.",
            "transient_error",
        )
    if _SETTING.search(reason):
        return SparkFailed(f"{because}. Correct spark.master or spark.conf.", "config_error")
    return SparkFailed(f"{because}. The log has the details.", "transient_error")


class JobFailed(SparkFailed):
    """Spark has given up a job, and is able to run others."""

    def __init__(self) -> None:
        super().__init__(
            "Spark could not run a job. If the machine ran out of memory give it more, or lower batch_size_mb; "
            "the sync can be run again and continues from its last state."
        )


def worker_failure(stream: StreamId, error: JobFailed) -> NotEncoded:
    """Return the result of a unit whose worker died in every attempt; `error` is what its job failed of."""
    detail = java_exception_text(error.__cause__) or str(error.__cause__)
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


_MEMORY = re.compile(
    r"insufficient memory|Could not reserve enough space|Cannot allocate memory|OutOfMemoryError|"
    r"unable to create native thread",
    re.IGNORECASE,
)
_UNREACHABLE = re.compile(
    r"All masters are unresponsive|stopped SparkContext|Connection refused|UnknownHostException|No route to host|"
    r"Failed to connect|timed out",
    re.IGNORECASE,
)
_SETTING = re.compile(
    r"IllegalArgumentException|NumberFormatException|SparkException|SparkIllegalArgument|ClassNotFound|Unrecognized|"
    r"Could not create the Java Virtual Machine|Invalid|Master must|not found|unresolved|Exception in thread \"main\"|"
    r"^Error: |BindException",
)
_ERROR = re.compile(
    # "Error occurred during initialization of VM" is followed by what it was.
    r"(?:Error|Exception)\b(?! occurred)|^Invalid|^Unrecognized|insufficient memory|reserve enough space"
)
_LONGEST_REASON = 300


def _reason(error: BaseException, output: Sequence[str]) -> str:
    """Return the first line of the JVM's exception, else the first line of its output that reports an error."""
    thrown = java_exception_text(error)
    lines = thrown.splitlines() if thrown is not None else [line for line in output if _ERROR.search(line)]
    line = next((line.strip() for line in lines if line.strip()), f"{type(error).__name__}: {error}")
    return line.rstrip(".")[:_LONGEST_REASON]
