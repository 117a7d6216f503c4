"""PyAirbyte with a folder of its own, and the configuration of a lake in it."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration_tests.clients.environments import PYAIRBYTE, SOURCE_FAKER
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.launch import COMMAND

_SECONDS = 500


@dataclass(frozen=True)
class PyAirbyte:
    """A user of PyAirbyte, with a project folder and the configuration of the destination in a file."""

    folder: Path

    @property
    def config(self) -> Path:
        """The file with the destination's configuration."""
        return self.folder / "config.json"

    def sync(self, users: int, strategy: str = "auto") -> None:
        """Read so many users from source-faker, and write all streams to the lake."""
        program = Path(__file__).with_name("sync.py")
        arguments = (str(SOURCE_FAKER), COMMAND, str(self.config), str(users), strategy)
        self._run("python", str(program), *arguments)

    def pyab(self, *arguments: str) -> str:
        """Run PyAirbyte's command line; returns what it printed on stdout."""
        return self._run("pyab", *arguments)

    def _run(self, program: str, *arguments: str) -> str:
        variables = {
            # It asks no registry and tells nobody; what it writes goes into the folder.
            "AIRBYTE_OFFLINE_MODE": "1",
            "DO_NOT_TRACK": "1",
            "AIRBYTE_PROJECT_DIR": str(self.folder),
            "AIRBYTE_LOGGING_ROOT": str(self.folder / "logs"),
            "PATH": os.pathsep.join((str(PYAIRBYTE), os.environ["PATH"])),
        }
        command: Sequence[str] = [str(PYAIRBYTE / program), *arguments]
        run = subprocess.run(
            command,
            cwd=self.folder,
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
        return run.stdout


@pytest.fixture
def pyairbyte(tmp_path: Path, lake: Lake) -> PyAirbyte:
    """PyAirbyte, about to write to the lake."""
    user = PyAirbyte(tmp_path)
    user.config.write_text(json.dumps(lake.config()), encoding="utf-8")
    return user
