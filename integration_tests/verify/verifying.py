"""The command `verify`, run on a lake."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration_tests.harness.runs.warm import WarmLaunch


@dataclass(frozen=True)
class Verifying:
    """Runs the command, each time in a folder of its own below `folder`."""

    launch: WarmLaunch
    folder: Path

    def run(self, config: Mapping[str, object], *arguments: str) -> tuple[int, str, str]:
        """Run it to its end; return the exit code, standard output, standard error."""
        workdir = Path(tempfile.mkdtemp(dir=self.folder))
        path, tmp = workdir / "config.json", workdir / "tmp"
        tmp.mkdir()
        path.write_text(json.dumps(config))
        command = ["verify", "--config", str(path), *arguments]
        environment = {**os.environ, "TMPDIR": str(tmp)}
        with (workdir / "stderr").open("wb") as stderr, self.launch(command, environment, stderr) as process:
            process.stdin.close()
            out = process.stdout.read().decode()
            code = process.wait(180)
        assert [*tmp.iterdir()] == [], "copies of files are left"
        return code, out, (workdir / "stderr").read_text()

    def problems(self, config: Mapping[str, object], *arguments: str) -> list[dict[str, Any]]:
        """Return what it finds, of all tables unless arguments say which. The exit code tells whether it is nothing."""
        code, out, stderr = self.run(config, "--json", *(arguments or ("--all",)))
        assert out, stderr
        found = [problem for table in json.loads(out)["tables"] for problem in table["problems"]]
        assert code == (1 if found else 0), (found, stderr)
        return found
