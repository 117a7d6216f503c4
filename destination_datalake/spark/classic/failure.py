"""Why a Spark with a driver of our own cannot run: its Java, what the JVM printed, what its cluster said."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence

from destination_datalake.spark.backend import SparkFailed
from destination_datalake.spark.classic.pyspark_internals import java_exception_text
from destination_datalake.unforeseen import exhaustion

PATIENCE_PROPERTY = "spark.scheduler.maxRegisteredResourcesWaitingTime"
"""Spark's own limit of waiting for executors before it begins with tasks.
https://spark.apache.org/docs/latest/configuration.html#scheduling
"""

MINIMUM_VERSION = 17
"""The oldest Java that Spark 4 runs on."""

_TIMEOUT_SECONDS = 30


def java_command() -> str | None:
    """Return the command that Spark's scripts would run: JAVA_HOME's java, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else shutil.which("java")  # noqa: PTH118


def require_java() -> None:
    """Raise SparkFailed if the Java that Spark's scripts would run is missing, cannot be run, or is too old.

    Runs it for its version, which takes a tenth of a second.
    """
    command = java_command()
    remedy = f"Install a Java runtime {MINIMUM_VERSION} or newer and set JAVA_HOME to it, or put java on the PATH."
    if command is None:
        raise SparkFailed(f"Spark needs a Java runtime, and there is none. {remedy}", "config_error")
    try:
        asked = subprocess.run(
            [command, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if (exhausted := exhaustion(error)) is not None:
            raise SparkFailed(f"Java cannot be started ({command}). {exhausted}") from error
        message = f"Spark needs a Java runtime, and {command} cannot be run. {remedy}"
        raise SparkFailed(message, "config_error") from error
    found = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", asked.stderr + asked.stdout)
    if found is None:
        killed = "Out of Memory Error" if asked.returncode == -signal.SIGKILL else ""
        if (exhausted := exhaustion(None, asked.stderr + asked.stdout + killed)) is not None:
            raise SparkFailed(f"Java cannot be started ({command}). {exhausted}")
        message = f"Spark needs a Java runtime, and {command} does not say its version. {remedy}"
        raise SparkFailed(message, "config_error")
    if int(found[1]) < MINIMUM_VERSION:
        message = f"Spark needs Java {MINIMUM_VERSION} or newer, and {command} is Java {found[1]}. {remedy}"
        raise SparkFailed(message, "config_error")


def start_failure(error: BaseException, output: Sequence[str], master: str) -> SparkFailed:
    """Return why Spark did not start on `master`; `error` is what PySpark raised, `output` what the JVM printed."""
    reason = _reason(error, output)
    because = f"Spark did not start: {reason}"
    if (exhausted := exhaustion(error, "\n".join([reason, *output]))) is not None:
        return SparkFailed(f"{because}. {exhausted}")
    try:
        require_java()
    except SparkFailed as unusable:
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


def no_executor(properties: Mapping[str, str], seconds: float) -> SparkFailed:
    """Return the failure of an application, with these properties, that has had no executor for `seconds`."""
    cores = properties.get("spark.executor.cores")
    at_most = properties.get("spark.cores.max")
    asked = "".join(
        (
            f"executors with {properties.get('spark.executor.memory', '1g')} of memory",
            f" and {cores} cores" if cores else "",
            f", {at_most} cores in all" if at_most else "",
        )
    )
    return SparkFailed(
        f"{properties['spark.master']} has had no executor for this sync for {seconds:.0f} s; asked for are {asked}. "
        "Is so much free there, and are its workers up? Otherwise ask for less in spark.conf (spark.executor.memory, "
        f"spark.executor.cores, spark.cores.max), or allow more time with {PATIENCE_PROPERTY}."
    )


def executors_end(properties: Mapping[str, str], output: Sequence[str]) -> SparkFailed | None:
    """Return the failure of executors that end at once, if the JVM's output reports the end of one; else None."""
    reason = _last(_EXECUTOR_ENDED, output)
    if reason is None:
        return None
    driver = f"{properties.get('spark.driver.host', 'its host name')}:{properties.get('spark.driver.port', 'any port')}"
    return SparkFailed(
        f"Executors that {properties['spark.master']} starts for this sync end at once (the last: {reason}). Either "
        f"they do not reach this driver, at {driver}: set spark.driver.host in spark.conf to an address of this "
        "machine that they reach, and spark.driver.port and spark.driver.blockManager.port to ports that firewalls let "
        "pass. Or they cannot run: their logs on the cluster tell.",
        "config_error",
    )


def application_ended(properties: Mapping[str, str], output: Sequence[str]) -> SparkFailed | None:
    """Return why the cluster has ended the application, if the JVM's output says that it has."""
    reason = _last(_APPLICATION_ENDED, output)
    if reason is None:
        return None
    if "unresponsive" in reason:
        return SparkFailed(
            f"{properties['spark.master']} did not answer ({reason.rstrip('.')}). Is it up, and can this machine reach "
            "it? Otherwise correct spark.master."
        )
    executor = _last(_EXECUTOR_ENDED, output)
    last = "" if executor is None else f"; the last executor to end: {executor}"
    return SparkFailed(
        f"{properties['spark.master']} has ended this sync's application ({reason}{last}). The sync can be run again "
        "and continues from its last state."
    )


_EXECUTOR_ENDED = re.compile(r"Executor updated: \S+ is now ((?:EXITED|FAILED|LOST)\b.*)")
_APPLICATION_ENDED = re.compile(r"Application has been killed\. Reason: (.*)")


def _last(pattern: re.Pattern[str], output: Sequence[str]) -> str | None:
    return next((found[1].strip() for line in reversed(output) if (found := pattern.search(line))), None)
