"""A user's shell: bash, in a folder of its own, with the commands of the page on its path."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration_tests.documentation.steps import Step

PATIENCE = 180.0
"""Seconds that a page may take."""


class StepFailed(AssertionError):
    """A block of a page that ended with an error, or printed something else than the page says."""


@dataclass(frozen=True)
class Shell:
    """One bash for all blocks of a page, so that a later block finds the variables of an earlier one."""

    folder: Path
    """Where the commands run, and the user's home."""
    path: Path
    """A folder of commands that comes before all others."""
    environment: Mapping[str, str]
    """Variables besides those of every shell. Nothing that reaches AWS is inherited."""

    def follow(self, steps: Sequence[Step]) -> Sequence[str]:
        """Run the blocks in order and return what each printed, on stdout and stderr together.

        Raises StepFailed for the first block that ends with an error, or that prints something else than it should.
        """
        outputs = [self.path / f"output-{number}" for number in range(len(steps))]
        script = self.path / "script.sh"
        script.write_text("".join(map(_block, steps, outputs)))
        process = subprocess.run(
            ["bash", "-euo", "pipefail", str(script)],
            cwd=self.folder,
            env=self._variables(),
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )
        printed = [output.read_text(errors="replace") for output in outputs if output.exists()]
        for step, output in zip(steps, printed, strict=False):
            if not step.explains(output):
                raise StepFailed(f"line {step.line}:\n{step.commands}\nprinted\n{output}\nand not\n{step.printed}")
        if process.returncode:
            step = steps[len(printed) - 1]
            raise StepFailed(f"line {step.line}: exit code {process.returncode}\n{step.commands}\n{printed[-1]}")
        return printed

    def save(self, name: str, text: str) -> None:
        """Write a file into the shell's folder which nobody else may read, as the AWS CLI wants its credentials."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(text)

    def _variables(self) -> Mapping[str, str]:
        inherited = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        path = f"{self.path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"HOME": str(self.folder), "PATH": path, "AWS_PAGER": ""}
        return inherited | own | {"AWS_EC2_METADATA_DISABLED": "true"} | dict(self.environment)


def _block(step: Step, output: Path) -> str:
    return f"exec >{shlex.quote(str(output))} 2>&1\n{step.commands}"
