"""Why a Spark with a driver of our own did not start, from what PySpark raised and what the JVM printed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from destination_datalake.spark.classic.pyspark_internals import java_exception_text
from destination_datalake.spark.failure import SparkFailed
from destination_datalake.spark.java import JavaUnusable, find_java
from destination_datalake.unforeseen import exhaustion


def start_failure(error: BaseException, output: Sequence[str], master: str) -> SparkFailed:
    """Return why Spark did not start on `master`; `error` is what PySpark raised, `output` what the JVM printed."""
    reason = _reason(error, output)
    because = f"Spark did not start: {reason}"
    if (exhausted := exhaustion(error, "\n".join([reason, *output]))) is not None:
        return SparkFailed(f"{because}. {exhausted}")
    try:
        find_java()
    except JavaUnusable as unusable:
        return SparkFailed(f"Spark did not start. {unusable}", unusable.failure.type)
    if _UNREACHABLE.search(reason) and not master.startswith("local"):
        return SparkFailed(
            f"Spark did not start: {master} did not answer ({reason}). Is it up, and can this machine reach it? "
            "Otherwise correct spark.master.",
            "transient_error",
        )
    if _SETTING.search(reason):
        return SparkFailed(f"{because}. Correct spark.master or spark.conf.", "config_error")
    return SparkFailed(f"{because}. The log has the details.", "transient_error")


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
