"""Spark's Java process: how it is launched, and what it prints."""

from __future__ import annotations

import logging
import os
import pwd
import re
import shlex
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]

_logger = logging.getLogger(__name__)

_LINES_KEPT = 200
_ENDED_SECONDS = 2


class Jvm:
    """A JVM of its own process group, so that a signal meant for us does not take Spark away while we still commit."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._said: deque[str] = deque(maxlen=_LINES_KEPT)
        self._listening: threading.Thread | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def launch(self, settings: Mapping[str, str]) -> JavaGateway:
        """Start it with these settings of Spark's and return the way to talk to it. Raises what PySpark raises.

        The settings go by a file that only this user can read: a command line can be read by all, and some of them are
        secrets.
        """
        from pyspark.java_gateway import launch_gateway

        properties = self._scratch / "spark.properties"
        properties.touch(mode=0o600)
        properties.write_text(_properties(settings), encoding="ascii")
        ours, theirs = os.pipe()
        self._listening = threading.Thread(target=self._listen, args=(ours,), name="spark-output", daemon=True)
        self._listening.start()
        submitted = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        arguments = f"--properties-file {shlex.quote(str(properties))} --load-spark-defaults {submitted}"
        launching: dict[str, Any] = {"process_group": 0, "stdout": theirs, "stderr": theirs}
        try:
            os.environ.update(_identity(), PYSPARK_SUBMIT_ARGS=arguments)
            gateway = launch_gateway(None, launching)  # type: ignore[no-untyped-call]
        finally:
            # What was not there before is set, not removed: other threads read the environment meanwhile, and one that
            # walks through it (urllib does, for each client of boto3's) fails at a variable that has gone.
            os.environ["PYSPARK_SUBMIT_ARGS"] = submitted
            os.close(theirs)
        self.process = gateway.proc
        return gateway

    def said(self) -> Sequence[str]:
        """The last lines it printed; all of them once it has ended."""
        if self._listening is not None:
            self._listening.join(_ENDED_SECONDS)
        return [*self._said]

    def _listen(self, descriptor: int) -> None:
        """Keep what it and its workers print from the terminal: for the log, and for whoever asks why it ended."""
        with os.fdopen(descriptor, errors="replace") as lines:
            for line in lines:
                self._said.append(line.rstrip())
                _logger.debug("Spark: %s", line.rstrip())


def unknown_user_options(scratch: Path) -> Sequence[str]:
    """What Java must be told where the system has no name and no home for this user (a container's `runAsUser`)."""
    return () if _is_known() else (f"-Duser.home={scratch}", f"-Duser.name={_SOME_USER}")


_SOME_USER = "airbyte"


def _identity() -> Mapping[str, str]:
    """What Spark and Hadoop must be told of such a user: they ask the system, and take no for an error."""
    return {} if _is_known() else {"SPARK_USER": _SOME_USER, "HADOOP_USER_NAME": _SOME_USER}


def _is_known() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def _properties(settings: Mapping[str, str]) -> str:
    """The settings as Java's properties files have them (java.util.Properties)."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())


_SPECIAL = re.compile(r"[^A-Za-z0-9._/-]")


def _escaped(text: str) -> str:
    def escape(found: re.Match[str]) -> str:
        units = found[0].encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    return _SPECIAL.sub(escape, text)
