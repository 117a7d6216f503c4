"""The judge's environment: `python -m unit_tests.laws.dedup.extension.environment` makes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
PYTHON = ROOT / ".judge" / "bin" / "python"


def main() -> None:
    """Make the environment, or bring it up to date."""
    if not PYTHON.exists():
        _uv("venv", "--quiet", "--python", sys.executable, str(ROOT / ".judge"))
    requirements = Path(__file__).parent / "requirements.txt"
    _uv("pip", "install", "--quiet", "--python", str(PYTHON), "--requirements", str(requirements))


def _uv(*arguments: str) -> None:
    subprocess.run([ROOT / ".uv" / "bin" / "uv", *arguments], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
