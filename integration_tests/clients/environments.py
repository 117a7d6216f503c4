"""PyAirbyte, source-faker and orchestrators as users install them.

`python -m integration_tests.clients.environments` does it.

Each has an environment of its own, as their requirements contradict each other's and the connector's.
"""

import os
import subprocess
import sys
from pathlib import Path

from unit_tests.repository.files import ROOT

HOME = ROOT / ".clients"
PYAIRBYTE = HOME / "pyairbyte" / "bin"
SOURCE_FAKER = HOME / "source-faker" / "bin" / "source-faker"


def make_all() -> None:
    """Make the environments, or bring them up to the versions that the requirements files here pin."""
    for name in ("pyairbyte", "source-faker", "airflow", "dagster", "dbt"):
        make(HOME / name, Path(__file__).with_name(f"{name}.txt"))


def make(environment: Path, requirements: Path) -> Path:
    """Make one environment, or bring it up to the versions that a file pins. Returns its Python."""
    python = environment / "bin" / "python"
    if not python.exists():
        _uv("venv", "--python", sys.executable, str(environment))
    _uv("pip", "sync", "--python", str(python), str(requirements))
    return python


def _uv(*arguments: str) -> None:
    subprocess.run([ROOT / ".uv" / "bin" / "uv", *arguments, "--quiet"], cwd=ROOT, env=os.environ, check=True)


if __name__ == "__main__":
    make_all()
