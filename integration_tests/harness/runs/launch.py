"""Start the connector with arguments, an environment and pipes."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

COMMAND = str(Path(sys.executable).with_name("destination-datalake"))
"""The path of the console script, installed beside the interpreter that runs the tests."""


class Process(Protocol):
    """A process of the connector: the part of `subprocess.Popen` that tests use."""

    @property
    def pid(self) -> int:
        """The process ID, or 0 if the connector runs in this process."""

    @property
    def stdin(self) -> IO[bytes] | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def returncode(self) -> int | Any: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class Launch(Protocol):
    """A function that starts the connector with arguments, an environment and a stderr. Stdin and stdout are pipes."""

    def __call__(self, arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[bytes]) -> Process: ...


def with_variables(launch: Launch, **variables: str) -> Launch:
    """Return a launch that also sets these environment variables."""

    def launch_with(arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[bytes]) -> Process:
        return launch(arguments, {**environment, **variables}, stderr)

    return launch_with


def launch_command(arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[bytes]) -> Process:
    """Start the console script in a new process, like the entry point of the image."""
    return subprocess.Popen(
        [COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=environment
    )
