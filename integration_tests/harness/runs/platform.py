"""Play the Airbyte platform: run the connector's command line, send messages and signals, and parse stdout strictly."""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from integration_tests.harness.runs.launch import Launch, launch_command
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.running import Running

_PLACE = 'it\'s "a" place '
"""A folder name with spaces and quotes, because users have such folders."""


class Platform:
    """Plays Airbyte. Configurations, catalogs and temporary files are in one folder."""

    def __init__(self, folder: Path, launch: Launch = launch_command) -> None:
        """Create a platform whose runs get separate folders in `folder`, and are started by `launch`."""
        self._folder = folder
        self._launch = launch

    def run(self, *arguments: str) -> Run:
        """Run the connector with these arguments and without input."""
        with self._start(arguments, {}) as running:
            return running.close()

    def spec(self) -> Run:
        """Run the command `spec`."""
        return self.run("spec")

    def check(self, config: Mapping[str, object]) -> Run:
        """Run the command `check`."""
        with self._start(["check"], {"config": config}) as running:
            return running.close()

    def write(self, config: Mapping[str, object], catalog: Mapping[str, object], lines: Iterable[bytes]) -> Run:
        """Run the command `write` with all these lines as input."""
        with self.start(config, catalog) as running:
            running.send(lines)
            return running.close()

    def start(self, config: Mapping[str, object], catalog: Mapping[str, object]) -> Running:
        """Start the command `write`. The caller sends the input. Use the result in a `with` block."""
        return self._start(["write"], {"config": config, "catalog": catalog})

    def _start(self, arguments: Sequence[str], files: Mapping[str, Mapping[str, object]]) -> Running:
        workdir = Path(tempfile.mkdtemp(prefix=_PLACE, dir=self._folder))
        for name, content in files.items():
            path = workdir / f"{name}.json"
            path.write_text(json.dumps(content, ensure_ascii=False))
            arguments = [*arguments, f"--{name}", str(path)]
        return Running(arguments, workdir, _secrets(files.get("config", {})), self._launch)


def _secrets(config: Mapping[str, object]) -> list[str]:
    credentials = config.get("credentials")
    secret = credentials.get("aws_secret_access_key") if isinstance(credentials, Mapping) else None
    return [secret] if isinstance(secret, str) else []
