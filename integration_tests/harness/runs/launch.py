"""How the connector is started: a command line, an environment, and pipes."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

COMMAND = str(Path(sys.executable).with_name("destination-datalake"))
"""The console script, installed beside the interpreter that runs the tests."""


class Process(Protocol):
    """A connector's process: what the platform needs of `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Its id; 0 if it is in this process."""

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
    """A way to start the connector with these arguments, this environment and this stderr, and pipes for the rest."""

    def __call__(self, arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[bytes]) -> Process: ...


def with_variables(launch: Launch, **variables: str) -> Launch:
    """Return the same way to start the connector, with these variables in its environment too."""

    def launch_with(arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[bytes]) -> Process:
        return launch(arguments, {**environment, **variables}, stderr)

    return launch_with


def launch_command(arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[bytes]) -> Process:
    """Run the console script, as the image's entry point does."""
    return subprocess.Popen(
        [COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=environment
    )
