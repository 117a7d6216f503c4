"""A page's commands, and a user's shell that runs them: bash, in a folder of its own, with its commands on its path.

A page that is executed has its commands in blocks of `sh`. What a block prints stands in the next block, if that is one
of `text` or `json`; there `…` stands for any text. Other blocks are for reading only.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
_PRINTED = ("text", "json")


@dataclass(frozen=True)
class Step:
    """One block of commands."""

    line: int
    """Where the block stands on its page, from 1."""
    commands: str
    printed: str | None = None
    """What the page says that the commands print; None if it says nothing."""

    def explains(self, output: str) -> bool:
        """Tell whether this is what the page says, white space at the ends of lines apart."""
        if self.printed is None:
            return True
        pattern = ".*?".join(map(re.escape, _trimmed(self.printed).split("…")))
        return re.fullmatch(pattern, _trimmed(output), re.DOTALL) is not None


def steps(page: str) -> Sequence[Step]:
    """Return the blocks of commands in a page's text, in order."""
    listed: list[Step] = []
    follows = False
    for block in _BLOCK.finditer(page):
        if block["language"] == "sh":
            listed.append(Step(page.count("\n", 0, block.start()) + 1, block["body"]))
        elif follows and block["language"] in _PRINTED:
            listed[-1] = replace(listed[-1], printed=block["body"])
        follows = block["language"] == "sh"
    return listed


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


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
