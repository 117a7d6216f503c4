"""Spark's JVM: its launch, its output, and its end."""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import re
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from destination_datalake.spark.classic.failure import java_command
from destination_datalake.spark.classic.pyspark_internals import (
    GATEWAY_CLASS,
    GATEWAY_FILE,
    MODULE_OPTIONS,
    WITHOUT_LOGGING,
    connected_gateway,
    launch_gateway,
    spark_jars,
)

if TYPE_CHECKING:
    import psutil
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]

_logger = logging.getLogger(__name__)

_LINES_KEPT = 200
_OUTPUT_SECONDS = 2
_STOP_SECONDS = 120
"""How long a JVM may take that still has something to write."""

KILL_SECONDS = 20

_SPARE_DESCRIPTORS = 8

_UNKNOWN_USER = "airbyte"

_LOST_EXECUTOR = re.compile(r"TaskSchedulerImpl: Lost executor (\S+) on (\S+): (.*?)\.?$")


class Jvm:
    """A JVM in a process group of its own, so that a signal to ours does not end Spark while we still commit."""

    def __init__(self, scratch: Path) -> None:
        """Launch nothing yet. `scratch` is a folder that only this JVM's command line names."""
        self._scratch = scratch
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self._output: int | None = None
        self._reader: threading.Thread | None = None
        # Looking for processes opens files, and at the end all other descriptors may be in use.
        self._spare_descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(_SPARE_DESCRIPTORS)]
        self.process: subprocess.Popen[bytes] | None = None
        self.daemon: int | None = None
        """The process id of the worker daemon, if this process has forked it."""

    def launch(self, memory: str, options: Sequence[str], environment: Mapping[str, str]) -> None:
        """Launch Java itself, and return at once: `connect` waits for it.

        Spark's scripts and its launcher would find out the same command line, which takes two JVMs and three shells.
        `environment` is added to this process's. Raises OSError.
        """
        java = [java_command() or "java", f"-Xmx{memory}", *MODULE_OPTIONS, *WITHOUT_LOGGING, *options]
        added = {**environment, **_user_environment(), GATEWAY_FILE: str(self._gateway_file)}
        self._output, write_end = os.pipe()
        try:
            self.process = subprocess.Popen(
                [*java, "-cp", spark_jars(), GATEWAY_CLASS],
                stdin=subprocess.PIPE,  # The JVM ends itself at the end of its input, also when this process is killed.
                stdout=write_end,
                stderr=write_end,
                env=os.environ | added,
                process_group=0,
            )
        finally:
            os.close(write_end)

    def connect(self) -> JavaGateway:
        """Return the gateway to the JVM that was launched, once it answers. Raises what PySpark raises."""
        assert self.process is not None
        assert self._output is not None
        self._read_output(self._output)
        return connected_gateway(self.process, self._gateway_file)

    def submit(self, properties: Mapping[str, str]) -> JavaGateway:
        """Launch it by Spark's own launcher and return the gateway to it. Raises what PySpark raises.

        The properties are passed in a file that only this user can read, and that is deleted once they are: everybody
        can read command lines, and some values are secrets.
        """
        file = self._scratch / "spark.properties"
        file.touch(mode=0o600)
        file.write_text(_properties_file(properties), encoding="ascii")
        read_end, write_end = os.pipe()
        self._read_output(read_end)
        try:
            gateway = launch_gateway(file, write_end, _user_environment())
        finally:
            os.close(write_end)
            file.unlink()
        self.process = gateway.proc  # None if another process has launched it.
        return gateway

    def output(self) -> Sequence[str]:
        """Return the last lines that the JVM and its workers printed; all of them once it has ended."""
        if self._reader is not None:
            self._reader.join(_OUTPUT_SECONDS)
        return [*self._lines]

    def recent_output(self) -> Sequence[str]:
        """Return the last lines that were printed so far."""
        return [*self._lines]

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs, is not launched, or was launched by others."""
        return None if self.process is None else self.process.poll()

    def wait_for_exit(self) -> None:
        """Ask it to end and wait until it has, two minutes at most."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()  # The JVM ends itself at the end of its input.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_SECONDS)

    def kill(self) -> None:
        """Kill it, also while it is being launched, and the Python workers that it started. Can be repeated."""
        while self._spare_descriptors:
            os.close(self._spare_descriptors.pop())
        try:
            _kill(self._processes())
        finally:
            # This needs no descriptor, and workers end when they find their JVM gone.
            if self.process is not None:
                self.process.kill()

    def _processes(self) -> list[psutil.Process]:
        """Return the JVM's process, recognised by its scratch folder, the worker daemon's, and the workers'."""
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
        """Keep what the JVM and its workers print away from the terminal, for the log and for error messages."""
        with os.fdopen(descriptor, errors="replace") as lines:
            for line in lines:
                self._lines.append(line.rstrip())
                _log(line.rstrip())


def _log(line: str) -> None:
    """Log a line of Spark's output, and warn if it reports a lost executor: otherwise a user sees a slow sync only."""
    lost = _LOST_EXECUTOR.search(line)
    if lost is None:
        _logger.debug("Spark: %s", line)
    else:
        _logger.warning(
            "Spark lost executor %s on %s (%s). It runs the executor's tasks again on others.", *lost.groups()
        )


def user_options(scratch: Path) -> Sequence[str]:
    """Return the Java options for a user without a name and a home in the system (a container's `runAsUser`)."""
    return () if _is_user_known() else (f"-Duser.home={scratch}", f"-Duser.name={_UNKNOWN_USER}")


def unknown_user() -> str | None:
    """Return the name that Spark and Hadoop use for a user without a name in the system; None if there is one."""
    return None if _is_user_known() else _UNKNOWN_USER


def _user_environment() -> Mapping[str, str]:
    """Return the variables that Spark and Hadoop need for such a user: otherwise they ask the system, and fail."""
    return {} if _is_user_known() else {"SPARK_USER": _UNKNOWN_USER, "HADOOP_USER_NAME": _UNKNOWN_USER}


def _is_user_known() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def _kill(processes: Sequence[psutil.Process]) -> None:
    """Kill the processes; return when they have ended."""
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + KILL_SECONDS
    while any(map(_is_running, processes)) and time.monotonic() < deadline:
        time.sleep(0.01)


def _is_running(process: psutil.Process) -> bool:
    """Return whether the process runs; a zombie, which only waits for its parent to notice its end, does not."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _properties_file(properties: Mapping[str, str]) -> str:
    """Return the properties in the format of java.util.Properties."""
    return "".join(f"{_escape(name)}={_escape(value)}\n" for name, value in properties.items())


_SPECIAL = re.compile(r"[^A-Za-z0-9._/-]")


def _escape(text: str) -> str:
    def escape(found: re.Match[str]) -> str:
        units = found[0].encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    return _SPECIAL.sub(escape, text)
