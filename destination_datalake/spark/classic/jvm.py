"""Spark's JVM: find Java, launch the JVM, read its output, and stop it."""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from destination_datalake.spark.backend import SparkFailed
from destination_datalake.spark.classic.pyspark_internals import (
    GATEWAY_CLASS,
    GATEWAY_FILE,
    MODULE_OPTIONS,
    WITHOUT_LOGGING,
    connected_gateway,
    launch_gateway,
    spark_jars,
)
from destination_datalake.unforeseen import exhaustion

if TYPE_CHECKING:
    import psutil
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]

_logger = logging.getLogger(__name__)

_MAX_LINES = 200
_OUTPUT_SECONDS = 2
_STOP_SECONDS = 120
"""Maximum time, in seconds, to wait until the JVM exits by itself. During this time, the JVM may still write files."""

KILL_SECONDS = 20

_SPARE_DESCRIPTORS = 8

_UNKNOWN_USER = "airbyte"

_LOST_EXECUTOR = re.compile(r"TaskSchedulerImpl: Lost executor (\S+) on (\S+): (.*?)\.?$")


# --- Java -------------------------------------------------------------------------------------------------------------

MINIMUM_VERSION = 17
"""The oldest version of Java that Spark 4 supports."""

_TIMEOUT_SECONDS = 30


def java_command() -> str | None:
    """Return the command that starts Java: from JAVA_HOME if this variable is set, otherwise from the PATH, or None.

    Spark's scripts use the same command.
    """
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else shutil.which("java")  # noqa: PTH118


