"""The command `delete-rows`."""

import json
import os
import tempfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.runs.warm import WarmLaunch


@dataclass(frozen=True)
class Deleted:
    """What a run of the command left to see. `report` is empty if it wrote none."""

    exit_code: int
    lines: list[str]
    stderr: str
    report: dict[str, Any]

    def place(self, name: str) -> dict[str, Any]:
        """Return what the report says of a place."""
        found: dict[str, Any]
        [found] = [each for each in self.report["places"] if each["place"] == name]
        return found


@dataclass(frozen=True)
class Deletions:
    """Runs the command, each time in a folder of its own below `folder`."""

    launch: WarmLaunch
    folder: Path

    def run(
        self,
        config: Mapping[str, object],
        ids: Iterable[object],
        *arguments: str,
        column: str = "user_id",
        target: tuple[str, ...] = ("--all",),
        killed_at: KillPoint | None = None,
        killed_after: float | None = None,
    ) -> Deleted:
        """Run it to its end, or to the point or for the seconds at which it is killed."""
        workdir = Path(tempfile.mkdtemp(dir=self.folder))
        path, file, report, tmp = (workdir / name for name in ("config.json", "ids.txt", "report.json", "tmp"))
        tmp.mkdir()
        path.write_text(json.dumps(config))
        file.write_text("".join(f"{each}\n" for each in ids))
        launch = self.launch if killed_at is None else self.launch.killed_at(killed_at)
        command = ["delete-rows", "--config", str(path), *target, "--column", column, "--ids-file", str(file)]
        command += ["--report", str(report), *arguments]
        environment = {**os.environ, "TMPDIR": str(tmp)}
        with ExitStack() as stack:
            stderr = stack.enter_context((workdir / "stderr").open("wb"))
            process = stack.enter_context(launch(command, environment, stderr))
            process.stdin.close()
            if killed_after is not None:
                killer = threading.Timer(killed_after, process.kill)
                stack.callback(killer.cancel)
                killer.start()
            lines = process.stdout.read().decode().splitlines()
            code = process.wait(180)
        said = json.loads(report.read_bytes()) if report.exists() else {}
        return Deleted(code, lines, (workdir / "stderr").read_text(), said)
