"""Run the connector's commands for users, each in a folder of its own."""

import json
import os
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.runs.warm import WarmLaunch


@dataclass(frozen=True)
class Ran:
    """The outcome of a command: exit code, stdout and stderr. `tmp` was its folder for temporary files."""

    exit_code: int
    lines: list[str]
    stderr: str
    tmp: Path


def ran(
    launch: WarmLaunch,
    folder: Path,
    command: str,
    config: Mapping[str, object],
    *arguments: str,
    killed_at: KillPoint | None = None,
    killed_after: float | None = None,
) -> Ran:
    """Run a command with a configuration, and return its outcome.

    Creates a working folder in `folder`. The command is killed at `killed_at`, or after `killed_after` seconds, if set.
    """
    workdir = Path(tempfile.mkdtemp(dir=folder))
    path, tmp, errors = workdir / "config.json", workdir / "tmp", workdir / "stderr"
    tmp.mkdir()
    path.write_text(json.dumps(config))
    launch = launch if killed_at is None else launch.killed_at(killed_at)
    with ExitStack() as stack:
        stderr = stack.enter_context(errors.open("wb"))
        environment = {**os.environ, "TMPDIR": str(tmp)}
        process = stack.enter_context(launch([command, "--config", str(path), *arguments], environment, stderr))
        process.stdin.close()
        if killed_after is not None:
            killer = threading.Timer(killed_after, process.kill)
            stack.callback(killer.cancel)
            killer.start()
        lines = process.stdout.read().decode().splitlines()
        code = process.wait(180)
    return Ran(code, lines, errors.read_text(), tmp)