def require_java() -> None:
    """Raise SparkFailed if Java is missing, cannot be run, or is too old.

    To determine the version, this function runs Java, which takes a tenth of a second.
    """
    command = java_command()
    remedy = (
        f"Install a Java runtime {MINIMUM_VERSION} or newer and set JAVA_HOME to its folder, or put java on the PATH."
    )
    if command is None:
        raise SparkFailed(f"Spark needs a Java runtime, but no command java was found. {remedy}", "config_error")
    try:
        probe = subprocess.run(
            [command, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if (exhausted := exhaustion(error)) is not None:
            raise SparkFailed(f"Cannot start Java ({command}). {exhausted}") from error
        message = f"Spark needs a Java runtime, but {command} cannot be run. {remedy}"
        raise SparkFailed(message, "config_error") from error
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", probe.stderr + probe.stdout)
    if version is None:
        killed = "Out of Memory Error" if probe.returncode == -signal.SIGKILL else ""
        if (exhausted := exhaustion(None, probe.stderr + probe.stdout + killed)) is not None:
            raise SparkFailed(f"Cannot start Java ({command}). {exhausted}")
        message = f"Spark needs a Java runtime, but {command} does not print its version. {remedy}"
        raise SparkFailed(message, "config_error")
    if int(version[1]) < MINIMUM_VERSION:
        message = f"Spark needs Java {MINIMUM_VERSION} or newer, but {command} is Java {version[1]}. {remedy}"
        raise SparkFailed(message, "config_error")


# --- The JVM ----------------------------------------------------------------------------------------------------------


class Jvm:
    """Spark's JVM, a process in its own process group.

    Signals to the connector's process group therefore do not reach the JVM. Otherwise, such a signal could stop Spark
    during a commit.
    """

    def __init__(self, scratch: Path) -> None:
        """Prepare the JVM, without launching a process.

        `scratch` is a folder for temporary files. The JVM's command line contains the path of this folder, so the path
        also identifies the JVM's process.
        """
        self._scratch = scratch
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._output: int | None = None
        self._reader: threading.Thread | None = None
        # `kill` opens files to list processes, when all other descriptors may be in use. It first closes these spare
        # descriptors.
        self._spare_descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(_SPARE_DESCRIPTORS)]
        self.process: subprocess.Popen[bytes] | None = None
        self.daemon: int | None = None
        """The process ID of the worker daemon, or None if this process has not forked the daemon."""

    def launch(self, memory: str, options: Sequence[str], environment: Mapping[str, str]) -> None:
        """Launch Java directly, without waiting. `connect` waits until the JVM responds. Raises OSError.

        Spark's scripts and launcher would build the same command line, but would start two JVMs and three shells to do
        so. `memory` is the maximum heap size. `options` are further Java options. The JVM gets the environment of this
        process and the variables in `environment`.
        """
        java = [java_command() or "java", f"-Xmx{memory}", *MODULE_OPTIONS, *WITHOUT_LOGGING, *options]
        added = {**environment, **_user_environment(), GATEWAY_FILE: str(self._gateway_file)}
        self._output, write_end = os.pipe()
        try:
            self.process = subprocess.Popen(
                [*java, "-cp", spark_jars(), GATEWAY_CLASS],
                stdin=subprocess.PIPE,  # The JVM exits when its input is closed, even if this process is killed.
                stdout=write_end,
                stderr=write_end,
                env=os.environ | added,
                process_group=0,
            )
        finally:
            os.close(write_end)

    def connect(self) -> JavaGateway:
        """Wait until the launched JVM responds. Return py4j's gateway for calls to the JVM. Raises PySpark's errors."""
        assert self.process is not None
        assert self._output is not None
        # Not in `launch`, because the worker daemon can be forked only while this process has a single thread.
        self._read_output(self._output)
        return connected_gateway(self.process, self._gateway_file)

    def submit(self, properties: Mapping[str, str]) -> JavaGateway:
        """Launch the JVM with Spark's own launcher. Return py4j's gateway for calls to the JVM.

        Passes the properties in a file that only this user can read, because some values are secrets, and all users can
        read command lines. Deletes the file after the launch. Raises PySpark's errors.
        """
        file = self._scratch / "spark.properties"
        file.touch(mode=0o600)
        file.write_text(_properties_file(properties), encoding="ascii")
        read_end, write_end = os.pipe()
        self._read_output(read_end)
        try:
            # Read the output from the beginning: a launch that fails explains itself only there.
            gateway = launch_gateway(file, write_end, _user_environment())
        finally:
            os.close(write_end)
            file.unlink()
        self.process = gateway.proc  # PySpark sets None if another process launched the JVM.
        return gateway

    def output(self) -> Sequence[str]:
        """Return the last 200 output lines of the JVM and its workers.

        Waits for at most two seconds until the output ends. If the JVM is ending, no line is then missing.
        """
        if self._reader is not None:
            self._reader.join(_OUTPUT_SECONDS)
        return [*self._lines]

    def recent_output(self) -> Sequence[str]:
        """Return the last 200 output lines of the JVM and its workers, without waiting for more."""
        return [*self._lines]

    @property
    def exit_code(self) -> int | None:
        """The exit code of the JVM. Negative if a signal ended the JVM.

        None if the JVM is running, if no JVM was launched, or if another process launched the JVM.
        """
        return None if self.process is None else self.process.poll()

    def wait_for_exit(self) -> None:
        """Close the JVM's input, whereupon the JVM exits. Wait for the exit, for at most two minutes."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()  # The JVM exits when its input is closed.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_SECONDS)

    def kill(self) -> None:
        """Kill the JVM and its Python workers, even during the launch. May be called repeatedly."""
        while self._spare_descriptors:
            os.close(self._spare_descriptors.pop())
        try:
            _kill(self._processes())
        finally:
            # Kill the JVM even if listing the processes failed. Workers exit by themselves when their JVM has ended.
            if self.process is not None:
                self.process.kill()

    def _processes(self) -> list[psutil.Process]:
        """Return the processes of the JVM, the worker daemon and the workers.

        The JVM is the child process whose command line contains the path of the scratch folder.
        """
        import psutil

        processes = []
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.pid == self.daemon or any(str(self._scratch) in argument for argument in child.cmdline()):
                    processes += [child, *child.children(recursive=True)]
        return processes

    @property
    def _gateway_file(self) -> Path:
        return self._scratch / "gateway"

    def _read_output(self, descriptor: int) -> None:
        self._reader = threading.Thread(target=self._read, args=(descriptor,), name="spark-output", daemon=True)
        self._reader.start()

    def _read(self, descriptor: int) -> None:
        """Log the output of the JVM and its workers, and keep the last lines for error messages.

        Does not print the output on the terminal.
        """
        with os.fdopen(descriptor, errors="replace") as lines:
            for line in lines:
                self._lines.append(line.rstrip())
                _log(line.rstrip())


def _log(line: str) -> None:
    """Log a line of Spark's output at level DEBUG. Log a lost executor as a warning: it explains a slow sync."""
    lost = _LOST_EXECUTOR.search(line)
    if lost is None:
        _logger.debug("Spark: %s", line)
    else:
        _logger.warning(
            "Spark lost executor %s on %s (%s). Spark reruns the tasks of this executor on other executors.",
            *lost.groups(),
        )


def user_options(scratch: Path) -> Sequence[str]:
    """Return Java options that set a name and a home directory for a user without them, as in a Kubernetes container.

    The option `runAsUser` of a container may select such a user. Returns no options if the user has a name.
    """
    return () if _is_user_known() else (f"-Duser.home={scratch}", f"-Duser.name={_UNKNOWN_USER}")


def unknown_user() -> str | None:
    """Return the name that Spark and Hadoop use if the operating system has no name for this user, otherwise None."""
    return None if _is_user_known() else _UNKNOWN_USER


def _user_environment() -> Mapping[str, str]:
    """Return environment variables that contain a name for a user without a name.

    Without these variables, Spark and Hadoop would fail. Returns no variables if the user has a name.
    """
    return {} if _is_user_known() else {"SPARK_USER": _UNKNOWN_USER, "HADOOP_USER_NAME": _UNKNOWN_USER}


def _is_user_known() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def _kill(processes: Sequence[psutil.Process]) -> None:
    """Kill the processes, and wait for at most KILL_SECONDS until all of them have ended."""
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + KILL_SECONDS
    while any(map(_is_running, processes)) and time.monotonic() < deadline:
        time.sleep(0.01)


def _is_running(process: psutil.Process) -> bool:
    """Return whether the process is running.

    Returns False for a zombie, which has ended, but whose parent has not read the exit code yet.
    """
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _properties_file(properties: Mapping[str, str]) -> str:
    """Return the properties as the content of a Java properties file."""
    return "".join(f"{_escape(name)}={_escape(value)}\n" for name, value in properties.items())


_SPECIAL = re.compile(r"[^A-Za-z0-9._/-]")


def _escape(text: str) -> str:
    def escape(match: re.Match[str]) -> str:
        units = match[0].encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    return _SPECIAL.sub(escape, text)
