"""Running the connector's command line as Airbyte does: a process, a file on its stdin, JSON Lines on its stdout."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STOPS_WITHIN = 60
"""Seconds that the connector has to end after SIGTERM."""


@dataclass(frozen=True)
class Answer:
    """What one run of the connector said."""

    command: str
    exit_code: int
    messages: Sequence[Mapping[str, Any]]
    seconds: float

    def messages_of(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the messages of one type, in order."""
        return [message for message in self.messages if message["type"] == kind]

    def complaints(self) -> list[str]:
        """Return what a user must know: errors, and log messages above INFO."""
        errors = [
            message["trace"]["error"]["message"] for message in self.messages_of("TRACE") if "error" in message["trace"]
        ]
        logs = [message["log"] for message in self.messages_of("LOG")]
        return errors + [log["message"] for log in logs if log["level"] in ("WARN", "ERROR", "FATAL")]


def connector() -> str:
    """Return the path of the console script."""
    return str(Path(sys.executable).with_name("destination-datalake"))


def run_connector(folder: Path, *arguments: str, stdin: Path | None = None) -> Answer:
    """Run `destination-datalake` with these arguments and wait for its end.

    Its temporary files go into the folder. Its stderr goes to the terminal if there is one, where it shows progress,
    and otherwise to the file `stderr` in the folder. When the wait is interrupted the connector is stopped first.
    """
    started = time.monotonic()
    command = [connector(), *arguments]
    with (
        Path(stdin or os.devnull).open("rb") as messages,
        (folder / "stderr").open("ab") as log,
        subprocess.Popen(
            command,
            stdin=messages,
            stdout=subprocess.PIPE,
            stderr=None if sys.stderr.isatty() else log,
            env=os.environ | {"TMPDIR": str(folder)},
            # A Ctrl-C would otherwise reach the connector's JVM before the connector.
            start_new_session=True,
        ) as process,
    ):
        try:
            stdout, _ = process.communicate()
        except BaseException:
            _stop(process)
            raise
    replies = [json.loads(line) for line in stdout.splitlines()]
    return Answer(arguments[0], process.returncode, replies, time.monotonic() - started)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.communicate(timeout=_STOPS_WITHIN)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
