"""The Java that Spark would run on, and whether it can. Imports nothing of Spark: `check` uses it too."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass

from destination_datalake.errors import Failure, FailureType
from destination_datalake.unforeseen import exhaustion

MINIMUM_VERSION = 17
"""The oldest Java that Spark 4 runs on."""

_TIMEOUT_SECONDS = 30


class JavaUnusable(Exception):
    """There is no Java that Spark could run on. The text says what the user can do."""

    def __init__(self, message: str, type: FailureType = "config_error") -> None:
        super().__init__(message)
        self.failure = Failure(message, message, type)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: the command, and its version as one number (17, 21; 8 for 1.8)."""

    command: str
    version: int


def find_java() -> Java:
    """Return the Java that Spark's scripts would use: JAVA_HOME's, else the one on the PATH.

    Runs it for its version, which takes a tenth of a second. Raises JavaUnusable if there is none, it cannot be run, or
    it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else shutil.which("java")  # noqa: PTH118
    remedy = f"Install a Java runtime {MINIMUM_VERSION} or newer and set JAVA_HOME to it, or put java on the PATH."
    if command is None:
        raise JavaUnusable(f"Spark needs a Java runtime, and there is none. {remedy}")
    try:
        asked = subprocess.run(
            [command, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if (exhausted := exhaustion(error)) is not None:
            raise JavaUnusable(f"Java cannot be started ({command}). {exhausted}", "transient_error") from error
        raise JavaUnusable(f"Spark needs a Java runtime, and {command} cannot be run. {remedy}") from error
    found = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", asked.stderr + asked.stdout)
    if found is None:
        killed = "Out of Memory Error" if asked.returncode == -signal.SIGKILL else ""
        if (exhausted := exhaustion(None, asked.stderr + asked.stdout + killed)) is not None:
            raise JavaUnusable(f"Java cannot be started ({command}). {exhausted}", "transient_error")
        raise JavaUnusable(f"Spark needs a Java runtime, and {command} does not say its version. {remedy}")
    version = int(found[1])
    if version < MINIMUM_VERSION:
        raise JavaUnusable(f"Spark needs Java {MINIMUM_VERSION} or newer, and {command} is Java {version}. {remedy}")
    return Java(command, version)
