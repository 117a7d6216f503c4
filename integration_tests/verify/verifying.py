"""The command `verify`, run on a lake."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration_tests.harness.runs.commands import ran
from integration_tests.harness.runs.warm import WarmLaunch


@dataclass(frozen=True)
class Verifying:
    """Runs the command, each time in a folder of its own below `folder`."""

    launch: WarmLaunch
    folder: Path

    def run(self, config: Mapping[str, object], *arguments: str) -> tuple[int, str, str]:
        """Run it to its end; return the exit code, standard output, standard error."""
        done = ran(self.launch, self.folder, "verify", config, *arguments)
        assert [*done.tmp.iterdir()] == [], "copies of files are left"
        return done.exit_code, "\n".join(done.lines), done.stderr

    def problems(self, config: Mapping[str, object], *arguments: str) -> list[dict[str, Any]]:
        """Return what it finds, of all tables unless arguments say which. The exit code tells whether it is nothing."""
        code, out, stderr = self.run(config, "--json", *(arguments or ("--all",)))
        assert out, stderr
        problems = [problem for table in json.loads(out)["tables"] for problem in table["problems"]]
        assert code == (1 if problems else 0), (problems, stderr)
        return problems
