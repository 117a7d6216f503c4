"""The command `delete-rows`."""

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration_tests.harness.runs.commands import ran
from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.runs.warm import WarmLaunch


@dataclass(frozen=True)
class Deleted:
    """What a run of the command left to see. `report` is empty if it wrote none, or to another file."""

    exit_code: int
    lines: list[str]
    stderr: str
    report: dict[str, Any]

    def place(self, name: str) -> dict[str, Any]:
        """Return what the report says of a place."""
        place: dict[str, Any]
        [place] = [entry for entry in self.report["places"] if entry["place"] == name]
        return place


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
        file, report = workdir / "ids.txt", workdir / "report.json"
        file.write_text("".join(f"{id_}\n" for id_ in ids))
        command = [*target, "--column", column, "--ids-file", str(file), *arguments]
        if "--report" not in (*target, *arguments):
            command += ["--report", str(report)]
        done = ran(
            self.launch, workdir, "delete-rows", config, *command, killed_at=killed_at, killed_after=killed_after
        )
        document = json.loads(report.read_bytes()) if report.exists() else {}
        return Deleted(done.exit_code, done.lines, done.stderr, document)
