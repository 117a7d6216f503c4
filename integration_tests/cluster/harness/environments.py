"""What hosts of a cluster have installed: `python -m integration_tests.cluster.harness.environments` makes it.

Hosts see neither the connector's source nor the environment that the tests run in. They have

- `connector`: what a user installs on hosts: the connector, built from the source as it is, with all that it needs;
- `spark`: what a cluster has whose users bring their own code: PySpark, and what its Python workers import for Arrow;
- `spark-4.0`: the same of the oldest Spark whose Connect servers are supported.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyspark

ROOT = Path(__file__).resolve().parents[3]
HOME = ROOT / ".cluster"

CONNECTOR = HOME / "connector"
SPARK = HOME / "spark"
OLDEST_SPARK = HOME / "spark-4.0"

_ARROW = ("pandas<3", f"pyarrow=={pyarrow.__version__}")
_CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")


def spark_home(environment: Path) -> Path:
    """Return the Spark that PySpark's wheel brings: SPARK_HOME."""
    (home,) = environment.glob("lib/python3.*/site-packages/pyspark")
    return home


def python_of(environment: Path) -> str:
    """Return the path of an environment's interpreter."""
    return str(environment / "bin" / "python")


def make_all() -> None:
    """Make the environments, or bring them up to date. uv takes from its cache what the tests' own environment has."""
    _uv("sync", "--frozen", "--quiet", "--no-dev", "--no-editable", "--reinstall-package", "destination-datalake",
        "--python", sys.executable, UV_PROJECT_ENVIRONMENT=str(CONNECTOR))  # fmt: skip
    for environment, version in ((SPARK, pyspark.__version__), (OLDEST_SPARK, "4.0.*")):
        if not (environment / "bin" / "python").exists():
            _uv("venv", "--quiet", "--python", sys.executable, str(environment))
        for work_folder in environment.glob("lib/*/site-packages/pyspark/work"):
            # Where the executors of a Connect server of `local-cluster` unpack archives: gigabytes in each run.
            shutil.rmtree(work_folder)
        _uv("pip", "install", "--quiet", "--python", python_of(environment), f"pyspark=={version}", *_ARROW, *_CONNECT)


def _uv(*arguments: str, **variables: str) -> None:
    subprocess.run([ROOT / ".uv" / "bin" / "uv", *arguments], cwd=ROOT, env=os.environ | variables, check=True)


if __name__ == "__main__":
    make_all()
